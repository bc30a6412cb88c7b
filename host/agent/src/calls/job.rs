//! Calls that continue as jobs (docs/protocol.md, 7.13).
//!
//! A tool that answers with a job has ended its instance. The conductor of the call records the job, waits, and asks the
//! same runner about it, until the job is over or its time is. In between the call holds nothing: no instance, no permit of
//! the sandbox, and no place among a server's runs ([`ToolRunner::idle`]). What the job returns passes the stages that
//! follow any call.

use crate::toolbox::{ToolCall, ToolRunner};
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::fmt::{self, Debug, Formatter};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, timeout};
use toolhold_admission::Backoff;
use toolhold_policy::{BegunJob, ErrorClass, JobQuestion, JobState, Progress};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::job::{JobPolicy, JobProgress, MAX_JOB_EVENTS};
use toolhold_protocol::result::{ToolResult, ToolUsage};
use uuid::Uuid;

/// Time limit of telling a job that it is to stop: the end of a run waits for it.
const CANCEL_TIME: Duration = Duration::from_secs(5);

/// Time that the last question about a job has at least, when the time of the job is over: a result that is there by then is
/// the result of the call.
const LAST_QUESTION_TIME: Duration = Duration::from_secs(5);

/// Minimum wait between questions, for any configuration: a job must not be asked about in a hot loop.
const MIN_WAIT: Duration = Duration::from_millis(10);

/// The kind of a failure that the module itself told.
const BY_TOOL: &str = "tool";

/// The jobs that calls wait for. Clones, and those of a run's sub-agents, share them.
#[derive(Debug, Clone, Default)]
pub struct OpenJobs {
    shared: Arc<Mutex<OpenJobTable>>,
    /// Absent: the calls are of no run. Then a dropped call tells its job to stop, because no process resumes it.
    run: Option<Uuid>,
}

#[derive(Debug, Default)]
struct OpenJobTable {
    next: u64,
    jobs: BTreeMap<u64, OpenJob>,
    /// True once the run is gone: jobs that are opened after that are not kept.
    is_closed: bool,
}

struct OpenJob {
    run: Option<Uuid>,
    runner: Arc<dyn ToolRunner>,
    /// The call, with the question that tells the job to stop.
    cancel: ToolCall,
}

impl Debug for OpenJob {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenJob")
            .field("call", &self.cancel.id)
            .field("job", &self.cancel.job)
            .finish_non_exhaustive()
    }
}

impl OpenJobs {
    /// Jobs that stay open when their calls are dropped, until [`Self::cancel_all`]: for a caller that ends its process.
    pub fn held() -> Self {
        Self::default().of_run(Uuid::nil())
    }

    /// The part of a run, whose jobs end with it and not with the process.
    pub(crate) fn of_run(&self, run: Uuid) -> Self {
        Self {
            shared: self.shared.clone(),
            run: Some(run),
        }
    }

    /// Notes that `call` waits for `job` of `runner`.
    fn open(&self, runner: &Arc<dyn ToolRunner>, call: &ToolCall, job: BegunJob) -> u64 {
        let cancel = ToolCall {
            job: Some(JobQuestion::Cancel(job)),
            timeout: CANCEL_TIME,
            // It is asked when its run has ended, and makes no calls itself.
            begin: None,
            nested: None,
            ..call.clone()
        };
        let job = OpenJob {
            run: self.run,
            runner: runner.clone(),
            cancel,
        };
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        if !table.is_closed {
            table.jobs.insert(number, job);
        }
        number
    }

    /// Tells the jobs of calls that the call `id` made, and that it did not wait for, to stop.
    async fn cancel_nested(&self, id: &str) {
        let run = self.run;
        self.cancel_where(|job| {
            let nested = job.cancel.id.strip_prefix(id);
            job.run == run && nested.is_some_and(|rest| rest.starts_with('.'))
        })
        .await;
    }

    /// True if calls of the run wait for jobs, or with `inner` those of the runs inside of it.
    pub(crate) fn has_any(&self, inner: bool) -> bool {
        let table = self.lock();
        table.jobs.values().any(|job| inner || job.run == self.run)
    }

    /// Tells the jobs of the run to stop, or with `inner` those of the runs inside of it, too.
    pub(crate) async fn cancel_run(&self, inner: bool) {
        let run = self.run;
        self.cancel_where(|job| inner || job.run == run).await;
    }

    /// Forgets all jobs: another process may resume their run. Each job holds the runner of its call, which holds these jobs, so
    /// without this neither would be freed.
    pub(crate) fn close(&self) {
        let jobs = {
            let mut table = self.lock();
            table.is_closed = true;
            std::mem::take(&mut table.jobs)
        };
        drop(jobs);
    }

    /// Tells all of these jobs to stop, each once and within `CANCEL_TIME`.
    pub async fn cancel_all(&self) {
        self.cancel_where(|_| true).await;
    }

    async fn cancel_where(&self, is_meant: impl Fn(&OpenJob) -> bool) {
        let meant: Vec<OpenJob> = {
            let mut table = self.lock();
            let meant = table.jobs.extract_if(.., |_, job| is_meant(job));
            meant.map(|(_, job)| job).collect()
        };
        join_all(meant.into_iter().map(cancel)).await;
    }

    fn take(&self, number: u64) -> Option<OpenJob> {
        self.lock().jobs.remove(&number)
    }

    fn lock(&self) -> MutexGuard<'_, OpenJobTable> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a job to stop. Its answer changes nothing, because the call is over.
async fn cancel(job: OpenJob) {
    let _ = timeout(CANCEL_TIME, job.runner.call(&job.cancel)).await;
}

/// Makes a call, and waits for its job where it continues as one. The call is not recorded.
pub async fn call_to_end(
    runner: &Arc<dyn ToolRunner>,
    call: &ToolCall,
    policy: JobPolicy,
) -> ToolResult {
    let mut job = FollowedJob::of(policy, &OpenJobs::default(), runner, call);
    let mut answer = runner.call(call).await;
    loop {
        match job.judge(call, answer).await {
            ControlFlow::Break(result) => return result,
            ControlFlow::Continue(_) => answer = job.ask().await,
        }
    }
}

/// A job that another process had begun and recorded.
#[derive(Debug)]
pub(crate) struct RecordedJob {
    /// The last event of it, with the time for which it was waited until the end of the record.
    pub progress: JobProgress,
    /// Number of its events.
    pub events: u32,
}

/// One call, from its answer on.
pub(crate) struct FollowedJob {
    policy: JobPolicy,
    open: OpenJobs,
    runner: Arc<dyn ToolRunner>,
    /// Time of the call as it was made.
    call_timeout: Duration,
    is_nested: bool,
    begun: Instant,
    /// How long another process had waited for the job before.
    waited_before: Duration,
    /// Absent: the call did not answer with a job.
    job: Option<WaitedJob>,
}

/// The job that a call waits for.
struct WaitedJob {
    /// Its number among the open jobs.
    number: u64,
    /// The call, with the question about its job.
    call: ToolCall,
    state: JobState,
    /// Digest of the component that began it.
    module: Option<String>,
    questions: u32,
    /// Number of events with its progress.
    told: u32,
    /// Usage of the call and of the questions about its job.
    spent: ToolUsage,
    /// Lines that the call itself printed.
    printed: Vec<String>,
}

impl FollowedJob {
    /// Follows `call`, which `runner` is about to make, or has just made.
    pub fn of(
        policy: JobPolicy,
        open: &OpenJobs,
        runner: &Arc<dyn ToolRunner>,
        call: &ToolCall,
    ) -> Self {
        Self {
            policy,
            open: open.clone(),
            runner: runner.clone(),
            call_timeout: call.timeout,
            is_nested: call.is_nested,
            begun: Instant::now(),
            waited_before: Duration::ZERO,
            job: None,
        }
    }

    /// Waits for a job that another process had begun and recorded.
    pub fn resume(&mut self, call: &ToolCall, RecordedJob { progress, events }: RecordedJob) {
        self.waited_before = Duration::from_millis(progress.waited_ms);
        let state = JobState {
            id: progress.job,
            done: progress.done,
            total: progress.total,
            note: String::new(),
        };
        let mut job = self.wait_for(call, state, progress.module);
        job.told = events;
        self.job = Some(job);
    }

    /// Takes an answer to `call`, or to a question about its job. Breaks with the result of the call; or continues, with
    /// progress to record before the next question.
    pub async fn judge(
        &mut self,
        call: &ToolCall,
        answer: ToolResult,
    ) -> ControlFlow<ToolResult, Option<JobProgress>> {
        // The instance is over that had waited for them. Its next one, which is asked about the job, makes calls of its own.
        self.open.cancel_nested(&call.id).await;
        let told = JobNews::of(&answer);
        let Some(mut job) = self.job.take() else {
            return match told {
                JobNews::Working(state) => {
                    let job = self.wait_for(call, state, answer.module);
                    self.job = Some(WaitedJob {
                        spent: answer.usage,
                        printed: answer.printed,
                        ..job
                    });
                    ControlFlow::Continue(self.news())
                }
                _ => ControlFlow::Break(answer),
            };
        };
        add(&mut job.spent, answer.usage);
        let is_new = match told {
            JobNews::Over { goes_on } => {
                let open = self.open.take(job.number);
                if let Some(open) = open.filter(|_| goes_on) {
                    cancel(open).await;
                }
                return ControlFlow::Break(self.whole(job, answer));
            }
            _ if self.is_over(&job) => {
                if let Some(open) = self.open.take(job.number) {
                    cancel(open).await;
                }
                let answer = ToolResult {
                    outcome: Err(self.too_long()),
                    ..answer
                };
                return ControlFlow::Break(self.whole(job, answer));
            }
            JobNews::Later => false,
            JobNews::Working(state) => {
                // It was asked about this job, and tells of no other one.
                let state = JobState {
                    id: job.state.id.clone(),
                    ..state
                };
                let is_new = state != job.state;
                job.state = state;
                is_new
            }
        };
        self.job = Some(job);
        ControlFlow::Continue(if is_new { self.news() } else { None })
    }

    /// True if the call continues as a job.
    pub fn has_job(&self) -> bool {
        self.job.is_some()
    }

    /// Waits, and asks about the job.
    pub async fn ask(&mut self) -> ToolResult {
        let Some(job) = &mut self.job else {
            return without_job();
        };
        job.questions = job.questions.saturating_add(1);
        let wait = Backoff::new(self.policy.backoff, self.policy.max_backoff)
            .jittered(job.questions, fastrand::f64())
            .max(MIN_WAIT);
        let wait = wait.min(self.left());
        let idle = self.runner.idle();
        tokio::time::sleep(wait).await;
        drop(idle);
        let timeout = self.call_timeout.min(self.left().max(LAST_QUESTION_TIME));
        let Some(job) = &mut self.job else {
            return without_job();
        };
        job.call.timeout = timeout;
        self.runner.call(&job.call).await
    }

    /// Opens the job of this state, which the component of this digest began.
    fn wait_for(&self, call: &ToolCall, state: JobState, module: Option<String>) -> WaitedJob {
        let begun = BegunJob {
            id: state.id.clone(),
            module: module.clone(),
        };
        let number = self.open.open(&self.runner, call, begun.clone());
        let call = ToolCall {
            job: Some(JobQuestion::State(begun)),
            ..call.clone()
        };
        WaitedJob {
            number,
            call,
            state,
            module,
            questions: 0,
            told: 0,
            spent: ToolUsage::default(),
            printed: Vec::new(),
        }
    }

    /// Tells the call's listener how far the job is, and returns the progress that is to be recorded.
    fn news(&mut self) -> Option<JobProgress> {
        let waited = self.waited();
        let job = self.job.as_mut()?;
        if let Some(listener) = &job.call.listener {
            listener.progressed(Progress {
                done: job.state.done,
                total: job.state.total,
                note: job.state.note.clone(),
            });
        }
        if job.told >= MAX_JOB_EVENTS {
            return None;
        }
        job.told += 1;
        Some(JobProgress {
            id: job.call.id.clone(),
            tool: job.call.tool.clone(),
            job: job.state.id.clone(),
            module: job.module.clone(),
            done: job.state.done,
            total: job.state.total,
            waited_ms: u64::try_from(waited.as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn waited(&self) -> Duration {
        self.waited_before.saturating_add(self.begun.elapsed())
    }

    /// The time that the job has left. That of a nested call is what its caller has left.
    fn left(&self) -> Duration {
        let left = self.policy.timeout.saturating_sub(self.waited());
        if self.is_nested {
            left.min(self.call_timeout.saturating_sub(self.begun.elapsed()))
        } else {
            left
        }
    }

    fn is_over(&self, job: &WaitedJob) -> bool {
        job.questions >= self.policy.questions || self.left().is_zero()
    }

    fn too_long(&self) -> ToolFailure {
        let seconds = self.policy.timeout.as_secs();
        ToolFailure {
            kind: "job_deadline".into(),
            class: ErrorClass::Correctable,
            message: format!(
                "the job of this call was not over in the time that it had, at most {seconds} s (jobs.timeout_ms), and was told \
                 to stop; ask for less work in one call"
            ),
        }
    }

    /// The result of the call, with what the questions before it took, and the time that it was waited for.
    fn whole(&self, job: WaitedJob, mut result: ToolResult) -> ToolResult {
        let waited = self.waited().as_micros();
        result.usage = ToolUsage {
            duration_us: u64::try_from(waited).unwrap_or(u64::MAX),
            ..job.spent
        };
        result.printed.splice(0..0, job.printed);
        result
    }
}

impl Drop for FollowedJob {
    /// Cancels the job of a dropped call that belongs to no run, because no process resumes it. The jobs of a run stay for its
    /// resumption; a run that ends cancels them itself.
    fn drop(&mut self) {
        if self.open.run.is_some() {
            return;
        }
        let open = self.job.take().and_then(|job| self.open.take(job.number));
        if let (Some(open), Ok(runtime)) = (open, tokio::runtime::Handle::try_current()) {
            runtime.spawn(cancel(open));
        }
    }
}

/// The conductor asks about the job of a call that has none, which is a fault of ours.
fn without_job() -> ToolResult {
    ToolResult::failed(ToolFailure::correctable("job", "the call has no job"))
}

/// State of a job, as an answer has it.
enum JobNews {
    Working(JobState),
    /// No state for now: the question is to be asked again.
    Later,
    /// The call is over. `goes_on`: the module did not say that its job is over.
    Over {
        goes_on: bool,
    },
}

impl JobNews {
    fn of(answer: &ToolResult) -> Self {
        match &answer.outcome {
            Ok(output) => match &output.job {
                Some(state) => Self::Working(state.clone()),
                None => Self::Over { goes_on: false },
            },
            Err(failure) if failure.class == ErrorClass::Retryable => Self::Later,
            Err(failure) => Self::Over {
                goes_on: failure.kind != BY_TOOL,
            },
        }
    }
}

fn add(spent: &mut ToolUsage, usage: ToolUsage) {
    spent.fuel = spent.fuel.saturating_add(usage.fuel);
    spent.memory_bytes = spent.memory_bytes.max(usage.memory_bytes);
    spent.tokens = spent.tokens.saturating_add(usage.tokens);
    spent.cost_nano = spent.cost_nano.plus(usage.cost_nano);
    spent.unpriced = spent.unpriced.saturating_add(usage.unpriced);
    spent.calls = spent.calls.saturating_add(usage.calls);
}
