//! The places of a server's connections, and which connection gives up its own when all are taken.
//!
//! A connection has a request under way, or it is silent: it has sent no whole head yet, or waits for its client's next
//! request. When all places are taken, a silent connection is closed for a new one, so clients that only connect keep no
//! other out: of the source that has most silent ones, the one that has been silent for longest. So no source loses a
//! connection because another one opens many. If all have requests under way, a new connection gets a place of the
//! reserve. A request for health or administration is served there; another one waits for an ordinary place, and gives
//! up when its place of the reserve is needed.

use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use toolhold_admission::Seldom;

/// Wait before it is looked again for a connection that may be closed. One that is closed leaves its place at once.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// All places of a server.
#[derive(Debug)]
pub struct Places {
    ordinary: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    silent: Mutex<Silent>,
    closed: Seldom,
    kept_out: Seldom,
}

/// How often it is logged that connections are closed for others, or that requests find all of them busy.
const LOG_PERIOD: Duration = Duration::from_secs(10);

/// Connections that may be closed for others.
#[derive(Debug, Default)]
struct Silent {
    ordinary: SilentOfKind,
    reserve: SilentOfKind,
    last: u64,
}

/// By source, and by the order in which they fell silent.
#[derive(Debug, Default)]
struct SilentOfKind(HashMap<IpAddr, BTreeMap<u64, CancellationToken>>);

impl SilentOfKind {
    fn insert(&mut self, source: IpAddr, number: u64, close: CancellationToken) {
        self.0.entry(source).or_default().insert(number, close);
    }

    fn remove(&mut self, source: IpAddr, number: u64) {
        if let Some(own) = self.0.get_mut(&source) {
            own.remove(&number);
            if own.is_empty() {
                self.0.remove(&source);
            }
        }
    }

    /// Takes the first one of the source that has most; of equal sources, the first of all.
    fn pop(&mut self) -> Option<CancellationToken> {
        let most = self.0.iter().max_by_key(|(_, own)| {
            let first = own.keys().next().copied().unwrap_or(u64::MAX);
            (own.len(), Reverse(first))
        });
        let source = *most?.0;
        let (number, close) = self.0.get(&source)?.first_key_value()?;
        let (number, close) = (*number, close.clone());
        self.remove(source, number);
        Some(close)
    }
}

impl Silent {
    fn of(&mut self, kind: PlaceKind) -> &mut SilentOfKind {
        match kind {
            PlaceKind::Ordinary => &mut self.ordinary,
            PlaceKind::Reserve => &mut self.reserve,
        }
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
            kept_out: Seldom::every(LOG_PERIOD),
        })
    }

    /// A place for a new connection, which is silent. Waits if every connection has a request under way.
    pub async fn enter(self: &Arc<Self>, source: IpAddr) -> Arc<ConnectionPlace> {
        let (kind, permit) = self.free().await;
        let place = Arc::new(ConnectionPlace {
            places: self.clone(),
            source,
            close: CancellationToken::new(),
            held: Mutex::new(HeldPlace {
                kind,
                _permit: permit,
                silent: None,
                is_over: false,
            }),
        });
        place.silent();
        place
    }

    async fn free(&self) -> (PlaceKind, OwnedSemaphorePermit) {
        loop {
            if let Ok(permit) = self.ordinary.clone().try_acquire_owned() {
                return (PlaceKind::Ordinary, permit);
            }
            if self.close_one(PlaceKind::Ordinary)
                && let Some(permit) = self.ordinary().await
            {
                return (PlaceKind::Ordinary, permit);
            }
            if let Ok(permit) = self.reserve.clone().try_acquire_owned() {
                return (PlaceKind::Reserve, permit);
            }
            self.close_one(PlaceKind::Reserve);
            let reserve = self.reserve.clone().acquire_owned();
            tokio::select! {
                biased;
                Some(permit) = self.ordinary() => return (PlaceKind::Ordinary, permit),
                Ok(Ok(permit)) = timeout(LOOK_AGAIN, reserve) => return (PlaceKind::Reserve, permit),
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
        let Some(close) = self.silent.lock().of(kind).pop() else {
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
    /// Its number among the silent ones.
    silent: Option<u64>,
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
        self.speaks();
        Busy(self.clone())
    }

    /// Counts a request that is refused because all connections are busy. Returns how many were since that was last
    /// logged, if it is to be logged.
    pub fn kept_out(&self) -> Option<u64> {
        self.places.kept_out.occurs()
    }

    pub fn is_of_reserve(&self) -> bool {
        self.held.lock().kind == PlaceKind::Reserve
    }

    /// Exchanges a place of the reserve for an ordinary one. Not so if the place is needed meanwhile.
    pub async fn leave_reserve(&self) -> bool {
        let needed = CancellationToken::new();
        self.may_close(&needed);
        let permit = tokio::select! {
            biased;
            () = needed.cancelled() => None,
            permit = self.next_ordinary() => Some(permit),
        };
        self.speaks();
        let Some(permit) = permit else {
            return false;
        };
        let mut held = self.held.lock();
        *held = HeldPlace {
            kind: PlaceKind::Ordinary,
            _permit: permit,
            silent: None,
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
        self.may_close(&self.close);
    }

    /// From now on, `close` is cancelled when the place is needed.
    fn may_close(&self, close: &CancellationToken) {
        let mut held = self.held.lock();
        if held.is_over {
            return;
        }
        let mut silent = self.places.silent.lock();
        silent.last += 1;
        let number = silent.last;
        silent
            .of(held.kind)
            .insert(self.source, number, close.clone());
        held.silent = Some(number);
    }

    fn speaks(&self) {
        let mut held = self.held.lock();
        if let Some(number) = held.silent.take() {
            let mut silent = self.places.silent.lock();
            silent.of(held.kind).remove(self.source, number);
        }
    }
}

/// A request that is under way, its response included.
#[derive(Debug)]
pub struct Busy(Arc<ConnectionPlace>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.silent();
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
        let quiet = places.enter(of(1)).await;
        let mut others = Vec::new();
        for _ in 0..3 {
            others.push(places.enter(of(2)).await);
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
        let new = entering.await.unwrap();
        // One with a request under way is not closed, also if its source has most.
        let _busy: Vec<_> = others.iter().map(ConnectionPlace::busy).collect();
        let _also = new.busy();
        let entering = tokio::spawn({
            let places = places.clone();
            async move { places.enter(of(3)).await }
        });
        quiet.lost().await;
        drop(quiet);
        entering.await.unwrap();
    }
}
