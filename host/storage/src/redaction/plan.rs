//! The texts that are taken out of a record. A first reading finds the events that have them, a second takes them out.
//!
//! By their ids go the texts that the host put into the record: passages and facts in results and before the run, and
//! the arguments of a call that remembered a fact, with the reply that made the call. What the host composed after the
//! first of them goes as a whole, because no id says which part of it has them: messages of requests, arguments that
//! were filled from data, what shields and people made of these, what sub-agents were begun with, and an end that no
//! model wrote. What models and other tools said afterwards stays.
//!
//! Later runs begin with texts of this record: their requests name such messages
//! ([`CarriedTexts`](toolhold_protocol::settings::CarriedTexts)).

use super::emptied::{
    empty, empty_call, empty_carried, empty_council, empty_delta, empty_failure, empty_outcome,
    empty_output, empty_pending, empty_reply, empty_summary, nothing, redact_listed,
};
use crate::shown_texts::{self, FACTS, KnowledgeTool, KnowledgeTools, PASSAGES, TextIds};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use toolhold_protocol::decision::Verdict;
use toolhold_protocol::event::{Event, EventKind, RemovedSource, ToolOutcome, sub_run};
use toolhold_protocol::shield::{ScreeningResult, ShieldPlace};
use toolhold_protocol::solution::Call;
use uuid::Uuid;

/// The deleted documents and facts that a record has texts of.
#[derive(Debug, Default)]
pub(super) struct DeletedTexts {
    /// By their names in the tables.
    sources: BTreeMap<String, RemovedSource>,
    texts: TextIds,
}

impl DeletedTexts {
    /// Adds a passage of a document, or a fact: `digest` is absent for a fact.
    pub fn add(&mut self, source: String, passage: i64, digest: Option<String>, deleted_ms: u64) {
        let id: Option<Uuid> = source.parse().ok();
        let removed = match (digest, id) {
            (None, Some(id)) => {
                self.texts.facts.insert(id);
                RemovedSource::Fact { id, deleted_ms }
            }
            (digest, id) => {
                self.texts.passages.insert(passage);
                RemovedSource::Document {
                    id,
                    digest: digest.filter(|digest| !digest.is_empty()),
                    deleted_ms,
                }
            }
        };
        self.sources.insert(source, removed);
    }
}

/// The texts that are taken out of the record of a run.
#[derive(Debug)]
pub(super) struct RedactionPlan {
    pub run: Uuid,
    deleted: DeletedTexts,
    named: Vec<RemovedSource>,
    tools: KnowledgeTools,
    /// The first event that is changed.
    begin: Option<u64>,
    /// From this event on, what the host composed may have the texts.
    composed_from: Option<u64>,
    /// The step of each run or sub-run, and the event with which it began.
    steps: HashMap<Uuid, (u32, u64)>,
    /// Calls of `remember`: the step of each, the event with which the step began, and the first event of the call.
    remembering: HashMap<(Uuid, String), (u32, u64, u64)>,
    /// Calls that remembered a deleted fact.
    remembered: HashSet<(Uuid, String)>,
    /// The replies that made these calls, by run or sub-run and step.
    replies: HashSet<(Uuid, u32)>,
    /// Runs and sub-runs in which a model said something.
    answered: HashSet<Uuid>,
    /// Runs and sub-runs that carried out a saved plan.
    planned: HashSet<Uuid>,
    /// Runs and sub-runs whose end the host composed.
    ended_by_host: HashSet<Uuid>,
    /// Calls about which a person decided with arguments that were filled in.
    filled: HashSet<(Uuid, String)>,
    /// True if the run began with texts of an earlier record.
    has_carried: bool,
}

impl RedactionPlan {
    pub fn new(run: Uuid, deleted: DeletedTexts) -> Self {
        Self {
            run,
            named: deleted.sources.values().cloned().collect(),
            deleted,
            tools: KnowledgeTools::default(),
            begin: None,
            composed_from: None,
            steps: HashMap::new(),
            remembering: HashMap::new(),
            remembered: HashSet::new(),
            replies: HashSet::new(),
            answered: HashSet::new(),
            planned: HashSet::new(),
            ended_by_host: HashSet::new(),
            filled: HashSet::new(),
            has_carried: false,
        }
    }

    /// The deleted documents and facts, as events name them.
    pub fn sources(&self) -> &[RemovedSource] {
        &self.named
    }

    /// The deleted documents and facts, as the tables name them.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.deleted.sources.keys().map(String::as_str)
    }

    /// Whether a fact is among them.
    pub fn has_facts(&self) -> bool {
        !self.deleted.texts.facts.is_empty()
    }

    /// Whether the run began with such texts, from the record of an earlier run.
    pub fn has_carried(&self) -> bool {
        self.has_carried
    }

    /// The number of the first event that is changed; `None` if none is.
    pub fn begin(&self) -> Option<u64> {
        self.begin
    }

    /// Takes the record's next event, in the first reading.
    pub fn note(&mut self, event: &Event) {
        self.tools.take(&event.kind);
        let (within, kind) = lane(self.run, &event.kind);
        let seq = event.seq;
        match kind {
            EventKind::Request { step, .. } => {
                self.steps.insert(within, (*step, seq));
            }
            EventKind::Run { request, .. } if request.plan.is_some() => {
                self.planned.insert(within);
            }
            EventKind::Reply { .. } => {
                self.answered.insert(within);
            }
            EventKind::Done { reason, .. } => {
                let has_plan = self.planned.contains(&within);
                if reason.is_of_host(has_plan) || !self.answered.contains(&within) {
                    self.ended_by_host.insert(within);
                }
            }
            EventKind::Plan { step, calls } => {
                for call in calls {
                    self.note_call(within, *step, seq, call);
                }
            }
            EventKind::ToolWaits { step, call } | EventKind::ToolStart { step, call, .. } => {
                self.note_call(within, *step, seq, call);
            }
            EventKind::Approval { step, pending } => {
                self.note_call(within, *step, seq, &pending.call);
                // A plan has no arguments.
                let arguments = &pending.call.arguments;
                if !arguments.is_null() && pending.arguments != *arguments {
                    self.filled.insert((within, pending.call.id.clone()));
                }
            }
            _ => {}
        }
        let shown = TextIds::of(kind, &self.tools);
        let has_passage = !shown.passages.is_disjoint(&self.deleted.texts.passages);
        let has_fact = !shown.facts.is_disjoint(&self.deleted.texts.facts);
        if has_passage || has_fact {
            self.begins(seq);
            self.composes(seq);
            self.has_carried |= matches!(kind, EventKind::Run { .. });
        }
        if let EventKind::ToolResult { id, tool, .. } = kind
            && has_fact
            && self.tools.named(tool) == Some(KnowledgeTool::Remember)
        {
            let key = (within, id.clone());
            if let Some((step, begun, told)) = self.remembering.get(&key).copied() {
                self.begins(begun);
                self.composes(told);
                self.replies.insert((within, step));
            }
            self.remembered.insert(key);
        }
    }

    fn note_call(&mut self, within: Uuid, step: u32, seq: u64, call: &Call) {
        if self.tools.named(&call.tool) == Some(KnowledgeTool::Remember) {
            // Of a saved plan there is no request.
            let known = self.steps.get(&within).filter(|(of, _)| *of == step);
            let begun = known.map_or(seq, |(_, begun)| *begun);
            self.remembering
                .entry((within, call.id.clone()))
                .or_insert((step, begun, seq));
        }
    }

    fn begins(&mut self, seq: u64) {
        self.begin = Some(self.begin.map_or(seq, |begin| begin.min(seq)));
    }

    fn composes(&mut self, seq: u64) {
        self.composed_from = Some(self.composed_from.map_or(seq, |from| from.min(seq)));
    }

    /// Takes the texts out of an event, in the second reading. Returns whether it had any.
    pub fn redact(&self, event: &mut Event) -> bool {
        let is_composed_later = self.composed_from.is_some_and(|from| event.seq >= from);
        let mut within = self.run;
        let mut kind = &mut event.kind;
        while let EventKind::Sub { call, what } = kind {
            within = sub_run(within, call);
            kind = what;
        }
        let by_ids = self.redact_texts(within, kind);
        let as_a_whole = is_composed_later && self.redact_composed(within, kind);
        by_ids || as_a_whole
    }

    /// Takes out texts that are found by their ids, and the calls that remembered them.
    fn redact_texts(&self, within: Uuid, kind: &mut EventKind) -> bool {
        let is_remembered = |call: &str| self.remembered.contains(&(within, call.to_owned()));
        let is_reply = |step: u32| self.replies.contains(&(within, step));
        match kind {
            EventKind::Retrieved { passages, .. } => {
                let gone = &self.deleted.texts.passages;
                let mut is_changed = false;
                for passage in passages {
                    if passage.passage.is_some_and(|id| gone.contains(&id)) {
                        for text in [&mut passage.title, &mut passage.heading, &mut passage.text] {
                            is_changed |= empty(text);
                        }
                    }
                }
                is_changed
            }
            EventKind::ToolResult {
                tool,
                outcome: ToolOutcome::Output(value),
                ..
            } => self.redact_result(tool, value),
            EventKind::Plan { calls, .. } => {
                let mut is_changed = false;
                for call in calls {
                    is_changed |= is_remembered(&call.id) && empty_call(call);
                }
                is_changed
            }
            EventKind::ToolWaits { call, .. } => is_remembered(&call.id) && empty_call(call),
            EventKind::ToolStart { call, filled, .. } => {
                is_remembered(&call.id) && (empty_call(call) | filled.take().is_some())
            }
            EventKind::Approval { pending, .. } => {
                is_remembered(&pending.call.id) && empty_pending(pending)
            }
            EventKind::Decided { id, decision, .. } if is_remembered(id) => {
                let edited = match &mut decision.verdict {
                    Verdict::Edit { arguments } => nothing(arguments),
                    Verdict::Approve | Verdict::Replace { .. } | Verdict::Refuse { .. } => false,
                };
                // It is of the arguments: a guess could be checked.
                edited | empty(&mut decision.digest)
            }
            EventKind::Screened {
                call: Some(call),
                screened: ScreeningResult::Redacted { value },
                ..
            } => is_remembered(call) && nothing(value),
            EventKind::Delta { step, delta, .. } => is_reply(*step) && empty_delta(delta),
            EventKind::Written { step, pieces, .. } if is_reply(*step) => {
                let mut is_changed = false;
                for piece in pieces {
                    is_changed |= empty_delta(piece);
                }
                is_changed
            }
            EventKind::Reply { step, completion } => is_reply(*step) && empty_reply(completion),
            EventKind::UnusableReply(reply) => is_reply(reply.step) && empty(&mut reply.reason),
            EventKind::Council { step, council, .. } => is_reply(*step) && empty_council(council),
            EventKind::Repaired { step, repairs, .. } if is_reply(*step) => {
                let mut is_changed = false;
                for repair in repairs {
                    is_changed |= repair.change.take().is_some();
                }
                is_changed
            }
            _ => false,
        }
    }

    fn redact_result(&self, tool: &str, value: &mut Value) -> bool {
        let texts = &self.deleted.texts;
        match self.tools.named(tool) {
            Some(KnowledgeTool::Passages) => redact_listed(value, PASSAGES, |passage| {
                shown_texts::passage_id(passage).is_some_and(|id| texts.passages.contains(&id))
            }),
            Some(KnowledgeTool::Recall) => redact_listed(value, FACTS, |fact| {
                shown_texts::fact_id(fact).is_some_and(|id| texts.facts.contains(&id))
            }),
            // It returns an id.
            Some(KnowledgeTool::Remember) | None => false,
        }
    }

    /// Takes out values that the host composed after it had the texts.
    fn redact_composed(&self, within: Uuid, kind: &mut EventKind) -> bool {
        match kind {
            EventKind::Request { same, body, .. } => {
                let shares = std::mem::take(&mut same.messages) > 0;
                let messages = body.get_mut("messages").and_then(Value::as_array_mut);
                let has_some = messages.is_some_and(|messages| {
                    let has_some = !messages.is_empty();
                    messages.clear();
                    has_some
                });
                shares || has_some
            }
            EventKind::ToolStart { filled, .. } => filled.take().is_some(),
            EventKind::Approval { pending, .. } => {
                // What the model wrote stays in the call.
                pending.arguments != pending.call.arguments && nothing(&mut pending.arguments)
            }
            EventKind::Run { task, request, .. } if within != self.run => {
                let has_some = !request.context.is_empty();
                request.context.clear();
                empty(task) || has_some
            }
            EventKind::Run { request, .. } => empty_carried(request),
            // What was found in the run itself is no part of the conversation before it.
            EventKind::ConversationSummarized { summary, .. } => {
                (within != self.run || self.has_carried) && empty_summary(summary)
            }
            // The model was shown the messages for nothing else.
            EventKind::SummaryWritten { written, .. } => {
                (within != self.run || self.has_carried) && empty(&mut written.text)
            }
            EventKind::Screened {
                place,
                screened: ScreeningResult::Redacted { value },
                ..
            } => self.is_composed(within, *place) && nothing(value),
            EventKind::Decided { id, decision, .. } => match &mut decision.verdict {
                Verdict::Edit { arguments } => {
                    self.filled.contains(&(within, id.clone())) && nothing(arguments)
                }
                Verdict::Approve | Verdict::Replace { .. } | Verdict::Refuse { .. } => false,
            },
            // What a sub-agent ended with.
            EventKind::ToolResult { id, outcome, .. } => {
                self.ended_by_host.contains(&sub_run(within, id)) && empty_outcome(outcome)
            }
            EventKind::Cited { citations, .. } if self.ended_by_host.contains(&within) => {
                let mut is_changed = false;
                for citation in citations {
                    is_changed |= citation.quote.take().is_some();
                }
                is_changed
            }
            EventKind::Done {
                reason,
                output,
                error,
                ..
            } if self.ended_by_host.contains(&within) => {
                empty_output(*reason, output) | error.as_mut().is_some_and(empty_failure)
            }
            _ => false,
        }
    }

    /// Whether the host composed what shields were shown at this place. A result in the context is the client's.
    fn is_composed(&self, within: Uuid, place: ShieldPlace) -> bool {
        match place {
            ShieldPlace::Input | ShieldPlace::ToolInput => true,
            ShieldPlace::ToolOutput => false,
            ShieldPlace::Output => self.ended_by_host.contains(&within),
        }
    }
}

/// The run or sub-run that an event is of, and what happened in it.
fn lane(run: Uuid, mut kind: &EventKind) -> (Uuid, &EventKind) {
    let mut within = run;
    while let EventKind::Sub { call, what } = kind {
        within = sub_run(within, call);
        kind = what;
    }
    (within, kind)
}
