//! Records whether a piece of the answer was given out: after that the request is not sent again.

use crate::model::Watch;
use toolhold_protocol::completion::Delta;
use toolhold_protocol::routing::Routing;
use toolhold_protocol::side_request::SideRequest;

/// Passes everything on.
pub(super) struct Listening<'a> {
    watch: &'a mut dyn Watch,
    pub has_spoken: bool,
}

impl<'a> Listening<'a> {
    pub fn new(watch: &'a mut dyn Watch) -> Self {
        Self {
            watch,
            has_spoken: false,
        }
    }
}

impl Watch for Listening<'_> {
    fn delta(&mut self, delta: Delta) {
        self.has_spoken = true;
        self.watch.delta(delta);
    }

    fn routing(&mut self, routing: Routing) {
        self.watch.routing(routing);
    }

    fn side_request(&mut self, request: SideRequest) {
        self.watch.side_request(request);
    }
}
