//! Calls within a run of a saved Request that wait for a person. The run continues meanwhile, and the
//! session's user is asked, if there is a session.

use super::client_sender::ClientSender;
use super::decision::{PersonReply, decision_of, form, parse_reply, too_late};
use super::mask::Mask;
use super::session::{ClientSession, ElicitationOutcome};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;
use toolhold_agent::run::decider::Decider;
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_protocol::failure::ToolFailure;
use uuid::Uuid;

/// A call that waits.
#[derive(Debug)]
pub struct Question {
    pending: Pending,
    /// Closed when another person has decided. Dropped: this user cannot be asked.
    decided: oneshot::Sender<Verdict>,
}

/// The run's end of the channel.
#[derive(Debug)]
pub struct ElicitationDecider {
    questions: mpsc::Sender<Question>,
    time: Duration,
}

/// Drives `run`, and asks the session's user its questions meanwhile, without the data that `mask` hides.
pub async fn run_with_questions<'a, T>(
    mut run: BoxFuture<'a, T>,
    mut questions: mpsc::Receiver<Question>,
    session: Option<&'a ClientSession>,
    client_sender: &'a ClientSender,
    mask: &'a Mask,
    time: Duration,
) -> T {
    let mut asking: FuturesUnordered<BoxFuture<'a, ()>> = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            ended = &mut run => return ended,
            Some(question) = questions.recv() => if let Some(session) = session {
                asking.push(ask(question, session, client_sender, mask, time));
            },
            Some(()) = asking.next() => {}
        }
    }
}

fn ask<'a>(
    question: Question,
    session: &'a ClientSession,
    client_sender: &'a ClientSender,
    mask: &'a Mask,
    time: Duration,
) -> BoxFuture<'a, ()> {
    let Question {
        pending,
        mut decided,
    } = question;
    Box::pin(async move {
        // A question that the user cannot be asked stays open for others.
        let Ok(form) = form(&pending, mask) else {
            return;
        };
        let answer = tokio::select! {
            answer = session.ask(form, client_sender, time) => answer,
            () = decided.closed() => return,
        };
        let ElicitationOutcome::Given(answer) = answer else {
            return;
        };
        let said = parse_reply(&answer);
        if said != PersonReply::Nothing {
            let _ = decided.send(decision_of(said).map_or_else(refuse, |()| Verdict::Approve));
        }
    })
}

fn refuse(failure: ToolFailure) -> Verdict {
    Verdict::Refuse {
        reason: failure.message,
    }
}

impl ElicitationDecider {
    /// Refuses a question that is open for longer than `time`.
    pub fn new(questions: mpsc::Sender<Question>, time: Duration) -> Self {
        Self { questions, time }
    }

    async fn asked(&self, pending: &Pending) -> Option<Verdict> {
        let (decided, verdict) = oneshot::channel();
        let pending = pending.clone();
        let question = Question { pending, decided };
        self.questions.send(question).await.ok()?;
        verdict.await.ok()
    }
}

impl Decider for ElicitationDecider {
    fn decide<'a>(&'a self, _: Uuid, pending: &'a Pending) -> BoxFuture<'a, Decision> {
        let decision = |verdict, by| Decision {
            digest: pending.digest.clone(),
            verdict,
            by,
        };
        Box::pin(async move {
            tokio::select! {
                Some(verdict) = self.asked(pending) => {
                    decision(verdict, Some("the client's user".into()))
                }
                () = sleep(self.time) => decision(refuse(too_late(self.time)), None),
            }
        })
    }
}
