//! Replays a run's record (docs/protocol.md, 11): the events hold every input of the run, and the machine
//! is deterministic, so the same inputs give the same run.

use crate::calls::RecordedJob;
use crate::catalogue::ToolCatalogue;
use crate::run::machine::{Effects, Input, Machine};
use crate::run::open_calls::{OpenCalls, is_written_end};
use crate::run::recorded_jobs::RecordedJobs;
use crate::run::recorded_modules::RecordedModules;
use crate::run::rules::LoopRules;
use crate::run::sub_agent::SubAgentEnd;
use crate::run::{Budget, RunUsage};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use thiserror::Error;
use toolhold_protocol::bound::Bound;
use toolhold_protocol::error::RunError;
use toolhold_protocol::event::{
    Event, EventKind, FORMAT, OLDEST_FORMAT, PROMPTS, Seal, StopReason, ToolOutcome,
};
use toolhold_protocol::failure::INTERRUPTED;
use toolhold_protocol::knowledge::Retrieved;
use toolhold_protocol::result::{ToolOutput, ToolResult};
use toolhold_protocol::routing::Routing;
use uuid::Uuid;

/// A run that was rebuilt from its events.
#[derive(Debug)]
pub struct Replayed {
    pub machine: Machine,
    /// The number that the next event has.
    pub next: u64,
    /// Of the last event.
    pub seal: Seal,
    /// Events that replay produces but the record lacks: the process ended before they were
    /// written.
    pub unsaid: Vec<EventKind>,
    /// Calls that have begun and have no end in the record, of the run that is no other's part.
    pub(super) open: OpenCalls,
    /// How long the run was worked on: the time between a process that ended and the next one, which
    /// resumed it, is not counted.
    pub elapsed: Duration,
    /// The time that the run has left; a caller that resumes it may grant more.
    pub time_left: Duration,
    pub is_done: bool,
    /// True where the record's requests were made of texts of another revision, so that their bodies were not compared.
    pub has_other_prompts: bool,
    /// Present where texts were taken out of the record of an ended run, because a document was deleted or a fact was
    /// forgotten.
    pub lacks: Option<LackingTexts>,
    /// All that the run was instructed to do when it began, before a shield changed it: for the policy's hash.
    pub instructions: String,
    /// Text for readers of the run about what the process that resumes it has otherwise. Empty after a replay; recorded with
    /// the `resumed` event.
    pub notes: Vec<String>,
    /// Digests of the modules that the run itself was working with, by the toolbox's names of the modules.
    modules: BTreeMap<String, String>,
    /// Runs of sub-agents whose answer the run does not have yet, by the call that each answers.
    pub(super) subs: BTreeMap<String, Replayed>,
    /// Jobs of the run's own calls that have no result yet, by the call.
    pub(super) jobs: BTreeMap<String, RecordedJob>,
    /// Usage of nested calls whose outer calls have no result yet.
    pub(super) nested: RunUsage,
    pub(super) ended: Option<SubAgentEnd>,
    /// The class of the task, if that was decided: the run keeps to it.
    pub(super) class: Option<String>,
}

impl Replayed {
    /// The tools of the run, and of its sub-agents that were at work.
    pub fn tools(&self) -> Vec<&Bound> {
        let subs = self.subs.values().flat_map(Self::tools);
        self.machine.tools().iter().chain(subs).collect()
    }

    /// The digests, in hex, of the modules that the run and its sub-agents at work were working with, by the toolbox's names
    /// of the modules. Where the digests of one module differ, the run's own is named.
    pub fn modules(&self) -> BTreeMap<String, String> {
        let mut modules = self.modules.clone();
        for (name, digest) in self.subs.values().flat_map(Self::modules) {
            modules.entry(name).or_insert(digest);
        }
        modules
    }

    /// Usage of the run and of its sub-agents that have not answered yet.
    pub(super) fn spent(&self) -> RunUsage {
        self.subs
            .values()
            .map(Self::spent)
            .fold(self.machine.spent().plus(self.nested), RunUsage::plus)
    }
}

/// The part of a record that a replay compares, where texts were taken out of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LackingTexts {
    /// The first event that lacks texts. From here on the texts of requests, and what follows from their lengths, are not
    /// compared.
    pub from: u64,
    /// The first event to which the run does not come without the texts. It and those after it are not compared. Absent:
    /// all events are.
    pub until: Option<u64>,
}

/// Why events cannot be run again.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    #[error("the record does not begin with a run event, so it does not say what was run")]
    Beginning,
    #[error(
        "the record has format {found} and was written by Toolhold {host}; this version reads formats \
         {OLDEST_FORMAT} to {FORMAT}: go on with the run with the version that wrote it, or begin it anew"
    )]
    Format { found: u32, host: String },
    #[error(
        "event {at} of the record is numbered {seq} of the run {run}: events are missing, doubled or of another run"
    )]
    Sequence { at: u64, seq: u64, run: Uuid },
    #[error("in the sub-agent that answers {call}: {error}")]
    Sub {
        call: String,
        #[source]
        error: Box<ReplayError>,
    },
    #[error("the record's run cannot be started again: {0}")]
    Run(#[from] RunError),
    #[error(
        "event {seq} of the record is {recorded}, but the run comes to {instead}; another version of Toolhold wrote it, or the record was changed"
    )]
    Divergence {
        seq: u64,
        recorded: String,
        instead: String,
    },
}

/// Rebuilds a run from its events, comparing what it does with what it did, and the runs of its
/// sub-agents likewise. Pieces of replies that were shown and not recorded are left out.
///
/// # Errors
/// The first recorded event that replay does not reproduce.
pub fn replay(events: &[Event]) -> Result<Replayed, ReplayError> {
    if events.iter().any(|event| event.kind.is_shown_only()) {
        let recorded = events.iter().filter(|event| !event.kind.is_shown_only());
        let recorded: Vec<Event> = recorded.cloned().collect();
        return replay(&recorded);
    }
    let Some(first) = events.first() else {
        return Err(ReplayError::Beginning);
    };
    for (at, event) in (0..).zip(events) {
        if event.seq != at || event.run != first.run {
            return Err(ReplayError::Sequence {
                at,
                seq: event.seq,
                run: event.run,
            });
        }
    }
    // Only an ended run may lack texts: others are resumed from what they have.
    let is_over = events
        .last()
        .is_some_and(|last| matches!(last.kind, EventKind::Done { .. }));
    let mut lacking = events.iter().filter(|event| event.removed.is_some());
    let lacks_from = lacking.next().filter(|_| is_over).map(|event| event.seq);
    let mut replayed = rebuild(events, lacks_from)?;
    for event in events {
        // The record has the ends that were written.
        replayed.open.take(&event.kind);
    }
    replayed.open.are_left();
    Ok(replayed)
}

/// The runs of sub-agents, to the depth that the run allowed, those that are still of use; and what the calls took
/// that unanswered calls made. Those are told from sub-agents by how they begin: a sub-agent is a run.
fn replay_subs(
    events: &[Event],
    counts_money: bool,
    lacks_from: Option<u64>,
) -> Result<ReplayedSubs, ReplayError> {
    let mut runs: BTreeMap<&str, Vec<Event>> = BTreeMap::new();
    let mut answered = BTreeSet::new();
    let mut retried = Vec::new();
    for event in events {
        match &event.kind {
            EventKind::Sub { call, what } => runs.entry(call).or_default().push(Event {
                kind: what.as_ref().clone(),
                ..event.clone()
            }),
            EventKind::ToolResult { id, .. } => {
                answered.insert(id.as_str());
            }
            EventKind::ToolRetry { retry, .. } => retried.push(retry.id.as_str()),
            _ => {}
        }
    }
    retried.retain(|call| !answered.contains(call));
    let mut replayed = ReplayedSubs::default();
    replayed.nested.calls = u32::try_from(retried.len()).unwrap_or(u32::MAX);
    for (call, events) in runs {
        let Some(first) = events.first() else {
            continue;
        };
        if !matches!(first.kind, EventKind::Run { .. }) {
            if !answered.contains(call) {
                let spent = events
                    .iter()
                    .map(|it| RunUsage::nested(&it.kind, counts_money));
                replayed.nested = spent.fold(replayed.nested, RunUsage::plus);
            }
            continue;
        }
        let until = match rebuild(&events, lacks_from) {
            Ok(sub) => {
                let until = sub.lacks.and_then(|lacks| lacks.until);
                if !answered.contains(call) {
                    replayed.subs.insert(call.to_owned(), sub);
                }
                until
            }
            // What it was asked was taken out.
            Err(ReplayError::Run(_)) if lacks_from.is_some_and(|from| first.seq >= from) => {
                Some(first.seq)
            }
            Err(error) => {
                return Err(ReplayError::Sub {
                    call: call.to_owned(),
                    error: Box::new(error),
                });
            }
        };
        replayed.until = earlier(replayed.until, until);
    }
    Ok(replayed)
}

/// The replayed runs inside of a run.
#[derive(Default)]
struct ReplayedSubs {
    /// Runs whose answer the outer run does not have yet.
    subs: BTreeMap<String, Replayed>,
    /// Usage of the calls that unanswered calls made.
    nested: RunUsage,
    /// The first event of them that was not compared, because it lacks texts.
    until: Option<u64>,
}

fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    [one, other].into_iter().flatten().min()
}

/// Seals and numbers are those of the whole record, whose part the events of a sub-agent are. The record of an ended run
/// may lack texts from the event `lacks_from` on.
fn rebuild(events: &[Event], lacks_from: Option<u64>) -> Result<Replayed, ReplayError> {
    let Some((first, rest)) = events.split_first() else {
        return Err(ReplayError::Beginning);
    };
    let EventKind::Run {
        format,
        prompts,
        model,
        request,
        tools,
        host,
        ..
    } = &first.kind
    else {
        return Err(ReplayError::Beginning);
    };
    let rules = LoopRules::of(*format).ok_or_else(|| ReplayError::Format {
        found: *format,
        host: host.clone(),
    })?;
    let has_other_prompts = *prompts != PROMPTS;
    let warnings = rest.iter().map_while(|event| match &event.kind {
        EventKind::Notice { step: 0, message } => Some(message.clone()),
        _ => None,
    });
    let mut machine = Machine::under(
        rules,
        request.as_ref().clone(),
        model.clone(),
        ToolCatalogue::new(tools.clone())?,
        warnings.collect(),
    )?;
    if has_other_prompts {
        machine.record_whole_bodies();
    }
    let mut player = Player {
        machine,
        came_to: VecDeque::new(),
    };
    player.tell(Input::Start, Duration::ZERO);
    let mut at_ms = first.at_ms;
    let mut elapsed = Duration::ZERO;
    let mut until = None;
    let mut jobs = RecordedJobs::default();
    for event in events {
        elapsed = match event.kind {
            EventKind::Resumed { active_ms, .. } => Duration::from_millis(active_ms),
            _ => elapsed + worked(at_ms, event.at_ms, request.settings.timeout),
        };
        at_ms = event.at_ms;
        if let EventKind::Sub { call, what } = &event.kind {
            player.machine.note_nested(call, what);
        }
        if let EventKind::Job { job, .. } = &event.kind {
            player.machine.note_job(&job.id);
        }
        jobs.take(&event.kind, elapsed);
        if matches!(
            event.kind,
            EventKind::Sub { .. }
                | EventKind::RequestFetched(_)
                | EventKind::Routing(_)
                | EventKind::Shield(_)
                | EventKind::ToolRetry { .. }
                | EventKind::Job { .. }
        ) {
            continue;
        }
        if is_written_end(&event.kind) {
            continue;
        }
        let lacks_texts = lacks_from.is_some_and(|from| event.seq >= from);
        if player.came_to.is_empty() {
            match input(&event.kind) {
                Some(input) => player.tell(input, elapsed),
                None if lacks_texts => {
                    until = Some(event.seq);
                    break;
                }
                None => return Err(divergence(event, None)),
            }
        }
        let instead = player.came_to.pop_front();
        let mut compared = [
            instead.as_ref().map(comparable),
            Some(comparable(&event.kind)),
        ];
        let is_of_texts = match event.kind {
            EventKind::Request { .. }
            | EventKind::Budget { .. }
            | EventKind::Summarized { .. }
            | EventKind::ConversationSummarized { .. } => has_other_prompts || lacks_texts,
            EventKind::Cited { .. } | EventKind::Hidden { .. } => lacks_texts,
            _ => false,
        };
        if is_of_texts {
            compared.iter_mut().flatten().for_each(without_texts);
        }
        if lacks_texts && matches!(event.kind, EventKind::ToolStart { .. }) {
            compared.iter_mut().flatten().for_each(without_filled);
        }
        if lacks_texts && matches!(event.kind, EventKind::Written { .. }) {
            compared.iter_mut().flatten().for_each(without_place);
        }
        let [came_to, recorded] = compared;
        if came_to != recorded {
            if lacks_texts {
                until = Some(event.seq);
                break;
            }
            return Err(divergence(event, instead.as_ref()));
        }
    }
    if until.is_some() {
        // What the machine would have come to is not what the run came to.
        player.came_to.clear();
    }
    let last = events.last().unwrap_or(first);
    let inside = replay_subs(events, request.settings.max_cost.is_some(), lacks_from)?;
    until = earlier(until, inside.until);
    let mut modules = RecordedModules::at_the_begin(tools);
    for event in events {
        modules.take(&event.kind);
    }
    Ok(Replayed {
        time_left: request.settings.timeout.saturating_sub(elapsed),
        subs: inside.subs,
        jobs: jobs.open(elapsed),
        nested: inside.nested,
        lacks: lacks_from.map(|from| LackingTexts { from, until }),
        ended: SubAgentEnd::of(&last.kind, player.machine.spent()),
        class: class(events),
        machine: player.machine,
        next: last.seq.saturating_add(1),
        seal: last.seal.clone(),
        open: OpenCalls::default(),
        unsaid: player.came_to.into(),
        elapsed,
        is_done: matches!(last.kind, EventKind::Done { .. }),
        has_other_prompts,
        instructions: request.all_instructions().into_owned(),
        notes: Vec::new(),
        modules: modules.digests(),
    })
}

/// Time that a run may need to stop after its timeout.
const STOP_GRACE: Duration = Duration::from_mins(1);

/// The time between two events of one process, by the machine's clock. A run is stopped after `all` of its time:
/// more than that between two events is a clock that was set, or a machine that slept, and so is less than
/// nothing.
fn worked(from_ms: u64, to_ms: u64, all: Duration) -> Duration {
    let between = Duration::from_millis(to_ms.saturating_sub(from_ms));
    if between > all.saturating_add(STOP_GRACE) {
        Duration::ZERO
    } else {
        between
    }
}

fn class(events: &[Event]) -> Option<String> {
    events.iter().rev().find_map(|event| match &event.kind {
        EventKind::Routing(Routing::Classified { class, .. }) => Some(class.clone()),
        _ => None,
    })
}

struct Player {
    machine: Machine,
    /// Events of the machine that were not compared with the record yet.
    came_to: VecDeque<EventKind>,
}

impl Player {
    fn tell(&mut self, input: Input, elapsed: Duration) {
        let Effects { events, .. } = self.machine.handle(input, elapsed);
        self.came_to.extend(events);
    }
}

/// The input that caused this event; `None` if the machine produced it by itself.
fn input(event: &EventKind) -> Option<Input> {
    Some(match event {
        EventKind::Written { pieces, .. } => Input::Written(pieces.clone()),
        EventKind::Delta { delta, .. } => Input::Recorded(delta.clone()),
        EventKind::Reply { completion, .. } => Input::Replied(completion.clone()),
        EventKind::ModelFailed { failure, .. } => Input::ModelFailed(failure.clone()),
        EventKind::Decided { id, decision, .. } => Input::Decided {
            id: id.clone(),
            decision: decision.clone(),
        },
        EventKind::Screened { call, screened, .. } => Input::Screened {
            call: call.clone(),
            screened: screened.clone(),
        },
        EventKind::Retrieved {
            passages,
            notes,
            duration_ms,
            ..
        } => Input::Retrieved(Retrieved {
            passages: passages.clone(),
            notes: notes.clone(),
            duration_ms: *duration_ms,
        }),
        EventKind::Counted { counted, .. } => Input::Counted(counted.clone()),
        EventKind::SummaryWritten { written, .. } => Input::SummedUp(written.clone()),
        EventKind::SideRequest(request) => Input::SideRequest(request.clone()),
        EventKind::Resumed { notes, .. } => Input::Resumed {
            notes: notes.clone(),
        },
        EventKind::ToolResult {
            id,
            outcome,
            written,
            usage,
            printed,
            module,
            cached,
            ..
        } => Input::Called {
            id: id.clone(),
            result: ToolResult {
                outcome: match outcome {
                    ToolOutcome::Output(value) => Ok(ToolOutput {
                        value: value.clone(),
                        // One place may have been the tool's choice; that it is allowed was checked.
                        output_path: match written.as_slice() {
                            [only] => Some(only.to_string()),
                            _ => None,
                        },
                        is_named: false,
                        job: None,
                    }),
                    ToolOutcome::Error(failure) => Err(failure.clone()),
                },
                usage: *usage,
                printed: printed.clone(),
                module: module.clone(),
                cached: cached.clone(),
            },
        },
        EventKind::Done {
            reason: StopReason::Cancelled,
            error,
            ..
        } => Input::Cancelled {
            reason: error.as_ref().map(|failure| failure.message.clone()),
        },
        EventKind::Done {
            reason: StopReason::Timeout,
            ..
        } => Input::TimedOut,
        // A run that finds its budget used up itself comes to these without being told.
        EventKind::Done { reason, .. } => Input::OutOf(match reason {
            StopReason::TokenBudget => Budget::Tokens,
            StopReason::MaxCost => Budget::Cost,
            StopReason::MaxToolCalls => Budget::Calls,
            _ => return None,
        }),
        _ => return None,
    })
}

/// An event without what the clock and the version of this program put into it.
fn comparable(event: &EventKind) -> Value {
    let mut value = serde_json::to_value(event).unwrap_or_default();
    if let (EventKind::Done { .. } | EventKind::Run { .. }, Value::Object(fields)) =
        (event, &mut value)
    {
        fields.shift_remove("duration_ms");
        fields.shift_remove("host");
        fields.shift_remove("prompts");
    }
    // Earlier versions wrote of a call that was interrupted that the host had answered itself.
    if let (
        EventKind::ToolResult {
            outcome: ToolOutcome::Error(failure),
            ..
        },
        Value::Object(fields),
    ) = (event, &mut value)
        && failure.kind == INTERRUPTED
    {
        fields.shift_remove("by_host");
    }
    value
}

/// Takes away the arguments of a call that were filled from data, which may have texts.
fn without_filled(event: &mut Value) {
    if let Value::Object(fields) = event {
        fields.shift_remove("filled");
    }
}

/// Takes away the place of a text in its reply, which follows from the lengths of texts before it.
fn without_place(event: &mut Value) {
    if let Value::Object(fields) = event {
        fields.shift_remove("from");
    }
}

/// Leaves the name and the step of an event of which the rest depends on the texts of prompts.
fn without_texts(event: &mut Value) {
    if let Value::Object(fields) = event {
        fields.retain(|name, _| matches!(name.as_str(), "event" | "step"));
    }
}

fn divergence(event: &Event, instead: Option<&EventKind>) -> ReplayError {
    let short =
        |kind: &EventKind| -> String { comparable(kind).to_string().chars().take(400).collect() };
    ReplayError::Divergence {
        seq: event.seq,
        recorded: short(&event.kind),
        instead: instead.map_or_else(|| "nothing".into(), short),
    }
}
