//! The journal of a run in the database.

use crate::audit_rows::{AuditContent, RunAudit};
use crate::blob_quota::BlobBound;
use crate::blobs;
use crate::change::Change;
use crate::claims::{RunClaim, RunLease};
use crate::column::signed;
use crate::error::WriteError;
use crate::label::Label;
use crate::pending_decisions::{DecisionChange, PendingDecisions};
use crate::reply_so_far::ReplyPartWriter;
use crate::shared_texts;
use crate::shown_texts::{KnowledgeTools, TextIds};
use crate::writer::Writer;
use futures_util::future::BoxFuture;
use std::borrow::Cow;
use std::io;
use toolhold_policy::redaction;
use toolhold_protocol::context::Message;
use toolhold_protocol::event::{CancelRequested, Event, EventKind, Journal};
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::settings::RunRequest;
use toolhold_protocol::turn::Role;
use uuid::Uuid;

/// Knowledge of a journal about the events so far.
#[derive(Debug, Clone)]
struct KnownEvents {
    pending: PendingDecisions,
    audit: RunAudit,
    knowledge: KnowledgeTools,
}

/// Appends a run's events, and keeps the run's row, its waiting calls and its audit rows up to date in the same
/// transaction. The row is created with the first event, so a run that could not begin leaves nothing behind.
///
/// Dropping the journal of a run that has not ended releases its lease.
#[derive(Debug)]
pub struct RunJournal {
    run: Uuid,
    writer: Writer,
    lease: RunLease,
    /// Present until the run's row exists.
    label: Option<Label>,
    /// True if the run was promised to a request with an idempotency key.
    is_promised: bool,
    known: KnownEvents,
    /// The reply that is being written, for readers in other processes.
    reply: ReplyPartWriter,
    has_ended: bool,
    /// True if a cancellation was requested before this process took the run.
    was_cancelled: bool,
    claim: Option<RunClaim>,
}

impl RunJournal {
    /// For a new run.
    pub(crate) fn begin(
        run: Uuid,
        label: Label,
        writer: Writer,
        lease: RunLease,
        claim: Option<RunClaim>,
        content: AuditContent,
        is_promised: bool,
    ) -> Self {
        let audit = RunAudit::new(run, &label.owner, content);
        let mut journal = Self::after(run, &[], writer, lease, claim, audit);
        journal.label = Some(label);
        journal.is_promised = is_promised;
        journal.reply = ReplyPartWriter::default();
        journal
    }

    /// For an existing run with these events.
    pub(crate) fn after(
        run: Uuid,
        events: &[Event],
        writer: Writer,
        lease: RunLease,
        claim: Option<RunClaim>,
        audit: RunAudit,
    ) -> Self {
        let mut known = KnownEvents {
            pending: PendingDecisions::default(),
            audit,
            knowledge: KnowledgeTools::default(),
        };
        for event in events {
            known.pending.note(run, &event.kind);
            known.audit.take(event);
            known.knowledge.take(&event.kind);
        }
        Self {
            run,
            writer,
            claim,
            lease,
            label: None,
            is_promised: false,
            known,
            reply: ReplyPartWriter::of_resumed(),
            has_ended: false,
            was_cancelled: false,
        }
    }

    /// Sets the hash of the policy for audit rows from now on: a resumed run may have another one.
    pub fn under(&mut self, policy: &str) {
        self.known.audit.under(policy);
    }

    /// True if a call of the events so far has begun and not ended.
    pub(crate) fn has_begun_calls(&self) -> bool {
        self.known.audit.has_begun()
    }

    /// Notes that a cancellation was requested before this process took the run.
    pub(crate) fn note_cancelled(&mut self) {
        self.was_cancelled = true;
    }

    /// Notes the events that have rows in the audit log, as [`RunAudit::note_logged`].
    pub(crate) fn note_logged(&mut self, rows: &[i64]) {
        self.known.audit.note_logged(rows);
    }

    /// The changes that follow from events. `texts` are their JSON texts.
    fn changes(&mut self, events: &[Event], texts: Vec<String>) -> Vec<Change> {
        let Some(first) = events.first() else {
            return Vec::new();
        };
        let run = self.run;
        let mut lines = Vec::with_capacity(events.len());
        let mut named = Vec::new();
        for (event, line) in events.iter().zip(texts) {
            let (line, text) = shared_texts::stored(event, line);
            lines.push(line);
            named.extend(text.map(|text| Change::SharedText {
                run,
                seq: signed(event.seq),
                text,
            }));
        }
        let mut changes = vec![Change::Events {
            run,
            seq: signed(first.seq),
            lines,
            lease: self.lease.clone(),
            begin_calls: begin_calls(events),
        }];
        changes.extend(named);
        for event in events {
            self.follow(event, &mut changes);
        }
        changes
    }

    /// Adds the changes that follow from an event.
    fn follow(&mut self, event: &Event, changes: &mut Vec<Change>) {
        let (run, at_ms) = (self.run, signed(event.at_ms));
        let mut bound = None;
        if let EventKind::Run {
            task,
            model,
            request,
            ..
        } = &event.kind
            && let Some(label) = self.label.take()
        {
            bound = label.images.map(|quota| BlobBound {
                owner: label.owner.clone(),
                quota,
            });
            let began = Change::Began {
                run,
                label: Box::new(label),
                task: headline(&without_secrets(
                    last_user_text(request).unwrap_or(task),
                    &request.settings.privacy,
                )),
                model: model.replace('\0', ""),
                at_ms,
                lease: self.lease.clone(),
                is_promised: self.is_promised,
            };
            // First, because events refer to the run's row.
            changes.insert(0, began);
        }
        let blobs = blobs::begun_with(&event.kind);
        if !blobs.is_empty() {
            changes.push(Change::Blobs { run, blobs, bound });
        }
        if self.reply.take(event) {
            changes.push(Change::ReplyOver { run });
        }
        let known = &mut self.known;
        known.knowledge.take(&event.kind);
        let texts = TextIds::of(&event.kind, &known.knowledge);
        if !texts.is_empty() {
            let carried = match &event.kind {
                EventKind::Run { request, .. } => request.carried.as_ref(),
                _ => None,
            };
            let before = carried.map(|carried| carried.runs().collect::<Vec<_>>());
            let before = before.unwrap_or_default();
            changes.push(Change::Shown { run, before, texts });
        }
        let rows = known.audit.take(event).into_iter();
        changes.extend(rows.map(|draft| Change::Audit(Box::new(draft))));
        let moved = known.pending.note(run, &event.kind);
        changes.extend(moved.into_iter().map(|moved| match moved {
            DecisionChange::Waits(within, pending) => Change::Waits {
                run,
                within,
                pending,
                at_ms,
            },
            DecisionChange::Settled(within, call) => Change::Settled { run, within, call },
        }));
        if let EventKind::Done {
            reason,
            steps,
            calls,
            tokens,
            ..
        } = &event.kind
        {
            self.has_ended = true;
            changes.push(Change::Ended {
                run,
                at_ms,
                reason: reason.name().to_owned(),
                steps: i64::from(*steps),
                calls: i64::from(*calls),
                tokens: signed(*tokens),
            });
        }
    }
}

impl Journal for RunJournal {
    fn append<'a>(&'a mut self, events: &'a [Event]) -> BoxFuture<'a, io::Result<()>> {
        let lines: Result<Vec<String>, _> = events.iter().map(serde_json::to_string).collect();
        match lines {
            Ok(lines) => self.append_with_lines(events, lines),
            Err(error) => {
                let refused: io::Result<()> = Err(error.into());
                Box::pin(std::future::ready(refused))
            }
        }
    }

    fn append_with_lines<'a>(
        &'a mut self,
        events: &'a [Event],
        lines: Vec<String>,
    ) -> BoxFuture<'a, io::Result<()>> {
        // An event without a line would be lost.
        if lines.len() != events.len() {
            return self.append(events);
        }
        Box::pin(async move {
            // Events that are refused come again, with the end of the run.
            let before = begin_calls(events).then(|| (self.known.clone(), self.reply.has_part()));
            let changes = self.changes(events, lines);
            let written = self.writer.write(changes, true).await;
            match (written, before) {
                (Err(error), Some((known, has_part))) if is_cancellation(&error) => {
                    self.known = known;
                    if has_part {
                        self.reply.keep_part();
                    }
                    Err(io::Error::other(CancelRequested))
                }
                (written, _) => written,
            }
        })
    }

    fn shown(&mut self, piece: &Event) {
        self.reply.show(piece, &self.lease, &self.writer);
    }

    fn was_cancelled(&self) -> bool {
        self.was_cancelled
    }
}

/// True if calls begin with the events and go on after them.
fn begin_calls(events: &[Event]) -> bool {
    let ends = |event: &Event| matches!(event.kind, EventKind::Done { .. });
    events.iter().any(|event| event.kind.begins_calls()) && !events.iter().any(ends)
}

/// Whether the writer refused to let a call begin, because its run was cancelled.
fn is_cancellation(error: &io::Error) -> bool {
    matches!(
        WriteError::cause_of(error),
        Some(WriteError::Cancelled { .. })
    )
}

impl Drop for RunJournal {
    /// Releases the lease, so that another process can resume the run while this one lives. The text of a
    /// reply that broke off is removed before that.
    fn drop(&mut self) {
        if !self.has_ended && self.reply.has_part() {
            self.writer.note(Change::ReplyOver { run: self.run });
        }
        if !self.has_ended
            && self.label.is_none()
            && let Some(run) = self.claim.take()
        {
            let holder = self.lease.holder.clone();
            self.writer.note(Change::Released { run, holder });
        }
    }
}

/// Characters of a task that lists of runs show.
const HEADLINE_CHARS: usize = 200;

/// The user's last message: the task of a session's turn.
fn last_user_text(request: &RunRequest) -> Option<&str> {
    let messages = request.context.iter().rev();
    let mut said = messages.filter_map(|message| match message {
        Message::Text(text) if text.role == Role::User => Some(text.text.as_str()),
        _ => None,
    });
    said.next()
}

/// Characters of a task in which secrets are looked for: half a secret at the end of a headline is none that is found.
const MASKED_CHARS: usize = 8_192;

/// The begin of a task without the secrets that its run hides: lists show it without the record.
fn without_secrets<'t>(task: &'t str, privacy: &Privacy) -> Cow<'t, str> {
    if !privacy.hide.iter().any(|kind| kind.is_secret()) {
        return Cow::Borrowed(task);
    }
    let end = task.char_indices().nth(MASKED_CHARS);
    let begin = task.get(..end.map_or(task.len(), |(at, _)| at));
    redaction::without(begin.unwrap_or_default(), |kind| {
        kind.is_secret() && privacy.hide.contains(&kind)
    })
}

/// The begin of a task, without NUL characters, which PostgreSQL's text type refuses.
fn headline(task: &str) -> String {
    task.chars()
        .filter(|c| *c != '\0')
        .take(HEADLINE_CHARS)
        .collect()
}
