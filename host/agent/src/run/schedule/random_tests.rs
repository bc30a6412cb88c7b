//! Random calls, whose results come in any order: they have the effect that they have one after the other.

use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use toolhold_protocol::data::{Method, Write};
use toolhold_protocol::plan::{Graph, Plan};

/// Places that all exist at the beginning and are never taken away: of each, a write leaves those inside it.
const PLACES: [&str; 6] = ["†s", "†s.a", "†s.b", "†s.a.x", "†l", "†t"];
const INSTANCES: [Option<&str>; 3] = [None, Some("one"), Some("two")];

/// One call, as numbers.
#[derive(Debug, Clone)]
struct RandomCall {
    reads: Vec<usize>,
    is_any: bool,
    sees: Option<usize>,
    writes: Vec<usize>,
    instance: usize,
    is_push: bool,
}

fn calls() -> impl Strategy<Value = Vec<RandomCall>> {
    let place = 0..PLACES.len();
    let call = (
        prop::collection::vec(place.clone(), 0..3),
        any::<bool>(),
        prop::option::weighted(0.2, place.clone()),
        prop::collection::vec(place, 0..3),
        prop_oneof![3 => Just(0_usize), 1 => 1..3_usize],
        any::<bool>(),
    )
        .prop_map(
            |(reads, is_any, sees, writes, instance, is_push)| RandomCall {
                reads,
                is_any,
                sees,
                writes,
                instance,
                is_push,
            },
        );
    prop::collection::vec(call, 0..12)
}

fn path(place: usize) -> Path {
    PLACES[place].parse().unwrap()
}

fn data() -> Data {
    let mut data = Data::default();
    for (place, value) in [
        ("†s", json!({"a": {"x": "old"}, "b": "old"})),
        ("†l", json!(["old"])),
        ("†t", json!("old")),
    ] {
        let write = Write {
            path: place.parse().unwrap(),
            instance: None,
            method: Method::Set,
            value,
        };
        data.write(write).unwrap();
    }
    data
}

impl RandomCall {
    fn instance(&self) -> Option<&'static str> {
        INSTANCES[self.instance]
    }

    fn source(&self) -> Option<Source> {
        let places: Vec<&str> = self.reads.iter().map(|place| PLACES[*place]).collect();
        let operator = if self.is_any { " || " } else { " && " };
        (!places.is_empty()).then(|| places.join(operator).parse().unwrap())
    }

    /// What the call with this number is given.
    fn given(&self, data: &Data) -> Value {
        let read = self.source();
        let read = read.map(|source| data.resolve(&source, self.instance()).unwrap().into_owned());
        let seen = self.sees.map(|place| {
            let seen = data.read(&path(place), self.instance());
            seen.unwrap().into_owned()
        });
        json!([read, seen])
    }

    /// Its writes, with the values that the call `index` returns: in each place what belongs there.
    fn result(&self, index: usize) -> Vec<Write> {
        let write = |place: &usize| {
            let (method, value) = match PLACES[*place] {
                "†s" => (Method::Set, json!({"a": {"x": index}, "b": index})),
                "†s.a" => (Method::Set, json!({"x": index})),
                "†l" if self.is_push => (Method::Push, json!(index)),
                "†l" => (Method::Set, json!([index])),
                _ => (Method::Set, json!(index)),
            };
            Write {
                path: path(*place),
                instance: self.instance().map(str::to_owned),
                method,
                value,
            }
        };
        self.writes.iter().map(write).collect()
    }

    fn add_to(&self, schedule: &mut Schedule, index: usize) {
        let sees: Vec<Path> = self.sees.map(path).into_iter().collect();
        schedule.add(
            format!("call {index}"),
            self.instance().map(str::to_owned),
            self.source().into_iter().collect(),
            &sees,
            self.writes.iter().map(|place| path(*place)).collect(),
            Appends::Nowhere,
        );
    }

    fn step(&self) -> Value {
        let mut call = json!({"_tool": "t", "_instance": self.instance()});
        if let Some(source) = self.source() {
            call["of"] = source.to_string().into();
        }
        let places: Vec<&str> = self.writes.iter().map(|place| PLACES[*place]).collect();
        if !places.is_empty() {
            call["_outputPath"] = places.join(" && ").into();
        }
        call
    }
}

/// What each call is given, and the data at the end.
type Effect = (BTreeMap<usize, Value>, Vec<Value>);

fn effect(given: BTreeMap<usize, Value>, data: &Data) -> Effect {
    let views = INSTANCES.iter().flat_map(|instance| {
        let places = 0..PLACES.len();
        places.map(move |place| data.read(&path(place), *instance).unwrap().into_owned())
    });
    (given, views.collect())
}

/// The model: one call after the other.
fn in_order(calls: &[RandomCall]) -> Effect {
    let (mut data, mut given) = (data(), BTreeMap::new());
    for (index, call) in calls.iter().enumerate() {
        given.insert(index, call.given(&data));
        data.write_all(call.result(index)).unwrap();
    }
    effect(given, &data)
}

/// The schedule, where calls are added and come back as `choices` say.
fn scheduled(calls: &[RandomCall], choices: &[usize]) -> Effect {
    let (mut data, mut given, mut schedule) = (data(), BTreeMap::new(), Schedule::default());
    let (mut added, mut running) = (0, Vec::new());
    let mut choices = choices.iter().copied().cycle();
    loop {
        for index in schedule.unblock(&data) {
            given.insert(index, calls[index].given(&data));
            running.push(index);
        }
        let choice = choices.next().unwrap_or_default();
        if added < calls.len() && (running.is_empty() || choice.is_multiple_of(2)) {
            calls[added].add_to(&mut schedule, added);
            added += 1;
        } else if running.is_empty() {
            assert_eq!(given.len(), calls.len(), "nothing runs, and calls are left");
            return effect(given, &data);
        } else {
            let index = running.swap_remove(choice / 2 % running.len());
            let result = calls[index].result(index);
            let written: Vec<Path> = result.iter().map(|write| write.path.clone()).collect();
            data.write_all(result).unwrap();
            schedule.done(index, &written);
        }
    }
}

/// Whether two calls have to be made in their order.
fn is_bound(earlier: &RandomCall, later: &RandomCall) -> bool {
    let overlap = |one: &[usize], other: &[usize]| {
        let mut one = one.iter();
        one.any(|a| other.iter().any(|b| path(*a).overlaps(&path(*b))))
    };
    let sees = |writer: &RandomCall, reader: &RandomCall| {
        writer.instance == 0 || writer.instance == reader.instance
    };
    (sees(earlier, later) && overlap(&earlier.writes, &later.reads))
        || (sees(later, earlier) && overlap(&earlier.reads, &later.writes))
        || (earlier.instance == later.instance && overlap(&earlier.writes, &later.writes))
}

proptest! {
    #[test]
    fn statement_042_13_calls_have_the_effect_that_they_have_one_after_the_other(
        calls in calls(),
        choices in prop::collection::vec(0..1_000_usize, 1..40),
    ) {
        prop_assert_eq!(scheduled(&calls, &choices), in_order(&calls));
    }

    /// Those that touch nothing of each other run at the same time, and the layers of a plan are those of the schedule:
    /// each call is in the first layer after the calls that it has to come after.
    #[test]
    fn statement_042_13_layers_of_a_plan_are_those_in_which_its_calls_are_made(calls in calls()) {
        let calls: Vec<RandomCall> = calls
            .into_iter()
            .map(|call| RandomCall {
                is_any: false,
                sees: None,
                ..call
            })
            .collect();
        let steps = calls.iter().map(RandomCall::step).collect();
        let plan = Plan::parse(&steps).unwrap();
        let given = data();
        let graph = Graph::over(plan.steps, |path, instance| given.contains(path, instance));
        let graph = graph.unwrap();

        let (mut data, mut schedule) = (data(), Schedule::default());
        for (index, call) in calls.iter().enumerate() {
            call.add_to(&mut schedule, index);
        }
        let mut layers = Vec::new();
        loop {
            let layer = schedule.unblock(&data);
            if layer.is_empty() {
                break;
            }
            for index in &layer {
                let result = calls[*index].result(*index);
                let written: Vec<Path> = result.iter().map(|write| write.path.clone()).collect();
                data.write_all(result).unwrap();
                schedule.done(*index, &written);
            }
            layers.push(layer);
        }
        prop_assert_eq!(graph.layers(), layers.as_slice());

        let mut expected: Vec<usize> = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            let before = calls[..index].iter().zip(&expected);
            let before = before.filter(|(earlier, _)| is_bound(earlier, call));
            let layer = before.map(|(_, layer)| layer + 1).max().unwrap_or_default();
            expected.push(layer);
        }
        for (number, layer) in layers.iter().enumerate() {
            prop_assert!(layer.iter().all(|index| expected[*index] == number));
        }
    }
}
