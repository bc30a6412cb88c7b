//! What the tasks of a run tell while they work, before they are done.

use crate::run::machine::{Effects, Input, Machine};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use toolhold_model::CompletionObserver;
use toolhold_protocol::completion::Delta;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::routing::Routing;
use toolhold_protocol::side_request::SideRequest;

/// What a task tells while it works.
pub(super) enum TaskUpdate {
    /// By the model.
    Wrote(Delta),
    /// Another event, which must not change the state of the run.
    Event(Box<EventKind>),
}

impl TaskUpdate {
    pub(super) fn to(self, machine: &mut Machine, elapsed: Duration) -> Effects {
        let input = match self {
            Self::Wrote(delta) => Input::Wrote(delta),
            Self::Event(event) => match *event {
                EventKind::SideRequest(request) => Input::SideRequest(request),
                event => {
                    return Effects {
                        events: vec![event],
                        actions: Vec::new(),
                    };
                }
            },
        };
        machine.handle(input, elapsed)
    }
}

pub(super) struct Listener {
    run: mpsc::UnboundedSender<TaskUpdate>,
    /// When the last attempt began: what went before is no time of the endpoint.
    pub(super) asked: Instant,
}

impl Listener {
    pub(super) fn new(run: mpsc::UnboundedSender<TaskUpdate>) -> Self {
        Self {
            run,
            asked: Instant::now(),
        }
    }

    fn tell(&self, told: TaskUpdate) {
        // An ended run drops updates.
        let _ = self.run.send(told);
    }
}

impl CompletionObserver for Listener {
    fn delta(&mut self, delta: Delta) {
        self.tell(TaskUpdate::Wrote(delta));
    }

    fn routing(&mut self, routing: Routing) {
        match &routing {
            // Told before the wait.
            Routing::Retry { wait_ms, .. } => {
                self.asked = Instant::now() + Duration::from_millis(*wait_ms);
            }
            // Told after it.
            Routing::Waited { .. } | Routing::MemberFailed { .. } => self.asked = Instant::now(),
            _ => {}
        }
        self.tell(TaskUpdate::Event(Box::new(EventKind::Routing(routing))));
    }

    fn side_request(&mut self, request: SideRequest) {
        self.tell(TaskUpdate::Event(Box::new(EventKind::SideRequest(request))));
    }
}
