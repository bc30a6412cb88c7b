//! Row 80: what a run must keep from models, and what must not leave it.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::runs::{RunClient, until};
use crate::scripted::{ScriptedModel, native_as};
use crate::serving::{Answered, Served};
use serde_json::{Map, Value, json};
use std::future::ready;
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 80,
        name: "blocked_texts_in_every_field",
        attack: "a blocked address in each field of three APIs: roles, calls, results, names of members, schemas, context, documents",
        must: "no model is told it",
        company: Company::Others,
        tries: |lab| Box::pin(ready(blocked_texts_in_every_field(lab))),
    },
    Attack {
        row: 80,
        name: "hidden_secrets_that_leave",
        attack: "a module that may see a secret takes and returns it, and a client's function has a name that may: over three APIs, whole and streamed",
        must: "no answer, list, page or event of the run has it, and no call of the client",
        company: Company::Others,
        tries: |lab| Box::pin(ready(hidden_secrets_that_leave(lab))),
    },
];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const CONFIG: [&str; 2] = ["--config", "host.toml"];
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const AGENT: &str = "/v1/agent";
/// An address that the shield blocks, and the part of it that a reason does not name.
const BLOCKED: &str = "http://evil.test/canary";
const CANARY: &str = "canary";
/// Words of the reason.
const REASON: &str = "is not among the allowed hosts";
/// A key that the shield hides, and its place in what models see.
const SECRET: &str = "AKIAIOSFODNN7EXAMPLE";
const HIDDEN: &str = "<api_key_1>";
/// Name of a client's function, which the configuration lets a module of that name see secrets.
const VAULT: &str = "vault";

/// The path and the body of a request.
type BorderRequest = (&'static str, Value);

/// A server whose answers are asked for, and the model that it asks.
struct BorderBench {
    model: ScriptedModel,
    served: Served,
    folder: CommandFolder,
}

impl BorderBench {
    /// `more`: the end of the configuration.
    fn start(
        folder: CommandFolder,
        model: ScriptedModel,
        more: &str,
    ) -> Result<Self, AttackFailure> {
        folder.write(
            "host.toml",
            format!(
                "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"tools\"\n\
                 [fallback]\nenabled = false\n[modules]\npinning = \"never\"\n[decisions]\ndefault = \"never\"\n\
                 [serve]\nkeys = \"always\"\nkey_requests_per_minute = 0\n{more}",
                model.port
            ),
        )?;
        let serve = [&CONFIG[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
        let served = Served::start(&folder, &serve)?;
        until("a server that is ready", || {
            let ready = served.ask("GET", "/readyz", &[], "")?;
            Ok((ready.status == 200).then_some(()))
        })?;
        Ok(Self {
            model,
            served,
            folder,
        })
    }

    fn key(&self, name: &str) -> Result<String, AttackFailure> {
        self.folder.key(&CONFIG, name, BOUNDS)
    }
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

/// A chat of these messages before the user's, with these members.
fn chat(before: Value, members: Value) -> BorderRequest {
    let mut messages: Vec<Value> = serde_json::from_value(before).unwrap_or_default();
    messages.push(user("And now?"));
    let own = json!({"model": "default", "messages": messages});
    (CHAT, with(own, members))
}

/// A response to this input, with these members.
fn response(input: Value, members: Value) -> BorderRequest {
    let mut own = json!({"model": "default"});
    own["input"] = input;
    (RESPONSES, with(own, members))
}

/// A task with these members.
fn task(members: Value) -> BorderRequest {
    (
        AGENT,
        with(json!({"messages": [user("And now?")]}), members),
    )
}

/// A task with this message of a context.
fn told(message: Value) -> BorderRequest {
    let mut members = json!({});
    members["context"] = Value::Array(vec![message]);
    task(members)
}

fn with(mut body: Value, members: Value) -> Value {
    let members: Map<String, Value> = serde_json::from_value(members).unwrap_or_default();
    if let Some(body) = body.as_object_mut() {
        body.extend(members);
    }
    body
}

/// A function of a client, as a chat has it.
fn function(name: &str, description: &str, parameters: Value) -> Value {
    let mut function = json!({"name": name, "description": description});
    function["parameters"] = parameters;
    json!({"type": "function", "function": function})
}

/// The parameters of a function, with a keyword of the one that there is.
fn parameters(keyword: &str, value: Value) -> Value {
    let mut city = json!({"type": "string"});
    city[keyword] = value;
    json!({"type": "object", "properties": {"city": city}})
}

/// Members of an object whose only name is the address.
fn named(value: Value) -> Value {
    Value::Object([(BLOCKED.to_owned(), value)].into_iter().collect())
}

/// Roles, earlier calls and their results, in chats and responses.
fn in_messages() -> Vec<(&'static str, BorderRequest)> {
    let arguments = |city: &str| json!({"city": city}).to_string();
    let called = |city: &str, result: &str| {
        let call = json!({"id": "c1", "type": "function",
            "function": {"name": "weather", "arguments": arguments(city)}});
        let before = json!([
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": result},
        ]);
        let tool = function(
            "weather",
            "Tells the weather",
            parameters("title", json!("City")),
        );
        chat(before, json!({"tools": [tool]}))
    };
    let item = |city: &str, result: &str| {
        let items = json!([
            user("The weather?"),
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": arguments(city)},
            {"type": "function_call_output", "call_id": "c1", "output": result},
        ]);
        response(items, json!({}))
    };
    let said =
        |role: &str, content: Value| chat(json!([{"role": role, "content": content}]), json!({}));
    let text = json!([{"type": "text", "text": BLOCKED}]);
    let own = json!([{"type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": BLOCKED}]}, user("And now?")]);
    vec![
        ("system", said("system", json!(BLOCKED))),
        ("developer", said("developer", json!(BLOCKED))),
        ("a part", said("user", text)),
        ("an earlier answer", said("assistant", json!(BLOCKED))),
        ("arguments", called(BLOCKED, "sunny")),
        ("a result", called("Bern", BLOCKED)),
        (
            "instructions",
            response(json!("x"), json!({"instructions": BLOCKED})),
        ),
        ("input", response(json!(BLOCKED), json!({}))),
        ("an earlier output", response(own, json!({}))),
        ("arguments of an item", item(BLOCKED, "sunny")),
        ("output of an item", item("Bern", BLOCKED)),
        (
            "instructions of a task",
            task(json!({"instructions": BLOCKED})),
        ),
    ]
}

/// Functions and forms of answers.
fn in_schemas() -> Vec<(&'static str, BorderRequest)> {
    let offered = |parameters: Value| {
        let tool = function("weather", "Tells the weather", parameters);
        chat(json!([]), json!({"tools": [tool]}))
    };
    let keywords = [
        "description",
        "title",
        "default",
        "pattern",
        "$comment",
        "x-note",
    ];
    let mut all: Vec<_> = keywords
        .map(|keyword| (keyword, offered(parameters(keyword, json!(BLOCKED)))))
        .into();
    all.extend(
        ["enum", "examples"]
            .map(|keyword| (keyword, offered(parameters(keyword, json!([BLOCKED]))))),
    );
    let open = json!({"type": "object", "properties": {"of": {"type": "string"}}});
    let described =
        json!({"type": "object", "description": BLOCKED, "properties": {"of": {"type": "string"}}});
    let keyed = json!({"type": "object", "properties": named(json!({"type": "string"}))});
    let defined = json!({"type": "object", "properties": {"city": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"type": "string", "description": BLOCKED}}});
    let form = |schema: &Value| {
        let form = json!({"name": "a", "schema": schema});
        json!({"response_format": {"type": "json_schema", "json_schema": form}})
    };
    let output =
        json!({"text": {"format": {"type": "json_schema", "name": "a", "schema": described}}});
    let tool =
        json!({"type": "function", "name": "weather", "description": BLOCKED, "parameters": open});
    let described_tool = function("weather", BLOCKED, open);
    all.extend([
        ("a definition", offered(defined)),
        ("a parameter's name", offered(keyed.clone())),
        (
            "a function",
            chat(json!([]), json!({"tools": [described_tool]})),
        ),
        ("a form", chat(json!([]), form(&described))),
        ("a form's member", chat(json!([]), form(&keyed))),
        ("a format", response(json!("x"), output)),
        (
            "a function of a response",
            response(json!("x"), json!({"tools": [tool]})),
        ),
        ("a task's form", task(json!({"output_schema": described}))),
        ("a member of it", task(json!({"output_schema": keyed}))),
    ]);
    all
}

/// Messages of a context, and documents.
fn in_contexts() -> Vec<(&'static str, BorderRequest)> {
    let data = |data: Value| told(json!({"type": "data", "data": data}));
    let failed = |text: &str, message: &str| {
        told(json!({"type": "error", "data": {
            "call": {"_tool": "text.count", "text": text}, "error": {"message": message},
        }}))
    };
    let lookup = |schema: Value| told(json!({"type": "tool", "tool": {"lookup": schema}}));
    vec![
        ("data", data(json!({"of": BLOCKED}))),
        (
            "a name in data",
            data(json!({"a": [{"b": named(json!(1))}]})),
        ),
        (
            "a title",
            told(json!({"type": "data", "data": {"of": 1}, "title": BLOCKED})),
        ),
        (
            "an instance",
            told(json!({"type": "data", "data": {"of": 1}, "_instance": BLOCKED})),
        ),
        (
            "input of a context",
            told(json!({"type": "input", "input": {"of": BLOCKED}})),
        ),
        (
            "state",
            told(json!({"type": "state", "state": named(json!(1))})),
        ),
        (
            "a tool",
            lookup(json!({"type": "object", "description": BLOCKED})),
        ),
        (
            "an advisor",
            told(json!({"type": "advisor", "id": "one", "role": BLOCKED, "on": "request"})),
        ),
        ("a failed call", failed(BLOCKED, "m")),
        ("an error", failed("t", BLOCKED)),
        (
            "a result of a context",
            told(json!({
                "type": "tool_result", "tool": "weather", "arguments": {"city": "Bern"}, "result": named(json!(1)),
            })),
        ),
        (
            "a domain",
            told(json!({"type": "meta", "meta": {"version": "1.2.3", "domain": BLOCKED}})),
        ),
        (
            "a document's name",
            task(json!({"documents": [{"name": BLOCKED, "content": "x"}]})),
        ),
        (
            "a document",
            task(json!({"documents": [{"name": "n.md", "content": format!("See {BLOCKED}.")}]})),
        ),
    ]
}

fn blocked_texts_in_every_field(lab: &Lab) -> Result<String, AttackFailure> {
    let (folder, model) = (CommandFolder::new(lab)?, ScriptedModel::start("done")?);
    let shield = "[shields.hosts]\nkind = \"domains\"\nallow = [\"example.com\"]\n\
        places = [\"input\", \"tool_output\"]\n";
    let bench = BorderBench::start(folder, model, shield)?;
    let ada = bench.key("ada")?;
    let client = RunClient {
        served: &bench.served,
        key: Some(&ada),
    };
    // A field that no model is told proves nothing, so each group is told in one request what is allowed.
    for (path, body) in [
        chat(json!([user("An allowed text.")]), json!({})),
        response(json!("An allowed text."), json!({})),
        task(json!({"instructions": "An allowed text."})),
    ] {
        bench.model.say([]);
        client.ask("POST", path, &body)?;
        let asked = bench.model.prompts().concat();
        ensure(asked.contains("An allowed text."), || {
            format!("{path}: the model is not told what is allowed: nothing is proved")
        })?;
    }
    let fields = [in_messages(), in_schemas(), in_contexts()].concat();
    let (mut blocked, mut told) = (0, Vec::new());
    for (field, (path, body)) in &fields {
        bench.model.say([]);
        let answered = client.ask("POST", path, body)?;
        if bench.model.prompts().iter().any(|it| it.contains(CANARY)) {
            told.push(format!("{field} of {path}"));
        }
        blocked += usize::from(answered.body.contains(REASON));
    }
    ensure(told.is_empty(), || {
        format!("the model was told what is blocked, by {}", told.join(", "))
    })?;
    // Results are replaced, and some fields refused: most are blocked with the whole input.
    ensure(blocked * 5 > fields.len() * 4, || {
        format!(
            "{blocked} of {} were blocked: nothing is proved",
            fields.len()
        )
    })?;
    Ok(format!(
        "{} fields of three APIs, {blocked} blocked, none told to the model",
        fields.len()
    ))
}

/// A run by each API, in which the module and the client's function are called with the secret.
fn keeping(text: &str) -> [BorderRequest; 3] {
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    let vault = function(VAULT, "Keeps a text", schema.clone());
    let own = json!({"type": "function", "name": VAULT, "description": "Keeps a text", "parameters": schema});
    let messages = json!([user(text)]);
    let chat = json!({"model": "default", "messages": messages, "tools": [vault]});
    let response = json!({"model": "default", "input": text, "tools": [own]});
    let task = json!({"messages": messages, "tools": [vault, "probe.remember", "probe.recall"]});
    [(CHAT, chat), (RESPONSES, response), (AGENT, task)]
}

/// An answer that has the placeholder, and not the secret.
fn ensure_hidden(what: &str, answered: &Answered) -> Result<(), AttackFailure> {
    ensure(answered.status == 200, || {
        format!("{what} was answered {answered:?}")
    })?;
    let at = answered.body.find(SECRET);
    ensure(at.is_none(), || {
        let at = at.unwrap_or(0);
        let begin = answered.body.floor_char_boundary(at.saturating_sub(60));
        format!("{what} has the secret: …{}", &answered.body[begin..at])
    })
}

fn hidden_secrets_that_leave(lab: &Lab) -> Result<String, AttackFailure> {
    let (folder, model) = (
        CommandFolder::new(lab)?,
        ScriptedModel::start("It is <api_key_1>.")?,
    );
    folder.write("modules/probe.wasm", components::PROBE)?;
    let shield = format!(
        "[shields.private]\nkind = \"pii\"\nhide = [\"api_key\"]\nreveal_secrets = [\"probe\", \"{VAULT}\"]\n\
         [module.probe]\nkey_value = {{}}\n"
    );
    let bench = BorderBench::start(folder, model, &shield)?;
    let ada = bench.key("ada")?;
    let client = RunClient {
        served: &bench.served,
        key: Some(&ada),
    };
    let remember = json!({"key": HIDDEN, "value": HIDDEN});
    let (recall, keep) = (json!({"key": HIDDEN}), json!({"text": HIDDEN}));
    let [remembers, recalls] = ["probe-remember", "probe-recall"].map(str::to_owned);
    let replies = [
        native_as(&[(remembers, &remember), (recalls.clone(), &recall)]),
        native_as(&[(recalls, &recall), (VAULT.to_owned(), &keep)]),
    ];
    let mut broke = Vec::new();
    let mut check = |what: &str, answered: &Answered| {
        if let Err(fault) = ensure_hidden(what, answered) {
            broke.push(fault.to_string());
        }
    };
    let mut looked = 0;
    for streamed in [false, true] {
        for (path, mut body) in keeping(&format!("My key is {SECRET}, keep it.")) {
            body["stream"] = streamed.into();
            bench.model.say(replies.clone());
            let answered = client.ask("POST", path, &body)?;
            // The client's call is there, by the name that may see secrets.
            ensure(
                answered.body.contains(VAULT) && answered.body.contains("api_key_1"),
                || format!("{path}: the client has no call: nothing is proved: {answered:?}"),
            )?;
            check(&format!("POST {path}, streamed: {streamed}"), &answered);
            ensure(!bench.model.prompts().concat().contains(SECRET), || {
                format!("{path}: the model was told the secret")
            })?;
            looked += 1;
        }
    }
    let runs = client.runs()?;
    let root = bench
        .folder
        .key_with(&CONFIG, "root", &["--scopes", "run,admin"], BOUNDS)?;
    let admin = RunClient {
        served: &bench.served,
        key: Some(&root),
    };
    for run in &runs {
        // The operator sees that the module was given the secret itself: its result has it as a key of a value.
        let events = admin.ask("GET", &format!("/v1/runs/{run}/events"), &Value::Null)?;
        ensure(events.body.contains(&format!("[\"{SECRET}\"]")), || {
            format!(
                "the module never had the secret: nothing is proved: {:.300}",
                events.body
            )
        })?;
    }
    ensure(runs.len() == looked, || {
        format!(
            "{} runs are there, of {looked}: nothing is proved",
            runs.len()
        )
    })?;
    check(
        "GET /v1/runs",
        &client.ask("GET", "/v1/runs", &Value::Null)?,
    );
    for run in &runs {
        for path in [
            format!("/v1/runs/{run}"),
            format!("/v1/runs/{run}/events"),
            format!("/v1/responses/resp_{}", run.replace('-', "")),
            format!("/v1/responses/resp_{}/input_items", run.replace('-', "")),
        ] {
            check(
                &format!("GET {path}"),
                &client.ask("GET", &path, &Value::Null)?,
            );
            looked += 1;
        }
    }
    ensure(broke.is_empty(), || {
        format!("{} of {looked}: {}", broke.len(), broke.join("; "))
    })?;
    Ok(format!("{looked} answers without the secret"))
}
