//! Row 75: bodies of requests in very many pieces of very few bytes, to a peer over TLS that reads none of them
//! (docs/security.md, promises 1, 2 and 8).

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::runs::{RunClient, joined};
use crate::serving::{Answering, MODELS, Served};
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use std::fmt::Display;
use std::future::ready;
use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};

pub const ATTACKS: &[Attack] = &[Attack {
    row: 75,
    name: "pieces_of_bodies_over_tls",
    attack: "bodies in pieces of no byte, one and seven, flushed and not, to a peer over TLS that offers HTTP/2 and stops reading",
    must: "deadline; memory bounded; other calls are answered meanwhile",
    company: Company::Others,
    tries: |lab| Box::pin(ready(pieces_of_bodies_over_tls(lab))),
}];

/// Deadline of a call.
const DEADLINE: Duration = Duration::from_secs(1);
/// Maximum growth of the host over all pieces. What they are worth themselves is counted in `http_request_bytes`.
const MOST_MEMORY: u64 = 8 << 20;
/// Bodies of each call.
const BODIES: u32 = 8;
/// Bytes of a piece, and whether a flush follows each.
const WAYS: [(u32, bool); 5] = [(0, false), (0, true), (1, false), (1, true), (7, false)];
/// Bytes that the system keeps for a connection and the peer has not read; it makes some more of it.
const UNREAD_BYTES: usize = 8 << 10;
/// A certificate of 127.0.0.1 that is its own root, with a key of no worth.
const CERTIFICATE: &str = include_str!("../../../tests/fixtures/tls/peer.crt");
const KEY: &str = include_str!("../../../tests/fixtures/tls/peer.key");

/// A peer that takes the head of each request and nothing more. It ends with this process, which every attack has for
/// itself.
struct DeafPeer {
    port: u16,
    heard: Arc<AtomicUsize>,
}

impl DeafPeer {
    fn start() -> Result<Self, AttackFailure> {
        let config = tls()?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // Connections inherit it.
        set_socket_recv_buffer_size(&listener, UNREAD_BYTES).map_err(std::io::Error::from)?;
        let peer = Self {
            port: listener.local_addr()?.port(),
            heard: Arc::default(),
        };
        let heard = peer.heard.clone();
        spawn(move || {
            let open = Arc::<Mutex<Vec<_>>>::default();
            for stream in listener.incoming().flatten() {
                let (config, heard, open) = (config.clone(), heard.clone(), open.clone());
                spawn(move || {
                    // A host that breaks off has sent no request.
                    if let Ok(stream) = hear(stream, config) {
                        heard.fetch_add(1, Ordering::AcqRel);
                        open.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(stream);
                    }
                });
            }
        });
        Ok(peer)
    }

    /// Requests that it has the head of.
    fn heard(&self) -> usize {
        self.heard.load(Ordering::Acquire)
    }
}

/// A connection whose first head was read.
fn hear(
    stream: TcpStream,
    config: Arc<ServerConfig>,
) -> std::io::Result<StreamOwned<ServerConnection, TcpStream>> {
    let tls = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(tls, stream);
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    Ok(stream)
}

fn tls() -> Result<Arc<ServerConfig>, AttackFailure> {
    fn unable(error: &dyn Display) -> AttackFailure {
        AttackFailure::Unable(format!("no peer over TLS can be made here: {error}"))
    }
    let certificate =
        CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).map_err(|error| unable(&error))?;
    let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).map_err(|error| unable(&error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unable(&error))?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(|error| unable(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Arguments of a call that pours such pieces for so long.
fn pouring(peer: &DeafPeer, (size, flush): (u32, bool), writes: u64, time: Duration) -> Value {
    json!({"arguments": {"url": format!("https://127.0.0.1:{}", peer.port), "how": {
        "bodies": BODIES, "header": 1, "size": size, "flush": flush, "writes": writes,
        "milliseconds": time.as_millis() as u64, "finish": writes > 1,
    }}})
}

/// The calls, all at once: what each of them was answered.
fn pour(client: RunClient<'_>, calls: &[Value]) -> Result<Vec<Value>, AttackFailure> {
    scope(|threads| {
        let asked: Vec<_> = calls
            .iter()
            .map(|call| threads.spawn(move || client.ask("POST", "/v1/tools/bad.pour", call)))
            .collect();
        let answers = asked.into_iter().map(|thread| {
            let answered = joined(thread)?;
            ensure(answered.status == 200, || {
                format!("a call that pours was answered {answered:?}")
            })?;
            let answer: Value = serde_json::from_str(&answered.body).unwrap_or_default();
            Ok::<_, AttackFailure>(answer)
        });
        answers.collect()
    })
}

/// Calls another tool until the others are over. Returns the most bytes that the host had meanwhile, and the slowest of
/// these calls.
fn beside(client: RunClient<'_>, is_over: &AtomicBool) -> Result<(u64, Duration), AttackFailure> {
    let (mut most, mut slowest) = (0, Duration::ZERO);
    while !is_over.load(Ordering::Acquire) {
        let asked = Instant::now();
        let answered = client.ask("POST", "/v1/tools/benign.count", &json!({"arguments": {}}))?;
        ensure(answered.status == 200, || {
            format!("another tool was answered {answered:?}")
        })?;
        slowest = slowest.max(asked.elapsed());
        most = most.max(client.served.resident().unwrap_or(0));
        sleep(Duration::from_millis(50));
    }
    Ok((most, slowest))
}

fn pieces_of_bodies_over_tls(lab: &Lab) -> Result<String, AttackFailure> {
    let (endpoint, peer) = (Answering::start(200, MODELS)?, DeafPeer::start()?);
    let folder = CommandFolder::new(lab)?;
    let certificate = folder.path().join("peer.crt");
    let folder = folder.with_variable("SSL_CERT_FILE", &certificate.to_string_lossy());
    folder.write("peer.crt", CERTIFICATE)?;
    folder.write("modules/bad.wasm", components::FETCHER)?;
    folder.write(
        "modules/benign.wasm",
        components::parse(components::COMPUTE)?,
    )?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\n\
             [modules]\npinning = \"never\"\n[decisions]\ndefault = \"never\"\n\
             [serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n\
             [module.bad]\nhttp = [{{ origin = \"https://127.0.0.1:{}\", private = true, methods = [\"POST\"] }}]\n\
             [module.bad.limits]\ntimeout_ms = {}\nfuel = 0\nhttp_request_bytes = 16777216\n",
            endpoint.port,
            peer.port,
            DEADLINE.as_millis()
        ),
    )?;
    let served = Served::start(
        &folder,
        &["--config", "host.toml", "serve", "--listen", "127.0.0.1:0"],
    )?;
    let client = RunClient {
        served: &served,
        key: None,
    };
    client.until_ready("benign.count", &json!({"arguments": {}}))?;
    // As many calls and connections, with one piece each: what these take stays.
    let short = Duration::from_millis(50);
    let first: Vec<_> = WAYS.map(|_| pouring(&peer, (1, false), 1, short)).into();
    pour(client, &first)?;
    let before = served.resident().ok_or_else(|| {
        AttackFailure::Unable("this system does not tell what is resident".into())
    })?;
    let calls = WAYS.map(|way| pouring(&peer, way, u64::MAX, 2 * DEADLINE));
    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    let (answers, took, watched) = scope(|threads| {
        let watch = threads.spawn(|| beside(client, &is_over));
        let answers = pour(client, &calls);
        let took = began.elapsed();
        is_over.store(true, Ordering::Release);
        (answers, took, joined(watch))
    });
    let (answers, (most, slowest)) = (answers?, watched?);
    for (way, answer) in WAYS.iter().zip(&answers) {
        let error = answer["error"].as_str().unwrap_or_default();
        ensure(error.contains("deadline"), || {
            format!("pieces of {way:?} ended so: {answer}")
        })?;
    }
    // A server answers it over HTTP, and its audit log is written before.
    let most_time = DEADLINE + 4 * lab.grace();
    ensure(took < most_time, || {
        format!("calls ended after {}, deadline {}", ms(took), ms(DEADLINE))
    })?;
    ensure(slowest < most_time, || {
        format!("another tool was answered after {}", ms(slowest))
    })?;
    // With the first calls there were twice as many.
    let connections = WAYS.len() * BODIES as usize;
    let heard = peer.heard();
    ensure(heard >= connections, || {
        format!("the peer heard of {heard} bodies, of {connections}: nothing is proved")
    })?;
    let more = most.saturating_sub(before);
    ensure(more < MOST_MEMORY, || {
        format!(
            "{} MiB more were resident, bound {} MiB",
            more >> 20,
            MOST_MEMORY >> 20
        )
    })?;
    Ok(format!(
        "{} calls, each to its deadline; {} KiB more; another tool waited {} at most",
        answers.len(),
        more >> 10,
        ms(slowest)
    ))
}
