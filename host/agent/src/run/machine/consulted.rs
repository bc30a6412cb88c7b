//! Votes of advisors on demand: they come with the answer to a call, and count in the council of the next reply
//! (docs/protocol.md, 10.4).

use super::Machine;
use super::scopes::advisor;
use serde_json::Value;
use toolhold_protocol::advisor::{Council, DueOpinion, Opinion};

/// Votes of consulted advisors, until calls that the model chose with them are made.
#[derive(Debug, Default)]
pub(super) struct ConsultedVotes(Vec<ConsultedOpinion>);

/// The opinion of an advisor on demand, with the step in which it was asked.
#[derive(Debug)]
struct ConsultedOpinion {
    step: u32,
    opinion: Opinion,
}

impl ConsultedVotes {
    /// Adds an opinion in the place of what the same advisor said before.
    fn add(&mut self, step: u32, opinion: Opinion) {
        self.0.retain(|own| !is_same_seat(&own.opinion, &opinion));
        if !opinion.votes.is_empty() {
            self.0.push(ConsultedOpinion { step, opinion });
        }
    }

    /// Adds the opinions of advisors that were asked before `step` to its council. An advisor that spoke in the reply
    /// itself counts with what it said there.
    pub(super) fn join(&self, council: &mut Council, step: u32) {
        for own in self.0.iter().filter(|own| own.step < step) {
            let mut opinions = council.opinions.iter();
            if !opinions.any(|known| is_same_seat(known, &own.opinion)) {
                council.opinions.push(own.opinion.clone());
            }
        }
    }

    /// Forgets the opinions of advisors that were asked before `step`: the calls that the model chose in it are made.
    pub(super) fn forget(&mut self, step: u32) {
        self.0.retain(|own| own.step >= step);
    }
}

fn is_same_seat(one: &Opinion, other: &Opinion) -> bool {
    one.advisor == other.advisor && one.instance == other.instance
}

impl Machine {
    /// An advisor on demand answered the call at `index`. Its votes count in the council of the next reply.
    pub(super) fn note_consulted(&mut self, index: usize, answer: &Value) {
        if !self.rules.are_from_4() {
            return;
        }
        let (Value::Object(fields), Some(own)) = (answer, self.step.calls.get(index)) else {
            return;
        };
        let Ok(advisor) = advisor(&self.context, &own.arguments) else {
            return;
        };
        if !fields.contains_key("calls") {
            return;
        }
        let instance = own.call.instance.as_deref();
        let mut entry = fields.clone();
        entry.insert("id".into(), advisor.id.clone().into());
        if let Some(instance) = instance {
            entry.insert("_instance".into(), instance.into());
        }
        let seat = DueOpinion { advisor, instance };
        let offered = self.tools.offered().iter();
        let tools: Vec<&str> = offered.map(|tool| tool.name.as_str()).collect();
        let said = Value::Array(vec![entry.into()]);
        let Council { opinions, faults } = Council::read(&said, &[seat], &tools);
        self.note_faults(&faults);
        for opinion in opinions {
            self.council.consulted.add(self.steps, opinion);
        }
    }
}
