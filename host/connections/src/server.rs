//! Accepts connections and serves them within the bounds of [`Settings`].

use crate::acceptor::{Acceptor, NextConnection};
use crate::busy_answer::BusyAnswers;
use crate::busy_body::BusyBody;
use crate::lingering::LingeringStream;
use crate::places::{ConnectionPlace, LEAVE_TIME, Places};
use crate::settings::Settings;
use crate::source::network;
use crate::write_timeout::write_timeout;
use crate::{body_timeout, unread};
use axum::http::Extensions;
use axum::{Router, middleware};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustix::process::{Resource, getrlimit};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Instant;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Bytes of a request's head, as most servers allow.
const HEAD_BYTES: usize = 64 << 10;
/// Most connections at a time that have no place and are answered so, besides those that have one.
const BUSY_ANSWERS: usize = 16;

/// The connection that a request came on; each request has it among its extensions.
///
/// The connection counts as open until every clone of this is dropped. A handler that goes on using the
/// connection after its response, as a WebSocket does, keeps a clone.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Address of the client, or of the proxy in front of us, or its network ([`source`](crate::source)).
    pub(crate) source: IpAddr,
    /// Cancelled when [`serve`] ends.
    closed: CancellationToken,
    _held: Arc<(Arc<ConnectionPlace>, TaskTrackerToken)>,
}

impl Connection {
    /// Waits until the server closes every connection.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }
}

/// The address that a request came from, or that of its network. Behind a proxy all clients have the proxy's.
/// `extensions` are those of a request of this crate's servers.
pub fn source(extensions: &Extensions) -> IpAddr {
    let connection = extensions.get::<Connection>();
    connection.map_or(Ipv4Addr::UNSPECIFIED.into(), |it| it.source)
}

/// Accepts and serves connections until `stop` is cancelled, then finishes the requests that have begun.
/// Dropping the future closes every connection.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    settings: Settings,
    stop: CancellationToken,
) {
    let router = router
        .layer(middleware::from_fn_with_state(
            settings.body_pace,
            body_timeout::limit_body_time,
        ))
        .layer(middleware::from_fn(unread::close));
    let counts = PlaceCounts::within_limit(&settings);
    let places = Places::new(counts.ordinary, counts.reserve);
    let busy_answers = BusyAnswers::new(&settings, counts.busy_answers);
    let open = TaskTracker::new();
    let closed = CancellationToken::new();
    let _close = closed.clone().drop_guard();
    let mut acceptor = Acceptor::new(listener);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = acceptor.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let (stream, peer) = match accepted {
            NextConnection::Ordinary(stream, peer) => (stream, peer),
            NextConnection::OnSpare(stream) => {
                busy_answers.give_now(stream).await;
                continue;
            }
        };
        let source = network(peer.ip());
        let place = tokio::select! {
            place = places.enter(source) => place,
            () = stop.cancelled() => break,
        };
        let Some(place) = place else {
            busy_answers.give(stream, &mut connections).await;
            continue;
        };
        let own = Connection {
            source,
            closed: closed.clone(),
            _held: Arc::new((place.clone(), open.token())),
        };
        let (router, stop, settings) = (router.clone(), stop.clone(), settings.clone());
        let answers = busy_answers.clone();
        connections.spawn(async move {
            let mut first = [0];
            let is_spoken = tokio::select! {
                biased;
                () = place.lost() => {
                    place.end();
                    // Another connection has the place from now on.
                    drop((own, place));
                    answers.give_if_few(stream).await;
                    return;
                }
                // Bytes, and not the stream's readiness, which may be reported before there are any.
                peeked = timeout(settings.head_timeout, stream.peek(&mut first)) => {
                    matches!(peeked, Ok(Ok(1..)))
                }
            };
            if !is_spoken {
                place.end();
                return;
            }
            let served = connection(stream, router, own, place.clone(), stop, settings, answers);
            tokio::pin!(served);
            let served = tokio::select! {
                biased;
                served = served.as_mut() => served,
                () = place.lost() => {
                    // A request that arrived at that moment is being answered with 503.
                    if place.is_busy() {
                        timeout(LEAVE_TIME, served).await.unwrap_or(Ok(()))
                    } else {
                        Ok(())
                    }
                }
            };
            place.end();
            if let Err(error) = served {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    drop(acceptor);
    while connections.join_next().await.is_some() {}
    open.close();
    open.wait().await;
}

async fn connection(
    stream: TcpStream,
    router: Router,
    own: Connection,
    place: Arc<ConnectionPlace>,
    stop: CancellationToken,
    settings: Settings,
    busy_answers: Arc<BusyAnswers>,
) -> Result<(), hyper::Error> {
    // A response is one write; Nagle's algorithm would delay it.
    let _ = stream.set_nodelay(true);
    let stream = write_timeout(LingeringStream::new(stream), settings.write_timeout);
    let router = TowerToHyperService::new(router);
    let (is_reserved, place_timeout) = (settings.is_reserved, settings.place_timeout);
    let answer = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(own.clone());
        let busy = place.busy();
        let (router, place) = (router.clone(), place.clone());
        let busy_answers = busy_answers.clone();
        async move {
            let begun = Instant::now();
            let is_kept_out = busy.is_dismissed()
                || place.is_of_reserve()
                    && !is_reserved(request.uri().path())
                    && !place.leave_reserve(place_timeout).await;
            let response = if is_kept_out {
                busy_answers.response(request.method(), begun.elapsed())
            } else {
                router.call(request).await?
            };
            Ok::<_, Infallible>(response.map(|body| BusyBody::wrap(body, busy)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_timeout)
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

/// The most connections of each sort.
struct PlaceCounts {
    ordinary: usize,
    reserve: usize,
    /// Connections without a place, which are answered in tasks of their own.
    busy_answers: usize,
}

impl PlaceCounts {
    /// The counts of a server. A process that has no descriptor left cannot accept, nor write anything down, so all
    /// connections together have a quarter of them.
    fn within_limit(settings: &Settings) -> Self {
        let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let counts = Self::within_share(settings, limit / 4);
        if counts.ordinary < settings.connections {
            tracing::warn!(
                connections = counts.ordinary,
                configured = settings.connections,
                limit,
                "fewer connections are served than configured, because the process may open few files; raise its limit \
                 (ulimit -n)"
            );
        }
        counts
    }

    fn within_share(settings: &Settings, share: u64) -> Self {
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        let reserve = settings.reserve.min(share / 4);
        let busy_answers = BUSY_ANSWERS.min(share / 8);
        let rest = share - reserve - busy_answers;
        Self {
            ordinary: settings.connections.min(rest).max(1),
            reserve,
            busy_answers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body_timeout::is_too_slow;
    use crate::settings::BodyPace;
    use axum::body::{Body, Bytes, to_bytes};
    use axum::extract::DefaultBodyLimit;
    use axum::http::StatusCode;
    use axum::routing;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    const LIMIT: usize = 1_000;

    /// The responses to a request with a body of `bytes`, and to a second one on the same connection.
    async fn answers(bytes: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/", routing::post(async |_: Bytes| "read"))
            .route("/refused", routing::post(async || "refused"))
            .layer(DefaultBodyLimit::max(LIMIT));
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve(listener, router, Settings::new(10), stop.clone()));
        let mut client = TcpStream::connect(address).await.unwrap();
        let head = |path: &str, bytes| {
            format!("POST {path} HTTP/1.1\r\nhost: h\r\ncontent-length: {bytes}\r\n\r\n")
        };
        client.write_all(head("/", bytes).as_bytes()).await.unwrap();
        client.write_all(&vec![b'x'; bytes]).await.unwrap();
        // Whether this write succeeds on a closing connection depends on the system.
        let _ = client.write_all(head("/refused", 3).as_bytes()).await;
        let _ = client.shutdown().await;
        let mut answers = String::new();
        client.read_to_string(&mut answers).await.unwrap();
        stop.cancel();
        serving.await.unwrap();
        answers
    }

    #[tokio::test]
    async fn a_response_to_an_unread_request_says_that_the_connection_closes() {
        let small = answers(LIMIT).await;
        let (read, refused) = small.split_once("read").unwrap();
        assert!(!read.contains("connection: close"), "{small}");
        assert!(refused.contains("connection: close"), "{small}");

        let large = answers(LIMIT * 1_000).await;
        assert!(large.contains("413"), "{large}");
        assert!(large.contains("connection: close"), "{large}");
        assert!(!large.contains("refused"), "{large}");
    }

    /// The response to a request that waits in the reserve until `rude` frees the server's only ordinary place.
    async fn next_answer(settings: Settings, rude: impl AsyncFnOnce(&mut TcpStream)) -> String {
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
        let settings = Settings {
            reserve: 1,
            ..settings
        };
        let serving = serve(listener, router, settings, stop.clone());
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
    async fn a_client_that_does_not_read_loses_its_place() {
        let settings = Settings {
            write_timeout: Duration::from_millis(300),
            ..Settings::new(1)
        };
        let answer = next_answer(settings, async |client| {
            let request = "GET /large HTTP/1.1\r\nhost: h\r\n\r\n";
            client
                .write_all(request.repeat(20).as_bytes())
                .await
                .unwrap();
        });
        assert!(answer.await.ends_with("page"));
    }

    #[tokio::test]
    async fn a_client_that_sends_a_body_too_slowly_gets_408() {
        let body_pace = BodyPace {
            grace: Duration::from_millis(300),
            bytes_per_second: 1_000,
        };
        let settings = Settings {
            body_pace,
            ..Settings::new(1)
        };
        let answer = next_answer(settings, async |client| {
            let head = "POST /read HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\nfive.";
            client.write_all(head.as_bytes()).await.unwrap();
            let mut told = String::new();
            client.read_to_string(&mut told).await.unwrap();
            assert!(told.starts_with("HTTP/1.1 408"), "{told}");
            assert!(told.contains("connection: close"), "{told}");
        });
        assert!(answer.await.ends_with("page"));
    }

    #[test]
    fn connections_have_a_share_of_the_descriptors_in_all() {
        let settings = Settings {
            reserve: 16,
            ..Settings::new(512)
        };
        for (share, expected) in [
            (250_000, (512, 16, 16)),
            (16, (10, 4, 2)),
            (4, (3, 1, 0)),
            (0, (1, 0, 0)),
        ] {
            let counts = PlaceCounts::within_share(&settings, share);
            let found = (counts.ordinary, counts.reserve, counts.busy_answers);
            assert_eq!(found, expected, "{share}");
        }
    }
}
