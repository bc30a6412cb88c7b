//! Row 69: model endpoints and MCP servers whose answers are made to take memory or time.

use crate::attack::{Attack, Company};
use crate::command::CommandFolder;
use crate::far::{self, FarAnswer, tools_answer};
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Lab, ms};
use crate::scripted::{RawAnswer, ScriptedModel, native};
use crate::serving::Served;
use crate::web::BOMB;
use serde_json::{Value, json};
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 69,
    name: "bodies_of_endpoints_and_servers",
    attack: "gzip of a gibibyte, very many empty members, keep-alives and events without end, deep JSON, small values, digits, pieces of calls",
    must: "each ends in time, whatever sent it; memory bounded; the next answer is read",
    company: Company::Others,
    tries: |lab| Box::pin(ready(bodies_of_endpoints_and_servers(lab))),
}];

/// Time that an endpoint has for its first token, and a server for its answer.
const LIMIT: Duration = Duration::from_millis(600);
/// Maximum processor time of the server for a run, beyond it. Bodies have up to 8 MiB.
const BEYOND: Duration = Duration::from_secs(3);
/// Maximum growth of the process over all bodies: 128 MiB of a value, what was read of its text, and its copies.
const MOST_MEMORY: u64 = 512 << 20;
/// A member of gzip without bytes.
const EMPTY_MEMBER: [u8; 20] = [
    0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];
const DONE: &str = "done";

/// A body and its name.
struct HostileBody {
    name: &'static str,
    content_type: &'static str,
    begin: Vec<u8>,
    /// Sent without end.
    again: Vec<u8>,
    pause: Duration,
}

impl HostileBody {
    fn new(name: &'static str, content_type: &'static str, begin: Vec<u8>) -> Self {
        Self {
            name,
            content_type,
            begin,
            again: Vec::new(),
            pause: Duration::ZERO,
        }
    }

    fn events(name: &'static str, begin: &str, again: &str) -> Self {
        Self {
            again: again.as_bytes().to_vec(),
            ..Self::new(name, "text/event-stream", begin.as_bytes().to_vec())
        }
    }

    fn json(name: &'static str, text: String) -> Self {
        Self::new(name, "application/json", text.into_bytes())
    }

    fn answer(&self) -> RawAnswer {
        let content_type = self.content_type;
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n");
        RawAnswer {
            begin: [head.as_bytes(), &self.begin].concat(),
            again: self.again.clone(),
            pause: self.pause,
            ..RawAnswer::default()
        }
    }
}

/// Bodies that both read.
fn bodies() -> Vec<HostileBody> {
    let (deep, pairs, digits) = (
        "[".repeat(2 << 20),
        "[1],".repeat(1 << 20),
        "9".repeat(2 << 20),
    );
    let slow = HostileBody {
        pause: Duration::from_millis(5),
        ..HostileBody::events("slow keep-alives", "", ": ping\n\n")
    };
    vec![
        HostileBody::new("gzip of a gibibyte", "application/json", BOMB.repeat(64)),
        HostileBody::new(
            "members without bytes",
            "text/event-stream",
            EMPTY_MEMBER.repeat(100_000),
        ),
        slow,
        HostileBody::events("keep-alives", "", &": ping\n\n".repeat(1_000)),
        HostileBody::events("empty events", "", &"data:\n\n".repeat(1_000)),
        HostileBody::events(
            "half an event",
            "data: {\"jsonrpc\":\"2.0\",\"choices\":[{\"delta\":{\"content\":\"",
            &"a".repeat(8 << 10),
        ),
        HostileBody::events("blanks", "", &" ".repeat(8 << 10)),
        HostileBody::json("deep lists", format!("{{\"choices\":{deep}")),
        HostileBody::json("small values", format!("{{\"choices\":[{pairs}[1]]}}")),
        HostileBody::json(
            "digits",
            format!("{{\"jsonrpc\":\"2.0\",\"id\":{digits},\"choices\":[{{\"index\":{digits}}}]}}"),
        ),
        HostileBody::json(
            "an exponent",
            format!(
                "{{\"jsonrpc\":\"2.0\",\"id\":1e{digits},\"usage\":{{\"prompt_tokens\":1e999999999}}}}"
            ),
        ),
    ]
}

/// An answer of a model with very many pieces of calls, each of another one.
fn pieces_of_calls() -> HostileBody {
    let pieces = (0..20_000).map(|index| {
        let call =
            json!({"index": index, "id": format!("c{index}"), "function": {"arguments": "{"}});
        let choice = json!({"index": 0, "delta": {"tool_calls": [call]}});
        format!("data: {}\n\n", json!({"choices": [choice]}))
    });
    let pieces: String = pieces.collect();
    HostileBody::events("pieces of calls", &pieces, "")
}

fn bodies_of_endpoints_and_servers(lab: &Lab) -> Result<String, AttackFailure> {
    let model = ScriptedModel::start(DONE)?;
    let all = bodies();
    let names: Vec<String> = (0..all.len()).map(|number| format!("t{number}")).collect();
    let listed: Vec<Value> = names
        .iter()
        .map(|name| json!({"name": name, "inputSchema": {"type": "object"}}))
        .collect();
    let answers: Vec<RawAnswer> = all.iter().map(HostileBody::answer).collect();
    let called = Arc::new(AtomicUsize::new(0));
    let calls = called.clone();
    let far = far::start(move |message| {
        tools_answer(&listed, message, |name| {
            calls.fetch_add(1, Ordering::AcqRel);
            let number: usize = name.strip_prefix('t')?.parse().ok()?;
            answers.get(number).cloned().map(FarAnswer::Raw)
        })
    })?;
    let folder = CommandFolder::new(lab)?;
    let limit = LIMIT.as_millis();
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"tools\"\n\
             attempts = 1\nbreaker_failures = 0\nfirst_token_timeout_ms = {limit}\nidle_timeout_ms = {limit}\n\
             [modules]\npinning = \"never\"\n[fallback]\nenabled = false\n[decisions]\ndefault = \"never\"\n\
             [serve]\nkeys = \"never\"\nkey_requests_per_minute = 0\n[run]\nmax_steps = 40\n\
             [mcp.far]\nurl = \"http://127.0.0.1:{far}/mcp\"\noffer = true\ntools = {}\ntimeout_ms = {limit}\n",
            model.port,
            json!(names)
        ),
    )?;
    let serve = ["--config", "host.toml", "serve", "--listen", "127.0.0.1:0"];
    let served = Served::start(&folder, &serve)?;
    let task = json!({"messages": [{"role": "user", "content": "Say it."}]}).to_string();
    served.run_task(&task)?;
    let before = served.peak();
    let mut slowest = Duration::ZERO;
    for body in all.iter().chain([&pieces_of_calls()]) {
        let name = body.name;
        model.answer_raw(body.answer());
        let took = asked(&served, &task, name)?;
        ensure(model.raw_left() == 0, || {
            format!("{name}: the model was not asked: nothing is proved")
        })?;
        slowest = slowest.max(took);
        ensure_good(&served, &task, name)?;
    }
    for (body, tool) in all.iter().zip(&names) {
        let name = body.name;
        let tool = format!("far.{tool}");
        model.say([native(&[(tool.as_str(), json!({}))])]);
        let took = asked(&served, &task, name)?;
        // The outcome of the call went back to the model.
        let prompts = model.prompts().len();
        let called = called.swap(0, Ordering::AcqRel);
        ensure(prompts >= 2 && called >= 1, || {
            format!(
                "{name}: the server was called {called} times, and the model asked {prompts} times: nothing is proved"
            )
        })?;
        slowest = slowest.max(took);
    }
    let grown = match (before, served.peak()) {
        (Some(before), Some(after)) => after.saturating_sub(before),
        _ => 0,
    };
    ensure(grown < MOST_MEMORY, || {
        format!("{} MiB of memory were needed", grown >> 20)
    })?;
    Ok(format!(
        "{} answers; the slowest run took {}; {} MiB",
        all.len() * 2 + 1,
        ms(slowest),
        grown >> 20
    ))
}

/// Duration of a run, also of one that failed.
fn asked(served: &Served, task: &str, name: &str) -> Result<Duration, AttackFailure> {
    let work = served.work();
    let answered = served.ask("POST", "/v1/agent", &[], task)?;
    let took = work.elapsed();
    ensure(!work.is_over(LIMIT + BEYOND), || {
        format!("{name}: a run took {}: {answered:?}", ms(took))
    })?;
    Ok(took)
}

/// The next run is as good as any.
fn ensure_good(served: &Served, task: &str, name: &str) -> Result<(), AttackFailure> {
    let answered = served.ask("POST", "/v1/agent", &[], task)?;
    ensure(
        answered.status == 200 && answered.body.contains(DONE),
        || format!("{name}: the run after it was answered {answered:?}"),
    )
}
