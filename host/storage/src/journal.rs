//! A run's journal in the database.

use crate::redaction::Redaction;
use crate::storage::Hold;
use crate::storage::audit::Drafts;
use crate::storage::change::Change;
use crate::storage::runs::Label;
use crate::storage::sessions::signed;
use crate::storage::waiting::{Moved, Open};
use crate::storage::writer::Writer;
use futures_util::future::BoxFuture;
use std::io;
use toolhold_agent::protocol::Role;
use toolhold_agent::{Event, EventKind, Journal, Message, RunRequest};
use uuid::Uuid;

/// Appends events. A run is there from its first event on: one that could not begin leaves nothing.
#[derive(Debug)]
pub struct RunJournal {
    run: Uuid,
    writer: Writer,
    /// The process that goes on with the run.
    holder: String,
    /// Until the run is there.
    label: Option<Label>,
    open: Open,
    audit: Drafts,
    is_over: bool,
    hold: Option<Hold>,
}

impl RunJournal {
    pub(super) fn begin(
        run: Uuid,
        label: Label,
        writer: Writer,
        holder: &str,
        hold: Option<Hold>,
        redaction: Redaction,
    ) -> Self {
        let audit = Drafts::new(run, &label.owner, redaction);
        let mut journal = Self::after(run, &[], writer, holder, hold, audit);
        journal.label = Some(label);
        journal
    }

    /// Of a run that is there, after these events.
    pub(super) fn after(
        run: Uuid,
        events: &[Event],
        writer: Writer,
        holder: &str,
        hold: Option<Hold>,
        mut audit: Drafts,
    ) -> Self {
        let mut open = Open::default();
        for event in events {
            open.note(run, &event.kind);
            audit.take(event);
        }
        Self {
            run,
            writer,
            hold,
            holder: holder.to_owned(),
            label: None,
            open,
            audit,
            is_over: false,
        }
    }

    /// The run goes on under another policy than the one it began under, as it may be.
    pub fn under(&mut self, policy: &str) {
        self.audit.under(policy);
    }

    fn changes(&mut self, events: &[Event]) -> Result<Vec<Change>, serde_json::Error> {
        let Some(first) = events.first() else {
            return Ok(Vec::new());
        };
        let mut changes = vec![Change::Events {
            run: self.run,
            seq: signed(first.seq),
            lines: events
                .iter()
                .map(serde_json::to_string)
                .collect::<Result<_, _>>()?,
            holder: self.holder.clone(),
        }];
        for event in events {
            self.follow(event, &mut changes);
        }
        Ok(changes)
    }

    /// What follows from an event.
    fn follow(&mut self, event: &Event, changes: &mut Vec<Change>) {
        let (run, at_ms) = (self.run, signed(event.at_ms));
        if let EventKind::Run {
            task,
            model,
            request,
            ..
        } = &event.kind
            && let Some(label) = self.label.take()
        {
            let began = Change::Began {
                run,
                label: Box::new(label),
                task: headline(said_last(request).unwrap_or(task)),
                model: model.replace('\0', ""),
                at_ms,
                holder: self.holder.clone(),
            };
            // Its events are those of a run that is there.
            changes.insert(0, began);
        }
        changes.extend(
            self.audit
                .take(event)
                .map(|draft| Change::Audit(Box::new(draft))),
        );
        let moved = self.open.note(run, &event.kind);
        changes.extend(moved.into_iter().map(|moved| match moved {
            Moved::Waits(within, pending) => Change::Waits {
                run,
                within,
                pending,
                at_ms,
            },
            Moved::Settled(within, call) => Change::Settled { run, within, call },
        }));
        if let EventKind::Done {
            reason,
            steps,
            calls,
            tokens,
            ..
        } = &event.kind
        {
            self.is_over = true;
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
        Box::pin(async move {
            let changes = self.changes(events)?;
            let is_piece = |event: &Event| matches!(event.kind, EventKind::Delta { .. });
            let lasts = !events.iter().all(is_piece);
            self.writer.write(changes, lasts).await
        })
    }
}

impl Drop for RunJournal {
    /// Whoever goes on with the run need not wait for the end of this process.
    fn drop(&mut self) {
        if !self.is_over
            && self.label.is_none()
            && let Some(run) = self.hold.take()
        {
            let holder = self.holder.clone();
            self.writer.note(Change::Released { run, holder });
        }
    }
}

/// Characters of a task that a list of runs needs.
const HEADLINE: usize = 200;

/// A turn of a session is known by its own words, and not by those of the first.
fn said_last(request: &RunRequest) -> Option<&str> {
    let messages = request.context.iter().rev();
    let mut said = messages.filter_map(|message| match message {
        Message::Text(text) if text.role == Role::User => Some(text.text.as_str()),
        _ => None,
    });
    said.next()
}

/// PostgreSQL's text has no zeros.
fn headline(task: &str) -> String {
    task.chars().filter(|c| *c != '\0').take(HEADLINE).collect()
}
