//! A server behind nginx with the block that is documented: `docs/proxies.md`, "nginx".

use futures_util::StreamExt as _;
use reqwest::{Client, RequestBuilder, Response};
use serde_json::json;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::Host;
use support::sandbox::repository;
use support::server::Server;
use support::{PATIENCE, until};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use toolhold_needs::{Need, leave_out};

/// The public name of the documented block.
const NAME: &str = "tools.example.com";

/// The block with other addresses and files.
fn documented(listen: SocketAddr, server: &Server) -> String {
    let page = std::fs::read_to_string(repository().join("docs/proxies.md")).unwrap();
    let (_, block) = page.split_once("```nginx\n").expect("a block");
    let (block, _) = block.split_once("```").expect("an end");
    assert!(block.contains(NAME), "{block}");
    let certificate = repository().join("tests/fixtures/tls/peer");
    let certificate = certificate.display();
    [
        ("listen 443 ssl", format!("listen {listen} ssl")),
        ("http://127.0.0.1:8700", server.address().to_owned()),
        ("/etc/ssl/tools.pem", format!("{certificate}.crt")),
        ("/etc/ssl/tools.key", format!("{certificate}.key")),
    ]
    .into_iter()
    .fold(block.to_owned(), |block, (documented, here)| {
        assert!(block.contains(documented), "{documented}: {block}");
        block.replace(documented, &here)
    })
}

/// nginx in front of a server, and a client of it.
struct Proxy {
    nginx: Child,
    address: SocketAddr,
    client: Client,
    runtime: Runtime,
    _folder: TempDir,
}

impl Proxy {
    /// `None` where nginx is not installed.
    fn start(server: &Server) -> Option<Self> {
        let version = Command::new("nginx").arg("-v").output();
        if !version.is_ok_and(|it| it.status.success()) {
            leave_out(
                Need::Nginx,
                "nginx is not installed, so nobody tries its documented block",
            );
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // Free a moment before nginx takes it.
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        let block = documented(address, server);
        let config = format!(
            "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n\
             access_log off;\nclient_body_temp_path body;\nproxy_temp_path proxied;\nfastcgi_temp_path fastcgi;\n\
             uwsgi_temp_path uwsgi;\nscgi_temp_path scgi;\n{block}}}\n"
        );
        std::fs::write(folder.path().join("nginx.conf"), config).unwrap();
        drop(free);
        let mut nginx = Command::new("nginx")
            .args(["-e", "stderr", "-c", "nginx.conf", "-p"])
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        until("nginx", || {
            let ended = nginx.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}");
            TcpStream::connect(address).ok()
        });
        let client = Client::builder()
            .no_proxy()
            .http1_only()
            .tls_danger_accept_invalid_certs(true)
            .resolve(NAME, address)
            .timeout(PATIENCE);
        let runtime = Builder::new_current_thread().enable_all().build();
        Some(Self {
            nginx,
            address,
            client: client.build().unwrap(),
            runtime: runtime.unwrap(),
            _folder: folder,
        })
    }

    fn url(&self, path: &str) -> String {
        format!("https://{NAME}:{}{path}", self.address.port())
    }

    fn answer(&self, request: RequestBuilder) -> Response {
        // `send` itself wants the runtime, for its timeout.
        self.runtime
            .block_on(async { request.send().await })
            .unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.nginx.kill();
        let _ = self.nginx.wait();
    }
}

#[test]
fn nginx_as_documented_passes_events_on_at_once_and_keeps_the_metrics() {
    let scenario = Scenario::new([Reply::never()]).in_order(ReplyOrder::Repeat);
    let endpoint = Endpoint::start(scenario);
    let host = Host::new();
    host.ship("calculator")
        .write("toolhold.toml", "[serve]\nkeys = \"always\"\n");
    let created = host.run(&["keys", "create", "proxied", "--scopes", "admin"]);
    let key = created.stdout.trim();
    let url = endpoint.base_url();
    let mut server = Server::start(&host, &["--base-url", &url, "--model", "m"]);
    server.use_key(key);
    let Some(proxy) = Proxy::start(&server) else {
        return;
    };
    let get = |path: &str| proxy.client.get(proxy.url(path));
    assert_eq!(proxy.answer(get("/v1/models")).status(), 401);
    let models = proxy.answer(get("/v1/models").bearer_auth(key));
    assert_eq!(models.status(), 200);
    assert_eq!(server.get("/metrics").status, 200);
    for path in ["/metrics", "/%6detrics", "//metrics"] {
        let refused = proxy.answer(get(path).bearer_auth(key));
        assert_eq!(refused.status(), 403, "{path}");
    }

    // The model says nothing, so a proxy that collects events gives out none.
    let task = json!({"messages": [{"role": "user", "content": "t"}], "stream": true});
    let task = proxy
        .client
        .post(proxy.url("/v1/agent"))
        .bearer_auth(key)
        .header("content-type", "application/json")
        .body(task.to_string());
    let mut events = proxy.answer(task).bytes_stream();
    let first = proxy.runtime.block_on(events.next());
    let first = first.expect("an event").unwrap();
    assert!(first.starts_with(b"event: run\n"), "{first:?}");

    let runs = server.get("/v1/runs").good();
    let run = runs["runs"][0]["id"].as_str().expect("an id");
    let socket = get(&format!("/v1/runs/{run}/socket"))
        .bearer_auth(key)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
    assert_eq!(proxy.answer(socket).status(), 101);
}
