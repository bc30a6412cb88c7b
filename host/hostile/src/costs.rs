//! Row 32: few bytes of a module that cost the host time or memory without end, outside of any guest.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::liar::{self, Claim, LiarReply};
use crate::measure::Baseline;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::future::ready;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 32,
        name: "schema_of_a_result",
        attack: "results checked by recursive, doubling, backtracking schemas",
        must: "refused, or ended in time; memory bounded",
        company: Company::Others,
        tries: |lab| Box::pin(ready(schema_of_a_result(lab))),
    },
    Attack {
        row: 32,
        name: "schema_of_arguments",
        attack: "the same for arguments, with what a model may write",
        must: "refused, or ended in time; memory bounded",
        company: Company::Others,
        tries: |lab| Box::pin(ready(schema_of_arguments(lab))),
    },
    Attack {
        row: 32,
        name: "types_to_inspect",
        attack: "16 KiB with 1 000 functions of the largest types",
        must: "loaded or refused in 2 s; others answer",
        company: Company::Alone,
        tries: |lab| Box::pin(types_to_inspect(lab)),
    },
    Attack {
        row: 32,
        name: "texts_to_parse",
        attack: "docs of 1 MiB, and WIT of 256 KiB, of what takes long to read",
        must: "loaded or refused in time; memory bounded",
        company: Company::Alone,
        tries: |lab| Box::pin(texts_to_parse(lab)),
    },
];

/// What a schema and a value may cost, on top of an ordinary call.
const TIME: Duration = Duration::from_secs(5);
const MEMORY: u64 = 256 << 20;

/// A schema, and a value that is checked by it.
struct Bomb {
    name: &'static str,
    schema: Value,
    value: Value,
}

fn bombs() -> Vec<Bomb> {
    let bomb = |name, schema, value| Bomb {
        name,
        schema,
        value,
    };
    let nested = |levels: usize, core: Value| (0..levels).fold(core, |inside, _| json!([inside]));
    let twice = |keyword: &str| {
        let own = json!({"type": "array", "items": {"$ref": "#/$defs/a"}});
        json!({"$ref": "#/$defs/a", "$defs": {"a": {keyword: [own, own]}}})
    };
    let words = |text: String, count: usize| json!(vec![text; count]);
    vec![
        bomb("a recursive anyOf", twice("anyOf"), nested(50, json!(1))),
        bomb("a recursive oneOf", twice("oneOf"), nested(50, json!(1))),
        bomb(
            "a recursive not",
            json!({"$ref": "#/$defs/a", "$defs": {"a": {
                "not": {"items": {"$ref": "#/$defs/a"}}, "if": {"items": {"$ref": "#/$defs/a"}},
                "then": {"items": {"$ref": "#/$defs/a"}},
            }}}),
            nested(50, json!(1)),
        ),
        bomb("2^36 allOf", doubling("allOf", 36, &json!({})), json!(1)),
        bomb("2^36 anyOf", doubling("anyOf", 36, &json!(false)), json!(1)),
        bomb(
            "2^24 unevaluatedProperties",
            json!({
                "allOf": [doubling("allOf", 24, &json!({"properties": {"x": true}}))],
                "unevaluatedProperties": false,
            }),
            json!({"x": 1}),
        ),
        bomb("a schema that unfolds", unfolding(18), json!({})),
        bomb("a wide schema that unfolds", unfolding_widely(), json!({})),
        bomb(
            "a pattern with backtracking",
            json!({"items": {"pattern": "^(?:(?=a)a|(?=a)a)+b$"}}),
            words("a".repeat(40), 400),
        ),
        bomb(
            "a pattern with references back",
            json!({"items": {"pattern": "^(a*)*\\1(a*)*\\2b$"}}),
            words("a".repeat(60), 400),
        ),
        bomb(
            "a pattern that is large when compiled",
            json!({"items": {"pattern": "(?:(?:(?:\\w{50}){50}){50}){50}"}}),
            words("a".repeat(60), 10),
        ),
        bomb(
            "uniqueItems of equal prefixes",
            json!({"uniqueItems": true}),
            (0..6_000)
                .map(|n| json!({"a": {"a": {"a": "x".repeat(60)}}, "n": n}))
                .collect(),
        ),
        bomb(
            "contains in every item",
            json!({"items": {"contains": {"contains": {"const": 2}}, "minContains": 0}}),
            json!(vec![vec![vec![1; 100]; 100]; 40]),
        ),
    ]
}

/// `levels` definitions, each of which names the next one twice.
fn doubling(keyword: &str, levels: usize, last: &Value) -> Value {
    let mut definitions = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/a{}", level + 1)});
        definitions.insert(format!("a{level}"), json!({keyword: [next, next]}));
    }
    definitions.insert(format!("a{levels}"), last.clone());
    json!({"$ref": "#/$defs/a0", "$defs": definitions})
}

/// Definitions that name each other as properties: a validator that copies what it refers to grows with
/// 2^levels.
fn unfolding(levels: usize) -> Value {
    let mut definitions = serde_json::Map::new();
    for level in 0..levels {
        let next = json!({"$ref": format!("#/$defs/a{}", level + 1)});
        let both = json!({"properties": {"x": next, "y": next}});
        definitions.insert(format!("a{level}"), both);
    }
    definitions.insert(format!("a{levels}"), json!({"type": "object"}));
    json!({"type": "object", "$defs": definitions, "properties": {"x": {"$ref": "#/$defs/a0"}}})
}

/// 16 kB: each of seven definitions names the next one in eight properties, and has a text of its own.
fn unfolding_widely() -> Value {
    let mut definitions = serde_json::Map::new();
    for level in 0..7 {
        let next = json!({"$ref": format!("#/$defs/a{}", level + 1)});
        let properties: serde_json::Map<_, _> =
            (0..8).map(|n| (format!("p{n}"), next.clone())).collect();
        definitions.insert(format!("a{level}"), json!({"properties": properties}));
    }
    let values: Vec<_> = (0..1_500).map(|n| format!("v{n}")).collect();
    definitions.insert("a7".into(), json!({"enum": values}));
    json!({"type": "object", "$defs": definitions, "properties": {"x": {"$ref": "#/$defs/a0"}}})
}

fn schema_of_a_result(lab: &Lab) -> Result<String, AttackFailure> {
    cost(lab, |bomb| {
        let claim = Claim {
            output_schema: Some(bomb.schema.to_string()),
            ..Claim::named("tell")
        };
        (claim, bomb.value.clone(), json!({}))
    })
}

fn schema_of_arguments(lab: &Lab) -> Result<String, AttackFailure> {
    cost(lab, |bomb| {
        let mut schema = json!({"type": "object", "properties": {"x": bomb.schema}});
        // References begin at the top.
        if let Some(definitions) = schema.pointer("/properties/x/$defs").cloned() {
            schema["$defs"] = definitions;
        }
        let claim = Claim {
            input_schema: schema.to_string(),
            ..Claim::named("tell")
        };
        (claim, json!(1), json!({"x": bomb.value}))
    })
}

/// Calls a module of each bomb by the command. An ordinary call is measured first.
fn cost(lab: &Lab, made: impl Fn(&Bomb) -> (Claim, Value, Value)) -> Result<String, AttackFailure> {
    let harmless = Bomb {
        name: "harmless",
        schema: json!({"type": ["object", "number"]}),
        value: json!(1),
    };
    let (mut longest, mut most) = (Duration::ZERO, 0);
    let mut bounds = Bounds {
        time: Duration::from_mins(1),
        memory: 2 << 30,
    };
    let (mut broke, bombs) = (Vec::new(), bombs());
    for bomb in std::iter::once(&harmless).chain(&bombs) {
        let folder = CommandFolder::new(lab)?;
        let (claim, reply, arguments) = made(bomb);
        let reply = LiarReply::Value(reply.to_string());
        let component = liar::component(&[claim], &reply)?;
        folder.write("modules/liar.wasm", component)?;
        let arguments = arguments.to_string();
        // Through a file: a command line is not as long.
        folder.write("arguments.json", &arguments)?;
        let ran = folder.run_with_input(
            &["modules", "call", "liar.tell", "-"],
            "arguments.json",
            bounds,
        )?;
        if let Err(fault) = ran.ensure_ended(bomb.name) {
            broke.push(fault.to_string());
            continue;
        }
        if bomb.name == harmless.name {
            ensure(ran.code == Some(0), || {
                format!("an ordinary call failed: {}{}", ran.stdout, ran.stderr)
            })?;
            bounds = Bounds {
                time: ran.took + TIME,
                memory: ran.peak + MEMORY,
            };
        } else {
            longest = longest.max(ran.took);
            most = most.max(ran.peak);
        }
    }
    ensure(broke.is_empty(), || {
        format!("{} of {}: {}", broke.len(), bombs.len(), broke.join("; "))
    })?;
    Ok(format!(
        "{} schemas, each within {} and {} MiB",
        bombs.len(),
        ms(longest),
        most >> 20
    ))
}

/// What loading may take of the host, and how slow a call beside it may be.
const PROMPT: Duration = Duration::from_secs(2);

/// Loads a component while a benign module is called all the time.
async fn load_beside_calls(
    lab: &Lab,
    name: &str,
    files: &[(&str, Vec<u8>)],
    memory: u64,
) -> Result<Duration, AttackFailure> {
    let arena = lab.against(components::COMPUTE, |_| ()).await?;
    let folder = lab.folder()?;
    for (file, bytes) in files {
        fs::write(folder.path().join(file), bytes)?;
    }
    let registry = arena.registry.clone();
    let baseline = Baseline::now()?;
    let done = AtomicBool::new(false);
    let started = Instant::now();
    let loading = async {
        // Refused is as good as loaded.
        let only = ["bomb".to_owned()];
        let _ = registry
            .load_folder(folder.path(), Some(&only), &|_| ())
            .await;
        done.store(true, Ordering::Relaxed);
        started.elapsed()
    };
    let beside = async {
        let mut slowest = Duration::ZERO;
        while !done.load(Ordering::Relaxed) {
            let asked = Instant::now();
            arena.value("benign.count", json!({})).await?;
            slowest = slowest.max(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, AttackFailure>(slowest)
    };
    let (took, slowest) = tokio::join!(loading, beside);
    let slowest = slowest?;
    ensure(slowest < lab.grace(), || {
        format!("{name}: a benign call beside it took {}", ms(slowest))
    })?;
    ensure(took < PROMPT * lab.times(2, 1), || {
        format!("{name}: loading it took {}", ms(took))
    })?;
    baseline.ensure_peak(memory, name)?;
    arena.unharmed().await?;
    Ok(took)
}

async fn types_to_inspect(lab: &Lab) -> Result<String, AttackFailure> {
    let mut longest = Duration::ZERO;
    for (name, levels, count) in [
        ("1 000 functions of 511 parts, twice", 7, 1_000),
        ("1 000 functions of 2 047 parts", 9, 1_000),
        ("250 functions that are tools", 6, 250),
    ] {
        let bytes = components::parse(&many_functions(levels, count))?;
        ensure(bytes.len() < 20 << 10, || {
            format!("the attack has {} bytes", bytes.len())
        })?;
        let files = [("bomb.wasm", bytes)];
        longest = longest.max(load_beside_calls(lab, name, &files, 128 << 20).await?);
    }
    Ok(format!("each within {}", ms(longest)))
}

/// `count` functions of one type, which doubles with every one of `levels`.
fn many_functions(levels: u32, count: u32) -> String {
    let mut text = String::from("(component (type $t0 (tuple bool bool))\n");
    for level in 1..=levels {
        let below = level - 1;
        let _ = writeln!(text, "(type $t{level} (tuple $t{below} $t{below}))");
    }
    let _ = write!(
        text,
        r#"(core module $m (memory (export "memory") 1)
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 0)
  (func (export "f") (param i32) (result i32) i32.const 0))
(core instance $i (instantiate $m))
(func $f (param "x" $t{levels}) (result $t{levels})
  (canon lift (core func $i "f") (memory $i "memory") (realloc (func $i "realloc"))))"#
    );
    for n in 0..count {
        let _ = writeln!(text, "(export \"f{n}\" (func $f))");
    }
    text + ")"
}

async fn texts_to_parse(lab: &Lab) -> Result<String, AttackFailure> {
    /// The most that is read of docs in a component.
    const MOST: usize = 1 << 20;
    let mut longest = Duration::ZERO;
    let many = joined(0..20_000, |n| format!(r#""f{n}":{{"description":"d"}},"#));
    let chain = joined(0..20_000, |n| {
        format!(r##""#t{n}":{{"type":"#t{}"}},"##, n + 1)
    });
    let wide = r##""#t0","##.repeat(60_000);
    for (name, docs) in [
        (
            "20 000 functions",
            format!(r#"{{"version":1,"exports":{{"":{{{many}"f":{{}}}}}}}}"#),
        ),
        (
            "20 000 types that name each other",
            format!(
                r##"{{"version":1,"exports":{{"":{{"which":{{"parameters":{{"x":{{"type":"#t0"}}}}}}}}}},"types":{{{chain}"#t20000":{{"type":"#t0"}}}}}}"##
            ),
        ),
        (
            "a type of 60 000 of itself",
            format!(
                r##"{{"version":1,"exports":{{"":{{"which":{{"result":"#t0"}}}}}},"types":{{"#t0":{{"type":[{wide}"#t0"]}}}}}}"##
            ),
        ),
    ] {
        let mut bytes = components::parse(&components::which(1))?;
        append(&mut bytes, "toolhold:docs", docs.as_bytes());
        ensure(docs.len() <= MOST + (64 << 10), || {
            format!("{name} has {} bytes", docs.len())
        })?;
        let files = [("bomb.wasm", bytes)];
        longest = longest.max(load_beside_calls(lab, name, &files, 256 << 20).await?);
    }
    let aliases = joined(1..6_000, |n| format!("type t{n} = t{};", n - 1));
    let pairs = joined(1..4_000, |n| {
        format!("type t{n} = tuple<t{0}, t{0}>;", n - 1)
    });
    let (open, close) = ("list<".repeat(20_000), ">".repeat(20_000));
    for (name, types) in [
        ("6 000 aliases in a row", format!("type t0 = u8; {aliases}")),
        ("4 000 pairs of pairs", format!("type t0 = u8; {pairs}")),
        (
            "20 000 lists in each other",
            format!("type t = {open}u8{close};"),
        ),
    ] {
        let wit = format!("package a:b; interface i {{ {types} which: func() -> u32; }}");
        let component = components::parse(&components::which(1))?;
        let files = [("bomb.wasm", component), ("bomb.wit", wit.into_bytes())];
        longest = longest.max(load_beside_calls(lab, name, &files, 256 << 20).await?);
    }
    Ok(format!("each within {}", ms(longest)))
}

/// A text for each number.
fn joined(numbers: Range<u32>, text: impl Fn(u32) -> String) -> String {
    numbers.map(text).collect()
}

/// A custom section at the end of a component.
fn append(component: &mut Vec<u8>, name: &str, content: &[u8]) {
    let mut body = components::leb128(name.len());
    body.extend(name.as_bytes());
    body.extend(content);
    component.push(0);
    component.extend(components::leb128(body.len()));
    component.extend(body);
}
