//! Place of the machine's next step: beside the other tasks, or on a thread for long checks.
//!
//! The machine checks values within its steps, and a step cannot be begun again: it changes the machine. So what a step
//! may check is estimated before it, from all that the machine was given: references fill arguments with any of it. The
//! estimate decides nothing but the thread, so the record of a run does not depend on it.

use crate::calls::aside::BRIEF_STEPS;
use crate::run::machine::{Input, Machine};
use toolhold_protocol::completion::Completion;
use toolhold_protocol::decision::Verdict;
use toolhold_protocol::shield::ScreeningResult;
use toolhold_schema::size;

/// Bytes of JSON text for one value, or a step of a value: few values are shorter.
const BYTES_A_STEP: usize = 4;

/// Estimate of the checks in the next steps of a run's machine.
#[derive(Debug)]
pub(super) struct StepCost {
    /// Steps for each step of a value's size, by the dearest schema of the run.
    price: u64,
    /// The size of all that the machine was given, in steps.
    held: u64,
}

impl StepCost {
    /// Estimate for a machine that begins with `first`. Resumed machines have further inputs, which are not counted here.
    pub(super) fn new(machine: &Machine, first: &Input) -> Self {
        let context = serde_json::to_string(&machine.request().context);
        let held = match (first, context) {
            (Input::Start, Ok(context)) => of_text(&context),
            _ => u64::MAX,
        };
        Self {
            price: machine.schema_price().max(1),
            held,
        }
    }

    /// True if the step with this input may check for long. To be called with each input, before its step.
    pub(super) fn is_long(&mut self, input: &Input) -> bool {
        self.held = self.held.saturating_add(added(input));
        may_check(input) && self.held.saturating_mul(self.price) > BRIEF_STEPS
    }
}

/// Size that an input adds to the machine's data, in steps.
fn added(input: &Input) -> u64 {
    match input {
        Input::Wrote(delta) | Input::Recorded(delta) => of_text(delta.text()),
        Input::Written(pieces) => pieces.iter().map(|piece| of_text(piece.text())).sum(),
        Input::Replied(Completion {
            content,
            tool_calls,
            ..
        }) => {
            let arguments = tool_calls.iter().map(|call| of_text(&call.arguments));
            of_text(content) + arguments.sum::<u64>()
        }
        Input::Called { result, .. } => {
            let output = result.outcome.as_ref().ok();
            output.map_or(0, |output| size(&output.value))
        }
        Input::Decided { decision, .. } => match &decision.verdict {
            Verdict::Edit { arguments: value } | Verdict::Replace { result: value } => size(value),
            Verdict::Approve | Verdict::Refuse { .. } => 0,
        },
        Input::Screened {
            screened: ScreeningResult::Redacted { value },
            ..
        } => size(value),
        _ => 0,
    }
}

/// Most pieces of a reply end no object, and only an object's end makes a call.
fn may_check(input: &Input) -> bool {
    match input {
        Input::Wrote(delta) => delta.text().contains('}'),
        Input::SideRequest(_) | Input::Cancelled { .. } | Input::TimedOut | Input::OutOf(_) => {
            false
        }
        _ => true,
    }
}

fn of_text(text: &str) -> u64 {
    (text.len() / BYTES_A_STEP) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::completion::Delta;

    fn wrote(text: &str) -> Input {
        Input::Wrote(Delta::Content(text.into()))
    }

    #[test]
    fn a_step_is_long_once_what_the_machine_holds_is_dear_to_check() {
        let mut cost = StepCost { price: 10, held: 0 };
        assert!(!cost.is_long(&wrote("{}")));
        let long = "word ".repeat(20_000);
        assert!(!cost.is_long(&wrote(&long)), "it ends no call");
        assert!(cost.is_long(&wrote("}")), "a call may refer to all of it");
        assert!(cost.is_long(&Input::Replied(Completion::default())));
        assert!(!cost.is_long(&Input::Cancelled { reason: None }));
    }

    #[test]
    fn a_short_text_is_long_to_check_by_a_dear_schema() {
        let mut cost = StepCost {
            price: 16_384,
            held: 0,
        };
        assert!(cost.is_long(&wrote(&"{}".repeat(30))));
    }
}
