//! The answer to clients for whose connection or request there is no place: 503, and the connection closes.
//!
//! A connection is answered when its request begins to arrive, because many clients take bytes that come before they
//! have sent anything for an error of the connection. The request is not read. Closed at once, the connection would be
//! reset when the rest of the request arrives, and the client might lose the answer. So it closes as any other does
//! ([`LingeringStream`]), within a time: few connections in tasks of their own, and others before the next one is
//! accepted, within a shorter time.

use crate::lingering::LingeringStream;
use crate::settings::{RefusalObserver, Settings};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use hyper::body::Bytes;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use toolhold_admission::Seldom;

/// Seconds of the answer's Retry-After. Most requests take less, so that there may be a place then.
const RETRY_AFTER_SECONDS: &str = "5";
const JSON: &str = "application/json";
/// Longest time for which a connection is kept that is answered in a task of its own: longer than it lingers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest time for which a connection is kept before the next one is accepted. A client that reads its answer closes at
/// once.
const HURRIED_TIMEOUT: Duration = Duration::from_millis(100);
/// How often it is logged that clients are answered so.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// The answer of a server, and how often it was given.
#[derive(Debug)]
pub struct BusyAnswers {
    body: Bytes,
    /// Begin of the head, for a connection whose request is not read.
    head: String,
    headers: fn() -> HeaderMap,
    /// Permits for tasks.
    tasks: Arc<Semaphore>,
    observer: RefusalObserver,
    given: Seldom,
}

impl BusyAnswers {
    /// Answers at most `connections` in tasks of their own at a time.
    pub fn new(settings: &Settings, connections: usize) -> Arc<Self> {
        let body = settings.busy_body.clone();
        let head = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {JSON}\r\ncontent-length: {}\r\n\
             retry-after: {RETRY_AFTER_SECONDS}\r\nconnection: close\r\n",
            body.len()
        );
        Arc::new(Self {
            head,
            headers: settings.busy_headers,
            body,
            tasks: Arc::new(Semaphore::new(connections)),
            observer: settings.refused.clone(),
            given: Seldom::every(LOG_PERIOD),
        })
    }

    /// Answers a connection for which there is no place, and closes it.
    pub async fn give(&self, stream: TcpStream, connections: &mut JoinSet<()>) {
        let Ok(permit) = self.tasks.clone().try_acquire_owned() else {
            self.give_now(stream).await;
            return;
        };
        self.count(None, Duration::ZERO);
        let response = self.written();
        connections.spawn(async move {
            write(stream, &response, ANSWER_TIMEOUT).await;
            drop(permit);
        });
    }

    /// Answers a connection that lost its place before it sent anything, if few are being answered. All others close
    /// without an answer, so that their number stays bounded.
    pub async fn give_if_few(&self, stream: TcpStream) {
        if let Ok(_permit) = self.tasks.clone().try_acquire_owned() {
            self.count(None, Duration::ZERO);
            write(stream, &self.written(), ANSWER_TIMEOUT).await;
        }
    }

    /// Answers a connection and closes it before it returns, within [`HURRIED_TIMEOUT`].
    pub async fn give_now(&self, stream: TcpStream) {
        self.count(None, Duration::ZERO);
        write(stream, &self.written(), HURRIED_TIMEOUT).await;
    }

    /// Head and body, for a connection whose request is not read.
    fn written(&self) -> Vec<u8> {
        let mut response = self.head.clone().into_bytes();
        for (name, value) in &(self.headers)() {
            response.extend_from_slice(name.as_str().as_bytes());
            response.extend_from_slice(b": ");
            response.extend_from_slice(value.as_bytes());
            response.extend_from_slice(b"\r\n");
        }
        response.extend_from_slice(b"\r\n");
        response.extend_from_slice(&self.body);
        response
    }

    /// The response to a request that has waited so long for a place.
    pub fn response(&self, method: &Method, waited: Duration) -> Response {
        self.count(Some(method), waited);
        let mut response = Response::new(Body::from(self.body.clone()));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().extend((self.headers)());
        for (name, value) in [
            (header::CONNECTION, "close"),
            (header::RETRY_AFTER, RETRY_AFTER_SECONDS),
            (header::CONTENT_TYPE, JSON),
        ] {
            let value = HeaderValue::from_static(value);
            response.headers_mut().insert(name, value);
        }
        response
    }

    fn count(&self, method: Option<&Method>, waited: Duration) {
        self.observer.refused(method, waited);
        if let Some(refused) = self.given.occurs() {
            tracing::warn!(
                refused,
                "clients are answered with 503, because all connections are busy or no file can be opened; more files \
                 (ulimit -n) or connections of the configuration make more places"
            );
        }
    }
}

/// Writes the response and closes the connection. A client that has sent nothing for half of the time is answered then.
async fn write(stream: TcpStream, response: &[u8], longest: Duration) {
    let writing = async {
        let _: Result<io::Result<usize>, _> = timeout(longest / 2, stream.peek(&mut [0])).await;
        let mut stream = LingeringStream::new(stream);
        stream.write_all(response).await?;
        stream.shutdown().await
    };
    // What the client does with it changes nothing.
    let _: Result<io::Result<()>, _> = timeout(longest, writing).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderName;
    use std::sync::Mutex;
    use std::time::Instant;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    const BODY: &[u8] = b"{\"error\":{}}";

    /// Methods of refused requests; none for a connection.
    type RefusedMethods = Arc<Mutex<Vec<Option<String>>>>;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        (client.unwrap(), accepted.unwrap().0)
    }

    fn answers(connections: usize) -> (Arc<BusyAnswers>, RefusedMethods) {
        let methods = RefusedMethods::default();
        let settings = Settings {
            busy_body: Bytes::from_static(BODY),
            busy_headers: || {
                let id = HeaderValue::from_static("7");
                HeaderMap::from_iter([(HeaderName::from_static("x-id"), id)])
            },
            refused: RefusalObserver::new({
                let methods = Arc::clone(&methods);
                move |method, _| {
                    let method = method.map(ToString::to_string);
                    methods.lock().unwrap().push(method);
                }
            }),
            ..Settings::new(1)
        };
        (BusyAnswers::new(&settings, connections), methods)
    }

    #[tokio::test]
    async fn a_client_that_sends_a_large_request_reads_its_503() {
        let (answers, methods) = answers(1);
        let (mut client, server) = pair().await;
        let mut connections = JoinSet::new();
        answers.give(server, &mut connections).await;
        // More than the buffers between client and server hold.
        client.write_all(&vec![b'x'; 8 << 20]).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
        for line in [
            "connection: close",
            "retry-after: 5",
            "content-length: 12",
            "content-type: application/json",
            "x-id: 7",
        ] {
            assert!(head.lines().any(|it| it == line), "{line}: {head}");
        }
        assert_eq!(body.as_bytes(), BODY);
        drop(client);
        connections.join_next().await.unwrap().unwrap();

        let response = answers.response(&Method::PUT, Duration::ZERO);
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[header::RETRY_AFTER], "5");
        assert_eq!(response.headers()["x-id"], "7");
        assert_eq!(*methods.lock().unwrap(), [None, Some("PUT".to_owned())]);
    }

    #[tokio::test]
    async fn a_client_reads_nothing_before_it_has_sent_something() {
        let (answers, _) = answers(1);
        let (mut client, server) = pair().await;
        let mut connections = JoinSet::new();
        answers.give(server, &mut connections).await;
        let mut first = [0];
        let early = timeout(ANSWER_TIMEOUT / 8, client.read(&mut first)).await;
        assert!(early.is_err(), "{early:?}");
        client.write_all(b"G").await.unwrap();
        let answered = timeout(ANSWER_TIMEOUT / 8, client.read(&mut first)).await;
        assert_eq!(answered.unwrap().unwrap(), 1);
    }

    #[tokio::test]
    async fn clients_that_never_close_are_kept_for_a_short_time() {
        let (answers, _) = answers(1);
        let (begun, mut connections) = (Instant::now(), JoinSet::new());
        let mut clients = Vec::new();
        for _ in 0..4 {
            let (client, server) = pair().await;
            clients.push(client);
            answers.give(server, &mut connections).await;
        }
        assert_eq!(connections.len(), 1);
        assert!(begun.elapsed() < ANSWER_TIMEOUT, "{:?}", begun.elapsed());
        connections.join_next().await.unwrap().unwrap();
        for mut client in clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
        }
    }
}
