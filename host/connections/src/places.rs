//! The places of a server's connections, and which connection gives up its own when all are taken.
//!
//! A connection has a request under way, or it is silent: it has sent no whole head yet, or waits for its client's next
//! request. When all places are taken, a silent connection is closed for a new one, so clients that only connect keep no
//! other out: of the source that has most silent ones, the one that has been silent for longest. So no source loses a
//! connection because another one opens many. If all have requests under way, a new connection gets a place of the
//! reserve. A request for health or administration is served there; another one waits for an ordinary place, and gives
//! up after a time or when its place of the reserve is needed. A connection for which none is given up gets no place.

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use toolhold_admission::Seldom;

/// Wait before it is looked again for a connection that may be closed. One that is closed leaves its place at once.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Longest wait for a connection that has to go: it may write an answer and linger for a second.
pub const LEAVE_TIME: Duration = Duration::from_secs(2);

/// All places of a server.
#[derive(Debug)]
pub struct Places {
    ordinary: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    silent: Mutex<Silent>,
    closed: Seldom,
}

/// How often it is logged that connections are closed for others.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// Connections that may be closed for others.
#[derive(Debug, Default)]
struct Silent {
    ordinary: SilentOfKind,
    reserve: SilentOfKind,
    last: u64,
    /// Places that connections have to leave, and since when. A place is gone when its connection has left it.
    leaving: Vec<(Weak<()>, Instant)>,
}

/// A connection that may be closed for another.
#[derive(Debug)]
struct SilentConnection {
    close: CancellationToken,
    place: Weak<()>,
}

/// By source, and by the order in which they fell silent.
#[derive(Debug, Default)]
struct SilentOfKind(HashMap<IpAddr, BTreeMap<u64, SilentConnection>>);

impl SilentOfKind {
    fn insert(&mut self, source: IpAddr, number: u64, silent: SilentConnection) {
        self.0.entry(source).or_default().insert(number, silent);
    }

    fn remove(&mut self, source: IpAddr, number: u64) -> Option<SilentConnection> {
        let own = self.0.get_mut(&source)?;
        let removed = own.remove(&number);
        if own.is_empty() {
            self.0.remove(&source);
        }
        removed
    }

    /// Takes the first one of the source that has most; of equal sources, the first of all.
    fn pop(&mut self) -> Option<SilentConnection> {
        let most = self.0.iter().max_by_key(|(_, own)| {
            let first = own.keys().next().copied().unwrap_or(u64::MAX);
            (own.len(), Reverse(first))
        });
        let source = *most?.0;
        let number = *self.0.get(&source)?.keys().next()?;
        self.remove(source, number)
    }
}

impl Silent {
    fn of(&mut self, kind: PlaceKind) -> &mut SilentOfKind {
        match kind {
            PlaceKind::Ordinary => &mut self.ordinary,
            PlaceKind::Reserve => &mut self.reserve,
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Takes the connection of this kind that is to leave its place.
    fn dismiss_one(&mut self, kind: PlaceKind) -> Option<CancellationToken> {
        let SilentConnection { close, place } = self.of(kind).pop()?;
        // Those that have left are forgotten.
        self.is_one_leaving();
        self.leaving.push((place, Instant::now()));
        Some(close)
    }

    /// True if a connection has to leave its place, and has not yet.
    fn is_one_leaving(&mut self) -> bool {
        self.leaving
            .retain(|(place, since)| place.strong_count() > 0 && since.elapsed() < LEAVE_TIME);
        !self.leaving.is_empty()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlaceKind {
    Ordinary,
    Reserve,
}

impl Places {
    pub fn new(ordinary: usize, reserve: usize) -> Arc<Self> {
        let places = |count: usize| Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self {
            ordinary: places(ordinary),
            reserve: places(reserve),
            silent: Mutex::default(),
            closed: Seldom::every(LOG_PERIOD),
        })
    }

    /// A place for a new connection, which is silent. Absent if every connection has a request under way, and none in
    /// the reserve waits for a place.
    pub async fn enter(self: &Arc<Self>, source: IpAddr) -> Option<Arc<ConnectionPlace>> {
        let (kind, permit) = self.free().await?;
        let place = Arc::new(ConnectionPlace {
            places: self.clone(),
            source,
            close: CancellationToken::new(),
            held: Mutex::new(HeldPlace {
                kind,
                _permit: permit,
                mark: Arc::new(()),
                silent: None,
                since: 0,
                is_over: false,
            }),
        });
        place.silent();
        Some(place)
    }

    async fn free(&self) -> Option<(PlaceKind, OwnedSemaphorePermit)> {
        loop {
            if let Ok(permit) = self.ordinary.clone().try_acquire_owned() {
                return Some((PlaceKind::Ordinary, permit));
            }
            if self.close_one(PlaceKind::Ordinary)
                && let Some(permit) = self.ordinary().await
            {
                return Some((PlaceKind::Ordinary, permit));
            }
            if let Ok(permit) = self.reserve.clone().try_acquire_owned() {
                return Some((PlaceKind::Reserve, permit));
            }
            if !self.close_one(PlaceKind::Reserve) && !self.silent.lock().is_one_leaving() {
                return None;
            }
            let reserve = self.reserve.clone().acquire_owned();
            tokio::select! {
                biased;
                Some(permit) = self.ordinary() => return Some((PlaceKind::Ordinary, permit)),
                Ok(Ok(permit)) = timeout(LOOK_AGAIN, reserve) => return Some((PlaceKind::Reserve, permit)),
                else => {}
            }
        }
    }

    /// An ordinary place, if one is left in a moment.
    async fn ordinary(&self) -> Option<OwnedSemaphorePermit> {
        let free = self.ordinary.clone().acquire_owned();
        timeout(LOOK_AGAIN, free).await.ok()?.ok()
    }

    /// Closes a silent connection. Whether there is one.
    fn close_one(&self, kind: PlaceKind) -> bool {
        let Some(close) = self.silent.lock().dismiss_one(kind) else {
            return false;
        };
        close.cancel();
        if let Some(closed) = self.closed.occurs() {
            tracing::info!(
                closed,
                "connections without a request are closed, because all places are taken; more files (ulimit -n) or \
                 connections of the configuration make more places"
            );
        }
        true
    }
}

/// The place of one connection.
#[derive(Debug)]
pub struct ConnectionPlace {
    places: Arc<Places>,
    source: IpAddr,
    close: CancellationToken,
    held: Mutex<HeldPlace>,
}

#[derive(Debug)]
struct HeldPlace {
    kind: PlaceKind,
    _permit: OwnedSemaphorePermit,
    /// Lives as long as the permit.
    mark: Arc<()>,
    /// Its number among the silent ones.
    silent: Option<u64>,
    /// The last such number.
    since: u64,
    /// The connection has ended, or is a WebSocket, which no request follows.
    is_over: bool,
}

impl ConnectionPlace {
    /// Waits until the connection has to go.
    pub async fn lost(&self) {
        self.close.cancelled().await;
    }

    /// A request is under way until the guard is dropped.
    pub fn busy(self: &Arc<Self>) -> Busy {
        Busy {
            is_dismissed: !self.speaks(),
            place: self.clone(),
        }
    }

    pub fn is_busy(&self) -> bool {
        self.held.lock().silent.is_none()
    }

    pub fn is_of_reserve(&self) -> bool {
        self.held.lock().kind == PlaceKind::Reserve
    }

    /// Exchanges a place of the reserve for an ordinary one. Returns false if there is none within `longest`, or if the
    /// place is needed meanwhile.
    pub async fn leave_reserve(&self, longest: Duration) -> bool {
        let needed = CancellationToken::new();
        // In the order in which the connections came: a new one has time to send its request.
        let since = self.held.lock().since;
        self.may_close(&needed, since);
        let permit = tokio::select! {
            biased;
            () = needed.cancelled() => None,
            permit = self.next_ordinary() => Some(permit),
            () = sleep(longest) => None,
        };
        self.speaks();
        let Some(permit) = permit else {
            return false;
        };
        let mut held = self.held.lock();
        *held = HeldPlace {
            kind: PlaceKind::Ordinary,
            _permit: permit,
            mark: Arc::new(()),
            silent: None,
            since: held.since,
            is_over: held.is_over,
        };
        true
    }

    async fn next_ordinary(&self) -> OwnedSemaphorePermit {
        loop {
            self.places.close_one(PlaceKind::Ordinary);
            if let Some(permit) = self.places.ordinary().await {
                return permit;
            }
        }
    }

    /// The connection has ended.
    pub fn end(&self) {
        self.held.lock().is_over = true;
        self.speaks();
    }

    fn silent(&self) {
        let number = self.places.silent.lock().next_number();
        self.may_close(&self.close, number);
    }

    /// From now on, `close` is cancelled when the place is needed.
    fn may_close(&self, close: &CancellationToken, number: u64) {
        let mut held = self.held.lock();
        if held.is_over {
            return;
        }
        held.since = number;
        let mut silent = self.places.silent.lock();
        let of_kind = silent.of(held.kind);
        // A request that waited for an ordinary place, and was given up by its client.
        if let Some(before) = held.silent.replace(number) {
            of_kind.remove(self.source, before);
        }
        let connection = SilentConnection {
            close: close.clone(),
            place: Arc::downgrade(&held.mark),
        };
        of_kind.insert(self.source, number, connection);
    }

    /// From now on, the connection may not be closed for another. Returns false if it has to go already.
    fn speaks(&self) -> bool {
        let mut held = self.held.lock();
        let Some(number) = held.silent.take() else {
            return true;
        };
        let mut silent = self.places.silent.lock();
        silent.of(held.kind).remove(self.source, number).is_some()
    }
}

/// A request that is under way, its response included.
#[derive(Debug)]
pub struct Busy {
    place: Arc<ConnectionPlace>,
    is_dismissed: bool,
}

impl Busy {
    /// True if the connection's place was given to another before the request arrived.
    pub fn is_dismissed(&self) -> bool {
        self.is_dismissed
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.place.silent();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[tokio::test]
    async fn the_source_with_most_silent_connections_gives_way() {
        let places = Places::new(4, 1);
        let of = |n| IpAddr::from(Ipv4Addr::from_bits(n));
        // The first has been silent for longest, and is the only one of its source.
        let quiet = places.enter(of(1)).await.unwrap();
        let mut others = Vec::new();
        for _ in 0..3 {
            others.push(places.enter(of(2)).await.unwrap());
        }
        assert!(!others[0].close.is_cancelled());
        let entering = tokio::spawn({
            let places = places.clone();
            async move { places.enter(of(2)).await }
        });
        others[0].lost().await;
        assert!(!quiet.close.is_cancelled());
        assert!(!others[1].close.is_cancelled());
        // It leaves its place, and the new one gets it.
        drop(others.remove(0));
        let new = entering.await.unwrap().unwrap();
        // One with a request under way is not closed, also if its source has most.
        let _busy: Vec<_> = others.iter().map(ConnectionPlace::busy).collect();
        let _also = new.busy();
        let entering = tokio::spawn({
            let places = places.clone();
            async move { places.enter(of(3)).await }
        });
        quiet.lost().await;
        drop(quiet);
        assert!(entering.await.unwrap().is_some());
    }

    const SOURCE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// A server with one ordinary place and one of the reserve, and the connection in each. The former is busy.
    async fn full() -> (Arc<Places>, Busy, Arc<ConnectionPlace>) {
        let places = Places::new(1, 1);
        let busy = places.enter(SOURCE).await.unwrap().busy();
        let reserve = places.enter(SOURCE).await.unwrap();
        assert!(reserve.is_of_reserve());
        (places, busy, reserve)
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_gets_no_place_where_nobody_leaves_one() {
        let (places, _busy, reserve) = full().await;
        let begun = Instant::now();
        let health = reserve.busy();
        assert!(places.enter(SOURCE).await.is_none());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        // One that has to leave is waited for, but not for ever.
        drop(health);
        assert!(places.enter(SOURCE).await.is_none());
        assert!(reserve.close.is_cancelled());
        assert!(begun.elapsed() >= LEAVE_TIME && begun.elapsed() < 2 * LEAVE_TIME);
        drop(reserve);
        assert!(places.enter(SOURCE).await.is_some());
    }

    #[tokio::test]
    async fn a_request_that_arrives_after_its_place_was_given_away_is_told() {
        let places = Places::new(1, 0);
        let first = places.enter(SOURCE).await.unwrap();
        assert!(!first.busy().is_dismissed());
        assert!(places.close_one(PlaceKind::Ordinary));
        assert!(!first.is_busy());
        let request = first.busy();
        assert!(request.is_dismissed() && first.is_busy());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_the_reserve_waits_for_a_place_for_a_time() {
        let (_places, _busy, reserve) = full().await;
        let (begun, longest) = (Instant::now(), Duration::from_secs(20));
        let _request = reserve.busy();
        assert!(!reserve.leave_reserve(longest).await);
        assert!((longest..2 * longest).contains(&begun.elapsed()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_its_client_gave_up_leaves_nothing_behind() {
        let (places, _busy, reserve) = full().await;
        let request = reserve.busy();
        let waiting = reserve.leave_reserve(Duration::from_secs(20));
        assert!(timeout(Duration::from_secs(1), waiting).await.is_err());
        drop(request);
        assert_eq!(places.silent.lock().reserve.0[&SOURCE].len(), 1);
        reserve.end();
        assert!(places.silent.lock().reserve.0.is_empty());
    }
}
