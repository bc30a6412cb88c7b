//! Inputs and actions of the machine.

use crate::calls::ToolCheck;
use crate::guard::pii::GivenPlaceholders;
use crate::guard::shield::Screening;
use crate::retrieval::RetrievalQuestion;
use crate::run::budget_tracker::{Budget, Budgets};
use crate::toolbox::ToolCall;
use std::sync::Arc;
use toolhold_model::chat::ChatRequest;
use toolhold_protocol::bound::Bound;
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::decision::{Decision, Pending};
use toolhold_protocol::event::{EventKind, RunFailure};
use toolhold_protocol::knowledge::Retrieved;
use toolhold_protocol::result::ToolResult;
use toolhold_protocol::shield::ScreeningResult;
use toolhold_protocol::side_request::SideRequest;
use toolhold_protocol::window::{Counted, WrittenSummary};

/// What happened.
#[derive(Debug)]
pub enum Input {
    Start,
    /// A piece of the reply arrived. It is shown, and no event of the record: what follows from it follows from
    /// [`Self::Written`].
    Wrote(Delta),
    /// The next pieces of the reply's recorded text.
    Written(Vec<Delta>),
    /// A piece of the reply that is an event of the record of an older version.
    Recorded(Delta),
    Replied(Completion),
    /// There is no reply, or no more of it.
    ModelFailed(RunFailure),
    Called {
        id: String,
        result: ToolResult,
    },
    /// A person decided about a call that waits.
    Decided {
        id: String,
        decision: Decision,
    },
    /// The shields' verdict on the run's input or output, or on the arguments of a call.
    Screened {
        call: Option<String>,
        screened: ScreeningResult,
    },
    /// The passages that [`Action::Retrieve`] asked for, as the shields left them.
    Retrieved(Retrieved),
    /// How many tokens the texts are that [`Action::Count`] named.
    Counted(Counted),
    /// The reply of the model that [`Action::SumUp`] asked.
    SummedUp(WrittenSummary),
    /// A model was asked on behalf of the run, beside its own Requests.
    SideRequest(SideRequest),
    /// The process that ran this ended; nothing that was begun is under way any more. Text for readers of the run.
    Resumed {
        notes: Vec<String>,
    },
    /// The run was cancelled from outside, for this reason if one was given.
    Cancelled {
        reason: Option<String>,
    },
    TimedOut,
    /// Other sub-agents of the run that this one is inside of took what was left.
    OutOf(Budget),
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    Ask {
        request: Box<ChatRequest>,
        /// The run's task, as a model is shown it; the router may classify it.
        task: String,
        /// The candidate that is asked ([`toolhold_protocol::fallback::Candidate::name`]); `None` is the
        /// run's own model.
        candidate: Option<String>,
    },
    Call(Box<Work>),
    /// Ask a person.
    Decide(Box<Pending>),
    /// Ask the shields about the run's input or output, or about the arguments of a call.
    Screen(Box<Screening>),
    /// Look for passages of documents.
    Retrieve(Box<RetrievalQuestion>),
    /// Ask the endpoint how many tokens each of these texts is; as the model is shown them.
    Count(Vec<String>),
    /// Ask a model to sum up the conversation before the task.
    SumUp(Box<ChatRequest>),
    /// Nothing more; whatever still runs is to be stopped.
    Finish,
}

/// A call to be made.
#[derive(Debug, Clone)]
pub struct Work {
    pub step: u32,
    pub call: ToolCall,
    /// The tool, and what runs this call: where an advisor is asked, the Request of that advisor.
    pub bound: Bound,
    /// Placeholders that it is given in the place of data, and that it may give back.
    pub masked: GivenPlaceholders,
    /// Checks of the arguments and the result.
    pub check: Arc<ToolCheck>,
    /// Budgets left for a sub-agent.
    pub left: Budgets,
    /// The Requests that the run may still make.
    pub steps_left: u32,
    /// It was begun before the process ended, and counted then.
    pub again: bool,
}

/// The events to publish, in order, before the actions are begun.
#[derive(Debug, Default)]
pub struct Effects {
    pub events: Vec<EventKind>,
    pub actions: Vec<Action>,
}

impl Effects {
    /// Appends the effects of the next input.
    pub fn add(&mut self, mut next: Self) {
        self.events.append(&mut next.events);
        self.actions.append(&mut next.actions);
    }
}
