//! Records whether a piece of the answer was given out: after that the request is not sent again, and its endpoint answers.

use crate::model::CompletionObserver;
use futures_util::future::BoxFuture;
use toolhold_protocol::completion::Delta;
use toolhold_protocol::routing::Routing;
use toolhold_protocol::side_request::SideRequest;

/// Passes everything on.
pub(super) struct ObserverRelay<'a> {
    watch: &'a mut dyn CompletionObserver,
    pub has_spoken: bool,
    /// Called before each piece. Returns what the piece decides about the endpoint.
    heard: Option<&'a mut (dyn FnMut() -> Option<Routing> + Send)>,
}

impl<'a> ObserverRelay<'a> {
    pub fn new(watch: &'a mut dyn CompletionObserver) -> Self {
        Self {
            watch,
            has_spoken: false,
            heard: None,
        }
    }

    /// A relay that calls `heard` before each piece.
    pub fn hearing(
        watch: &'a mut dyn CompletionObserver,
        heard: &'a mut (dyn FnMut() -> Option<Routing> + Send),
    ) -> Self {
        Self {
            heard: Some(heard),
            ..Self::new(watch)
        }
    }
}

impl CompletionObserver for ObserverRelay<'_> {
    fn delta(&mut self, delta: Delta) {
        self.has_spoken = true;
        if let Some(heard) = &mut self.heard
            && let Some(decided) = heard()
        {
            self.watch.routing(decided);
        }
        self.watch.delta(delta);
    }

    fn routing(&mut self, routing: Routing) {
        self.watch.routing(routing);
    }

    fn side_request(&mut self, request: SideRequest) {
        self.watch.side_request(request);
    }

    fn room(&mut self) -> BoxFuture<'static, ()> {
        self.watch.room()
    }
}
