//! The place of one run: held while it works, and given back while all that it does is to wait for a person.

use crate::serve::away::{Away, Leave};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolhold_agent::model::{ChatRequest, Completion, Counter, Model, ModelError, Session, Watch};
use toolhold_agent::run::approval::{Approver, Decision, Pending};
use toolhold_agent::{Driver, Module, Tool, ToolCall, ToolResult, Toolbox};
use toolhold_sandbox::admission::{Admission, Lane, Place};
use uuid::Uuid;

/// Where places come from and go back to, for the runs of one owner.
#[derive(Debug, Clone)]
pub struct Desk {
    pub admission: Arc<Admission>,
    pub lane: Lane,
    /// Places of that owner.
    pub most: usize,
    pub away: Arc<Away>,
}

/// Clones are the same seat.
#[derive(Debug, Clone)]
pub struct Seat {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    desk: Desk,
    state: Mutex<State>,
    /// One at a time goes for a place.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    has: Has,
    /// Requests to a model and calls of tools that go on.
    working: usize,
    /// Calls that wait for a person.
    waiting: usize,
}

#[derive(Debug)]
enum Has {
    Place(#[expect(dead_code, reason = "held until it is dropped")] Place),
    Nothing(#[expect(dead_code, reason = "held until it is dropped")] Leave),
}

/// Something of the run that goes on; until it is dropped.
#[derive(Debug)]
struct Working(Seat);

/// A call waits for a person, and meanwhile nothing is done by those that it is nested in.
#[derive(Debug)]
struct AskingAPerson {
    seat: Seat,
    callers: usize,
}

impl Seat {
    pub fn new(place: Place, desk: Desk) -> Self {
        let state = State {
            has: Has::Place(place),
            working: 0,
            waiting: 0,
        };
        Self {
            inner: Arc::new(Inner {
                desk,
                state: Mutex::new(state),
                fetching: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// What makes a run of `driver` keep to this. Work that it does not know of, such as calls of MCP
    /// servers, needs no place of its own: it is the servers'.
    pub fn take(&self, driver: Driver) -> Driver {
        let seated = |model| -> Arc<dyn Model> {
            Arc::new(Seated {
                seat: self.clone(),
                model,
            })
        };
        let candidates: BTreeMap<_, _> = driver
            .candidates
            .into_iter()
            .map(|(name, model)| (name, seated(model)))
            .collect();
        Driver {
            model: seated(driver.model),
            candidates,
            toolbox: Arc::new(Tools {
                seat: self.clone(),
                toolbox: driver.toolbox,
            }),
            approver: Arc::new(Leaving {
                seat: self.clone(),
                approver: driver.approver,
            }),
            ..driver
        }
    }

    async fn work(&self) -> Working {
        if let Some(working) = self.begin() {
            return working;
        }
        let _turn = self.inner.fetching.lock().await;
        loop {
            if let Some(working) = self.begin() {
                return working;
            }
            let desk = &self.inner.desk;
            let place = desk.admission.enter_again(desk.lane, desk.most).await;
            self.lock().has = Has::Place(place);
        }
    }

    /// If there is a place.
    fn begin(&self) -> Option<Working> {
        let mut state = self.lock();
        if matches!(state.has, Has::Nothing(_)) {
            return None;
        }
        state.working += 1;
        Some(Working(self.clone()))
    }

    /// For a call that is nested in so many.
    fn ask_a_person(&self, callers: usize) -> AskingAPerson {
        self.changed(|state| {
            state.waiting += 1;
            state.working = state.working.saturating_sub(callers);
        });
        AskingAPerson {
            seat: self.clone(),
            callers,
        }
    }

    /// Gives the place back if nobody needs it. A run keeps it if too many are without one already.
    fn changed(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let is_idle = state.working == 0 && state.waiting > 0;
        if !is_idle || matches!(state.has, Has::Nothing(_)) {
            return;
        }
        let desk = &self.inner.desk;
        let Some(leave) = desk.away.leave(desk.lane) else {
            return;
        };
        let had = std::mem::replace(&mut state.has, Has::Nothing(leave));
        // Whoever is served next is told without our lock.
        drop(state);
        drop(had);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.changed(|state| state.working -= 1);
    }
}

impl Drop for AskingAPerson {
    fn drop(&mut self) {
        self.seat.changed(|state| {
            state.waiting -= 1;
            state.working += self.callers;
        });
    }
}

/// Waits for a person without a place, and for a place with what was decided: a decision that is recorded is
/// acted on at once.
#[derive(Debug)]
struct Leaving {
    seat: Seat,
    approver: Arc<dyn Approver>,
}

impl Approver for Leaving {
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            let asking = self.seat.ask_a_person(pending.callers.len());
            let decision = self.approver.decide(run, pending).await;
            let working = self.seat.work().await;
            drop(asking);
            drop(working);
            decision
        })
    }
}

#[derive(Debug)]
struct Seated {
    seat: Seat,
    model: Arc<dyn Model>,
}

impl Model for Seated {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn Watch,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let _working = self.seat.work().await;
            self.model.complete(request, watch).await
        })
    }

    fn session(&self, session: &Session<'_>) -> Option<Arc<dyn Model>> {
        let model = self.model.session(session)?;
        Some(Arc::new(Self {
            seat: self.seat.clone(),
            model,
        }))
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        self.model.counter()
    }
}

#[derive(Debug)]
struct Tools {
    seat: Seat,
    toolbox: Arc<dyn Toolbox>,
}

impl Toolbox for Tools {
    fn tools(&self) -> Vec<Tool> {
        self.toolbox.tools()
    }

    fn tool(&self, name: &str) -> Option<Tool> {
        self.toolbox.tool(name)
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Module, String>> {
        self.toolbox.module(name)
    }

    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let _working = self.seat.work().await;
            self.toolbox.call(call).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    const LANE: Lane = Lane {
        module: 1,
        caller: 0,
    };

    async fn seat(admission: &Arc<Admission>, away: usize) -> Seat {
        let soon = Instant::now() + Duration::from_secs(5);
        let place = admission.enter(LANE, 9, soon).await.unwrap();
        let desk = Desk {
            admission: admission.clone(),
            lane: LANE,
            most: 9,
            away: Away::new(away),
        };
        Seat::new(place, desk)
    }

    #[tokio::test]
    async fn a_place_is_free_while_a_run_does_nothing_but_wait() {
        let admission = Admission::new(1, 9);
        let seat = seat(&admission, 1).await;
        let call = seat.work().await;
        let asking = seat.ask_a_person(0);
        assert_eq!(admission.free(), 0, "another call goes on");
        drop(call);
        assert_eq!(admission.free(), 1);
        let taken = admission.enter(LANE, 9, Instant::now()).await.unwrap();
        drop(asking);
        let again = tokio::spawn({
            let seat = seat.clone();
            async move { seat.work().await }
        });
        tokio::task::yield_now().await;
        assert!(!again.is_finished());
        drop(taken);
        let working = again.await.unwrap();
        assert_eq!(admission.free(), 0);
        drop(working);
        assert_eq!(admission.free(), 0, "it goes on");
        drop(seat);
        assert_eq!(admission.free(), 1);
    }

    #[tokio::test]
    async fn a_call_that_waits_within_another_frees_the_place_of_both() {
        let admission = Admission::new(1, 9);
        let seat = seat(&admission, 1).await;
        let caller = seat.work().await;
        let asking = seat.ask_a_person(1);
        assert_eq!(admission.free(), 1);
        let working = seat.work().await;
        drop(asking);
        assert_eq!(admission.free(), 0);
        drop((working, caller));
        assert_eq!(admission.free(), 0, "the run goes on");
    }

    #[tokio::test]
    async fn no_more_than_may_be_are_without_a_place() {
        let admission = Admission::new(1, 9);
        let seat = seat(&admission, 0).await;
        let _asking = seat.ask_a_person(0);
        assert_eq!(admission.free(), 0);
        drop(seat.work().await);
    }

    #[tokio::test]
    async fn whoever_gives_up_leaves_no_trace() {
        let admission = Admission::new(1, 9);
        let seat = seat(&admission, 1).await;
        let asking = seat.ask_a_person(0);
        let taken = admission.enter(LANE, 9, Instant::now()).await.unwrap();
        let waits = tokio::spawn({
            let seat = seat.clone();
            async move { drop(seat.work().await) }
        });
        tokio::task::yield_now().await;
        waits.abort();
        assert!(waits.await.is_err());
        drop((asking, taken, seat));
        assert_eq!((admission.free(), admission.waiting()), (1, 0));
    }
}
