//! A run's permit to work: held while the run asks a model or calls tools, released while it only waits for a
//! person, or for the jobs of its calls.

use crate::rights::Right;
use crate::runs::parked_runs::{ParkPermit, ParkedRuns};
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use toolhold_admission::{FairQueue, Lane, Permit};
use toolhold_agent::run::decider::Decider;
use toolhold_agent::{Activity, Driver, ToolCall, ToolRunner, Toolbox};
use toolhold_model::{ChatRequest, CompletionObserver, Counter, Model, ModelError, RunContext};
use toolhold_policy::JobQuestion;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::decision::{Decision, Pending};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::tool::Annotations;
use uuid::Uuid;

/// The admission of one owner's runs.
#[derive(Debug, Clone)]
pub struct AdmissionHandle {
    pub admission: Arc<FairQueue<String>>,
    pub lane: Lane<String>,
    /// The most runs of that owner that work at the same time.
    pub most: usize,
    pub parked: Arc<ParkedRuns>,
    /// The owner's right to run: without it no step begins.
    pub right: Right,
}

/// The permit of one run. Clones share it.
#[derive(Debug, Clone)]
pub struct RunPermit {
    inner: Arc<PermitInner>,
}

#[derive(Debug)]
struct PermitInner {
    admission: AdmissionHandle,
    state: Mutex<PermitState>,
    /// Serializes the tasks that wait for a place.
    fetching: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct PermitState {
    has: HeldPermit,
    /// Requests to a model and tool calls in progress.
    working: usize,
    /// Calls that wait for a person or for their job.
    waiting: usize,
}

#[derive(Debug)]
enum HeldPermit {
    Place(#[expect(dead_code, reason = "held until it is dropped")] Permit<String>),
    Nothing(#[expect(dead_code, reason = "held until it is dropped")] ParkPermit),
}

/// Work of the run in progress; ends when dropped.
#[derive(Debug)]
struct WorkInProgress(RunPermit);

/// A call waits for a person, and the calls that it is nested in wait for it.
#[derive(Debug)]
struct PersonWait {
    permit: RunPermit,
    callers: usize,
}

impl RunPermit {
    pub fn new(place: Permit<String>, admission: AdmissionHandle) -> Self {
        let state = PermitState {
            has: HeldPermit::Place(place),
            working: 0,
            waiting: 0,
        };
        Self {
            inner: Arc::new(PermitInner {
                admission,
                state: Mutex::new(state),
                fetching: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// Makes `run`, a run of `driver`, hold its permit while it works. Work outside of this process, such as that of
    /// MCP servers, needs no permit; but it needs the owner's right, as every step does.
    pub fn take(&self, driver: Driver, run: Uuid) -> Driver {
        let permitted = |model| -> Arc<dyn Model> {
            Arc::new(PermittedModel {
                permit: self.clone(),
                run,
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
            activities: driver.activities.wrapped(|activity| {
                Arc::new(RightfulActivity {
                    permit: self.clone(),
                    activity,
                })
            }),
            toolbox: Toolbox {
                source: driver.toolbox.source,
                runner: Arc::new(PermittedRunner {
                    permit: self.clone(),
                    runner: driver.toolbox.runner,
                }),
            },
            decider: Arc::new(ParkingDecider {
                permit: self.clone(),
                decider: driver.decider,
            }),
            begin: Some(Arc::new(self.right().clone())),
            ..driver
        }
    }

    /// The right of the run's owner.
    pub fn right(&self) -> &Right {
        &self.inner.admission.right
    }

    /// Begins a step of the run: a request to a model, or a call. Where the owner's right has ended, the step waits until
    /// the run is cancelled, which drops it.
    async fn step(&self) -> WorkInProgress {
        let working = self.work().await;
        self.look().await;
        working
    }

    async fn look(&self) {
        if self.right().look().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn work(&self) -> WorkInProgress {
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
            self.lock().has = HeldPermit::Place(place);
        }
    }

    /// Takes a place if one is free.
    fn begin(&self) -> Option<WorkInProgress> {
        let mut state = self.lock();
        if matches!(state.has, HeldPermit::Nothing(_)) {
            return None;
        }
        state.working += 1;
        Some(WorkInProgress(self.clone()))
    }

    /// Counts a call that waits for a person. The `callers` calls that it is nested in do not work meanwhile.
    fn ask_a_person(&self, callers: usize) -> PersonWait {
        self.changed(|state| {
            state.waiting += 1;
            state.working = state.working.saturating_sub(callers);
        });
        PersonWait {
            permit: self.clone(),
            callers,
        }
    }

    /// Releases the place if nothing of the run works. The run keeps it if too many runs are parked already.
    fn changed(&self, change: impl FnOnce(&mut PermitState)) {
        let mut state = self.lock();
        change(&mut state);
        let is_idle = state.working == 0 && state.waiting > 0;
        if !is_idle || matches!(state.has, HeldPermit::Nothing(_)) {
            return;
        }
        let admission = &self.inner.admission;
        let Some(park) = admission.parked.park(admission.lane.clone()) else {
            return;
        };
        let had = std::mem::replace(&mut state.has, HeldPermit::Nothing(park));
        // The next run in the queue is notified after the lock is released.
        drop(state);
        drop(had);
    }

    fn lock(&self) -> MutexGuard<'_, PermitState> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WorkInProgress {
    fn drop(&mut self) {
        self.0.changed(|state| state.working -= 1);
    }
}

impl Drop for PersonWait {
    fn drop(&mut self) {
        self.permit.changed(|state| {
            state.waiting -= 1;
            state.working += self.callers;
        });
    }
}

/// Waits for a person without a place, and takes a place again before the decision is applied.
#[derive(Debug)]
struct ParkingDecider {
    permit: RunPermit,
    decider: Arc<dyn Decider>,
}

impl Decider for ParkingDecider {
    fn decide<'a>(&'a self, run: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            let asking = self.permit.ask_a_person(pending.callers.len());
            let decision = self.decider.decide(run, pending).await;
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
    run: Uuid,
    model: Arc<dyn Model>,
}

impl Model for PermittedModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let _working = self.permit.step().await;
            let owner = self.permit.inner.admission.lane.group.as_str();
            // With its owner, so that owners take turns at an endpoint, and with its run, which the log names.
            let request = ChatRequest {
                owner: owner.into(),
                run: Some(self.run),
                ..request.clone()
            };
            self.model.complete(&request, watch).await
        })
    }

    fn session(&self, session: &RunContext<'_>) -> Option<Arc<dyn Model>> {
        let model = self.model.session(session)?;
        Some(Arc::new(Self {
            permit: self.permit.clone(),
            run: self.run,
            model,
        }))
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        self.model.counter()
    }
}

#[derive(Debug)]
struct PermittedRunner {
    permit: RunPermit,
    runner: Arc<dyn ToolRunner>,
}

impl ToolRunner for PermittedRunner {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            if let Some(JobQuestion::Cancel(_)) = call.job {
                // A run that ends waits for no place to tell its jobs, and tells them nothing without its owner's right.
                if self.permit.right().look().await.is_err() {
                    return ToolResult::failed(ToolFailure::correctable(
                        "revoked",
                        "the run's owner may call nothing any more",
                    ));
                }
                return self.runner.call(call).await;
            }
            let _working = self.permit.step().await;
            self.runner.call(call).await
        })
    }

    fn idle(&self) -> Box<dyn Send> {
        // Nothing of the call works meanwhile; a call that it is nested in does.
        Box::new(self.permit.ask_a_person(0))
    }
}

struct RightfulActivity {
    permit: RunPermit,
    activity: Arc<dyn Activity>,
}

impl Activity for RightfulActivity {
    fn call<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
        Box::pin(async move {
            self.permit.look().await;
            self.activity.call(call).await
        })
    }

    fn annotations(&self) -> Option<Annotations> {
        self.activity.annotations()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::Rights;
    use serde_json::{Value, json};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};
    use tokio::time::timeout;
    use toolhold_agent::{Activities, NoModules};
    use toolhold_model::NoModel;
    use toolhold_storage::{Location, Permits, Store};

    fn lane() -> Lane<String> {
        Lane::of("ada".to_owned())
    }

    async fn permit(admission: &Arc<FairQueue<String>>, parked: usize) -> RunPermit {
        permit_of(admission, parked, Right::of_operator()).await
    }

    async fn permit_of(
        admission: &Arc<FairQueue<String>>,
        parked: usize,
        right: Right,
    ) -> RunPermit {
        let soon = Instant::now() + Duration::from_secs(5);
        let place = admission.enter(lane(), 9, soon.into()).await.unwrap();
        let admission = AdmissionHandle {
            admission: admission.clone(),
            lane: lane(),
            most: 9,
            parked: ParkedRuns::new(parked),
            right,
        };
        RunPermit::new(place, admission)
    }

    /// Counts its calls.
    #[derive(Debug, Default)]
    struct CountedRunner(AtomicUsize);

    impl ToolRunner for CountedRunner {
        fn call<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, ToolResult> {
            self.0.fetch_add(1, Ordering::Relaxed);
            let failure = ToolFailure::correctable("counted", "counted");
            Box::pin(std::future::ready(ToolResult::failed(failure)))
        }
    }

    #[tokio::test]
    async fn no_step_of_a_run_begins_after_its_key_was_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("toolhold.db"));
        let store = Store::open(&location, Duration::from_secs(30))
            .await
            .unwrap();
        let permits = Permits::default();
        assert!(store.add_key("ada", "h", &permits, None).await.unwrap());
        let rights = Rights::new(store.clone());
        let permit = permit_of(&FairQueue::new(1, 9), 1, rights.of_owner("ada")).await;
        let (runner, activity) = (
            Arc::new(CountedRunner::default()),
            Arc::new(AtomicUsize::new(0)),
        );
        let counted = activity.clone();
        let driver = permit.take(
            Driver {
                activities: Activities::default().with("counts", move |_: Value| {
                    counted.fetch_add(1, Ordering::Relaxed);
                    std::future::ready(Ok::<_, ToolFailure>(json!(1)))
                }),
                toolbox: Toolbox {
                    source: Arc::new(NoModules),
                    runner: runner.clone(),
                },
                ..Driver::new(Arc::new(NoModel), Arc::new(NoModules))
            },
            Uuid::nil(),
        );
        let begin = driver.begin.clone().unwrap();
        assert!(begin.may_begin());
        let call = ToolCall::new("c", "t", json!({}));
        let own = driver.activities.named("counts").unwrap().clone();
        driver.toolbox.runner.call(&call).await;
        own.call(&call).await;
        assert!(store.revoke_key("ada").await.unwrap());
        tokio::time::sleep(Duration::from_millis(200)).await;
        let long = Duration::from_millis(200);
        assert!(
            timeout(long, driver.toolbox.runner.call(&call))
                .await
                .is_err()
        );
        assert!(timeout(long, own.call(&call)).await.is_err());
        let calls = (
            runner.0.load(Ordering::Relaxed),
            activity.load(Ordering::Relaxed),
        );
        assert_eq!(calls, (1, 1));
        assert!(!begin.may_begin(), "nor does a call that waited in a queue");
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
    async fn statement_000_69_a_run_that_only_waits_for_a_job_gives_its_place() {
        let admission = FairQueue::new(1, 9);
        let permit = permit(&admission, 1).await;
        let runner = PermittedRunner {
            permit: permit.clone(),
            runner: Arc::new(CountedRunner::default()),
        };
        let call = ToolCall::new("c", "t", json!({}));
        runner.call(&call).await;
        assert_eq!(admission.free(), 0, "the run keeps its place between steps");
        let idle = runner.idle();
        assert_eq!(admission.free(), 1);
        drop(idle);
        // A question about the job takes a place, as any call.
        runner.call(&call).await;
        assert_eq!(admission.free(), 0);
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
    async fn a_cancelled_wait_leaves_no_trace() {
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
