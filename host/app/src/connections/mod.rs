//! Accepting HTTP connections: so many at a time, none that dawdles, every reply in one write.

mod lingering;
mod unread;

use anyhow::Result;
use axum::{Router, middleware};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use lingering::Lingering;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// For the head of a request, the wait between two requests included.
const HEAD: Duration = Duration::from_mins(1);
const HEAD_BYTES: usize = 64 << 10;
/// When the system has no more connections to give.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Serves until `stop`, and then until every answer that was begun is given. Dropping it closes every
/// connection.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    most: usize,
    stop: CancellationToken,
) -> Result<()> {
    let router = router.layer(middleware::from_fn(unread::close));
    let places = Arc::new(Semaphore::new(most));
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
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(EXHAUSTED).await;
                continue;
            }
        };
        let (router, stop) = (router.clone(), stop.clone());
        connections.spawn(async move {
            let _place = place;
            if let Err(error) = connection(stream, router, stop).await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Whether a host, with or without a port, means this machine and nothing else. A page whose name was made
/// to mean it (DNS rebinding) has another one.
pub fn is_loopback(authority: &str) -> bool {
    let name = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => authority.split(':').next(),
    };
    let name = name.unwrap_or_default();
    name.eq_ignore_ascii_case("localhost")
        || name
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

async fn connection(
    stream: TcpStream,
    router: Router,
    stop: CancellationToken,
) -> Result<(), hyper::Error> {
    // A reply is one write; it should not wait for the next.
    let _ = stream.set_nodelay(true);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(
            TokioIo::new(Lingering::new(stream)),
            TowerToHyperService::new(router),
        )
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
    use axum::body::Bytes;
    use axum::extract::DefaultBodyLimit;
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
}
