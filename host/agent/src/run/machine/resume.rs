//! A run that goes on after its process ended: what was begun and not finished is begun again where
//! that does no harm.

use super::results::SettledResult;
use super::{Action, Effects, Machine, RetrievalState, Work, millis};
use toolhold_protocol::bound::Runner;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::solution::Call;

impl Machine {
    pub(super) fn resumed(&mut self, notes: Vec<String>, effects: &mut Effects) {
        effects.events.push(EventKind::Resumed {
            step: self.steps,
            active_ms: millis(self.elapsed),
            notes,
        });
        self.window.forget();
        self.resume_calls(effects);
        if self.waiting.is_some() {
            return self.screen(effects);
        }
        if self.retrieval == RetrievalState::Waits {
            if !self.retrieve(effects) {
                self.begin_work(effects);
            }
            return;
        }
        if self.ending.is_some() {
            return self.end_if_nothing_runs(effects);
        }
        if self.step.is_over {
            return self.proceed(effects);
        }
        if self.step.has_reply && !self.step.planned.is_empty() {
            // The plan waits for a person.
            return self.decide_plan(effects);
        }
        if self.step.calls.is_empty() {
            return self.send(effects);
        }
        // Part of the reply was acted on. Asked again, the model would make those calls again.
        self.step.reader = None;
        self.step
            .notes
            .push("Your reply broke off after these calls. Go on from here.".into());
        self.step.is_over = true;
        self.proceed(effects);
    }

    /// A call that only reads, or that may be made twice, is made again, if the calls that it made are of such tools; one
    /// that a sub-agent answers continues where that one was, and one that continues as a job is waited for again. For any other call it is unknown whether it took effect. Those that had not begun
    /// begin when there is room.
    fn resume_calls(&mut self, effects: &mut Effects) {
        let (mut again, mut lost) = (Vec::new(), Vec::new());
        for background in self.running.background() {
            if self.may_go_on(&background.call) {
                again.push(background.work.clone());
            } else {
                lost.push(background.call.id.clone());
            }
        }
        for id in lost {
            self.lose_background(&id, effects);
        }
        let mut lost = Vec::new();
        for index in self.step.calls.begun() {
            if let Some(pending) = self.step.calls.pending(index).cloned() {
                self.decide(pending, effects);
                continue;
            }
            if self.step.calls.screening(index).is_some() {
                if let Err(failure) = self.ask_shields(index, effects) {
                    self.refuse(index, failure, effects);
                }
                continue;
            }
            let own = self.step.calls.get(index);
            let may_go_on = own.is_some_and(|own| self.may_go_on(&own.call));
            let work = self.work(index).filter(|_| may_go_on);
            match work {
                Some(work) => again.push(work),
                None => lost.push(index),
            }
        }
        self.running.restart(again.len());
        for work in again {
            let work = Work {
                again: true,
                ..work
            };
            effects.actions.push(Action::Call(Box::new(work)));
        }
        for index in lost {
            self.settle(index, SettledResult::interrupted(), effects);
            self.begin_unblocked(effects);
        }
        self.start_queued(effects);
    }

    /// An event in the call `id`, which happens or is replayed: what that call did by way of another one is done,
    /// whatever its tool says of itself.
    pub fn note_nested(&mut self, id: &str, event: &EventKind) {
        let mut event = event;
        while let EventKind::Sub { what, .. } = event {
            event = what;
        }
        let EventKind::ToolStart {
            call,
            may_be_repeated,
            ..
        } = event
        else {
            return;
        };
        if !may_be_repeated {
            self.running.had_effects(id);
        }
        if !self.tools.checks.only_reads(&call.tool) {
            self.running.had_changes(id);
        }
    }

    /// Notes that the call `id` continues as a job, from a replayed record. A resumed run asks about the job and does not make
    /// the call again, also where its tool may be repeated.
    pub fn note_job(&mut self, id: &str) {
        self.running.became_job(id);
    }

    fn may_go_on(&self, call: &Call) -> bool {
        self.tools
            .find(&call.tool)
            .is_some_and(|bound| match bound.runner {
                Runner::Request(_)
                | Runner::CleanRoom
                | Runner::Advisor
                | Runner::Client
                | Runner::Model => true,
                Runner::Module(_) | Runner::Activity(_) => {
                    self.running.has_job(&call.id)
                        || (bound.tool.annotations.may_be_repeated()
                            && self.running.may_be_repeated(&call.id))
                }
            })
    }
}
