//! Calls that continue as jobs: how they begin, and what is asked about them afterwards, each in a fresh instance.

use super::world::{self, CallTool};
use crate::bindings::jobs::{JobState as GuestState, JobToolsPre, Started};
use crate::bindings::types;
use crate::call::{CallState, GuestCall};
use serde_json::Value;
use toolhold_policy::limits::Limits;
use toolhold_policy::{CallError, JobQuestion, JobState, MAX_JOB_ID, Output, is_job_id, text};
use wasmtime::Store;

/// Maximum characters of the note of a job.
const MAX_NOTE_CHARS: usize = 500;

/// Answer to a call, or to a question about its job.
pub(super) enum JobAnswer {
    Ended(Result<types::Output, types::ToolError>),
    Working(JobState),
    /// The module took the order to stop the job.
    Stopped,
}

/// `start` of a module whose calls may continue as jobs.
pub(super) struct StartJob<'a> {
    pub pre: &'a JobToolsPre<CallState>,
    pub call: CallTool<'a>,
}

impl GuestCall for StartJob<'_> {
    type Return = JobAnswer;

    fn waits(&mut self) {
        self.call.waits();
    }

    async fn perform(self, store: &mut Store<CallState>) -> wasmtime::Result<Self::Return> {
        let _kept = store.data().gauge.keep_arguments(self.call.weight())?;
        let invocation = self.call.guest();
        let instance = self.pre.instantiate_async(&mut *store).await?;
        let started = instance
            .toolhold_module_jobs()
            .call_start(store, &invocation)
            .await?;
        Ok(match started {
            Ok(Started::Done(output)) => JobAnswer::Ended(Ok(output)),
            Ok(Started::Job(id)) => JobAnswer::Working(JobState {
                id,
                ..JobState::default()
            }),
            Err(error) => JobAnswer::Ended(Err(error)),
        })
    }
}

/// `state` or `cancel` of such a module.
pub(super) struct AskJob<'a> {
    pub pre: &'a JobToolsPre<CallState>,
    pub question: &'a JobQuestion,
}

impl GuestCall for AskJob<'_> {
    type Return = JobAnswer;

    async fn perform(self, store: &mut Store<CallState>) -> wasmtime::Result<Self::Return> {
        let instance = self.pre.instantiate_async(&mut *store).await?;
        let jobs = instance.toolhold_module_jobs();
        Ok(match self.question {
            JobQuestion::State(job) => match jobs.call_state(store, &job.id).await? {
                Ok(GuestState::Working(progress)) => JobAnswer::Working(JobState {
                    id: job.id.clone(),
                    done: progress.done,
                    total: Some(progress.total).filter(|total| *total > 0),
                    note: progress.note,
                }),
                Ok(GuestState::Done(output)) => JobAnswer::Ended(Ok(output)),
                Ok(GuestState::Failed(error)) => JobAnswer::Ended(Err(types::ToolError {
                    class: over(error.class),
                    ..error
                })),
                Err(error) => JobAnswer::Ended(Err(error)),
            },
            JobQuestion::Cancel(job) => match jobs.call_cancel(store, &job.id).await? {
                Ok(()) => JobAnswer::Stopped,
                Err(error) => JobAnswer::Ended(Err(error)),
            },
        })
    }
}

/// The class of the failure of a job that is over. `retryable` would say that it is asked about again; the call may be made
/// again, and that is the model's move.
fn over(class: types::ErrorClass) -> types::ErrorClass {
    match class {
        types::ErrorClass::Retryable => types::ErrorClass::Correctable,
        class => class,
    }
}

/// The output of a call, within its limits. Where the tool continues as a job, its state is put into `job`, and the output is
/// empty.
pub(super) fn output(
    answer: JobAnswer,
    limits: &Limits,
    job: &mut Option<JobState>,
) -> Result<Output, CallError> {
    match answer {
        JobAnswer::Ended(returned) => world::output(returned, limits),
        JobAnswer::Stopped => Ok(Output::Value(Value::Null)),
        JobAnswer::Working(state) => {
            if !is_job_id(&state.id) {
                return Err(CallError::Encoding {
                    reason: format!(
                        "the id of a job has 1 to {MAX_JOB_ID} visible characters of ASCII, and this one has others or more"
                    ),
                });
            }
            *job = Some(JobState {
                note: text::visible(&state.note, MAX_NOTE_CHARS),
                ..state
            });
            Ok(Output::Value(Value::Null))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn working(id: &str, note: &str) -> JobAnswer {
        JobAnswer::Working(JobState {
            id: id.into(),
            done: 1,
            total: Some(2),
            note: note.into(),
        })
    }

    #[test]
    fn a_job_is_kept_beside_the_output() {
        let mut job = None;
        let output = output(working("7", "half\u{202e}"), &Limits::default(), &mut job);
        assert_eq!(output.unwrap(), Output::Value(Value::Null));
        let job = job.unwrap();
        assert_eq!((job.id.as_str(), job.note.as_str()), ("7", "half"));
    }

    #[test]
    fn an_id_that_is_none_is_a_fault_of_the_tool() {
        for id in ["", "a b", "\u{1b}[2J", &"x".repeat(MAX_JOB_ID + 1)] {
            let mut job = None;
            let error = output(working(id, ""), &Limits::default(), &mut job).unwrap_err();
            assert_eq!((error.kind(), job), ("encoding", None));
        }
    }
}
