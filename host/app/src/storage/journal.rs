//! A run's journal in the database.

use crate::redaction::Redaction;
use crate::storage::Mine;
use crate::storage::audit::Drafts;
use crate::storage::change::Change;
use crate::storage::runs::Label;
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
    mine: Mine,
}

impl RunJournal {
    pub(super) fn begin(
        run: Uuid,
        label: Label,
        writer: Writer,
        holder: &str,
        mine: &Mine,
        redaction: Redaction,
    ) -> Self {
        let audit = Drafts::new(run, &label.owner, redaction);
        let mut journal = Self::after(run, &[], writer, holder, mine, audit);
        journal.label = Some(label);
        journal
    }

    /// Of a run that is there, after these events.
    pub(super) fn after(
        run: Uuid,
        events: &[Event],
        writer: Writer,
        holder: &str,
        mine: &Mine,
        mut audit: Drafts,
    ) -> Self {
        let mut open = Open::default();
        for event in events {
            open.note(run, &event.kind);
            audit.take(event);
        }
        mine.runs().insert(run);
        Self {
            run,
            writer,
            mine: mine.clone(),
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

    fn changes(&mut self, event: &Event) -> Result<Vec<Change>, serde_json::Error> {
        let (run, at_ms) = (self.run, signed(event.at_ms));
        let mut changes = Vec::new();
        if let EventKind::Run {
            task,
            model,
            request,
            ..
        } = &event.kind
            && let Some(label) = self.label.take()
        {
            changes.push(Change::Began {
                run,
                label: Box::new(label),
                task: headline(said_last(request).unwrap_or(task)),
                model: model.replace('\0', ""),
                at_ms,
                holder: self.holder.clone(),
            });
        }
        changes.push(Change::Event {
            run,
            seq: signed(event.seq),
            line: serde_json::to_string(event)?,
            holder: self.holder.clone(),
        });
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
                reason: serde_json::to_value(reason)?
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                steps: i64::from(*steps),
                calls: i64::from(*calls),
                tokens: signed(*tokens),
            });
        }
        Ok(changes)
    }
}

impl Journal for RunJournal {
    fn append<'a>(&'a mut self, event: &'a Event) -> BoxFuture<'a, io::Result<()>> {
        Box::pin(async move {
            let changes = self.changes(event)?;
            let lasts = !matches!(event.kind, EventKind::Delta { .. });
            self.writer.write(changes, lasts).await
        })
    }
}

impl Drop for RunJournal {
    /// Whoever goes on with the run need not wait for the end of this process.
    fn drop(&mut self) {
        self.mine.runs().remove(&self.run);
        if !self.is_over && self.label.is_none() {
            self.writer.note(Change::Released {
                run: self.run,
                holder: self.holder.clone(),
            });
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

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
