//! The places of a server's connections, and which connection gives up its own when all are taken.
//!
//! A connection has a request under way, or it is silent: it has sent no whole head yet, or waits for its client's next
//! request. When all places are taken, the connection that has been silent for longest is closed for a new one, so
//! clients that only connect keep nobody out. If all have requests under way, a new connection gets a place of the
//! reserve. A request for health or administration is served there; another one waits for an ordinary place, and gives
//! up when its place of the reserve is needed.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Wait before it is looked again for a connection that may be closed. One that is closed leaves its place at once.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// All places of a server.
#[derive(Debug)]
pub struct Places {
    ordinary: Arc<Semaphore>,
    reserve: Arc<Semaphore>,
    silent: Mutex<Silent>,
}

/// Connections that may be closed for others, by the order in which they fell silent.
#[derive(Debug, Default)]
struct Silent {
    ordinary: BTreeMap<u64, CancellationToken>,
    reserve: BTreeMap<u64, CancellationToken>,
    last: u64,
}

impl Silent {
    fn of(&mut self, kind: PlaceKind) -> &mut BTreeMap<u64, CancellationToken> {
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
        })
    }

    /// A place for a new connection, which is silent. Waits if every connection has a request under way.
    pub async fn enter(self: &Arc<Self>) -> Arc<ConnectionPlace> {
        let (kind, permit) = self.free().await;
        let place = Arc::new(ConnectionPlace {
            places: self.clone(),
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

    /// Closes the connection that has been silent for longest. Whether there is one.
    fn close_one(&self, kind: PlaceKind) -> bool {
        let first = self.silent.lock().of(kind).pop_first();
        let Some((_, close)) = first else {
            return false;
        };
        close.cancel();
        true
    }
}

/// The place of one connection.
#[derive(Debug)]
pub struct ConnectionPlace {
    places: Arc<Places>,
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
        silent.of(held.kind).insert(number, close.clone());
        held.silent = Some(number);
    }

    fn speaks(&self) {
        let mut held = self.held.lock();
        if let Some(number) = held.silent.take() {
            self.places.silent.lock().of(held.kind).remove(&number);
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
