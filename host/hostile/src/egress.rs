//! Rows 13 and 14: attempts to reach hosts that were not granted.

use crate::attack::{Attack, Company};
use crate::fault::{AttackFailure, ensure};
use crate::fetcher::{FetcherGrants, ensure_refused, get, request};
use crate::lab::{Arena, Lab, kind};
use crate::web::{Answers, AttackServer, HERE, METADATA, grant};
use serde_json::json;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Stdio;
use tokio::process::Command;
use toolhold_policy::HttpGrant;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 13,
        name: "lookup_by_a_request",
        attack: "names in HTTP requests, without grant or beside it",
        must: "denied before any lookup",
        company: Company::Others,
        tries: |lab| Box::pin(lookup_by_a_request(lab)),
    },
    Attack {
        row: 14,
        name: "spellings_of_forbidden_addresses",
        attack: "64 spellings of this machine, its network, metadata",
        must: "0 escapes; cannot be granted either",
        company: Company::Others,
        tries: |lab| Box::pin(spellings_of_forbidden_addresses(lab)),
    },
    Attack {
        row: 14,
        name: "names_that_lead_inside",
        attack: "names with forbidden addresses; one that rebinds",
        must: "0 escapes; asked once for each request",
        company: Company::Others,
        tries: |lab| Box::pin(names_that_lead_inside(lab)),
    },
    Attack {
        row: 14,
        name: "redirects_that_lead_inside",
        attack: "chains of redirects to metadata and loopback",
        must: "0 escapes; every hop checked",
        company: Company::Others,
        tries: |lab| Box::pin(redirects_that_lead_inside(lab)),
    },
    Attack {
        row: 14,
        name: "smuggled_requests",
        attack: "CRLF in headers and URLs, duplicate Host, framing",
        must: "refused; nothing arrives",
        company: Company::Others,
        tries: |lab| Box::pin(smuggled_requests(lab)),
    },
    Attack {
        row: 14,
        name: "proxy_variables",
        attack: "this row again, by a host with proxy variables set",
        must: "the proxy never hears of it",
        company: Company::Others,
        tries: |lab| Box::pin(proxy_variables(lab)),
    },
];

/// In a public range but unassigned, so that no real host receives packets.
const UNASSIGNED: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2d00, 0, 0, 0, 0, 0, 0, 1));

async fn lookup_by_a_request(lab: &Lab) -> Result<String, AttackFailure> {
    let web = AttackServer::start().await?;
    let answers = Answers::new(&[&[HERE]]);
    let only = grant(json!({"origin": "http://granted.example.com", "path_prefix": "/v1"}))?;
    let mut tried = 0;
    for grants in [vec![], vec![only]] {
        let given = FetcherGrants::http(grants).resolved_by(&answers);
        let arena = given.fetcher(lab, |l| l.timeout_ms = 2_000).await?;
        let port = web.port();
        for url in [
            format!("http://secret-in-a-name.example.com:{port}/"),
            format!("http://localhost:{port}/"),
            "http://granted.example.com.evil.example.com/v1".into(),
            "http://granted.example.com/v2".into(),
            "http://granted.example.com:81/v1".into(),
            "https://granted.example.com/v1".into(),
            "http://a.granted.example.com/v1".into(),
            web.url("/"),
        ] {
            ensure_refused(&get(&arena, &url).await, &url, "HttpRequestDenied")?;
            tried += 1;
        }
        arena.unharmed().await?;
    }
    ensure(answers.asked() == 0, || {
        format!("{} names were looked up", answers.asked())
    })?;
    nothing_arrived(&[&web])?;
    Ok(format!("{tried} denied, 0 lookups"))
}

/// Hosts that mean this machine, its network, or the cloud's metadata service.
const FORBIDDEN: [&str; 64] = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0x7f.1",
    "0x7F.0x0.0x0.0x1",
    "0177.0.0.1",
    "0177.1",
    "017700000001",
    "127.0.0.1.",
    "127%2e0%2e0%2e1",
    "%31%32%37.0.0.1",
    "１２７.0.0.1",
    "127。0。0。1",
    "①②⑦.0.0.1",
    "0",
    "0.0.0.0",
    "0x0",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "a.localhost",
    "ｌｏｃａｌｈｏｓｔ",
    "[::1]",
    "[::]",
    "[0:0:0:0:0:0:0:1]",
    "[::0001]",
    "[::127.0.0.1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "[fe80::1]",
    "[fe80::1%25lo]",
    "[fe80::5efe:127.0.0.1]",
    "[fec0::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[ff02::1]",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0xA9.254.0251.254",
    "169.254.43518",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "100.100.100.200",
    "168.63.129.16",
    "10.0.0.1",
    "10.1",
    "0xa000001",
    "172.16.0.1",
    "192.168.0.1",
    "192.168.257",
    "100.64.0.1",
    "198.18.0.1",
    "224.0.0.1",
    "255.255.255.255",
];

async fn spellings_of_forbidden_addresses(lab: &Lab) -> Result<String, AttackFailure> {
    let web = AttackServer::start().await?;
    let port = web.port();
    // The widest possible grant: any name under a domain.
    let wide = grant(json!({"origin": format!("http://*.example.com:{port}")}))?;
    let arena = FetcherGrants::http([wide])
        .fetcher(lab, |l| l.timeout_ms = 2_000)
        .await?;
    for host in FORBIDDEN {
        let origin = format!("http://{host}:{port}");
        ensure_refused(&get(&arena, &format!("{origin}/")).await, host, "")?;
        // An operator cannot grant it by mistake either: private addresses must be granted
        // explicitly.
        let granted = serde_json::from_value::<HttpGrant>(json!({ "origin": origin }));
        ensure(granted.is_err(), || format!("{host} can be granted"))?;
    }
    nothing_arrived(&[&web])?;
    arena.unharmed().await?;
    Ok(format!("{} spellings refused, 0 escapes", FORBIDDEN.len()))
}

async fn names_that_lead_inside(lab: &Lab) -> Result<String, AttackFailure> {
    let web = AttackServer::start().await?;
    let port = web.port();
    let url = format!("http://a.example.com:{port}/");
    let public = grant(json!({"origin": format!("http://*.example.com:{port}")}))?;
    let v6 = |s: [u16; 8]| IpAddr::V6(Ipv6Addr::from(s));
    let inside = [
        vec![HERE],
        vec![METADATA],
        vec![IpAddr::V6(Ipv6Addr::LOCALHOST)],
        vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))],
        vec![v6([0, 0, 0, 0, 0, 0xffff, 0x7f00, 1])],
        vec![v6([0x64, 0xff9b, 0, 0, 0, 0, 0x7f00, 1])],
        // One that may be reached, and one that may not.
        vec![UNASSIGNED, HERE],
    ];
    for addresses in &inside {
        let answers = Answers::new(&[addresses]);
        let given = FetcherGrants::http([public.clone()]).resolved_by(&answers);
        let arena = given.fetcher(lab, |l| l.timeout_ms = 2_000).await?;
        let what = format!("a name of {addresses:?}");
        ensure_refused(&get(&arena, &url).await, &what, "DestinationIpProhibited")?;
    }
    // The first lookup gives a harmless address, the next one this machine.
    let answers = Answers::new(&[&[UNASSIGNED], &[HERE]]);
    let given = FetcherGrants::http([public]).resolved_by(&answers);
    let arena = given.fetcher(lab, |l| l.http_timeout_ms = 500).await?;
    let first = get(&arena, &url).await;
    ensure(first.result.is_err() && answers.asked() == 1, || {
        format!("asked {} times: {:?}", answers.asked(), first.result)
    })?;
    let second = get(&arena, &url).await;
    ensure_refused(&second, "a name that rebinds", "DestinationIpProhibited")?;
    nothing_arrived(&[&web])?;

    // The judged address is the one connected to, also for a name that may resolve to this machine; and a
    // client that connects anew judges anew.
    let answers = Answers::new(&[&[HERE], &[METADATA]]);
    let private = json!({"origin": format!("http://a.example.com:{port}"), "private": true});
    let given = FetcherGrants::http([grant(private)?]).resolved_by(&answers);
    let arena = given.fetcher(lab, |_| ()).await?;
    let report = get(&arena, &format!("{url}last")).await;
    ensure(kind(&report) == "ok" && answers.asked() == 1, || {
        format!("asked {} times: {:?}", answers.asked(), report.result)
    })?;
    let report = get(&arena, &url).await;
    ensure_refused(&report, "metadata, privately", "DestinationIpProhibited")?;
    arena.unharmed().await?;
    Ok(format!(
        "{} names and a rebinding one: 0 escapes",
        inside.len()
    ))
}

async fn redirects_that_lead_inside(lab: &Lab) -> Result<String, AttackFailure> {
    const DENIED: &str = "HttpRequestDenied";
    let (web, trap) = (AttackServer::start().await?, AttackServer::start().await?);
    let port = trap.port();
    let follow = json!({"origin": web.origin(), "redirects": 5, "private": true});
    let name = json!({"origin": format!("http://a.example.com:{port}")});
    let answers = Answers::new(&[&[HERE]]);
    let arena = FetcherGrants::http([grant(follow)?, grant(name)?])
        .resolved_by(&answers)
        .fetcher(lab, |l| l.timeout_ms = 2_000)
        .await?;
    let targets = [
        (
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            DENIED,
        ),
        ("http://0xa9fea9fe/".into(), DENIED),
        ("http://[::ffff:169.254.169.254]/".into(), DENIED),
        ("http://metadata.google.internal/".into(), DENIED),
        (trap.url("/"), DENIED),
        (format!("//127.0.0.1:{port}/"), DENIED),
        (format!("http://localhost:{port}/"), DENIED),
        (format!("http://2130706433:{port}/"), DENIED),
        (
            format!("http://user@127.0.0.1:{}/", web.port()),
            "HttpRequestUriInvalid",
        ),
        ("file:///etc/passwd".into(), DENIED),
        ("gopher://127.0.0.1/".into(), DENIED),
        // Granted, and leads here by its name.
        (
            format!("http://a.example.com:{port}/"),
            "DestinationIpProhibited",
        ),
    ];
    for (target, code) in &targets {
        for hops in [
            "/redirect/302?",
            "/redirect/301?/redirect/302?/redirect/307?",
        ] {
            let chain = web.url(&format!("{hops}{target}"));
            ensure_refused(&get(&arena, &chain).await, target, code)?;
        }
    }
    let endless = web.url(&format!("{}/", "/redirect/302?".repeat(7)));
    ensure_refused(&get(&arena, &endless).await, "seven hops", "LoopDetected")?;
    nothing_arrived(&[&trap])?;
    ensure(web.requests().len() > 4 * targets.len(), || {
        "not every redirect was followed".into()
    })?;
    arena.unharmed().await?;
    Ok(format!("{} chains, 0 escapes", targets.len() * 2))
}

async fn smuggled_requests(lab: &Lab) -> Result<String, AttackFailure> {
    let web = AttackServer::start().await?;
    let arena = FetcherGrants::http([web.granted()?])
        .fetcher(lab, |l| l.timeout_ms = 2_000)
        .await?;
    let headers = [
        json!([["x-a", "1\r\nx-smuggled: 1"]]),
        json!([["x-a", "1\nx-smuggled: 1"]]),
        json!([["x-a", "1\rx-smuggled: 1"]]),
        json!([["x-a\r\nx-smuggled", "1"]]),
        json!([["x-a: 1\r\nx-smuggled", "1"]]),
        json!([["x-a", "\u{0}"]]),
        json!([["", "x"]]),
        json!([["host", "evil.example"]]),
        json!([["Host", "127.0.0.1"], ["host", "evil.example"]]),
        json!([["transfer-encoding", "chunked"]]),
        json!([["connection", "upgrade"]]),
        json!([["upgrade", "h2c"]]),
        json!([["te", "trailers"]]),
        json!([["trailer", "x-a"]]),
        json!([["expect", "100-continue"]]),
        json!([["keep-alive", "1"]]),
        json!([["proxy-authorization", "x"]]),
        json!([["proxy-connection", "x"]]),
        json!([["content-length", "5"], ["content-length", "6"]]),
        json!([["content-length", "5"]]),
        json!([["content-length", "+0"]]),
    ];
    let mut tried = headers.len();
    for headers in headers {
        let what = headers.to_string();
        let report = request(&arena, "GET", &web.url("/"), headers).await;
        ensure_refused(&report, &what, "")?;
    }
    let authority = format!("127.0.0.1:{}", web.port());
    for url in [
        web.url("/a b"),
        web.url("/a\r\nx-smuggled: 1"),
        web.url("/ HTTP/1.1\r\nhost: evil.example\r\n\r\nGET /smuggled"),
        web.url("/\u{0}"),
        format!("http://{authority}\r\nx-smuggled: 1/"),
        format!("http://evil.example@{authority}/"),
        format!("http://{authority}@evil.example/"),
    ] {
        ensure_refused(&get(&arena, &url).await, &url, "")?;
        tried += 1;
    }
    for method in [
        "GET / HTTP/1.1\r\nx-smuggled: 1\r\n\r\nGET",
        "CONNECT",
        "get",
        "",
    ] {
        let report = request(&arena, method, &web.url("/"), json!([])).await;
        ensure_refused(&report, method, "")?;
        tried += 1;
    }
    nothing_arrived(&[&web])?;
    // What is in order arrives, with one Host that the host wrote.
    ensure_arrives(&arena, &web).await?;
    arena.unharmed().await?;
    Ok(format!("{tried} refused; nothing arrived"))
}

/// Set by [`proxy_variables`] for the host that it starts, so that this one starts no other.
const VARIABLES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];

async fn proxy_variables(lab: &Lab) -> Result<String, AttackFailure> {
    if VARIABLES
        .iter()
        .all(|name| std::env::var_os(name).is_some())
    {
        // They are set for this very process: what is granted arrives where it should.
        let web = AttackServer::start().await?;
        let arena = FetcherGrants::http([web.granted()?])
            .fetcher(lab, |_| ())
            .await?;
        ensure_arrives(&arena, &web).await?;
        return Ok("set here, and ignored".into());
    }
    // No process may change its own environment while its threads read it: so another one.
    let program = lab
        .program()
        .ok_or_else(|| AttackFailure::Unable("needs a host of its own process".into()))?;
    let (proxy, folder) = (AttackServer::start().await?, lab.folder()?);
    let mut host = Command::new(program);
    host.args(["selftest", "--quick", "--json", "--row", "14"])
        .current_dir(folder.path())
        .env_remove("NO_PROXY")
        .env_remove("no_proxy")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    for name in VARIABLES {
        host.env(name, proxy.origin());
    }
    let done = host.output().await?;
    let printed = String::from_utf8_lossy(&done.stdout);
    ensure(
        done.status.success() && printed.contains("set here, and ignored"),
        || {
            let said = String::from_utf8_lossy(&done.stderr);
            format!("with proxy variables the row fails: {printed:.2000} {said:.500}")
        },
    )?;
    nothing_arrived(&[&proxy])?;
    Ok("the whole row again; the proxy saw nothing".into())
}

async fn ensure_arrives(arena: &Arena, web: &AttackServer) -> Result<(), AttackFailure> {
    let report = get(arena, &web.url("/")).await;
    ensure(kind(&report) == "ok", || format!("{:?}", report.result))?;
    let requests = web.requests();
    let hosts: Vec<_> = requests.iter().map(|seen| seen.header("host")).collect();
    ensure(hosts == [[format!("127.0.0.1:{}", web.port())]], || {
        format!("the requests that arrived have the hosts {hosts:?}")
    })
}

/// No connection was made to any of these.
fn nothing_arrived(webs: &[&AttackServer]) -> Result<(), AttackFailure> {
    let arrived: usize = webs.iter().map(|web| web.accepted()).sum();
    ensure(arrived == 0, || format!("{arrived} connections arrived"))
}
