//! The calls of one step: where each of them is on its way from the model's words to its result, and which of
//! them may go on. A state of its own: it makes no events and runs nothing, `calls` and `results` do both.

use super::wiring::Wiring;
use crate::run::rules::LoopRules;
use crate::run::schedule::{Appends, Schedule};
use serde_json::Value;
use std::collections::VecDeque;
use toolhold_protocol::data::Data;
use toolhold_protocol::decision::Pending;
use toolhold_protocol::reference::Path;
use toolhold_protocol::solution::Call;
use toolhold_protocol::turn::Answered;

/// The calls of one step, by their index: the order in which the model wrote them.
#[derive(Debug, Default)]
pub(super) struct StepCalls {
    calls: Vec<StepCall>,
    schedule: Schedule,
    /// Calls that may run, and wait for others to make room.
    queue: VecDeque<usize>,
}

/// A call of the step.
#[derive(Debug)]
pub(super) struct StepCall {
    pub call: Call,
    /// Marks where its result begins and ends.
    fence: String,
    pub wiring: Wiring,
    /// With references replaced, once every check is passed.
    pub arguments: Value,
    /// The party whose calls are made one after the other, if it is of one.
    turns: Option<String>,
    stage: CallStage,
}

#[derive(Debug)]
enum CallStage {
    /// It waits for what it reads, or is being checked.
    Open,
    /// The shields are asked about its arguments.
    Screening(AtShields),
    /// A person is asked about it.
    Pending(Box<Pending>),
    /// It waits for others to make room.
    Queued,
    Running,
    /// The client of the run makes it.
    HandedOver,
    /// Text for the model and whether it is an error.
    Answered {
        text: String,
        failed: bool,
    },
}

/// Arguments that the shields are asked about.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AtShields {
    pub arguments: Value,
    /// A person let the call be made with them.
    pub is_approved: bool,
}

impl StepCalls {
    pub fn under(rules: LoopRules) -> Self {
        Self {
            schedule: Schedule::under(rules),
            ..Self::default()
        }
    }

    /// Adds the next call; `sees` is what it is shown of the context, `appends` where it may write besides the places
    /// that it says. Returns its index.
    pub fn add(
        &mut self,
        call: Call,
        fence: String,
        wiring: Wiring,
        sees: &[Path],
        appends: Appends,
    ) -> usize {
        self.schedule.add(
            format!("{} ({})", call.id, call.tool),
            call.instance.clone(),
            wiring.reads.clone(),
            sees,
            wiring.writes().to_vec(),
            appends,
        );
        self.calls.push(StepCall {
            call,
            fence,
            wiring,
            arguments: Value::Null,
            turns: None,
            stage: CallStage::Open,
        });
        self.calls.len() - 1
    }

    pub fn len(&self) -> usize {
        self.calls.len()
    }

    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub fn get(&self, index: usize) -> Option<&StepCall> {
        self.calls.get(index)
    }

    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().map(|own| &own.call)
    }

    /// A call that has no answer yet.
    pub fn unanswered(&self, index: usize) -> Option<&StepCall> {
        self.get(index).filter(|own| !own.is_answered())
    }

    /// The index of a call that has no answer yet.
    pub fn index_of(&self, id: &str) -> Option<usize> {
        let mut calls = self.calls.iter();
        calls.position(|own| own.call.id == id && !own.is_answered())
    }

    /// Whether it waits for what it reads.
    pub fn is_blocked(&self, index: usize) -> bool {
        self.schedule.is_blocked(index)
    }

    /// The calls that nothing holds up any more and something did before.
    pub fn unblock(&mut self, data: &Data) -> Vec<usize> {
        self.schedule.unblock(data)
    }

    /// Lets the next call go where no call is under way: one that is only behind calls which wait for it themselves.
    /// Returns false if there was none.
    pub fn let_pass(&mut self, data: &Data) -> bool {
        self.schedule.let_pass(data)
    }

    /// Where no call is under way: the next of those that nothing can unblock any more, each with the
    /// reason.
    pub fn give_up(&mut self, data: &Data) -> Vec<(usize, String)> {
        if self.schedule.is_running() {
            return Vec::new();
        }
        self.schedule.give_up(data)
    }

    fn set(&mut self, index: usize, stage: CallStage) {
        if let Some(own) = self.calls.get_mut(index) {
            own.stage = stage;
        }
    }

    /// The shields are asked about it.
    pub fn screen(&mut self, index: usize, at: AtShields) {
        self.set(index, CallStage::Screening(at));
    }

    /// What the shields are asked about.
    pub fn screening(&self, index: usize) -> Option<&AtShields> {
        match &self.get(index)?.stage {
            CallStage::Screening(at) => Some(at),
            _ => None,
        }
    }

    /// The shields have spoken: what they were asked about.
    pub fn screened(&mut self, index: usize) -> Option<AtShields> {
        let at = self.screening(index)?.clone();
        self.set(index, CallStage::Open);
        Some(at)
    }

    /// A person is asked about it.
    pub fn ask_person(&mut self, index: usize, pending: Pending) {
        self.set(index, CallStage::Pending(Box::new(pending)));
    }

    /// What a person is asked about.
    pub fn pending(&self, index: usize) -> Option<&Pending> {
        match &self.get(index)?.stage {
            CallStage::Pending(pending) => Some(pending),
            _ => None,
        }
    }

    /// It passed every check with these arguments, and is made when there is room.
    pub fn queue(&mut self, index: usize, arguments: Value) {
        if let Some(own) = self.calls.get_mut(index) {
            own.arguments = arguments;
            own.stage = CallStage::Queued;
            self.queue.push_back(index);
        }
    }

    /// The call is made only while no other call of this party is.
    pub fn take_turns(&mut self, index: usize, party: Option<String>) {
        if let Some(own) = self.calls.get_mut(index) {
            own.turns = party;
        }
    }

    /// The next call that waits for room, and for no other call of its party.
    pub fn next_queued(&mut self) -> Option<usize> {
        let is_running = |party: &String| {
            let mut calls = self.calls.iter();
            calls.any(|own| {
                matches!(own.stage, CallStage::Running) && own.turns.as_ref() == Some(party)
            })
        };
        let at = self.queue.iter().position(|index| {
            let party = self.get(*index).and_then(|own| own.turns.as_ref());
            party.is_none_or(|party| !is_running(party))
        })?;
        self.queue.remove(at)
    }

    /// The client of the run makes it.
    pub fn hand_over(&mut self, index: usize) {
        self.set(index, CallStage::HandedOver);
        self.schedule.has_read(index);
    }

    pub fn run(&mut self, index: usize) {
        self.set(index, CallStage::Running);
    }

    /// It is over for the step: what the model is told, and the places that it wrote.
    pub fn answer(&mut self, index: usize, text: String, failed: bool, written: &[Path]) {
        self.set(index, CallStage::Answered { text, failed });
        self.schedule.done(index, written);
    }

    /// Calls of this host that were begun and have no answer yet.
    pub fn begun(&self) -> Vec<usize> {
        let calls = self.calls.iter().enumerate();
        calls
            .filter(|(index, own)| match own.stage {
                CallStage::Open => !self.is_blocked(*index),
                CallStage::Screening(_) | CallStage::Pending(_) | CallStage::Running => true,
                CallStage::Queued | CallStage::HandedOver | CallStage::Answered { .. } => false,
            })
            .map(|(index, _)| index)
            .collect()
    }

    /// Whether the client makes some of them.
    pub fn hands_over(&self) -> bool {
        let mut calls = self.calls.iter();
        calls.any(|own| matches!(own.stage, CallStage::HandedOver))
    }

    /// Whether nothing is left but calls that were handed over, and those that wait for their results.
    pub fn has_handed_over(&self) -> bool {
        let mut calls = self.calls.iter().enumerate();
        self.hands_over()
            && calls.all(|(index, own)| match own.stage {
                CallStage::HandedOver | CallStage::Answered { .. } => true,
                _ => self.is_blocked(index),
            })
    }

    pub fn are_answered(&self) -> bool {
        self.calls.iter().all(StepCall::is_answered)
    }

    /// The calls with their answers; they are the step's no more.
    pub fn take_answered(&mut self) -> Vec<Answered> {
        let calls = std::mem::take(&mut self.calls).into_iter();
        calls
            .filter_map(|own| match own.stage {
                CallStage::Answered { text, failed } => Some(Answered {
                    call: own.call,
                    fence: own.fence,
                    text,
                    failed,
                }),
                _ => None,
            })
            .collect()
    }
}

impl StepCall {
    fn is_answered(&self) -> bool {
        matches!(self.stage, CallStage::Answered { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::context::Context;
    use toolhold_protocol::tool::{Annotations, Execution, Tool};

    /// Calls with these parameters, begun as far as they can be.
    fn step(calls: &[Value]) -> StepCalls {
        let (mut step, context) = (StepCalls::default(), Context::default());
        let tool = Tool {
            execution: Execution::Activity("t".into()),
            ..Tool::new("t")
        };
        for (index, parameters) in calls.iter().enumerate() {
            let mut object = parameters.clone();
            object["_tool"] = json!("t");
            let call = Call {
                id: format!("call_{index}"),
                ..Call::read(object).unwrap()
            };
            let wiring = Wiring::of(&call, &tool, &context, false).unwrap();
            assert_eq!(
                step.add(call, "fence".into(), wiring, &[], Appends::Nowhere),
                index
            );
        }
        step.unblock(&context.data);
        step
    }

    fn pending(step: &StepCalls, index: usize) -> Pending {
        let call = step.get(index).unwrap().call.clone();
        Pending::new(call, json!({}), Annotations::default())
    }

    #[test]
    fn a_call_goes_by_shields_and_a_person_into_the_queue_and_is_answered() {
        let mut step = step(&[json!({"a": 1})]);
        let at = AtShields {
            arguments: json!({"a": 2}),
            is_approved: false,
        };
        step.screen(0, at.clone());
        assert_eq!(step.screening(0), Some(&at));
        assert_eq!(step.screened(0), Some(at));
        assert_eq!(step.screened(0), None, "they speak once");
        step.ask_person(0, pending(&step, 0));
        assert!(step.pending(0).is_some());
        assert_eq!(step.begun(), [0]);
        step.queue(0, json!({"a": 2}));
        assert!(step.pending(0).is_none());
        assert!(step.begun().is_empty(), "it waits for room");
        assert_eq!(step.next_queued(), Some(0));
        assert_eq!(step.next_queued(), None);
        step.run(0);
        assert_eq!(step.begun(), [0]);
        assert_eq!(step.get(0).unwrap().arguments, json!({"a": 2}));
        assert_eq!(step.index_of("call_0"), Some(0));
        step.answer(0, "3".into(), false, &[]);
        assert_eq!(step.index_of("call_0"), None);
        assert!(step.unanswered(0).is_none() && step.are_answered());
        let answered = step.take_answered();
        assert_eq!(
            (answered[0].text.as_str(), answered[0].failed),
            ("3", false)
        );
        assert!(step.is_empty());
    }

    #[test]
    fn calls_of_a_party_are_made_one_after_the_other_and_hold_up_no_others() {
        let mut step = step(&[json!({}), json!({}), json!({}), json!({})]);
        for index in [0, 1, 3] {
            step.take_turns(index, Some("sqlite".into()));
        }
        for index in 0..4 {
            step.queue(index, json!({}));
        }
        let mut begun = Vec::new();
        let mut begin = |step: &mut StepCalls| {
            while let Some(index) = step.next_queued() {
                step.run(index);
                begun.push(index);
            }
            begun.clone()
        };
        assert_eq!(begin(&mut step), [0, 2]);
        step.answer(2, "2".into(), false, &[]);
        assert_eq!(begin(&mut step), [0, 2]);
        step.answer(0, "0".into(), true, &[]);
        assert_eq!(begin(&mut step), [0, 2, 1]);
        step.answer(1, "1".into(), false, &[]);
        assert_eq!(begin(&mut step), [0, 2, 1, 3]);
    }

    #[test]
    fn a_call_waits_for_what_it_reads_until_nothing_can_write_it() {
        let mut step = step(&[
            json!({"_outputPath": "†x"}),
            json!({"a": "†x"}),
            json!({"a": "†nothing"}),
        ]);
        let data = Data::default();
        assert_eq!(step.begun(), [0]);
        assert!(step.is_blocked(1) && step.is_blocked(2));
        assert!(step.give_up(&data).is_empty(), "the first is under way");
        step.answer(0, "no".into(), true, &[]);
        let stuck = step.give_up(&data);
        let indices: Vec<usize> = stuck.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices, [1, 2]);
        assert!(
            stuck[0].1.contains("call_0 (t) should have written †x"),
            "{stuck:?}"
        );
    }

    #[test]
    fn a_step_is_handed_over_when_all_else_is_answered_or_waits_for_it() {
        let mut step = step(&[json!({"_outputPath": "†x"}), json!({}), json!({"a": "†x"})]);
        step.run(1);
        assert!(!step.hands_over());
        step.hand_over(0);
        assert!(step.hands_over() && !step.has_handed_over());
        assert_eq!(step.begun(), [1], "the client makes the other");
        step.answer(1, "1".into(), false, &[]);
        assert!(step.has_handed_over() && !step.are_answered());
    }
}
