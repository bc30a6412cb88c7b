//! Accepting HTTP connections: so many at a time, none that dawdles, every reply in one write.

mod body_timeout;
mod guard;
mod lingering;
pub mod socket;
mod unread;
mod write_timeout;

pub use body_timeout::is_too_slow;
pub use guard::{Guard, Stranger, bearer};

use anyhow::Result;
use axum::{Router, middleware};
use body_timeout::Pace;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use lingering::Lingering;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use write_timeout::WriteTimeout;

const HEAD_BYTES: usize = 64 << 10;
/// When the system has no more connections to give.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// How long a client is waited for.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// For the head of a request, the wait between two requests included.
    head: Duration,
    body: Pace,
    /// While nothing is taken of what it is sent.
    write: Duration,
}

const PATIENCE: Patience = Patience {
    head: Duration::from_mins(1),
    body: Pace {
        grace: Duration::from_secs(30),
        bytes_per_second: 8 << 10,
    },
    write: Duration::from_secs(30),
};

/// The connection that a request came on, among the request's extensions. Its place is taken for as long as
/// anybody has this: also by whoever goes on with it after its last answer, as a WebSocket does.
#[derive(Debug, Clone)]
pub struct Connection {
    pub peer: IpAddr,
    /// When its server is.
    closed: CancellationToken,
    _held: Arc<(OwnedSemaphorePermit, TaskTrackerToken)>,
}

impl Connection {
    /// Waits until every connection is closed.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

/// Serves until `stop`, and then until every answer that was begun is given. Dropping it closes every
/// connection.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    most: usize,
    stop: CancellationToken,
) -> Result<()> {
    serve_with(listener, router, most, stop, PATIENCE).await
}

async fn serve_with(
    listener: TcpListener,
    router: Router,
    most: usize,
    stop: CancellationToken,
    patience: Patience,
) -> Result<()> {
    let router = router
        .layer(middleware::from_fn_with_state(
            patience.body,
            body_timeout::hold,
        ))
        .layer(middleware::from_fn(unread::close));
    let places = Arc::new(Semaphore::new(most));
    let open = TaskTracker::new();
    let closed = CancellationToken::new();
    let _close = closed.clone().drop_guard();
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let next = async {
            let place = places.clone().acquire_owned().await?;
            anyhow::Ok((place, listener.accept().await))
        };
        let (place, accepted) = tokio::select! {
            next = next => next?,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(EXHAUSTED).await;
                continue;
            }
        };
        let own = Connection {
            peer: peer.ip(),
            closed: closed.clone(),
            _held: Arc::new((place, open.token())),
        };
        let (router, stop) = (router.clone(), stop.clone());
        connections.spawn(async move {
            if let Err(error) = connection(stream, router, own, stop, patience).await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    open.close();
    open.wait().await;
    Ok(())
}

async fn connection(
    stream: TcpStream,
    router: Router,
    own: Connection,
    stop: CancellationToken,
    patience: Patience,
) -> Result<(), hyper::Error> {
    // A reply is one write; it should not wait for the next.
    let _ = stream.set_nodelay(true);
    let stream = WriteTimeout::new(Lingering::new(stream), patience.write);
    let router = TowerToHyperService::new(router);
    let answer = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(own.clone());
        router.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience.head)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), answer)
        .with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        result = connection.as_mut() => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, Bytes, to_bytes};
    use axum::extract::DefaultBodyLimit;
    use axum::http::StatusCode;
    use axum::routing;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const LIMIT: usize = 1_000;

    /// The answers to a request with so much of a body, and to a second one on the same connection.
    async fn answers(bytes: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/", routing::post(async |_: Bytes| "read"))
            .route("/refused", routing::post(async || "refused"))
            .layer(DefaultBodyLimit::max(LIMIT));
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, router, 10, stop.clone()));
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = |path: &str, bytes| {
            format!("POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {bytes}\r\n\r\n")
        };
        client.write_all(head("/", bytes).as_bytes()).await.unwrap();
        client.write_all(&vec![b'x'; bytes]).await.unwrap();
        // What the client would see of a request that it sends into the end is up to the system.
        let _ = client.write_all(head("/refused", 3).as_bytes()).await;
        let _ = client.shutdown().await;
        let mut answers = String::new();
        client.read_to_string(&mut answers).await.unwrap();
        stop.cancel();
        serving.await.unwrap().unwrap();
        answers
    }

    #[tokio::test]
    async fn who_is_answered_unread_is_told_that_the_connection_ends() {
        let small = answers(LIMIT).await;
        let (read, refused) = small.split_once("read").unwrap();
        assert!(!read.contains("connection: close"), "{small}");
        assert!(refused.contains("connection: close"), "{small}");

        let large = answers(LIMIT * 1_000).await;
        assert!(large.contains("413"), "{large}");
        assert!(large.contains("connection: close"), "{large}");
        assert!(!large.contains("refused"), "{large}");
    }

    /// The answer to a request that is sent once somebody else has the server's only place.
    async fn next_answer(patience: Patience, rude: impl AsyncFnOnce(&mut TcpStream)) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/", routing::get(async || "page"))
            .route("/large", routing::get(async || vec![b'x'; 4 << 20]))
            .route(
                "/read",
                routing::post(async |body: Body| match to_bytes(body, usize::MAX).await {
                    Ok(_) => StatusCode::OK,
                    Err(error) if is_too_slow(&error) => StatusCode::REQUEST_TIMEOUT,
                    Err(_) => StatusCode::BAD_REQUEST,
                }),
            );
        let stop = CancellationToken::new();
        let serving = serve_with(listener, router, 1, stop.clone(), patience);
        let _serving = tokio::spawn(serving);
        let mut first = TcpStream::connect(address).await.unwrap();
        rude(&mut first).await;
        let mut second = TcpStream::connect(address).await.unwrap();
        let head = "GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        second.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let answered = second.read_to_string(&mut answer);
        let answered = tokio::time::timeout(Duration::from_secs(20), answered).await;
        answered.expect("a place").unwrap();
        drop(first);
        answer
    }

    #[tokio::test]
    async fn who_asks_and_does_not_read_loses_its_place() {
        let patience = Patience {
            write: Duration::from_millis(300),
            ..PATIENCE
        };
        let answer = next_answer(patience, async |client| {
            let request = "GET /large HTTP/1.1\r\nhost: h\r\n\r\n";
            client
                .write_all(request.repeat(20).as_bytes())
                .await
                .unwrap();
        });
        assert!(answer.await.ends_with("page"));
    }

    #[tokio::test]
    async fn who_sends_a_body_too_slowly_is_told_so() {
        let pace = Pace {
            grace: Duration::from_millis(300),
            bytes_per_second: 1_000,
        };
        let patience = Patience {
            body: pace,
            ..PATIENCE
        };
        let answer = next_answer(patience, async |client| {
            let head = "POST /read HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nfive.";
            client.write_all(head.as_bytes()).await.unwrap();
            let mut told = String::new();
            client.read_to_string(&mut told).await.unwrap();
            assert!(told.starts_with("HTTP/1.1 408"), "{told}");
            assert!(told.contains("connection: close"), "{told}");
        });
        assert!(answer.await.ends_with("page"));
    }
}
