//! Row 73: types of a component by which a short text is much work before its guest runs (docs/security.md, promise 1).

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, kind, ms};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use toolhold_policy::Output;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 73,
    name: "arguments_of_nested_options",
    attack: "a megabyte of arguments whose types are options in options, deep, absent, and around a long list",
    must: "each call ends in time; other calls are answered meanwhile",
    company: Company::Others,
    tries: |lab| Box::pin(arguments_of_nested_options(lab)),
}];

/// Deadline of a call, which is more than the work on arguments of their size needs.
const DEADLINE: Duration = Duration::from_millis(400);
/// Bytes of the arguments, which are fewer than a module may be given.
const BYTES: usize = 900_000;
/// Options in each other: as many as a type may be deep.
const LEVELS: usize = 15;
/// Options around a list of options, and in it.
const HALF: usize = LEVELS / 2;

/// A component that takes `values`, a list of the type `name` out of these definitions, and returns how many there were.
fn taking(definitions: &str, name: &str) -> String {
    format!(
        r#"(component
  (core module $m
    (memory (export "memory") 64)
    (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 16))
    (func (export "take") (param $at i32) (param $count i32) (result i32) (local.get $count)))
  (core instance $i (instantiate $m))
  {definitions}
  (func (export "take") (param "values" (list {name})) (result u32)
    (canon lift (core func $i "take") (memory $i "memory") (realloc (func $i "realloc")))))"#
    )
}

/// Definitions of `levels` options in each other around the type `inner`, and the name of the outermost.
fn options(name: char, levels: usize, inner: &str) -> (String, String) {
    let (mut definitions, mut inner) = (String::new(), inner.to_owned());
    for level in 1..=levels {
        let _ = write!(definitions, "(type ${name}{level} (option {inner})) ");
        inner = format!("${name}{level}");
    }
    (definitions, inner)
}

/// The value inside `levels` options, the innermost of which needs no object.
fn wrapped(levels: usize, value: Value) -> Value {
    (1..levels).fold(value, |value, _| json!({"some": value}))
}

/// A component, the value of one item, and arguments of many.
struct NestedCase {
    name: &'static str,
    wat: String,
    one: Value,
    many: Value,
    /// Items at the top of `many`.
    count: usize,
}

/// How many of this value the arguments have.
fn fitting(value: &Value) -> usize {
    BYTES / (value.to_string().len() + 1)
}

fn cases() -> Vec<NestedCase> {
    let (definitions, name) = options('o', LEVELS, "u8");
    let deep = taking(&definitions, &name);
    let case = |name, item: &Value| NestedCase {
        name,
        wat: deep.clone(),
        one: json!({"values": [item]}),
        many: json!({"values": vec![item; fitting(item)]}),
        count: fitting(item),
    };
    let full = case("full", &wrapped(LEVELS, json!(7)));
    // Values whose inner options are absent at the second level.
    let absent = case("absent", &json!({"some": null}));
    // One long list, which each way of reading the options around it reads again.
    let (inside, of) = options('i', HALF, "u8");
    let (around, name) = options('a', HALF, "$list");
    let listed = taking(&format!("{inside}(type $list (list {of})) {around}"), &name);
    let item = wrapped(HALF, json!(7));
    let list = |count: usize| wrapped(HALF, json!(vec![&item; count]));
    let around = NestedCase {
        name: "around",
        wat: listed,
        one: json!({"values": [list(1)]}),
        many: json!({"values": [list(fitting(&item))]}),
        count: 1,
    };
    vec![full, absent, around]
}

async fn arguments_of_nested_options(lab: &Lab) -> Result<String, AttackFailure> {
    let mut arena = lab.arena(|policy| {
        policy.limits.timeout_ms = u64::try_from(DEADLINE.as_millis()).unwrap_or(u64::MAX);
    })?;
    arena.benign().await?;
    let mut said = Vec::new();
    for case in cases() {
        arena.load(case.name, components::parse(&case.wat)?).await?;
        let tool = format!("{}.take", case.name);
        let taken = arena.value(&tool, case.one).await?;
        ensure(taken == json!(1), || {
            format!("{tool}: of one value {taken} were taken: nothing is proved")
        })?;
        let started = Instant::now();
        let report = arena.call(&tool, case.many).await;
        let took = started.elapsed();
        let end = kind(&report);
        ensure(took < DEADLINE + lab.grace(), || {
            format!(
                "{tool}: it ended ({end}) after {}, deadline {}",
                ms(took),
                ms(DEADLINE)
            )
        })?;
        match &report.result {
            Ok(Output::Value(taken) | Output::Message(taken)) => {
                ensure(*taken == json!(case.count), || {
                    format!("{tool}: {taken} were taken, of {}", case.count)
                })?;
            }
            Err(error) => ensure(["deadline", "host_full", "memory"].contains(&end), || {
                format!("{tool}: {error}")
            })?,
        }
        drop(report);
        arena.unharmed().await?;
        said.push(format!("{} {end} after {}", case.name, ms(took)));
    }
    Ok(said.join("; "))
}
