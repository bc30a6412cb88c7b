//! The permit of one run to work: held while it asks a model or calls tools, and released while it does nothing
//! but wait for a person.

use crate::runs::parked_runs::{ParkPermit, ParkedRuns};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolhold_admission::{FairQueue, Lane, Permit};
use toolhold_agent::run::approval::Approver;
use toolhold_agent::{Driver, ResolvedModule, ToolCall, Toolbox};
use toolhold_model::{ChatRequest, Counter, Model, ModelError, RunContext, Watch};
use toolhold_protocol::approval::{Decision, Pending};
use toolhold_protocol::completion::Completion;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::tool::Tool;
use uuid::Uuid;

/// Where the permits of one owner's runs come from and go back to.
#[derive(Debug, Clone)]
pub struct AdmissionHandle {
    pub admission: Arc<FairQueue<String>>,
    pub lane: Lane<String>,
    /// Runs of that owner that may work at the same time.
    pub most: usize,
    pub parked: Arc<ParkedRuns>,
}

/// The permit of one run. Clones are the same permit.
#[derive(Debug, Clone)]
pub struct RunPermit {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    admission: AdmissionHandle,
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
    Place(#[expect(dead_code, reason = "held until it is dropped")] Permit<String>),
    Nothing(#[expect(dead_code, reason = "held until it is dropped")] ParkPermit),
}

/// Something of the run that goes on; until it is dropped.
#[derive(Debug)]
struct Working(RunPermit);

/// A call waits for a person, and meanwhile nothing is done by those that it is nested in.
#[derive(Debug)]
struct AskingAPerson {
    permit: RunPermit,
    callers: usize,
}

impl RunPermit {
    pub fn new(place: Permit<String>, admission: AdmissionHandle) -> Self {
        let state = State {
            has: Has::Place(place),
            working: 0,
            waiting: 0,
        };
        Self {
            inner: Arc::new(Inner {
                admission,
                state: Mutex::new(state),
                fetching: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// What makes a run of `driver` keep to this. Work that it does not know of, such as calls of MCP
    /// servers, needs no place of its own: it is the servers'.
    pub fn take(&self, driver: Driver) -> Driver {
        let permitted = |model| -> Arc<dyn Model> {
            Arc::new(PermittedModel {
                permit: self.clone(),
                model,
            })
        };
        let candidates: BTreeMap<_, _> = driver
            .candidates
            .into_iter()
            .map(|(name, model)| (name, permitted(model)))
            .collect();
        Driver {
            model: permitted(driver.model),
            candidates,
            toolbox: Arc::new(PermittedToolbox {
                permit: self.clone(),
                toolbox: driver.toolbox,
            }),
            approver: Arc::new(ParkingApprover {
                permit: self.clone(),
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
            let admission = &self.inner.admission;
            let place = admission
                .admission
                .enter_again(admission.lane.clone(), admission.most)
                .await;
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
            permit: self.clone(),
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
        let admission = &self.inner.admission;
        let Some(park) = admission.parked.park(admission.lane.clone()) else {
            return;
        };
        let had = std::mem::replace(&mut state.has, Has::Nothing(park));
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
        self.permit.changed(|state| {
            state.waiting -= 1;
            state.working += self.callers;
        });
    }
}

/// Waits for a person without a place, and takes a place again before the decision is acted on.
#[derive(Debug)]
struct ParkingApprover {
    permit: RunPermit,
    approver: Arc<dyn Approver>,
}

impl Approver for ParkingApprover {
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            let asking = self.permit.ask_a_person(pending.callers.len());
            let decision = self.approver.decide(run, pending).await;
            let working = self.permit.work().await;
            drop(asking);
            drop(working);
            decision
        })
    }
}

#[derive(Debug)]
struct PermittedModel {
    permit: RunPermit,
    model: Arc<dyn Model>,
}

impl Model for PermittedModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn Watch,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let _working = self.permit.work().await;
            self.model.complete(request, watch).await
        })
    }

    fn session(&self, session: &RunContext<'_>) -> Option<Arc<dyn Model>> {
        let model = self.model.session(session)?;
        Some(Arc::new(Self {
            permit: self.permit.clone(),
            model,
        }))
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        self.model.counter()
    }
}

#[derive(Debug)]
struct PermittedToolbox {
    permit: RunPermit,
    toolbox: Arc<dyn Toolbox>,
}

impl Toolbox for PermittedToolbox {
    fn tools(&self) -> Vec<Tool> {
        self.toolbox.tools()
    }

    fn tool(&self, name: &str) -> Option<Tool> {
        self.toolbox.tool(name)
    }

    fn module<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<ResolvedModule, String>> {
        self.toolbox.module(name)
    }

    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            let _working = self.permit.work().await;
            self.toolbox.call(call).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn lane() -> Lane<String> {
        Lane::of("ada".to_owned())
    }

    async fn permit(admission: &Arc<FairQueue<String>>, parked: usize) -> RunPermit {
        let soon = Instant::now() + Duration::from_secs(5);
        let place = admission.enter(lane(), 9, soon.into()).await.unwrap();
        let admission = AdmissionHandle {
            admission: admission.clone(),
            lane: lane(),
            most: 9,
            parked: ParkedRuns::new(parked),
        };
        RunPermit::new(place, admission)
    }

    #[tokio::test]
    async fn a_place_is_free_while_a_run_does_nothing_but_wait() {
        let admission = FairQueue::new(1, 9);
        let permit = permit(&admission, 1).await;
        let call = permit.work().await;
        let asking = permit.ask_a_person(0);
        assert_eq!(admission.free(), 0, "another call goes on");
        drop(call);
        assert_eq!(admission.free(), 1);
        let taken = admission
            .enter(lane(), 9, Instant::now().into())
            .await
            .unwrap();
        drop(asking);
        let again = tokio::spawn({
            let permit = permit.clone();
            async move { permit.work().await }
        });
        tokio::task::yield_now().await;
        assert!(!again.is_finished());
        drop(taken);
        let working = again.await.unwrap();
        assert_eq!(admission.free(), 0);
        drop(working);
        assert_eq!(admission.free(), 0, "it goes on");
        drop(permit);
        assert_eq!(admission.free(), 1);
    }

    #[tokio::test]
    async fn a_call_that_waits_within_another_frees_the_place_of_both() {
        let admission = FairQueue::new(1, 9);
        let permit = permit(&admission, 1).await;
        let caller = permit.work().await;
        let asking = permit.ask_a_person(1);
        assert_eq!(admission.free(), 1);
        let working = permit.work().await;
        drop(asking);
        assert_eq!(admission.free(), 0);
        drop((working, caller));
        assert_eq!(admission.free(), 0, "the run goes on");
    }

    #[tokio::test]
    async fn no_more_than_may_be_are_without_a_place() {
        let admission = FairQueue::new(1, 9);
        let permit = permit(&admission, 0).await;
        let _asking = permit.ask_a_person(0);
        assert_eq!(admission.free(), 0);
        drop(permit.work().await);
    }

    #[tokio::test]
    async fn whoever_gives_up_leaves_no_trace() {
        let admission = FairQueue::new(1, 9);
        let permit = permit(&admission, 1).await;
        let asking = permit.ask_a_person(0);
        let taken = admission
            .enter(lane(), 9, Instant::now().into())
            .await
            .unwrap();
        let waits = tokio::spawn({
            let permit = permit.clone();
            async move { drop(permit.work().await) }
        });
        tokio::task::yield_now().await;
        waits.abort();
        assert!(waits.await.is_err());
        drop((asking, taken, permit));
        assert_eq!((admission.free(), admission.waiting()), (1, 0));
    }
}
