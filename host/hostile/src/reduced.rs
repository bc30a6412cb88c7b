//! Row 70: schemas of MCP servers and clients that are made to cost work where they are read and reduced.

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::components;
use crate::far::{self, FarAnswer, tools_answer};
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::runs::{RunClient, joined};
use crate::scripted::ScriptedModel;
use crate::serving::Served;
use serde_json::{Map, Value, json};
use std::future::ready;
use std::time::{Duration, Instant};

pub const ATTACKS: &[Attack] = &[Attack {
    row: 70,
    name: "schemas_that_cost_work",
    attack: "products of alternatives, doubled and circular references, thousands of alternatives, patterns and places, of a client and an MCP server",
    must: "each request is answered in time, by a run or a refusal; other calls are answered meanwhile; memory bounded",
    company: Company::Others,
    tries: |lab| Box::pin(ready(schemas_that_cost_work(lab))),
}];

/// Maximum processor time of the server for a request with such a schema and the calls beside it.
const MOST: Duration = Duration::from_secs(5);
/// Maximum time by the clock of a call beside it.
const MOST_BESIDE: Duration = Duration::from_secs(2);
const MOST_MEMORY: u64 = 512 << 20;
/// References that each lead to the next one twice: two to the power of this, unfolded.
const DOUBLINGS: usize = 40;
const BENIGN: &str = "benign.count";

/// A schema and its name.
type CostlySchema = (&'static str, Value);

fn object(members: impl Iterator<Item = (String, Value)>) -> Value {
    Value::Object(members.collect::<Map<String, Value>>())
}

/// Definitions in which each refers to the next one twice, by what `refer` makes of the reference.
fn doubled(refer: impl Fn(&Value) -> Value) -> Value {
    let definition = |number: usize| {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        (format!("d{number}"), refer(&next))
    };
    let last = (format!("d{DOUBLINGS}"), json!({"type": "object"}));
    let definitions = object((0..DOUBLINGS).map(definition).chain([last]));
    json!({
        "type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions,
    })
}

fn schemas() -> Vec<CostlySchema> {
    let branch = |name: String| {
        let required = [name.clone()];
        json!({"properties": {name: {"type": "string"}}, "required": required})
    };
    let choice = |part: usize| {
        let branches: Vec<Value> = (0..10)
            .map(|number| branch(format!("p{part}_{number}")))
            .collect();
        json!({"anyOf": branches})
    };
    let choices: Vec<Value> = (0..12).map(choice).collect();
    let alternatives: Vec<Value> = (0..1_500)
        .map(|number| json!({"properties": {"k": {"const": number}}}))
        .collect();
    let patterns = (0..200).map(|number| (format!("^(a|b{{1,20}}){{0,9}}c{number}$"), json!({})));
    let places: Vec<Value> = (0..1_500).map(|number| json!({"const": number})).collect();
    let nested = (0..5).fold(json!({"type": "string"}), |inner, _| {
        json!({"anyOf": [{"allOf": [inner, inner]}, {"oneOf": [inner, {"not": inner}]}]})
    });
    vec![
        (
            "a product of alternatives",
            json!({"type": "object", "allOf": choices}),
        ),
        (
            "a product in a property",
            json!({"type": "object", "properties": {"a": {"allOf": choices}}}),
        ),
        (
            "doubled parts",
            doubled(|next| json!({"allOf": [next, next]})),
        ),
        (
            "doubled alternatives",
            doubled(|next| json!({"anyOf": [next, {"allOf": [next]}]})),
        ),
        (
            "doubled properties",
            doubled(|next| json!({"type": "object", "properties": {"l": next, "r": next}})),
        ),
        (
            "a circle in place",
            json!({
                "type": "object", "allOf": [{"$ref": "#/$defs/a"}],
                "$defs": {
                    "a": {"anyOf": [{"$ref": "#/$defs/b"}, {"$ref": "#"}]},
                    "b": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]},
                },
            }),
        ),
        (
            "a circle of properties",
            json!({
                "type": "object",
                "properties": {"a": {"$ref": "#"}, "b": {"anyOf": [{"$ref": "#"}, {"$ref": "#/properties/a"}]}},
                "patternProperties": {"^x": {"$ref": "#/properties/b"}},
                "additionalProperties": {"$ref": "#"},
            }),
        ),
        (
            "alternatives",
            json!({"type": "object", "anyOf": alternatives}),
        ),
        (
            "exclusive alternatives in a property",
            json!({"type": "object", "properties": {"a": {"oneOf": alternatives}}}),
        ),
        (
            "patterns",
            json!({"type": "object", "patternProperties": object(patterns)}),
        ),
        (
            "places",
            json!({"type": "object", "properties": {"a": {
                "type": "array", "prefixItems": places, "items": {"$ref": "#/properties/a"},
            }}}),
        ),
        (
            "nested alternatives",
            json!({"type": "object", "properties": {"a": nested}}),
        ),
    ]
}

/// The longest times of a request and of a call beside one.
#[derive(Debug, Default)]
struct SlowestTimes {
    request: Duration,
    beside: Duration,
}

impl SlowestTimes {
    /// Sends a request, and calls a benign tool until it is answered.
    fn ask(
        &mut self,
        client: &RunClient<'_>,
        path: &str,
        body: &Value,
        what: &str,
    ) -> Result<(), AttackFailure> {
        let work = client.served.work();
        let answered = std::thread::scope(|scope| {
            let asked = scope.spawn(|| client.ask("POST", path, body));
            loop {
                let begun = Instant::now();
                let beside = client.ask(
                    "POST",
                    &format!("/v1/tools/{BENIGN}"),
                    &json!({"arguments": {}}),
                )?;
                let took = begun.elapsed();
                ensure(beside.status == 200 && took < MOST_BESIDE, || {
                    format!("{what}: a call beside it took {}: {beside:?}", ms(took))
                })?;
                self.beside = self.beside.max(took);
                if asked.is_finished() {
                    break joined(asked);
                }
            }
        })?;
        let took = work.elapsed();
        ensure(!work.is_over(MOST), || {
            format!("{what}: it was answered after {}", ms(took))
        })?;
        ensure(matches!(answered.status, 200 | 400), || {
            format!("{what}: neither a run nor a refusal: {answered:?}")
        })?;
        self.request = self.request.max(took);
        Ok(())
    }
}

fn schemas_that_cost_work(lab: &Lab) -> Result<String, AttackFailure> {
    let all = schemas();
    let names: Vec<String> = (0..all.len()).map(|number| format!("t{number}")).collect();
    let listed: Vec<Value> = names
        .iter()
        .zip(&all)
        .map(|(name, (_, schema))| json!({"name": name, "inputSchema": schema}))
        .collect();
    let far = far::start(move |message| {
        tools_answer(&listed, message, |_| {
            Some(FarAnswer::Json(json!({"result": {"content": []}})))
        })
    })?;
    let mut slowest = SlowestTimes::default();
    let mut grown = 0;
    for (contract, done) in [
        ("tools", "done"),
        ("schema", r#"{"calls": [], "output": "done"}"#),
    ] {
        let model = ScriptedModel::start(done)?;
        let folder = CommandFolder::new(lab)?;
        let benign = components::parse(components::COMPUTE)?;
        folder.write("modules/benign.wasm", benign)?;
        folder.write(
            "host.toml",
            format!(
                "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"{contract}\"\n\
                 [modules]\npinning = \"never\"\n[fallback]\nenabled = false\n[decisions]\ndefault = \"never\"\n\
                 [serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n\
                 [module.benign.limits]\ncalls_per_minute = 0\n\
                 [mcp.far]\nurl = \"http://127.0.0.1:{far}/mcp\"\noffer = true\ntools = {}\n",
                model.port,
                json!(names)
            ),
        )?;
        let serve = ["--config", "host.toml", "serve", "--listen", "127.0.0.1:0"];
        let served = Served::start(&folder, &serve)?;
        let client = RunClient {
            served: &served,
            key: None,
        };
        client.until_ready(BENIGN, &json!({"arguments": {}}))?;
        let before = served.peak();
        let message = json!([{"role": "user", "content": "Say it."}]);
        slowest.ask(
            &client,
            "/v1/agent",
            &json!({"messages": message}),
            &format!("{contract}, by a server"),
        )?;
        // A good request is answered by a run, or nothing is proved.
        let asked = model.prompts().len();
        ensure(asked > 0, || {
            format!("{contract}: a run with the tools of the server did not ask the model")
        })?;
        for (name, schema) in &all {
            let function = json!({"name": "look", "parameters": schema});
            let body = json!({
                "model": "default", "messages": message,
                "tools": [{"type": "function", "function": function}],
            });
            let what = format!("{contract}, {name}");
            slowest.ask(&client, "/v1/chat/completions", &body, &what)?;
        }
        if let (Some(before), Some(after)) = (before, served.peak()) {
            grown = after.saturating_sub(before).max(grown);
        }
    }
    ensure(grown < MOST_MEMORY, || {
        format!("{} MiB of memory were needed", grown >> 20)
    })?;
    Ok(format!(
        "{} schemas under two contracts; the slowest request took {}, a call beside {}; {} MiB",
        all.len(),
        ms(slowest.request),
        ms(slowest.beside),
        grown >> 20
    ))
}
