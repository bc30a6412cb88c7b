//! Rows that follow from a run's events.

use super::call::{AuditContent, AuditedCall, REASON, audited, interrupted};
use super::draft::{Draft, canonical, logged_owner, tool_name};
use super::texts::is_of_memory;
use crate::column::signed;
use crate::shown_texts::{KnowledgeTools, TextIds};
use serde_json::{Map, Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use toolhold_protocol::event::ToolOutcome;
use toolhold_protocol::event::sub_run;
use toolhold_protocol::event::{Event, EventKind};
use toolhold_protocol::solution::Call;
use uuid::Uuid;

/// Follows a run's events and makes its rows of the audit log.
#[derive(Debug, Clone)]
pub struct RunAudit {
    run: Uuid,
    owner: String,
    /// Hash of the policy that the run is under.
    policy: String,
    content: AuditContent,
    /// Other names under which the run and its sub-agents have tools of memory.
    memory_names: HashSet<String>,
    /// Names under which tools return passages and facts.
    knowledge: KnowledgeTools,
    /// Whether the record has passages or facts by now, which the host may fill into arguments.
    has_texts: bool,
    /// The calls that have not ended, by run or sub-run and call id.
    open: HashMap<(Uuid, String), UnendedCall>,
    /// What answered last, by run or sub-run. None of one whose reply streams.
    models: HashMap<Uuid, Arc<AnsweringModel>>,
    /// The runs and sub-runs whose reply streams.
    streaming: HashSet<Uuid>,
    /// Rows of calls that ended while their reply streamed: what they lack is told when it is over. A reply has no more
    /// calls than the run allows.
    waiting: Vec<WaitingRow>,
}

/// A call of a run that has not ended.
#[derive(Debug, Clone)]
struct UnendedCall {
    /// Whether it is one of those whose texts the log has not.
    is_of_memory: bool,
    /// Whether its tool gets more than `arguments`: texts that the host filled in, which the log has not.
    is_filled: bool,
    /// As the log keeps them.
    arguments: Value,
    /// Why a model made it.
    reason: Option<Value>,
    /// The model that asked for it, once its reply is complete.
    model: Option<Arc<AnsweringModel>>,
    /// Its begin, if its tool was called.
    begun: Option<CallBegin>,
}

/// A model as its endpoint names it.
#[derive(Debug)]
struct AnsweringModel {
    name: Option<Value>,
    revision: Option<Value>,
}

/// The event with which a tool is called.
#[derive(Debug, Clone)]
struct CallBegin {
    tool: String,
    seq: i64,
    at_ms: i64,
    /// True if the log has a row for it, which says that the call was interrupted.
    is_logged: bool,
}

/// A row that waits for the end of its reply.
#[derive(Debug, Clone)]
struct WaitingRow {
    within: Uuid,
    id: String,
    /// Number and time of the event that ended the call.
    source: (i64, i64),
    tool: String,
    details: Map<String, Value>,
    /// Whether an event told the call's arguments.
    is_told: bool,
}

impl RunAudit {
    /// For the run of `owner`, before its first event.
    pub fn new(run: Uuid, owner: &str, content: AuditContent) -> Self {
        Self {
            run,
            owner: logged_owner(owner),
            policy: String::new(),
            content,
            memory_names: HashSet::new(),
            knowledge: KnowledgeTools::default(),
            has_texts: false,
            open: HashMap::new(),
            models: HashMap::new(),
            streaming: HashSet::new(),
            waiting: Vec::new(),
        }
    }

    /// Sets the hash of the policy: a resumed run may have another one than at its begin.
    pub fn under(&mut self, policy: &str) {
        policy.clone_into(&mut self.policy);
    }

    /// Notes the events of the run that have rows already: of an interrupted call, the event of its begin has one, and its
    /// unknown end gets no other.
    pub fn note_logged(&mut self, rows: &[i64]) {
        let begun = self.open.values_mut().filter_map(|it| it.begun.as_mut());
        for begun in begun {
            begun.is_logged = rows.contains(&begun.seq);
        }
    }

    /// True if a call has begun and not ended.
    pub fn has_begun(&self) -> bool {
        self.open.values().any(|it| it.begun.is_some())
    }

    /// Takes the run's next event, and returns the rows that follow from it. A call that ended while its reply streamed
    /// gets its row when the reply is over: only then is it known which model asked for it and, of one that was refused,
    /// with which arguments, unless the reply broke off.
    pub fn take(&mut self, event: &Event) -> Vec<Draft> {
        self.knowledge.take(&event.kind);
        self.has_texts = self.has_texts || !TextIds::of(&event.kind, &self.knowledge).is_empty();
        let mut rows = self.reply_over(event);
        rows.extend(self.row(event));
        rows
    }

    /// The rows of the calls that ended in a reply that is over with this event.
    fn reply_over(&mut self, event: &Event) -> Vec<Draft> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let (mut within, kind) = self.lane(&event.kind);
        let mut calls: &[Call] = &[];
        match kind {
            EventKind::Plan { calls: told, .. } => calls = told,
            EventKind::Request { .. }
            | EventKind::ModelFailed { .. }
            | EventKind::UnusableReply(_)
            | EventKind::Done { .. } => {}
            // What the ended call was the caller of, such as a sub-agent.
            EventKind::ToolResult { id, .. } => within = sub_run(within, id),
            _ => return Vec::new(),
        }
        // Of an ended run nothing is left behind.
        let ends_run = within == self.run && matches!(kind, EventKind::Done { .. });
        let (over, left) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|row| row.within == within || ends_run);
        self.waiting = left;
        let over: Vec<WaitingRow> = over;
        let rows = over.into_iter().map(|row| {
            let told = calls.iter().find(|call| call.id == row.id);
            self.waited(row, told)
        });
        rows.collect()
    }

    fn waited(&self, row: WaitingRow, told: Option<&Call>) -> Draft {
        let mut details = row.details;
        if let Some(call) = told.filter(|_| !row.is_told) {
            details.insert("arguments".into(), self.content.kept(&call.arguments));
            let reason = self.content.reason(call.reason.as_deref());
            details.extend(reason.map(|reason| (REASON.to_owned(), reason)));
        }
        let model = self.models.get(&row.within).map(Arc::as_ref);
        self.call_row(row.within, row.source, row.tool, details, model)
    }

    /// The run or sub-run that an event is of, and what happened in it.
    fn lane<'e>(&self, mut kind: &'e EventKind) -> (Uuid, &'e EventKind) {
        let mut within = self.run;
        while let EventKind::Sub { call, what } = kind {
            within = sub_run(within, call);
            kind = what;
        }
        (within, kind)
    }

    fn row(&mut self, event: &Event) -> Option<Draft> {
        let (within, kind) = self.lane(&event.kind);
        let mut salted: &[&str] = &[];
        let (action, details) = match kind {
            EventKind::Run { request, tools, .. } => {
                let of_memory = tools.iter().filter(|tool| is_of_memory(tool.called()));
                let names = of_memory.map(|tool| tool.tool.name.clone());
                self.memory_names.extend(names);
                if within == self.run {
                    self.policy.clone_from(&request.policy.hash);
                }
                return None;
            }
            EventKind::Request { .. } => {
                self.models.remove(&within);
                self.streaming.insert(within);
                return None;
            }
            EventKind::ModelFailed { .. } => {
                self.streaming.remove(&within);
                return None;
            }
            EventKind::Reply { completion, .. } => {
                self.streaming.remove(&within);
                let text = |text: &str| self.content.name(text);
                let model = AnsweringModel {
                    name: completion.model.as_deref().map(text),
                    revision: completion.revision().map(text),
                };
                self.models.insert(within, Arc::new(model));
                return None;
            }
            EventKind::Plan { calls, .. } => {
                for call in calls.iter().filter(|call| !call.id.is_empty()) {
                    let key = (within, call.id.clone());
                    match self.open.get_mut(&key) {
                        // It began while the reply streamed, with the arguments that its tool was given.
                        Some(open) => open.model = self.models.get(&within).cloned(),
                        None => self.keep(within, call, &call.arguments, None),
                    }
                }
                return None;
            }
            EventKind::Approval { pending, .. } => {
                self.keep(within, &pending.call, &pending.arguments, None);
                return None;
            }
            EventKind::ToolStart { call, filled, .. } => {
                let begin = CallBegin {
                    tool: call.tool.clone(),
                    seq: signed(event.seq),
                    at_ms: signed(event.at_ms),
                    is_logged: false,
                };
                let arguments = filled.as_ref().unwrap_or(&call.arguments);
                self.keep(within, call, arguments, Some(begin));
                return None;
            }
            EventKind::ToolResult {
                id,
                tool,
                outcome,
                usage,
                module,
                by_host,
                cached,
                ..
            } => {
                let open = self.open.remove(&(within, id.clone()));
                let begun = open.as_ref().and_then(|it| it.begun.as_ref());
                if begun.is_some_and(|begun| begun.is_logged) && is_of_unknown_end(outcome) {
                    return None;
                }
                let is_told = open.is_some();
                let way = filled_mark(open.as_ref().is_some_and(|it| it.is_filled));
                let (arguments, reason, model) = open
                    .map(|it| (it.arguments, it.reason, it.model))
                    .unwrap_or_default();
                let details = audited(AuditedCall {
                    content: &self.content,
                    way,
                    call: id,
                    arguments,
                    reason,
                    policy: &self.policy,
                    outcome: match outcome {
                        ToolOutcome::Output(value) => Ok(value),
                        ToolOutcome::Error(failure) => Err(failure),
                    },
                    usage,
                    module: module.as_deref(),
                    by_host: *by_host,
                    cached: cached.as_ref(),
                });
                let source = (signed(event.seq), signed(event.at_ms));
                let lacks_model = model.is_none() && self.streaming.contains(&within);
                if lacks_model || (*by_host && !is_told) {
                    self.waiting.push(WaitingRow {
                        within,
                        id: id.clone(),
                        source,
                        tool: tool_name(tool),
                        details,
                        is_told,
                    });
                    return None;
                }
                let (tool, model) = (tool_name(tool), model.as_deref());
                return Some(self.call_row(within, source, tool, details, model));
            }
            EventKind::Decided { id, decision, .. } => {
                let open = self.open.get(&(within, id.clone()));
                if open.is_some_and(|open| open.is_of_memory || open.is_filled) {
                    // It covers the arguments.
                    salted = &["digest"];
                }
                let verdict: &str = (&decision.verdict).into();
                let details = json!({
                    "call": id,
                    "verdict": verdict,
                    "by": decision.by,
                    "digest": decision.digest,
                    "policy": self.policy,
                });
                ("approval_decided", details)
            }
            EventKind::RequestFetched(fetch) => ("request_fetched", json!(fetch)),
            _ => return None,
        };
        let Value::Object(details) = details else {
            return None;
        };
        let source = (signed(event.seq), signed(event.at_ms));
        let draft = self.draft(within, source, action, None, details);
        Some(draft.salting(salted))
    }

    /// Rows for the calls that have begun and not ended, and for those that have ended and have no row yet, in their
    /// order: for a run whose process is dead.
    pub fn interrupted(mut self) -> Vec<Draft> {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let waiting = waiting.map(|it| (it.source.0, self.waited(it, None)));
        let waiting: Vec<(i64, Draft)> = waiting.collect();
        let open = self.open.iter().filter_map(|((within, id), open)| {
            let begun = open.begun.as_ref()?;
            let (arguments, reason) = (open.arguments.clone(), open.reason.clone());
            let details = interrupted(
                filled_mark(open.is_filled),
                id,
                arguments,
                reason,
                &self.policy,
            );
            let tool = tool_name(&begun.tool);
            let source = (begun.seq, begun.at_ms);
            let model = open.model.as_deref();
            Some((
                begun.seq,
                self.call_row(*within, source, tool, details, model),
            ))
        });
        let mut drafts: Vec<(i64, Draft)> = open.chain(waiting).collect();
        drafts.sort_by_key(|(seq, _)| *seq);
        drafts.into_iter().map(|(_, draft)| draft).collect()
    }

    fn call_row(
        &self,
        within: Uuid,
        source: (i64, i64),
        tool: String,
        mut details: Map<String, Value>,
        model: Option<&AnsweringModel>,
    ) -> Draft {
        if let Some(model) = model {
            let known = [("model", &model.name), ("model_revision", &model.revision)];
            let known = known
                .into_iter()
                .filter_map(|(name, value)| Some((name, value.as_ref()?)));
            details.extend(known.map(|(name, value)| (name.to_owned(), value.clone())));
        }
        self.draft(within, source, "call", Some(tool), details)
    }

    fn draft(
        &self,
        within: Uuid,
        (seq, at_ms): (i64, i64),
        action: &'static str,
        tool: Option<String>,
        mut details: Map<String, Value>,
    ) -> Draft {
        if within != self.run {
            details.insert("within".into(), json!(within));
        }
        let draft = Draft {
            at_ms,
            owner: self.owner.clone(),
            action: action.into(),
            source: Some((self.run, seq)),
            tool,
            details: canonical(details),
            salt: None,
        };
        let name = draft.tool.as_deref();
        if name.is_some_and(|name| self.memory_names.contains(name)) {
            draft.with_salted_texts()
        } else {
            draft.without_texts()
        }
    }

    fn keep(&mut self, within: Uuid, call: &Call, arguments: &Value, begun: Option<CallBegin>) {
        // A document that is deleted goes out of the record, and nothing goes out of the log.
        let is_filled = self.has_texts && *arguments != call.arguments;
        let kept = if is_filled {
            &call.arguments
        } else {
            arguments
        };
        let open = UnendedCall {
            is_of_memory: is_of_memory(&call.tool) || self.memory_names.contains(&call.tool),
            is_filled,
            arguments: self.content.kept(kept),
            reason: self.content.reason(call.reason.as_deref()),
            model: self.models.get(&within).cloned(),
            begun,
        };
        self.open.insert((within, call.id.clone()), open);
    }
}

fn is_of_unknown_end(outcome: &ToolOutcome) -> bool {
    matches!(outcome, ToolOutcome::Error(failure) if failure.is_of_unknown_end())
}

/// The member of the row of a call whose tool was given more than the row's arguments.
fn filled_mark(is_filled: bool) -> Map<String, Value> {
    let mark = is_filled.then(|| ("filled".to_owned(), Value::Bool(true)));
    mark.into_iter().collect()
}
