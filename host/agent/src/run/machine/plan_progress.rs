//! The plan that is carried from one iteration to the next, with what became of each of its steps
//! (docs/protocol.md, 8).
//!
//! What the protocol leaves open, and how it is decided here:
//! - The plan of an eager run is what its context's plan says, and every call that was made besides:
//!   planning is execution, so a call that follows no step extends the plan.
//! - A lazy plan replaces the steps that are open and those that failed. What was made stays.
//! - A call follows the step that it is equal to, or else the one of the same tool that writes to the
//!   same place: then the model changed the step's arguments. References count as they are written.
//! - A call of another tool that is made, and writes where a step that failed should have written, takes this step's
//!   place: it is its correction.
//! - One plan serves all instances: a step without an instance stands for each of them, and has a
//!   standing in each.

use serde_json::Value;
use std::fmt::Write as _;
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::plan::Mode;
use toolhold_protocol::reference::Target;
use toolhold_protocol::solution::Call;

/// Maximum instances named per state.
const MAX_NAMED_INSTANCES: usize = 12;
const LAZY: &str = "\nYour calls are a plan: it is checked as a whole before any of them is made.";

/// The carried plan.
#[derive(Debug, Default)]
pub struct PlanProgress {
    steps: Vec<PlannedCall>,
    /// Why the plan that the context brought cannot be run, until the model made its own.
    pub fault: Option<String>,
}

#[derive(Debug)]
struct PlannedCall {
    call: Call,
    /// Of the call's own instance, or of each that it serves.
    standings: Vec<(Option<String>, PlannedCallState)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PlannedCallState {
    Open,
    Made,
    Failed,
}

impl PlannedCallState {
    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Made => "made",
            Self::Failed => "failed",
        }
    }
}

impl PlanProgress {
    /// Adds steps that are yet to be made.
    pub fn plan(&mut self, calls: impl IntoIterator<Item = Call>, instances: &[String]) {
        for call in calls {
            let standings = match &call.instance {
                None if !instances.is_empty() => instances
                    .iter()
                    .map(|instance| (Some(instance.clone()), PlannedCallState::Open))
                    .collect(),
                own => vec![(own.clone(), PlannedCallState::Open)],
            };
            self.steps.push(PlannedCall { call, standings });
        }
    }

    /// Drops what was not made: the model planned anew.
    pub fn replace(&mut self) {
        self.fault = None;
        for step in &mut self.steps {
            step.standings
                .retain(|(_, standing)| *standing == PlannedCallState::Made);
        }
        self.steps.retain(|step| !step.standings.is_empty());
    }

    /// Whether a step that was run and failed is of such a tool. A latent step without an answer fails.
    pub fn has_failed(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        self.steps.iter().any(|step| {
            let mut standings = step.standings.iter();
            standings.any(|(_, standing)| *standing == PlannedCallState::Failed)
                && is_meant(&step.call.tool)
        })
    }

    /// A call is over.
    pub fn settle(&mut self, call: &Call, failed: bool) {
        self.fault = None;
        let standing = if failed {
            PlannedCallState::Failed
        } else {
            PlannedCallState::Made
        };
        let open = |step: &PlannedCall| step.place(call).is_some();
        let mut steps = self.steps.iter();
        let equal = steps.position(|step| step.is_made_by(call) && open(step));
        let mut steps = self.steps.iter();
        let followed = equal.or_else(|| steps.position(|step| step.goes_to(call) && open(step)));
        if followed.is_none() && !failed && self.correct(call) {
            return;
        }
        let Some(step) = followed.and_then(|index| self.steps.get_mut(index)) else {
            self.steps.push(PlannedCall {
                call: call.clone(),
                standings: vec![(call.instance.clone(), standing)],
            });
            return;
        };
        if step.standings.len() == 1 {
            step.call.arguments.clone_from(&call.arguments);
            step.call.output_path.clone_from(&call.output_path);
        }
        let place = step.place(call);
        if let Some((_, own)) = place.and_then(|place| step.standings.get_mut(place)) {
            *own = standing;
        }
    }

    /// Puts a call that was made into the place of a step that failed to write where the call did, if there is one.
    fn correct(&mut self, call: &Call) -> bool {
        let mut steps = self.steps.iter();
        let Some(index) = steps.position(|step| step.is_corrected_by(call)) else {
            return false;
        };
        let correction = PlannedCall {
            call: call.clone(),
            standings: vec![(call.instance.clone(), PlannedCallState::Made)],
        };
        let failed = self.steps.get_mut(index);
        match failed.filter(|step| step.standings.len() > 1) {
            // The step stays what it is for the other instances.
            Some(step) => {
                step.standings
                    .retain(|(instance, _)| *instance != call.instance);
                self.steps.insert(index + 1, correction);
            }
            None => {
                self.steps.splice(index..=index, [correction]);
            }
        }
        true
    }

    /// The `## Plan` that the model is shown, of about `max` characters: what was made is left out
    /// first. Nothing, if there is nothing to say.
    pub fn block(&self, mode: Mode, max: usize) -> Option<PromptText> {
        if self.steps.is_empty() && mode == Mode::Eager {
            return None;
        }
        let mut text = PromptText::from("## Plan");
        let (hidden, shown) = self.shown(max);
        for line in &shown {
            text.words("\n").line(line);
        }
        if hidden > 0 {
            text.words("\n(").count(hidden).words(" more steps)");
        }
        if let Some(fault) = &self.fault {
            text.words("\nIt cannot be run as it is: ")
                .line(fault)
                .words(".");
        }
        match mode {
            Mode::Eager => text.words("\nFollow it, extend it or replace it."),
            Mode::Lazy => {
                if !self.steps.is_empty() {
                    text.words("\nWhat is not made is dropped unless you plan it again.");
                }
                text.words(LAZY)
            }
        };
        Some(text)
    }

    /// Lines of the plan in its order, and how many of them are too many: first of what was made,
    /// the oldest first, and then of the rest, the last first.
    fn shown(&self, max: usize) -> (usize, Vec<String>) {
        let lines: Vec<String> = self.steps.iter().map(PlannedCall::line).collect();
        let is_made = |index: &usize| self.steps.get(*index).is_some_and(PlannedCall::is_made);
        let (made, open): (Vec<usize>, Vec<usize>) = (0..lines.len()).partition(is_made);
        let mut used = 0;
        let mut kept: Vec<usize> = open
            .into_iter()
            .chain(made.into_iter().rev())
            .take_while(|index| {
                used += lines.get(*index).map_or(0, |line| line.chars().count());
                used <= max
            })
            .collect();
        kept.sort_unstable();
        let hidden = lines.len() - kept.len();
        let kept = kept
            .into_iter()
            .filter_map(|index| lines.get(index).cloned());
        (hidden, kept.collect())
    }
}

impl PlannedCall {
    /// Whether it and `call` are the same, but for the instance.
    fn is_made_by(&self, call: &Call) -> bool {
        self.call.tool == call.tool
            && self.call.arguments == call.arguments
            && self.has_place_of(call)
    }

    /// Whether `call` is another attempt at it.
    fn goes_to(&self, call: &Call) -> bool {
        self.call.tool == call.tool && self.call.output_path.is_some() && self.has_place_of(call)
    }

    /// Whether it failed, and `call`, of another tool, writes what it should have written.
    fn is_corrected_by(&self, call: &Call) -> bool {
        let mut standings = self.standings.iter();
        self.call.output_path.is_some()
            && self.has_place_of(call)
            && standings.any(|(instance, standing)| {
                *instance == call.instance && *standing == PlannedCallState::Failed
            })
    }

    /// Whether `call` writes where it says, or to one of the alternatives among which it leaves the choice.
    fn has_place_of(&self, call: &Call) -> bool {
        if self.call.output_path == call.output_path {
            return true;
        }
        let read = |path: &Option<String>| path.as_deref()?.parse::<Target>().ok();
        match (read(&self.call.output_path), read(&call.output_path)) {
            (Some(Target::Outcome(offered)), Some(chosen)) => {
                chosen.paths().iter().all(|path| offered.contains(path))
            }
            _ => false,
        }
    }

    /// The standing that the end of `call` changes: what was made stays made.
    fn place(&self, call: &Call) -> Option<usize> {
        let mut standings = self.standings.iter();
        standings.position(|(instance, standing)| {
            *instance == call.instance && *standing != PlannedCallState::Made
        })
    }

    fn is_made(&self) -> bool {
        self.standings
            .iter()
            .all(|(_, standing)| *standing == PlannedCallState::Made)
    }

    /// `- made: {…}`, or `- made for a, b; open for c: {…}` where it serves several instances.
    fn line(&self) -> String {
        let call = Value::Object(self.call.object(false));
        let mut text = String::from("- ");
        for wanted in [
            PlannedCallState::Made,
            PlannedCallState::Failed,
            PlannedCallState::Open,
        ] {
            let own = self.standings.iter().filter(|(_, one)| *one == wanted);
            let names: Vec<&str> = own
                .map(|(instance, _)| instance.as_deref().unwrap_or_default())
                .collect();
            if names.is_empty() {
                continue;
            }
            if text.len() > 2 {
                text.push_str("; ");
            }
            text.push_str(wanted.name());
            if names.len() < self.standings.len() {
                let shown: Vec<&str> = names.iter().take(MAX_NAMED_INSTANCES).copied().collect();
                let _ = write!(text, " for {}", shown.join(", "));
                let more = names.len() - shown.len();
                if more > 0 {
                    let _ = write!(text, " and {more} more");
                }
            } else if self.standings.len() > 1 {
                text.push_str(" for all");
            }
        }
        let _ = write!(text, ": {call}");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(value: Value) -> Call {
        Call::read(value).unwrap()
    }

    fn a(x: i64) -> Call {
        call(json!({"_tool": "t.a", "x": x, "_outputPath": format!("†state.a{x}")}))
    }

    fn block(carried: &PlanProgress) -> String {
        let block = carried.block(Mode::Eager, 2_000);
        block.unwrap_or_default().into()
    }

    /// Lines of a plan of two steps of one tool after calls ended.
    #[test]
    fn each_step_has_its_own_standing() {
        let other = call(json!({"_tool": "t.a", "x": 7, "_outputPath": "†state.a1"}));
        let free = call(json!({"_tool": "t.b"}));
        for (what, ended, expect) in [
            ("nothing", vec![], ["open", "open"].as_slice()),
            ("the second", vec![(a(2), false)], &["open", "made"]),
            (
                "the first, in vain",
                vec![(a(1), true)],
                &["failed", "open"],
            ),
            (
                "the first, the second time",
                vec![(a(1), true), (a(1), false)],
                &["made", "open"],
            ),
            (
                "the first with other arguments",
                vec![(other.clone(), false)],
                &["made", "open"],
            ),
            (
                "the first twice",
                vec![(a(1), false), (a(1), false)],
                &["made", "open", "made"],
            ),
            (
                "another",
                vec![(free.clone(), false)],
                &["open", "open", "made"],
            ),
            (
                "another, in vain and then not",
                vec![(free.clone(), true), (free.clone(), false)],
                &["open", "open", "made"],
            ),
        ] {
            let mut carried = PlanProgress::default();
            carried.plan([a(1), a(2)], &[]);
            for (call, failed) in ended {
                carried.settle(&call, failed);
            }
            let text = block(&carried);
            let standings: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("- ")?.split(':').next())
                .collect();
            assert_eq!(standings, expect, "{what}: {text}");
        }
    }

    #[test]
    fn one_plan_serves_all_instances_each_at_its_own_pace() {
        let instances = ["x".to_owned(), "y".to_owned(), "z".to_owned()];
        let of = |instance: &str| Call {
            instance: Some(instance.into()),
            ..a(1)
        };
        let mut carried = PlanProgress::default();
        carried.plan([a(1)], &instances);
        carried.settle(&of("y"), false);
        carried.settle(&of("z"), true);
        let text = block(&carried);
        assert!(
            text.contains("- made for y; failed for z; open for x: {\"_tool\":\"t.a\""),
            "{text}"
        );
        carried.settle(&of("x"), false);
        carried.settle(&of("z"), false);
        assert!(block(&carried).contains("- made for all: {"));
        // A call without an instance is none of them.
        carried.settle(&a(1), false);
        assert!(block(&carried).contains("\n- made: {"));
    }

    #[test]
    fn a_correction_by_another_tool_takes_the_place_of_the_step_that_failed() {
        let by_hand =
            |x: i64| call(json!({"_tool": "t.by_hand", "_outputPath": format!("†state.a{x}")}));
        let mut carried = PlanProgress::default();
        carried.plan([a(1), a(2)], &[]);
        // What has not failed is not corrected.
        carried.settle(&by_hand(2), false);
        carried.settle(&a(1), true);
        // In vain it is another step.
        carried.settle(&by_hand(1), true);
        carried.settle(&by_hand(1), false);
        let text = block(&carried);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("- ")).collect();
        assert_eq!(lines.len(), 4, "{text}");
        carried.replace();
        carried.plan([a(1), a(2)], &[]);
        carried.settle(&a(1), true);
        carried.settle(
            &call(json!({"_tool": "t.c", "_outputPath": "†state.a1"})),
            false,
        );
        let text = block(&carried);
        assert!(!text.contains("failed"), "{text}");
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        assert!(at("- made: {\"_tool\":\"t.c\"") < at("- open: {\"_tool\":\"t.a\",\"x\":2"));
    }

    #[test]
    fn a_correction_for_one_instance_leaves_the_step_to_the_others() {
        let instances = ["x".to_owned(), "y".to_owned()];
        let mut carried = PlanProgress::default();
        carried.plan([a(1)], &instances);
        let of = |call: Call| Call {
            instance: Some("x".into()),
            ..call
        };
        carried.settle(&of(a(1)), true);
        let other = call(json!({"_tool": "t.c", "_outputPath": "†state.a1"}));
        carried.settle(&of(other), false);
        let text = block(&carried);
        assert!(text.contains("- open: {\"_tool\":\"t.a\""), "{text}");
        assert!(text.contains("- made: {\"_tool\":\"t.c\""), "{text}");
        assert!(!text.contains("failed"), "{text}");
    }

    #[test]
    fn a_new_plan_keeps_what_was_made() {
        let mut carried = PlanProgress::default();
        carried.plan([a(1), a(2), a(3)], &[]);
        carried.settle(&a(1), false);
        carried.settle(&a(2), true);
        carried.replace();
        carried.plan([a(4)], &[]);
        let text = block(&carried);
        assert!(
            text.contains("- made: {\"_tool\":\"t.a\",\"x\":1"),
            "{text}"
        );
        assert!(
            text.contains("- open: {\"_tool\":\"t.a\",\"x\":4"),
            "{text}"
        );
        assert!(
            !text.contains("\"x\":2") && !text.contains("\"x\":3"),
            "{text}"
        );
    }

    #[test]
    fn a_long_plan_shows_what_is_left_to_do_first() {
        let mut carried = PlanProgress::default();
        carried.plan((0..100).map(a), &[]);
        for x in 0..98 {
            carried.settle(&a(x), false);
        }
        let text = carried.block(Mode::Eager, 400).unwrap();
        let text = text.as_str();
        assert!(text.chars().count() < 700, "{text}");
        for shown in [
            "\"x\":97",
            "- open: {\"_tool\":\"t.a\",\"x\":98",
            "\"x\":99",
        ] {
            assert!(text.contains(shown), "{shown}: {text}");
        }
        assert!(
            text.contains(" more steps)") && !text.contains("\"x\":1,"),
            "{text}"
        );
        let mut open = PlanProgress::default();
        open.plan((0..1_000).map(a), &[]);
        let text = open.block(Mode::Eager, 400).unwrap();
        let text = text.as_str();
        assert!(text.chars().count() < 700 && text.contains("(99"), "{text}");
    }
}
