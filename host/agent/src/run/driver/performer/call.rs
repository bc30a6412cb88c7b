//! One tool call of the run: made, again where it failed for now, or followed as a job; then its result is screened.

use super::Performer;
use crate::calls::privacy::revealed;
use crate::calls::screen::screen_result;
use crate::calls::{
    Attempts, CallPipeline, CallRules, CalledTool, FollowedJob, KeptBlobs, NestedCaller,
    NestedEffects, OpenJobs, PartyPrivacy,
};
use crate::guard::shield::Shields;
use crate::run::RunUsage;
use crate::run::driver::CallEventSender;
use crate::run::driver::nested::{RunBudget, RunDecider, RunRecorder};
use crate::run::driver::tools::{BoundRunner, RunTools};
use crate::run::machine::{Input, Work};
use crate::run::replay::Replayed;
use crate::toolbox::{ToolCall, ToolRunner};
use futures_util::future::BoxFuture;
use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use toolhold_protocol::blob;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::{INTERRUPTED, NOT_MADE, UNFINISHED};
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::shield::ShieldPlace;

/// A call on its way, with what it needs of the run. Its futures hold it by `&mut`, so that it need not be `Sync`.
struct CallTask {
    work: Work,
    tools: Arc<RunTools>,
    /// Runs the call, and is asked about its job.
    runner: Arc<dyn ToolRunner>,
    /// The data that the tool may see. Absent: nothing is hidden from anything.
    seen: Option<Arc<CalledTool>>,
    /// Effects of the calls that the call makes.
    effects: NestedEffects,
    /// The sub-agent that had answered the call before the process ended.
    begun: Option<Replayed>,
    job: FollowedJob,
    open_jobs: OpenJobs,
    shields: Shields,
    events: CallEventSender,
    rules: Arc<CallRules>,
    budget: RunBudget,
    blobs: KeptBlobs,
}

impl Performer {
    /// Prepares a call, and returns the work that makes it.
    pub(super) fn call(&mut self, mut work: Work) -> BoxFuture<'static, Input> {
        let tools = Arc::new(RunTools {
            driver: self.driver.clone(),
            offered: self.offered.clone(),
            request: self.parent.clone(),
            deadline: self.deadline,
            budget: self.budget.clone(),
            events: self.events.clone(),
            call: work.call.id.clone(),
            left: work.left,
            steps_left: work.steps_left,
        });
        let privacy = &self.parent.settings.privacy;
        let seen = CalledTool::new(privacy, &work.bound, &work.masked).map(Arc::new);
        // Before its job is opened, which is asked about with the same call.
        work.call.depth = self.sink.call_depth();
        let nested = self.nested(&work.call, &tools, seen.as_ref());
        let effects = nested.effects();
        work.call.nested = Some(Arc::new(nested));
        work.call.begin = Some(self.end.clone());
        if let Runner::Module(_) | Runner::Activity(_) = work.bound.runner {
            let id = work.call.id.clone();
            self.nested_spent.insert(id, RunUsage::default());
        }
        let begun = self.subs.remove(&work.call.id);
        let runner: Arc<dyn ToolRunner> = Arc::new(BoundRunner {
            tools: tools.clone(),
            bound: work.bound.clone(),
        });
        let open_jobs = self.open_jobs.clone();
        let mut job = FollowedJob::of(self.rules.jobs, &open_jobs, &runner, &work.call);
        // Now, and not when the call is polled: the run may end before.
        if let Some(recorded) = self.jobs.remove(&work.call.id) {
            job.resume(&work.call, recorded);
        }
        let mut task = CallTask {
            work,
            tools,
            runner,
            seen,
            effects,
            begun,
            job,
            open_jobs,
            shields: self.driver.shields.clone(),
            events: self.events.clone(),
            rules: self.rules.clone(),
            budget: RunBudget(self.budget.clone()),
            blobs: self.driver.blobs.clone(),
        };
        Box::pin(async move { task.perform().await })
    }

    /// The caller of the calls that `call` makes.
    fn nested(
        &self,
        call: &ToolCall,
        tools: &Arc<RunTools>,
        seen: Option<&Arc<CalledTool>>,
    ) -> NestedCaller {
        let pipeline = CallPipeline {
            toolbox: tools.clone().into(),
            tools: self.tools.clone(),
            rules: self.rules.clone(),
            decider: Arc::new(RunDecider {
                decider: self.driver.decider.clone(),
                run: self.parent.id,
                agents: self.parent.agents.clone(),
            }),
            recorder: Arc::new(RunRecorder {
                events: self.events.clone(),
                blobs: self.driver.blobs.clone(),
                budget: self.budget.clone(),
                within: Vec::new(),
            }),
            budget: Arc::new(RunBudget(self.budget.clone())),
            jobs: self.open_jobs.clone(),
            hiding: seen.map(|seen| seen.clone() as Arc<dyn PartyPrivacy>),
            call_depth: self.sink.call_depth(),
        };
        NestedCaller::new(pipeline, &call.id, &call.tool, Vec::new())
    }

    /// Adds the usage of nested calls to the result of the call that made them.
    pub(super) fn with_nested(&mut self, mut input: Input) -> Input {
        if let Input::Called { id, result } = &mut input
            && let Some(spent) = self.nested_spent.remove(id)
        {
            spent.add_to(&mut result.usage);
        }
        input
    }
}

impl CallTask {
    /// Makes the call, unless its result is known, and returns the machine's input with the result.
    async fn perform(&mut self) -> Input {
        let Work { call, bound, .. } = &self.work;
        let waits = || bound.waits(&self.rules.decisions);
        let mut caching = self.rules.results.begin(call, bound, waits, &*self.tools);
        // Its result may be of another grant than the one under which it would be kept now.
        let is_resumed = self.job.has_job();
        let known = if is_resumed { None } else { caching.known() };
        // The job of a resumed call had the bytes when it began.
        let known = match known {
            None if !is_resumed => self.put_bytes_back().await,
            known => known,
        };
        let mut result = match known {
            Some(known) => known,
            None => self.attempt().await,
        };
        if let Err(failure) = &mut result.outcome
            && [UNFINISHED, NOT_MADE, INTERRUPTED].contains(&failure.kind.as_str())
        {
            // Only the record says so of a call.
            "tool".clone_into(&mut failure.kind);
        }
        caching.keep(&result, is_resumed || self.effects.has_asked());
        let result = self.screened(result).await;
        Input::Called {
            id: mem::take(&mut self.work.call.id),
            result,
        }
    }

    /// True if the tool takes and returns bytes, in the place of their references.
    fn takes_bytes(&self) -> bool {
        self.work.bound.runner.has_bytes()
    }

    /// Puts kept bytes into the arguments of a tool that takes them. Returns the result of a call that cannot be made,
    /// because its bytes are not kept.
    async fn put_bytes_back(&mut self) -> Option<ToolResult> {
        if !self.takes_bytes() {
            return None;
        }
        let arguments = &mut self.work.call.arguments;
        let missing = self.blobs.put_back(arguments).await.err();
        missing.map(ToolResult::failed)
    }

    /// Makes the call, again while it failed for now.
    async fn attempt(&mut self) -> ToolResult {
        let Work { call, bound, .. } = &self.work;
        let effects = self.effects.clone();
        let mut attempts = Attempts::new(self.rules.tool_retry, call, bound, effects);
        loop {
            let result = self.answer().await;
            let retry = match attempts.judge(&self.work.call, result, &self.budget) {
                ControlFlow::Break(result) => return result,
                ControlFlow::Continue(retry) => retry,
            };
            let step = self.work.step;
            // Recorded first: a server that was frozen meanwhile, and whose run goes on in another one, tries no more.
            self.events
                .record(vec![EventKind::ToolRetry { step, retry }])
                .await;
            attempts.wait(&mut self.work.call).await;
            if let Some(failed) = self.put_bytes_back().await {
                return failed;
            }
            let (jobs, call) = (self.rules.jobs, &self.work.call);
            self.job = FollowedJob::of(jobs, &self.open_jobs, &self.runner, call);
        }
    }

    /// Runs the call, or asks about the job that it has, until that is over.
    async fn answer(&mut self) -> ToolResult {
        let mut answer = if self.job.has_job() {
            self.job.ask().await
        } else {
            let Bound { tool, runner } = &self.work.bound;
            self.tools
                .run(&self.work.call, tool, runner, self.begun.take())
                .await
        };
        loop {
            match self.job.judge(&self.work.call, answer).await {
                ControlFlow::Break(result) => return result,
                ControlFlow::Continue(news) => {
                    if let Some(job) = news {
                        let step = self.work.step;
                        // Recorded first: a run that goes on elsewhere asks about it, and does not call again.
                        self.events.record(vec![EventKind::Job { step, job }]).await;
                    }
                    answer = self.job.ask().await;
                }
            }
        }
    }

    /// The result as the run has it: revealed, checked and screened, with references in the place of its bytes.
    async fn screened(&mut self, mut result: ToolResult) -> ToolResult {
        let outcome = match &self.seen {
            Some(seen) => revealed(&**seen, result.outcome),
            None => result.outcome,
        };
        // Where no shield stands, the machine checks the result, and nothing comes between.
        let ToolCall {
            id, tool, depth, ..
        } = &self.work.call;
        let is_screened = self.shields.applies_to(ShieldPlace::ToolOutput, Some(tool));
        let check = is_screened.then_some(&self.work.check);
        let (outcome, said) = screen_result(&self.shields, id, *depth, tool, outcome, check).await;
        self.events.tell_all(said).await;
        result.outcome = match outcome {
            Ok(mut output) => {
                if self.takes_bytes() {
                    blob::refuse_names(&mut output.value);
                }
                // A result that fits a schema stays as that says.
                if self.work.bound.tool.output.is_none() {
                    output.value = self.blobs.kept(output.value).await;
                }
                Ok(output)
            }
            failed => failed,
        };
        result
    }
}
