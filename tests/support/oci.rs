//! A registry on the loopback interface: the pull side of the distribution specification over real
//! HTTP, which asks who is there as registries do, and fails and lies in the ways that they can.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub const CONFIG: &str = "application/vnd.wasm.config.v0+json";
pub const WASM: &str = "application/wasm";

/// The one user of a registry that asks, and how the password looks on the wire.
pub const USERNAME: &str = "me";
pub const PASSWORD: &str = "very-secret";
pub const BASIC: &str = "Basic bWU6dmVyeS1zZWNyZXQ=";
/// The one token that is ever issued.
pub const BEARER: &str = "Bearer token-for-pulling";

/// Who may pull.
#[derive(Clone, Debug, Default)]
pub enum Access {
    #[default]
    Open,
    /// With the password.
    Password,
    /// With a token, which the service at `realm` (without one, here) gives to everybody, or only for
    /// the password.
    Token {
        realm: Option<String>,
        for_everybody: bool,
    },
}

/// What goes wrong with blobs, or with every request.
#[derive(Clone, Debug, Default)]
pub enum RegistryFault {
    #[default]
    None,
    /// As many bytes, but others.
    OtherContent,
    /// The connection breaks in the middle.
    Truncated,
    /// Bytes without end and without a length.
    Endless,
    /// A byte now and then.
    Drip,
    /// Nothing at all.
    Silent,
    /// A redirect to this address, with the request's path appended.
    Redirect(String),
    /// 429 for so many requests, with this `Retry-After`.
    Busy { times: u32, retry_after: String },
    /// A manifest without end.
    EndlessManifest,
    /// A manifest that is not the one of the digest that was asked for.
    OtherManifest,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct RegistryRequest {
    pub path: String,
    pub authorization: Option<String>,
}

#[derive(Debug, Default)]
struct Content {
    blobs: HashMap<String, Vec<u8>>,
    /// By `REPOSITORY/TAG` and `REPOSITORY/sha256:…`: media type and bytes.
    manifests: HashMap<String, (String, Vec<u8>)>,
    access: Access,
    fault: RegistryFault,
    requests: Vec<RegistryRequest>,
}

#[derive(Debug, Default)]
struct RegistryShared {
    content: Mutex<Content>,
    /// Bytes of endless bodies that were handed out.
    poured: AtomicU64,
}

/// A running registry; stops when dropped.
#[derive(Debug)]
pub struct OciRegistry {
    address: SocketAddr,
    shared: Arc<RegistryShared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// `sha256:HEX` of some content.
pub fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let hex: Vec<String> = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{}", hex.concat())
}

impl OciRegistry {
    /// Starts empty and open on a free port of the loopback interface.
    ///
    /// # Panics
    /// If no port can be opened.
    pub fn start() -> Self {
        let shared = Arc::new(RegistryShared::default());
        let (stop, stopped) = oneshot::channel();
        let (ready, address) = mpsc::channel();
        let thread = thread::spawn({
            let shared = Arc::clone(&shared);
            move || run(shared, &ready, stopped)
        });
        let address = address.recv_timeout(Duration::from_secs(10));
        Self {
            address: address.expect("the registry starts"),
            shared,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// `HOST:PORT`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// `oci://HOST:PORT/` and `rest`.
    pub fn reference(&self, rest: &str) -> String {
        format!("oci://{}/{rest}", self.address)
    }

    /// Keeps a blob and returns its digest.
    pub fn put_blob(&self, bytes: &[u8]) -> String {
        let digest = digest(bytes);
        let mut content = self.shared.content();
        content.blobs.insert(digest.clone(), bytes.to_vec());
        digest
    }

    /// Keeps a manifest or index under a tag and returns its digest.
    pub fn put_manifest(&self, repository: &str, tag: &str, manifest: &Value) -> String {
        let is_index = manifest.get("manifests").is_some();
        let media_type = if is_index { INDEX } else { MANIFEST };
        let bytes = manifest.to_string().into_bytes();
        let digest = digest(&bytes);
        let mut content = self.shared.content();
        for name in [tag, &digest] {
            let kept = (media_type.to_owned(), bytes.clone());
            content
                .manifests
                .insert(format!("{repository}/{name}"), kept);
        }
        digest
    }

    /// Pushes a component as a Wasm artefact and returns its manifest's digest.
    pub fn push(&self, repository: &str, tag: &str, component: &[u8]) -> String {
        let layer = self.put_blob(component);
        self.put_manifest(
            repository,
            tag,
            &manifest(CONFIG, WASM, &layer, component.len() as u64),
        )
    }

    pub fn set_access(&self, access: Access) {
        self.shared.content().access = access;
    }

    pub fn set_fault(&self, fault: RegistryFault) {
        self.shared.content().fault = fault;
    }

    /// All requests so far, in order.
    pub fn requests(&self) -> Vec<RegistryRequest> {
        self.shared.content().requests.clone()
    }

    /// Requests so far whose path holds `part`.
    pub fn count(&self, part: &str) -> usize {
        let content = self.shared.content();
        let requests = content.requests.iter();
        requests
            .filter(|request| request.path.contains(part))
            .count()
    }

    /// Bytes of endless bodies that were handed out: an upper bound of what the client took.
    pub fn poured(&self) -> u64 {
        self.shared.poured.load(Ordering::SeqCst)
    }
}

impl Drop for OciRegistry {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A manifest with one layer.
pub fn manifest(config: &str, layer_type: &str, layer: &str, size: u64) -> Value {
    json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": config, "digest": digest(b"{}"), "size": 2},
        "layers": [{"mediaType": layer_type, "digest": layer, "size": size}],
    })
}

impl RegistryShared {
    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn run(
    shared: Arc<RegistryShared>,
    ready: &mpsc::Sender<SocketAddr>,
    stopped: oneshot::Receiver<()>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime for the registry");
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let _ = ready.send(listener.local_addr().expect("an address"));
        let app = Router::new().fallback(answer).with_state(shared);
        tokio::select! {
            _ = axum::serve(listener, app) => {}
            _ = stopped => {}
        }
    });
    // Connections are tasks of their own; they go with the runtime.
    runtime.shutdown_background();
}

async fn answer(
    State(shared): State<Arc<RegistryShared>>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let authorization = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let fault = {
        let mut content = shared.content();
        content.requests.push(RegistryRequest {
            path: uri.to_string(),
            authorization: authorization.map(str::to_owned),
        });
        if let RegistryFault::Busy { times, retry_after } = &mut content.fault
            && *times > 0
        {
            *times -= 1;
            let after = [(RETRY_AFTER, retry_after.clone())];
            return (StatusCode::TOO_MANY_REQUESTS, after).into_response();
        }
        content.fault.clone()
    };
    if matches!(fault, RegistryFault::Silent) {
        std::future::pending::<()>().await;
    }
    if uri.path() == "/token" {
        return token(&shared, authorization);
    }
    let host = headers.get("host").and_then(|value| value.to_str().ok());
    if let Some(refusal) = challenge(&shared, host.unwrap_or_default(), authorization) {
        return refusal;
    }
    let Some((path, name)) = uri.path().trim_start_matches("/v2/").rsplit_once('/') else {
        return error(StatusCode::NOT_FOUND, "NAME_UNKNOWN");
    };
    match path.rsplit_once('/') {
        Some((repository, "manifests")) => serve_manifest(&shared, &fault, repository, name),
        Some((_, "blobs")) => serve_blob(&shared, &fault, &uri, name),
        _ => error(StatusCode::NOT_FOUND, "NAME_UNKNOWN"),
    }
}

fn token(shared: &RegistryShared, authorization: Option<&str>) -> Response {
    let access = shared.content().access.clone();
    let is_open = matches!(
        access,
        Access::Token {
            for_everybody: true,
            ..
        }
    );
    if is_open || authorization == Some(BASIC) {
        let token = BEARER.trim_start_matches("Bearer ");
        return axum::Json(json!({"token": token})).into_response();
    }
    error(StatusCode::UNAUTHORIZED, "UNAUTHORIZED")
}

/// The refusal of a request that does not say who asks.
fn challenge(shared: &RegistryShared, host: &str, authorization: Option<&str>) -> Option<Response> {
    let (expected, challenge) = match shared.content().access.clone() {
        Access::Open => return None,
        Access::Password => (BASIC, "Basic realm=\"tests\"".to_owned()),
        Access::Token { realm, .. } => {
            let realm = realm.unwrap_or_else(|| format!("http://{host}/token"));
            let challenge =
                format!("Bearer realm=\"{realm}\",service=\"tests\",scope=\"everything\"");
            (BEARER, challenge)
        }
    };
    if authorization == Some(expected) {
        return None;
    }
    let mut response = error(StatusCode::UNAUTHORIZED, "UNAUTHORIZED");
    let value = challenge.parse().expect("a header");
    response.headers_mut().insert(WWW_AUTHENTICATE, value);
    Some(response)
}

fn serve_manifest(
    shared: &Arc<RegistryShared>,
    fault: &RegistryFault,
    repository: &str,
    name: &str,
) -> Response {
    let kept = shared
        .content()
        .manifests
        .get(&format!("{repository}/{name}"))
        .cloned();
    let Some((media_type, mut bytes)) = kept else {
        return error(StatusCode::NOT_FOUND, "MANIFEST_UNKNOWN");
    };
    let headers = [(CONTENT_TYPE, media_type)];
    match fault {
        RegistryFault::EndlessManifest => return (headers, pour(shared)).into_response(),
        RegistryFault::OtherManifest => bytes.push(b' '),
        _ => {}
    }
    (headers, bytes).into_response()
}

fn serve_blob(
    shared: &Arc<RegistryShared>,
    fault: &RegistryFault,
    uri: &Uri,
    name: &str,
) -> Response {
    let Some(mut bytes) = shared.content().blobs.get(name).cloned() else {
        return error(StatusCode::NOT_FOUND, "BLOB_UNKNOWN");
    };
    match fault {
        RegistryFault::Redirect(to) => {
            let target = format!("{to}{}", uri.path());
            return (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, target)]).into_response();
        }
        RegistryFault::Endless => return pour(shared).into_response(),
        RegistryFault::OtherContent => {
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
        }
        RegistryFault::Truncated => {
            let half = Bytes::copy_from_slice(&bytes[..bytes.len() / 2]);
            let parts = stream::unfold(Some(half), |half| async {
                match half {
                    Some(half) if !half.is_empty() => Some((Ok(half), Some(Bytes::new()))),
                    _ => {
                        // What was written is flushed only while the body makes the connection wait.
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        half.map(|_| (Err(io::Error::other("broken on purpose")), None))
                    }
                }
            });
            return Body::from_stream(parts).into_response();
        }
        RegistryFault::Drip => {
            let drops = stream::unfold(bytes.into_iter(), |mut bytes| async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                let drop = Bytes::copy_from_slice(&[bytes.next()?]);
                Some((Ok::<_, io::Error>(drop), bytes))
            });
            return Body::from_stream(drops).into_response();
        }
        _ => {}
    }
    bytes.into_response()
}

/// Bytes for as long as somebody takes them.
fn pour(shared: &Arc<RegistryShared>) -> Body {
    const CHUNK: &[u8] = &[b' '; 64 << 10];
    let shared = Arc::clone(shared);
    Body::from_stream(stream::unfold(shared, |shared| async {
        tokio::task::yield_now().await;
        shared
            .poured
            .fetch_add(CHUNK.len() as u64, Ordering::SeqCst);
        Some((Ok::<_, io::Error>(Bytes::from_static(CHUNK)), shared))
    }))
}

/// The specification's error body.
fn error(status: StatusCode, code: &str) -> Response {
    let body = json!({"errors": [{"code": code, "message": "says the \u{1b}[31mregistry"}]});
    (status, axum::Json(body)).into_response()
}
