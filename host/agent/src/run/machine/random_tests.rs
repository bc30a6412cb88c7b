//! Random steps driven through the machine by hand: pieces of the reply, results and decisions come in
//! any order, calls fail, the process may end at any event.

use super::*;
use crate::run::replay::replay;
use proptest::prelude::*;
use serde_json::json;
use std::collections::HashMap;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::decision::{Decision, DecisionMode, Verdict};
use toolhold_protocol::event::{Event, Seal};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::knowledge::Retrieved;
use toolhold_protocol::result::{ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::shield::ScreeningResult;
use toolhold_protocol::tool::{Execution, Tool};

const PLACES: [&str; 5] = ["†state.a", "†state.b", "†state.c", "†state.c.x", "†state"];

/// One call of the solution, as numbers.
#[derive(Debug, Clone)]
struct Sketch {
    reads: Vec<usize>,
    is_any: bool,
    writes: Vec<usize>,
    is_outcome: bool,
    instance: usize,
    fails: bool,
    tool: usize,
}

/// Calls of the first `tools` of [`TOOLS`].
fn sketches(tools: usize) -> impl Strategy<Value = Vec<Sketch>> {
    let place = 0..PLACES.len();
    let sketch = (
        prop::collection::vec(place.clone(), 0..3),
        any::<bool>(),
        prop::collection::vec(place, 0..3),
        any::<bool>(),
        0..3_usize,
        prop::bool::weighted(0.2),
        0..tools,
    )
        .prop_map(
            |(reads, is_any, writes, is_outcome, instance, fails, tool)| Sketch {
                reads,
                is_any,
                writes,
                is_outcome,
                instance,
                fails,
                tool,
            },
        );
    prop::collection::vec(sketch, 0..14)
}

const TOOLS: [&str; 5] = ["plain", "asks", "background", "latent", "client"];
/// Those whose calls are answered here.
const OWN: usize = 4;
const INSTANCES: [Option<&str>; 3] = [None, Some("one"), Some("two")];

impl Sketch {
    fn object(&self, index: usize) -> Value {
        let join = |places: &[usize], operator: &str| {
            let places: Vec<_> = places.iter().map(|place| PLACES[*place]).collect();
            places.join(operator)
        };
        let mut call = json!({"_tool": TOOLS[self.tool], "n": index});
        if let Some(instance) = INSTANCES[self.instance] {
            call["_instance"] = instance.into();
        }
        if !self.reads.is_empty() {
            call["of"] = join(&self.reads, if self.is_any { " || " } else { " && " }).into();
        }
        if !self.writes.is_empty() {
            let operator = if self.is_outcome { " || " } else { " && " };
            call["_outputPath"] = join(&self.writes, operator).into();
        }
        if TOOLS[self.tool] == "latent" {
            call["_output"] = json!({"x": index});
        }
        call
    }

    /// Whether this call reads for certain what `other` writes.
    fn reads_from(&self, other: &Self) -> bool {
        let is_seen = other.instance == 0 || other.instance == self.instance;
        let overlaps = |a: usize, b: usize| {
            let path = |place: usize| -> toolhold_protocol::reference::Path {
                PLACES[place].parse().unwrap()
            };
            path(a).overlaps(&path(b))
        };
        let mut reads = self.reads.iter();
        is_seen
            && TOOLS[self.tool] != "latent"
            && (!self.is_any || self.reads.len() == 1)
            && reads.any(|read| other.writes.iter().any(|write| overlaps(*read, *write)))
    }
}

fn machine(parallel: usize) -> Machine {
    let context = Message::parse_all(&json!([
        {"type": "state", "state": {}},
        {"type": "data", "kind": "user", "data": 1, "_instance": "one"},
        {"type": "data", "kind": "user", "data": 2, "_instance": "two"},
    ]));
    let mut request = RunRequest::new(uuid::Uuid::now_v7(), "task");
    request.context = context.unwrap();
    request.settings.max_calls = 100;
    request.settings.parallel_calls = parallel;
    request.settings.contract = Contract::Schema;
    let rules = &mut request.settings.decisions.tools;
    rules.insert("asks".into(), DecisionMode::Always);
    let tools = TOOLS.map(|name| {
        let mut tool = Tool::new(name);
        tool.parameters =
            json!({"type": "object", "properties": {"of": {}, "n": {"type": "integer"}}});
        tool.annotations.fire_and_forget = name == "background";
        tool.annotations.idempotent = name == "plain";
        if name != "latent" {
            tool.execution = Execution::Activity(name.into());
        }
        let runner = match name {
            "latent" => Runner::Model,
            "client" => Runner::Client,
            name => Runner::Activity(name.into()),
        };
        let tool = tool.into();
        Bound { tool, runner }
    });
    Machine::new(
        request,
        "model".into(),
        ToolCatalogue::new(tools).unwrap(),
        Vec::new(),
    )
    .unwrap()
}

/// What the driver does, under a script of random numbers.
struct World {
    events: Vec<Event>,
    /// What was begun and may come back, in any order.
    pending: Vec<Input>,
    asked: usize,
    running: usize,
    most: usize,
    is_over: bool,
    /// The record has each piece of a reply, as older versions wrote it.
    has_deltas: bool,
}

impl World {
    fn new() -> Self {
        Self {
            has_deltas: false,
            events: Vec::new(),
            pending: Vec::new(),
            asked: 0,
            running: 0,
            most: 0,
            is_over: false,
        }
    }

    fn take(&mut self, machine: &Machine, sketches: &[Sketch], effects: Effects) {
        for kind in effects.events {
            if kind.is_shown_only() {
                continue;
            }
            self.is_over |= matches!(kind, EventKind::Done { .. });
            self.events.push(Event {
                run: machine.request().id,
                seq: self.events.len() as u64,
                at_ms: 0,
                kind,
                removed: None,
                seal: Seal::default(),
            });
        }
        for action in effects.actions {
            match action {
                Action::Ask { .. } => self.asked += 1,
                Action::Call(work) => {
                    self.running += 1;
                    self.most = self.most.max(self.running);
                    let index = work.call.arguments["n"].as_u64().unwrap() as usize;
                    self.pending.push(Input::Called {
                        id: work.call.id.clone(),
                        result: result(index, sketches[index].fails),
                    });
                }
                Action::Decide(pending) => self.pending.push(Input::Decided {
                    id: pending.call.id.clone(),
                    decision: Decision {
                        digest: pending.digest.clone(),
                        verdict: match pending.digest.as_bytes()[0] % 3 {
                            0 => Verdict::Refuse {
                                reason: "no".into(),
                            },
                            1 => Verdict::Replace {
                                result: json!({"x": 0}),
                            },
                            _ => Verdict::Approve,
                        },
                        by: None,
                    },
                }),
                Action::Screen(screening) => self.pending.push(Input::Screened {
                    call: screening.call_id(),
                    screened: ScreeningResult::Pass,
                }),
                Action::Retrieve(_) => self.pending.push(Input::Retrieved(Retrieved::default())),
                Action::Count(_) => unreachable!("nothing counts here"),
                Action::SumUp(_) => unreachable!("no run is that long"),
                Action::Finish => {}
            }
        }
    }
}

fn result(index: usize, fails: bool) -> ToolResult {
    ToolResult {
        outcome: if fails {
            Err(ToolFailure::correctable("broken", "no"))
        } else {
            Ok(ToolOutput::from(json!({"x": index})))
        },
        usage: ToolUsage::default(),
        printed: Vec::new(),
        module: None,
        cached: None,
    }
}

/// A reply and its pieces.
fn reply(text: &str) -> (Vec<Delta>, Completion) {
    let characters: Vec<char> = text.chars().collect();
    let pieces = characters
        .chunks(40)
        .map(|piece| Delta::Content(piece.iter().collect()));
    let completion = Completion {
        content: text.into(),
        ..Completion::default()
    };
    (pieces.collect(), completion)
}

/// Drives a run to its end: each number picks what happens next.
fn play(
    machine: &mut Machine,
    world: &mut World,
    sketches: &[Sketch],
    begin: Input,
    choices: &[usize],
) {
    let solution =
        |calls: Vec<Value>, output: Value| json!({"calls": calls, "output": output}).to_string();
    let calls: Vec<Value> = sketches
        .iter()
        .enumerate()
        .map(|(n, s)| s.object(n))
        .collect();
    let mut choices = choices.iter().copied().cycle();
    let effects = machine.handle(begin, Duration::ZERO);
    world.take(machine, sketches, effects);
    let (mut replied, mut text) = (0, Vec::new());
    let mut whole = None;
    for _ in 0..10_000 {
        if world.is_over {
            return;
        }
        if world.asked > replied && whole.is_none() {
            // The calls in the first reply of a run, and only there.
            let is_first = machine.steps == 1;
            let said = if is_first && !calls.is_empty() {
                solution(calls.clone(), Value::Null)
            } else {
                solution(Vec::new(), json!("done"))
            };
            let (pieces, completion) = reply(&said);
            text = pieces;
            text.reverse();
            whole = Some(completion);
        }
        let choice = choices.next().unwrap();
        let input = if world.pending.is_empty() || (whole.is_some() && choice % 2 == 0) {
            match text.pop() {
                Some(delta) if world.has_deltas => Input::Recorded(delta),
                Some(delta) => Input::Wrote(delta),
                None => {
                    replied += 1;
                    let completion = whole.take();
                    Input::Replied(completion.expect("nothing runs, and the run is not over"))
                }
            }
        } else {
            world.pending.swap_remove(choice / 2 % world.pending.len())
        };
        if matches!(input, Input::Called { .. }) {
            world.running -= 1;
        }
        let effects = machine.handle(input, Duration::ZERO);
        world.take(machine, sketches, effects);
    }
    panic!("the run does not end");
}

/// Where each call began and ended, by its number.
fn spans(events: &[Event]) -> HashMap<usize, (Option<usize>, Vec<usize>)> {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut spans: HashMap<usize, (Option<usize>, Vec<usize>)> = HashMap::new();
    for event in events {
        match &event.kind {
            EventKind::Plan { calls, .. } => {
                for call in calls {
                    numbers.insert(
                        call.id.clone(),
                        call.arguments["n"].as_u64().unwrap() as usize,
                    );
                }
            }
            EventKind::ToolStart { call, .. } | EventKind::ToolWaits { call, .. } => {
                numbers.insert(
                    call.id.clone(),
                    call.arguments["n"].as_u64().unwrap() as usize,
                );
            }
            EventKind::Approval { pending, .. } => {
                let call = &pending.call;
                numbers.insert(
                    call.id.clone(),
                    call.arguments["n"].as_u64().unwrap() as usize,
                );
            }
            _ => {}
        }
    }
    for (at, event) in events.iter().enumerate() {
        match &event.kind {
            EventKind::ToolStart { call, .. } => {
                spans.entry(numbers[&call.id]).or_default().0 = Some(at);
            }
            EventKind::ToolResult { id, .. } => {
                spans.entry(numbers[id]).or_default().1.push(at);
            }
            _ => {}
        }
    }
    spans
}

proptest! {
    #[test]
    fn every_step_ends_with_each_call_answered_once_and_in_order(
        sketches in sketches(OWN),
        choices in prop::collection::vec(0..1_000_usize, 1..40),
        parallel in 1..5_usize,
    ) {
        let (mut machine, mut world) = (machine(parallel), World::new());
        play(&mut machine, &mut world, &sketches, Input::Start, &choices);
        prop_assert!(world.most <= parallel);
        let spans = spans(&world.events);
        prop_assert_eq!(spans.len(), sketches.len());
        for (number, (start, results)) in &spans {
            prop_assert_eq!(results.len(), 1, "call {} is answered once", number);
            prop_assert!(start.is_none_or(|start| start < results[0]));
        }
        for (reader, sketch) in sketches.iter().enumerate() {
            let Some(start) = spans[&reader].0 else { continue };
            for (writer, other) in sketches[..reader].iter().enumerate() {
                if sketch.reads_from(other) {
                    prop_assert!(spans[&writer].1[0] < start, "{} reads from {}", reader, writer);
                }
            }
        }
        let replayed = replay(&world.events).unwrap();
        prop_assert!(replayed.is_done && replayed.unsaid.is_empty());
    }

    /// The record of an older version, which has each piece of a reply, comes to the same events again.
    #[test]
    fn a_record_with_pieces_is_replayed(
        sketches in sketches(OWN),
        choices in prop::collection::vec(0..1_000_usize, 1..40),
        parallel in 1..5_usize,
    ) {
        let (mut machine, mut world) = (machine(parallel), World::new());
        world.has_deltas = true;
        play(&mut machine, &mut world, &sketches, Input::Start, &choices);
        let is_delta = |event: &Event| matches!(event.kind, EventKind::Delta { from: None, .. });
        prop_assert!(world.events.iter().any(is_delta));
        let replayed = replay(&world.events).unwrap();
        prop_assert!(replayed.is_done && replayed.unsaid.is_empty());
    }

    #[test]
    fn a_run_ends_with_its_clients_calls_when_its_own_are_over(
        sketches in sketches(TOOLS.len()),
        choices in prop::collection::vec(0..1_000_usize, 1..40),
        parallel in 1..5_usize,
    ) {
        let (mut machine, mut world) = (machine(parallel), World::new());
        play(&mut machine, &mut world, &sketches, Input::Start, &choices);
        let is_clients = |number: usize| TOOLS[sketches[number].tool] == "client";
        let mut has_handed_over = false;
        for (number, (start, results)) in &spans(&world.events) {
            let is_made_here = !is_clients(*number) || start.is_none();
            has_handed_over |= !is_made_here;
            prop_assert!(results.len() <= usize::from(is_made_here), "call {}", number);
            prop_assert!(start.is_none() || results.len() == usize::from(is_made_here));
        }
        let ended = world.events.last().map(|event| &event.kind);
        let Some(EventKind::Done { reason, .. }) = ended else {
            return Err(TestCaseError::fail("the run is not over"));
        };
        let expected = if has_handed_over { StopReason::ToolCalls } else { StopReason::Output };
        prop_assert_eq!(*reason, expected);
        prop_assert!(world.pending.is_empty());
        let replayed = replay(&world.events).unwrap();
        prop_assert!(replayed.is_done && replayed.unsaid.is_empty());
    }

    #[test]
    fn a_run_that_was_killed_anywhere_ends_and_makes_no_call_twice(
        sketches in sketches(TOOLS.len()),
        choices in prop::collection::vec(0..1_000_usize, 1..40),
        kept in any::<prop::sample::Index>(),
        parallel in 1..5_usize,
        is_old in any::<bool>(),
    ) {
        let (mut first, mut world) = (machine(parallel), World::new());
        world.has_deltas = is_old;
        play(&mut first, &mut world, &sketches, Input::Start, &choices);
        let kept = kept.index(world.events.len()) + 1;
        let mut again = World::new();
        again.events = world.events[..kept].to_vec();
        let replayed = replay(&again.events).unwrap();
        let mut machine = replayed.machine;
        let unsaid = Effects { events: replayed.unsaid, actions: Vec::new() };
        again.is_over = replayed.is_done;
        again.take(&machine, &sketches, unsaid);
        if !again.is_over {
            play(&mut machine, &mut again, &sketches, Input::Resumed { notes: Vec::new() }, &choices);
        }
        prop_assert!(again.most <= parallel);
        let mut answered = std::collections::HashSet::new();
        for event in &again.events {
            if let EventKind::ToolResult { id, .. } = &event.kind {
                prop_assert!(answered.insert(id.clone()), "{} is answered twice", id);
            }
        }
        let replayed = replay(&again.events).unwrap();
        prop_assert!(replayed.is_done && replayed.unsaid.is_empty());
    }
}

/// A thousand calls, each reading what the one before it wrote, and as many that nothing can unblock.
#[test]
fn a_thousand_calls_are_no_burden() {
    for is_forward in [true, false] {
        let mut machine = machine(4);
        machine.request.settings.max_calls = 1_000;
        let calls: Vec<Value> = (0..1_000_i32)
            .map(|n| {
                let before = if is_forward { n - 1 } else { n + 1 };
                let of = if n == 0 && is_forward {
                    Value::Null
                } else {
                    format!("†state.p{before}").into()
                };
                json!({"_tool": "plain", "n": n, "of": of, "_outputPath": format!("†state.p{n}")})
            })
            .collect();
        let started = std::time::Instant::now();
        machine.handle(Input::Start, Duration::ZERO);
        let said = json!({"calls": calls, "output": null}).to_string();
        let completion = Completion {
            content: said,
            ..Completion::default()
        };
        let mut effects = machine.handle(Input::Replied(completion), Duration::ZERO);
        let mut made = 0;
        while let Some(Action::Call(work)) = effects.actions.pop() {
            made += 1;
            let called = Input::Called {
                id: work.call.id.clone(),
                result: result(made, false),
            };
            effects = machine.handle(called, Duration::ZERO);
        }
        assert_eq!(made, if is_forward { 1_000 } else { 0 });
        assert!(matches!(
            effects.actions.last(),
            None | Some(Action::Ask { .. })
        ));
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{:?}",
            started.elapsed()
        );
    }
}
