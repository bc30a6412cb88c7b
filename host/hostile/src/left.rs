//! Row 68: clients that want the answer of a run that another client began and left.

use crate::attack::{Attack, Company};
use crate::command::{Bounds, CommandFolder};
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::runs::until;
use crate::scripted::{RawAnswer, ScriptedModel};
use crate::serving::{Answered, Served};
use serde_json::{Value, json};
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const ATTACKS: &[Attack] = &[Attack {
    row: 68,
    name: "answers_of_clients_that_left",
    attack: "another key, another user, body or path, odd counts and another key's Idempotency-Key ask for the answer of a run whose client left",
    must: "each gets a run of its own or a refusal; the answer goes to the client that comes back, once",
    company: Company::Others,
    tries: |lab| Box::pin(ready(answers_of_clients_that_left(lab))),
}];

const BOUNDS: Bounds = Bounds {
    time: Duration::from_mins(1),
    memory: 2 << 30,
};
const CHAT: &str = "/v1/chat/completions";
const COUNT: &str = "x-stainless-retry-count";
const IDEMPOTENCY: &str = "idempotency-key";
/// The answer that the victim waits for, and the model's answer to all others.
const SECRET: &str = "heron-at-the-blue-gate";
const OTHER: &str = "nothing of interest";

/// A request of a stranger.
struct StrangersRequest {
    how: &'static str,
    path: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Value,
}

fn chat(text: &str) -> Value {
    json!({"model": "default", "messages": [{"role": "user", "content": text}]})
}

fn send(
    served: &Served,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<Answered, AttackFailure> {
    served.ask("POST", path, headers, &body.to_string())
}

/// Requests that are not the victim's own, sent again. `keys`: the victim's and the stranger's.
fn strangers(keys: [&str; 2], body: &Value) -> Vec<StrangersRequest> {
    let [ada, eve] = keys;
    let request = |how, path, key: &str, count: &str, body: Value| StrangersRequest {
        how,
        path,
        headers: vec![("authorization", key.to_owned()), (COUNT, count.to_owned())],
        body,
    };
    let with = |member: &str, value: Value| {
        let mut body = body.clone();
        body[member] = value;
        body
    };
    let text = "Where do they meet?";
    let mut all = vec![
        request("another key", CHAT, eve, "1", body.clone()),
        request("the highest count", CHAT, eve, "4294967295", body.clone()),
        request("another user", CHAT, ada, "1", with("user", json!("eve"))),
        request(
            "other metadata",
            CHAT,
            ada,
            "1",
            with("metadata", json!({"of": "eve"})),
        ),
        request("another text", CHAT, ada, "1", chat("Where do they meet? ")),
        request("no count", CHAT, ada, "0", body.clone()),
        request("a negative count", CHAT, ada, "-1", body.clone()),
        request("two counts", CHAT, ada, "1, 2", body.clone()),
        request(
            "another API",
            "/v1/responses",
            ada,
            "1",
            json!({"model": "default", "input": text}),
        ),
        request(
            "the own API",
            "/v1/agent",
            ada,
            "1",
            json!({"messages": body["messages"]}),
        ),
    ];
    // The key of the victim in a place where it says nothing.
    let mut claimed = request("the victim's key as a header", CHAT, eve, "1", body.clone());
    claimed.headers.push(("x-api-key", ada.to_owned()));
    claimed
        .headers
        .push(("x-forwarded-for", "127.0.0.1".to_owned()));
    all.push(claimed);
    all
}

fn answers_of_clients_that_left(lab: &Lab) -> Result<String, AttackFailure> {
    let model = ScriptedModel::start(OTHER)?;
    let folder = CommandFolder::new(lab)?;
    folder.write(
        "host.toml",
        format!(
            "[endpoints.default]\nbase_url = \"http://127.0.0.1:{}/v1\"\nmodel = \"m\"\ncontract = \"tools\"\n\
             [modules]\npinning = \"never\"\n[fallback]\nenabled = false\n\
             [serve]\nkeys = \"always\"\nkey_requests_per_minute = 0\n",
            model.port
        ),
    )?;
    let config = ["--config", "host.toml"];
    let ada = folder.key(&config, "ada", BOUNDS)?;
    let eve = folder.key(&config, "eve", BOUNDS)?;
    let serve = [&config[..], &["serve", "--listen", "127.0.0.1:0"]].concat();
    let served = Served::start(&folder, &serve)?;
    until("a server that is ready", || {
        let ready = served.ask("GET", "/readyz", &[], "")?;
        Ok((ready.status == 200).then_some(()))
    })?;

    let body = chat("Where do they meet?");
    let open = Arc::new(AtomicBool::new(false));
    model.say([]);
    model.answer_raw(held(&open));
    let first = served.send(
        "POST",
        CHAT,
        &[("authorization", ada.as_str()), (COUNT, "0")],
        &body.to_string(),
    )?;
    until("a request to the model", || {
        Ok((!model.prompts().is_empty()).then_some(()))
    })?;
    drop(first);
    let mut tried = 0;
    for request in strangers([ada.as_str(), eve.as_str()], &body) {
        let headers: Vec<(&str, &str)> = request
            .headers
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let answered = send(&served, request.path, &headers, &request.body)?;
        let how = request.how;
        ensure(!answered.body.contains(SECRET), || {
            format!("{how}: the answer of another client was given out: {answered:?}")
        })?;
        ensure(
            answered.body.contains(OTHER) || (400..500).contains(&answered.status),
            || format!("{how}: neither a run of its own nor a refusal: {answered:?}"),
        )?;
        tried += 1;
    }
    tried += runs_of_the_victim(&served, &ada, &eve)?;

    open.store(true, Ordering::Release);
    let again = |count: &str| {
        send(
            &served,
            CHAT,
            &[("authorization", ada.as_str()), (COUNT, count)],
            &body,
        )
    };
    let answered = again("1")?;
    ensure(
        answered.status == 200 && answered.body.contains(SECRET),
        || format!("the client that came back did not get its answer: {answered:?}"),
    )?;
    let answered = again("2")?;
    ensure(!answered.body.contains(SECRET), || {
        format!("an answer was delivered twice: {answered:?}")
    })?;
    tried += keys_of_requests(&served, &model, &ada, &eve)?;
    Ok(format!("{tried} requests, none got the answer of another"))
}

/// An answer of the model that comes once `open` is true.
fn held(open: &Arc<AtomicBool>) -> RawAnswer {
    let chunk = |delta: Value, end: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": end});
        let chunk = json!({
            "id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice],
        });
        format!("data: {chunk}\n\n")
    };
    let said = chunk(json!({"role": "assistant", "content": SECRET}), Value::Null);
    let end = chunk(json!({}), json!("stop"));
    RawAnswer {
        begin: b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
            .to_vec(),
        again: b": ping\n\n".to_vec(),
        pause: Duration::from_millis(20),
        open: open.clone(),
        end: format!("{said}{end}data: [DONE]\n\n").into_bytes(),
    }
}

/// The stranger asks for the victim's runs by their ids. Returns how often.
fn runs_of_the_victim(served: &Served, ada: &str, eve: &str) -> Result<usize, AttackFailure> {
    let listed = served.ask("GET", "/v1/runs", &[("authorization", ada)], "")?;
    let listed: Value = serde_json::from_str(&listed.body).unwrap_or_default();
    let runs = listed["runs"].as_array().into_iter().flatten();
    let ids: Vec<&str> = runs.filter_map(|run| run["id"].as_str()).collect();
    ensure(!ids.is_empty(), || {
        "the victim has no runs: nothing is proved".into()
    })?;
    let mut tried = 0;
    for id in ids {
        let response = id.replace('-', "");
        for (method, path) in [
            ("GET", format!("/v1/runs/{id}")),
            ("GET", format!("/v1/runs/{id}/events")),
            ("GET", format!("/v1/responses/resp_{response}")),
            ("POST", format!("/v1/runs/{id}/cancel")),
        ] {
            let answered = served.ask(method, &path, &[("authorization", eve)], "")?;
            ensure(answered.status >= 400, || {
                format!("another key's {method} {path} was answered {answered:?}")
            })?;
            tried += 1;
        }
    }
    Ok(tried)
}

/// The stranger sends the victim's request under the victim's `Idempotency-Key`. Returns how often.
fn keys_of_requests(
    served: &Served,
    model: &ScriptedModel,
    ada: &str,
    eve: &str,
) -> Result<usize, AttackFailure> {
    let body = chat("Say where they meet, once.");
    let keyed = |key: &str, body: &Value| {
        let headers = [
            ("authorization", key),
            (IDEMPOTENCY, "of-ada"),
            (COUNT, "1"),
        ];
        send(served, CHAT, &headers, body)
    };
    model.say([SECRET.to_owned()]);
    for attempt in ["first", "repeated"] {
        let answered = keyed(ada, &body)?;
        ensure(
            answered.status == 200 && answered.body.contains(SECRET),
            || format!("the {attempt} request with a key was answered {answered:?}"),
        )?;
    }
    let asked = model.prompts().len();
    ensure(asked == 1, || {
        format!("two equal requests under one key asked the model {asked} times")
    })?;
    let answered = keyed(eve, &body)?;
    ensure(
        answered.status == 200 && !answered.body.contains(SECRET),
        || format!("another key's Idempotency-Key was answered {answered:?}"),
    )?;
    let mut other = body;
    other["user"] = json!("eve");
    let answered = keyed(ada, &other)?;
    ensure(
        answered.status == 409 && !answered.body.contains(SECRET),
        || format!("another request under one key was answered {answered:?}"),
    )?;
    Ok(2)
}
