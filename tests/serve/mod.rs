//! `toolhold serve`: what clients of its API see.

mod agent_api;
mod backup;
mod borders;
mod chains;
mod client_calls;
mod clients;
mod cut_answers;
mod database;
mod documents;
mod errors;
mod faults;
mod frameworks;
mod grants;
mod health;
mod image_memory;
mod keys;
mod knowledge;
mod log;
mod media;
mod no_place;
mod open_responses;
mod output_schemas;
mod parameters;
mod responses;
mod rests;
mod resumed_notes;
mod retention;
mod retries;
mod shielded_session;
mod streamed_answers;
mod takeover;
mod tool_choice;
mod unread;
mod unread_crowd;
mod upload;

use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;
use std::time::Instant;
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::Host;
use support::records::Records;
use support::server::{Server, ServerSentEvent, recorded_numbers};
use support::transcript::{answers, calls};
use support::until;

fn host(config: &str) -> Host {
    let host = Host::new();
    host.ship("calculator")
        .ship("text")
        .write("toolhold.toml", config);
    host
}

fn two_plus_two() -> [Reply; 2] {
    [
        calls([("calculator.evaluate", json!({"expression": "2+2"}))]),
        answers("It is 4."),
    ]
}

fn scripted(replies: impl IntoIterator<Item = Reply>) -> Endpoint {
    Endpoint::start(Scenario::new(replies))
}

/// A server whose agent asks this endpoint.
fn serve(host: &Host, endpoint: &Endpoint) -> Server {
    let url = endpoint.base_url();
    Server::start(host, &["--base-url", &url, "--model", "m"])
}

fn ask(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

/// Begins a run whose first events are read, and returns its id.
fn streamed(server: &Server, text: &str, events: usize) -> String {
    let mut task = ask(text);
    task["stream"] = true.into();
    let begun = server.first_events(Method::POST, "/v1/agent", Some(&task), events);
    begun[0].json()["run"].as_str().unwrap().to_owned()
}

#[test]
fn an_answer_comes_with_the_way_to_it() {
    let (host, endpoint) = (host(""), scripted(two_plus_two()));
    let server = serve(&host, &endpoint);
    let answer = server.post("/v1/agent", &ask("What is 2+2?")).good();
    assert_eq!(answer["output"], "It is 4.");
    assert_eq!(answer["reason"], "output");
    let call = &answer["steps"][0]["calls"][0];
    assert_eq!(call["tool"], "calculator.evaluate");
    assert_eq!(call["arguments"], json!({"expression": "2+2"}));
    assert_eq!(call["result"], json!({"value": "4"}));
    assert_eq!(answer["steps"].as_array().unwrap().len(), 2);
    let used = &answer["usage"];
    assert!(used["total_tokens"].as_u64() > Some(0), "{answer}");

    let run = answer["id"].as_str().unwrap();
    let shown = server.get(&format!("/v1/runs/{run}")).good();
    assert_eq!(shown["answer"], answer);
    assert_eq!(
        (&shown["state"], &shown["agent"]),
        (&json!("done"), &json!("default"))
    );
    let listed = server.get("/v1/runs").good();
    assert_eq!(listed["runs"][0]["id"], run);
    // The same record as a run of the command line has.
    assert!(host.run(&["show", run]).stdout.contains("It is 4."));
    assert_eq!(host.run(&["runs", "replay", run]).code, Some(0));
}

#[test]
fn events_come_as_they_happen_and_a_lost_connection_loses_none() {
    let (host, endpoint) = (host(""), scripted(two_plus_two()));
    let server = serve(&host, &endpoint);
    let mut task = ask("What is 2+2?");
    task["stream"] = true.into();
    let first = server.first_events(Method::POST, "/v1/agent", Some(&task), 3);
    let run = first[0].json()["run"].as_str().unwrap().to_owned();
    // The client went away; the run did not.
    let path = format!("/v1/runs/{run}/events");
    let last = ("last-event-id", first[2].id.as_str());
    let rest = server.ask(Method::GET, &path, None, &[last]).events();
    let all: Vec<ServerSentEvent> = first.into_iter().chain(rest).collect();
    let numbers = recorded_numbers(&all);
    assert_eq!(
        numbers,
        (0..numbers.len() as u64).collect::<Vec<_>>(),
        "each once, in order"
    );
    let record = Records::of(&host).lines(&run);
    let recorded = all.iter().filter(|sent| sent.is_recorded());
    assert!(recorded.map(|sent| &sent.data).eq(&record));
    let kinds: Vec<&str> = all.iter().map(|sent| sent.event.as_str()).collect();
    for kind in [
        "run",
        "request",
        "plan",
        "tool_start",
        "tool_result",
        "tokens",
    ] {
        assert!(kinds.contains(&kind), "{kind}: {kinds:?}");
    }
    assert_eq!(kinds.last(), Some(&"done"));
    let again = server
        .get(&format!("{path}?after={}", numbers.len() - 2))
        .events();
    assert_eq!(again, all[all.len() - 1..]);
    // After this status an EventSource does not reconnect.
    let started = Instant::now();
    let nothing = server.get(&format!("{path}?after={}", numbers.len() - 1));
    assert_eq!((nothing.status, nothing.text.as_str()), (204, ""));
    assert!(started.elapsed() < Duration::from_secs(2), "at once");
}

/// The content of the pieces of the run's own replies.
fn written(events: &[ServerSentEvent]) -> String {
    let pieces = events.iter().filter(|sent| sent.event == "delta");
    let texts = pieces.map(|sent| {
        sent.json()["content"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    });
    texts.collect()
}

/// A client that comes again in the middle of a reply goes on at the character where it was: while the model writes, and
/// when the reply is recorded.
#[test]
fn a_client_goes_on_in_the_middle_of_a_reply() {
    let text = "é🦀".repeat(40);
    let host = host("");
    let endpoint = scripted([answers(text.as_str()).delayed_ms(0, 40)]);
    let server = serve(&host, &endpoint);
    let mut task = ask("t");
    task["stream"] = true.into();
    let first = server.first_events(Method::POST, "/v1/agent", Some(&task), 12);
    let run = first[0].json()["run"].as_str().unwrap().to_owned();
    let path = format!("/v1/runs/{run}/events");
    let last = first.last().unwrap();
    assert!(!last.is_recorded(), "the reply has begun: {first:?}");
    let (begin, id) = (written(&first), last.id.as_str());
    let (seq, offset) = id.split_once('.').unwrap();
    assert_eq!(offset, format!("{}.0", begin.len()));
    let live = server.ask(Method::GET, &path, None, &[("last-event-id", id)]);
    let later = server.get(&format!("{path}?after={id}"));
    let reply = Records::of(&host).lines(&run);
    let reply = reply
        .iter()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|event| event["event"] == "reply")
        .unwrap();
    let reply = reply["completion"]["content"].as_str().unwrap();
    for rest in [live.events(), later.events()] {
        assert_eq!(begin.clone() + &written(&rest), reply);
        assert_eq!(rest.last().unwrap().json()["output"], text.as_str());
    }
    // A place inside of a character is the one behind it.
    let at = reply.find('🦀').unwrap();
    let inside = server.get(&format!("{path}?after={seq}.{}.0", at + 1));
    assert_eq!(written(&inside.events()), reply[at + '🦀'.len_utf8()..]);
    for wrong in ["x", "1.2", "1.2.x", "-1"] {
        let refused = server.get(&format!("{path}?after={wrong}"));
        assert_eq!(refused.status, 400, "{wrong}: {}", refused.text);
    }
}

#[test]
fn an_agent_is_a_model_of_the_chat_api() {
    let (host, endpoint) = (
        host(""),
        scripted([two_plus_two(), two_plus_two()].concat()),
    );
    let server = serve(&host, &endpoint);
    let mut request = ask("What is 2+2?");
    request["model"] = "default".into();
    // What a client has nothing to say of, it may say so of.
    for name in [
        "stream",
        "stream_options",
        "tools",
        "seed",
        "n",
        "response_format",
    ] {
        request[name] = Value::Null;
    }
    let before = json!({"role": "assistant", "content": null, "tool_calls": null});
    request["messages"]
        .as_array_mut()
        .unwrap()
        .insert(0, before);
    let answer = server.post("/v1/chat/completions", &request).good();
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["content"], "It is 4.");
    assert_eq!(choice["finish_reason"], "stop");
    assert_eq!(answer["object"], "chat.completion");

    request["stream"] = true.into();
    request["stream_options"] = json!({"include_usage": true});
    let answered = server.post("/v1/chat/completions", &request);
    let sent = answered.events();
    assert_eq!(sent.last().unwrap().data, "[DONE]");
    let chunks: Vec<Value> = sent[..sent.len() - 1]
        .iter()
        .map(ServerSentEvent::json)
        .collect();
    let pieces: Vec<&str> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(pieces.concat(), "It is 4.");
    assert!(pieces.len() > 2, "in pieces: {pieces:?}");
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let usage = &chunks.last().unwrap()["usage"];
    assert!(usage["prompt_tokens"].as_u64() > Some(0), "{usage}");
    let finish = &chunks[chunks.len() - 2]["choices"][0]["finish_reason"];
    assert_eq!(finish, "stop");
}

/// What a client's own tool is asked, the client is; our tools are called meanwhile.
#[test]
fn tools_of_the_client_are_the_clients_to_call() {
    let host = host("");
    let endpoint = scripted([
        calls([
            ("calculator.evaluate", json!({"expression": "2+2"})),
            ("weather", json!({"city": "Bern"})),
        ]),
        answers("4, and sunny"),
    ]);
    let server = serve(&host, &endpoint);
    let tool = json!({"type": "function", "function": {
        "name": "weather", "description": "Today's weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }});
    let mut request = ask("2+2, and the weather in Bern?");
    request["model"] = "default".into();
    request["tools"] = json!([tool]);
    let answer = server.post("/v1/chat/completions", &request).good();
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "weather");
    let arguments = call["function"]["arguments"].as_str().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(arguments).unwrap(),
        json!({"city": "Bern"})
    );

    let messages = request["messages"].as_array_mut().unwrap();
    let mut said = choice["message"].clone();
    said["refusal"] = Value::Null;
    messages.push(said);
    messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": "sunny"}));
    let answer = server.post("/v1/chat/completions", &request).good();
    assert_eq!(answer["choices"][0]["message"]["content"], "4, and sunny");
    let told = endpoint.requests()[1].to_string();
    assert!(
        told.contains("sunny") && told.contains("returned {"),
        "{told}"
    );
}

#[test]
fn a_session_remembers_and_takes_one_turn_at_a_time() {
    let host = host("");
    let endpoint = scripted([answers("Hello Ann"), answers("Ann"), Reply::endless()]);
    let mut server = serve(&host, &endpoint);
    let session = server.post("/v1/sessions", &json!({"title": "names"}));
    assert_eq!(session.status, 201, "{session:?}");
    let id = session.json()["id"].as_str().unwrap().to_owned();
    let turns = format!("/v1/sessions/{id}/turns");
    assert_eq!(
        server.post(&turns, &ask("I am Ann")).good()["output"],
        "Hello Ann"
    );
    assert_eq!(
        server.post(&turns, &ask("Who am I?")).good()["output"],
        "Ann"
    );
    let told = endpoint.requests()[1].to_string();
    for part in ["I am Ann", "Hello Ann", "Who am I?"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let shown = server.get(&format!("/v1/sessions/{id}")).good();
    assert_eq!(shown["turns"].as_array().unwrap().len(), 2);
    assert_eq!(shown["turn_count"], 2);
    let last = server.get(&format!("/v1/sessions/{id}?limit=1")).good();
    assert_eq!(last["turns"], json!([shown["turns"][1]]));
    let before = last["turns"][0]["id"].as_str().unwrap();
    let path = format!("/v1/sessions/{id}?before={before}");
    assert_eq!(
        server.get(&path).good()["turns"],
        json!([shown["turns"][0]])
    );
    for wrong in ["limit=0", "limit=1001", &format!("before={id}")] {
        let refused = server.get(&format!("/v1/sessions/{id}?{wrong}"));
        assert_eq!(refused.status, 400, "{wrong}: {refused:?}");
    }

    let mut third = ask("And now?");
    third["stream"] = true.into();
    let begun = server.first_events(Method::POST, &turns, Some(&third), 2);
    let run = begun[0].json()["run"].as_str().unwrap().to_owned();
    let refused = server.post(&turns, &ask("Too early"));
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.text.contains(&run), "{refused:?}");
    let deleted = server.ask(Method::DELETE, &format!("/v1/sessions/{id}"), None, &[]);
    assert_eq!(deleted.status, 409, "{deleted:?}");
    assert_eq!(
        server
            .post(&format!("/v1/runs/{run}/cancel"), &json!({}))
            .status,
        202
    );
    let ended = server.get(&format!("/v1/runs/{run}/events")).events();
    assert_eq!(ended.last().unwrap().json()["reason"], "cancelled");
    let deleted = server.ask(Method::DELETE, &format!("/v1/sessions/{id}"), None, &[]);
    assert_eq!(deleted.status, 204, "{deleted:?}");
    assert_eq!(server.get(&format!("/v1/sessions/{id}")).status, 404);
    assert_eq!(server.get(&format!("/v1/runs/{run}")).status, 404);
    let told = host.run(&["audit", "search", "session_deleted", "--json"]);
    assert!(told.stdout.contains(&id), "{told:?}");
    assert!(told.stdout.contains(&run), "with its turns: {told:?}");
    assert_eq!(server.terminate(), Some(0));
}

/// The same request under the same key is the same run.
#[test]
fn a_repeated_request_under_a_key_runs_once() {
    let (host, endpoint) = (host(""), scripted(two_plus_two()));
    let server = serve(&host, &endpoint);
    let key = [("idempotency-key", "one")];
    let task = ask("What is 2+2?");
    let first = server
        .ask(Method::POST, "/v1/agent", Some(&task), &key)
        .good();
    let second = server
        .ask(Method::POST, "/v1/agent", Some(&task), &key)
        .good();
    assert_eq!(first, second);
    assert_eq!(endpoint.requests().len(), 2);
    let other = server.ask(Method::POST, "/v1/agent", Some(&ask("else")), &key);
    assert_eq!(other.status, 409, "{other:?}");
}

/// Several at the same moment: one begins, and the others are told so.
#[test]
fn one_of_simultaneous_turns_is_accepted() {
    let host = host("");
    let endpoint = scripted([answers("first").delayed_ms(15_000, 0), answers("second")]);
    let server = serve(&host, &endpoint);
    let session = server.post("/v1/sessions", &json!({})).good();
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    let answered: Vec<_> = std::thread::scope(|scope| {
        let asked = (0..6).map(|_| scope.spawn(|| server.post(&turns, &ask("t"))));
        let asked: Vec<_> = asked.collect();
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let of = |status| answered.iter().filter(|it| it.status == status).count();
    assert_eq!((of(200), of(409)), (1, 5), "{answered:?}");
    assert!(!server.said().contains("ERROR"), "{}", server.said());
    assert_eq!(server.post(&turns, &ask("t")).good()["output"], "second");
}

#[test]
fn a_call_waits_until_somebody_decides() {
    let host = host("[decisions]\nalways = [\"calculator\"]\n");
    let endpoint = scripted(two_plus_two());
    let server = serve(&host, &endpoint);
    let mut task = ask("What is 2+2?");
    task["stream"] = true.into();
    let begun = server.first_events(Method::POST, "/v1/agent", Some(&task), 1);
    let run = begun[0].json()["run"].as_str().unwrap().to_owned();
    let call = until("the call", || {
        let calls = server.get("/v1/approvals").good();
        calls["calls"].as_array()?.first().cloned()
    });
    assert_eq!(call["arguments"], json!({"expression": "2+2"}));
    assert_eq!(call["annotations"]["read_only"], true, "{call}");
    assert_eq!(
        server.get(&format!("/v1/runs/{run}")).good()["state"],
        "waiting"
    );
    let path = format!("/v1/approvals/{run}/{}", call["call"].as_str().unwrap());
    let wrong = server.post(&path, &json!({"digest": "0", "verdict": "approve"}));
    assert_eq!(wrong.status, 409, "{wrong:?}");
    let decision =
        json!({"digest": call["digest"], "verdict": "edit", "arguments": {"expression": "3+3"}});
    assert_eq!(server.post(&path, &decision).status, 202);
    // It was decided, or does not even wait any longer.
    let late = json!({"digest": call["digest"], "verdict": "refuse"});
    let late = server.post(&path, &late);
    assert!([404, 409].contains(&late.status), "{late:?}");
    let done = server.get(&format!("/v1/runs/{run}/events")).events();
    assert_eq!(done.last().unwrap().json()["output"], "It is 4.");
    let shown = server.get(&format!("/v1/runs/{run}")).good();
    assert_eq!(
        shown["answer"]["steps"][0]["calls"][0]["result"],
        json!({"value": "6"})
    );
}

/// Every invalid request gets its error in one form.
#[test]
fn faults_are_told_in_one_form() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    let missing = "/v1/runs/019aa000-0000-7000-8000-000000000000";
    for (method, path, body, status, said) in [
        ("POST", "/v1/agent", json!({}), 400, "nothing to do"),
        (
            "POST",
            "/v1/agent",
            json!({"messages": 7}),
            400,
            "invalid type",
        ),
        (
            "POST",
            "/v1/agent",
            json!({"mesages": []}),
            400,
            "unknown field `mesages`",
        ),
        (
            "POST",
            "/v1/agent",
            json!({"agent": "no", "messages": []}),
            404,
            "no agent \"no\"",
        ),
        (
            "POST",
            "/v1/agent",
            json!({"messages": [{"role": "king"}]}),
            400,
            "none of system",
        ),
        (
            "POST",
            "/v1/agent",
            json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
            400,
            "image_url",
        ),
        (
            "POST",
            "/v1/agent",
            json!({"messages": [{"role": "user", "content": "t"}], "max_tokens": 0}),
            400,
            "at least 1",
        ),
        (
            "POST",
            "/v1/agent",
            json!({"context": [{"type": "nonsense"}]}),
            400,
            "nonsense",
        ),
        (
            "POST",
            "/v1/chat/completions",
            json!({"model": "default", "n": 2, "messages": []}),
            400,
            "one answer",
        ),
        (
            "POST",
            "/v1/chat/completions",
            json!({"model": "gpt", "messages": []}),
            404,
            "\"gpt\"",
        ),
        (
            "POST",
            "/v1/tools/calculator.evaluate",
            json!({"arguments": {"_tool": "x"}}),
            400,
            "reserved",
        ),
        (
            "POST",
            "/v1/tools/nothing.here",
            json!({}),
            404,
            "nothing.here",
        ),
        ("GET", missing, Value::Null, 404, "no run"),
        ("GET", "/v1/runs/%00", Value::Null, 400, "UUID"),
        ("GET", "/v1/runs?limit=0", Value::Null, 400, "1 to 1000"),
        ("GET", "/v1/nothing", Value::Null, 404, "openapi.json"),
        ("DELETE", "/v1/agent", Value::Null, 405, "other methods"),
        (
            "GET",
            "/v1/runs/019aa000-0000-7000-8000-000000000000/socket",
            Value::Null,
            404,
            "no run",
        ),
    ] {
        let body = (!body.is_null()).then_some(&body);
        let answered = server.ask(method.parse().unwrap(), path, body, &[]);
        assert_eq!(
            answered.status, status,
            "{method} {path} {body:?}: {answered:?}"
        );
        let error = &answered.json()["error"];
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(said), "{path}: {message}");
        assert!(error["type"].is_string());
    }
    let huge = json!({"messages": [{"role": "user", "content": "x".repeat(17 << 20)}]});
    let refused = server.post("/v1/agent", &huge);
    assert_eq!(refused.status, 413, "{refused:?}");
    assert!(endpoint.requests().is_empty());
    assert_eq!(server.get("/healthz").text, "ok");
    assert_eq!(server.get("/readyz").good()["modules"], 2);
}

#[test]
fn a_tool_is_called_without_a_model() {
    let (host, endpoint) = (host(""), scripted([]));
    let server = serve(&host, &endpoint);
    let tools = server.get("/v1/tools").good();
    let names: Vec<&str> = tools["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["name"].as_str())
        .collect();
    assert!(names.contains(&"calculator.evaluate"), "{names:?}");
    let body = json!({"arguments": {"expression": "2^10"}});
    let made = server.post("/v1/tools/calculator.evaluate", &body).good();
    assert_eq!(made["result"], json!({"value": "1024"}));
    // What is refused before there is a run is in the audit log as well.
    let missing = server.post("/v1/tools/calculator.nothing", &body);
    assert_eq!(missing.status, 404, "{missing:?}");
    let large = json!({"arguments": {"expression": "x".repeat(17 << 20)}});
    assert_eq!(
        server.post("/v1/tools/calculator.evaluate", &large).status,
        413
    );
    let audited = server.get("/v1/audit?text=by_host").good();
    let refused: Vec<_> = audited["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["entry"])
        .filter(|entry| entry["by_host"] == true && entry["via"] == "http")
        .collect();
    assert_eq!(refused.len(), 2, "{audited}");
    assert!(
        refused
            .iter()
            .any(|entry| entry["arguments"] == json!({"expression": "2^10"})),
        "{audited}"
    );
    assert!(
        refused
            .iter()
            .any(|entry| entry["arguments"]["bytes"].as_u64() > Some(17 << 20)),
        "{audited}"
    );
    let wrong = server
        .post(
            "/v1/tools/calculator.evaluate",
            &json!({"arguments": {"expression": "2^"}}),
        )
        .good();
    assert!(
        wrong["error"].is_string() && wrong["result"].is_null(),
        "{wrong}"
    );
    let run = made["run"].as_str().unwrap();
    assert_eq!(
        host.run(&["runs", "replay", run]).code,
        Some(0),
        "it is recorded"
    );
    let modules = server.get("/v1/modules").good();
    assert_eq!(modules["modules"].as_array().unwrap().len(), 2);
    let module = server.get("/v1/modules/calculator").good();
    assert_eq!(module["name"], "calculator");
    assert!(endpoint.requests().is_empty());
}

/// Agents of the configuration, and those of a configuration that was changed meanwhile.
#[test]
fn agents_are_configuration() {
    let config = |more: &str| {
        format!(
            "[agents.counter]\ndescription = \"Counts\"\ninstructions = \"You count words.\"\n\
             tools = [\"text\"]\nrun = {{ max_steps = 1 }}\n{more}"
        )
    };
    let host = host(&config(""));
    let endpoint = scripted([
        answers("3"),
        calls([("calculator.evaluate", json!({"expression": "1"}))]),
    ]);
    let server = serve(&host, &endpoint);
    let models = server.get("/v1/models").good();
    let ids = |models: &Value| -> Vec<String> {
        let data = models["data"].as_array().unwrap().iter();
        data.map(|model| model["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&models), ["counter", "default"]);
    assert_eq!(
        server.get("/v1/models/counter").good()["description"],
        "Counts"
    );
    let mut task = ask("a b c");
    task["agent"] = "counter".into();
    assert_eq!(server.post("/v1/agent", &task).good()["output"], "3");
    let told = endpoint.requests()[0].to_string();
    assert!(
        told.contains("You count words.") && told.contains("text.count"),
        "{told}"
    );
    assert!(!told.contains("calculator"), "{told}");
    assert_eq!(
        server.post("/v1/agent", &task).good()["reason"],
        "max_steps"
    );

    host.write("toolhold.toml", config("[agents.second]\n"));
    until("the second agent", || {
        (ids(&server.get("/v1/models").good()).len() == 3).then_some(())
    });
    host.write("toolhold.toml", config("[agents.second]\nnonsense = 1\n"));
    until("what is wrong", || {
        server.said().contains("nonsense").then_some(())
    });
    assert_eq!(
        ids(&server.get("/v1/models").good()).len(),
        3,
        "as they were"
    );
}

/// What is one key's is not another's, and without a key there is nothing.
#[test]
fn keys_keep_clients_apart() {
    let host = host("");
    let endpoint =
        Endpoint::start(Scenario::new([answers("secret answer")]).in_order(ReplyOrder::Repeat));
    let key = |arguments: &[&str]| {
        let made = host.run(&[&["keys", "create"], arguments].concat());
        assert_eq!(made.code, Some(0), "{made:?}");
        made.stdout.trim().to_owned()
    };
    let (ann, bob) = (
        key(&["ann"]),
        key(&["bob", "--tools", "text", "--agents", "default"]),
    );
    let reader = key(&["reader", "--scopes", "approve"]);
    let admin = key(&["root", "--scopes", "admin"]);
    let mut server = serve(&host, &endpoint);
    for path in [
        "/v1/models",
        "/v1/runs",
        "/v1/tools",
        "/v1/modules",
        "/v1/sessions",
        "/v1/approvals",
    ] {
        let refused = server.get(path);
        assert_eq!(refused.status, 401, "{path}");
        assert_eq!(refused.headers["www-authenticate"], "Bearer");
        let wrong = server.ask(
            Method::GET,
            path,
            None,
            &[("authorization", "Bearer th_wrong")],
        );
        assert_eq!(wrong.status, 401, "{path}");
    }
    assert_eq!(server.post("/v1/agent", &ask("t")).status, 401);
    assert_eq!(server.get("/healthz").status, 200);

    server.use_key(&ann);
    let run = server.post("/v1/agent", &ask("t")).good()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let session = server.post("/v1/sessions", &json!({})).good()["id"]
        .as_str()
        .unwrap()
        .to_owned();
    server.use_key(&bob);
    for path in [
        format!("/v1/runs/{run}"),
        format!("/v1/runs/{run}/events"),
        format!("/v1/runs/{run}/socket"),
        format!("/v1/sessions/{session}"),
    ] {
        assert_eq!(server.get(&path).status, 404, "{path}");
    }
    for path in [
        format!("/v1/runs/{run}/cancel"),
        format!("/v1/runs/{run}/resume"),
        format!("/v1/sessions/{session}/turns"),
    ] {
        assert_eq!(server.post(&path, &ask("t")).status, 404, "{path}");
    }
    let deleted = server.ask(
        Method::DELETE,
        &format!("/v1/sessions/{session}"),
        None,
        &[],
    );
    assert_eq!(deleted.status, 404);
    assert_eq!(server.get("/v1/runs").good(), json!({"runs": []}));
    assert_eq!(server.get("/v1/sessions").good(), json!({"sessions": []}));
    let tools = server.get("/v1/tools").text;
    assert!(
        tools.contains("text.count") && !tools.contains("calculator"),
        "{tools}"
    );
    let modules = server.get("/v1/modules").good();
    let text = &modules["modules"][0];
    assert_eq!(modules["modules"].as_array().unwrap().len(), 1, "{modules}");
    assert_eq!(text["name"], "text");
    let told: Vec<_> = text.as_object().unwrap().keys().collect();
    assert_eq!(
        told,
        ["name", "version", "tools"],
        "nothing of how it is run"
    );
    assert_eq!(&server.get("/v1/modules/text").good(), text);
    assert_eq!(server.get("/v1/modules/calculator").status, 404);
    let call = json!({"arguments": {"expression": "1"}});
    assert_eq!(
        server.post("/v1/tools/calculator.evaluate", &call).status,
        404
    );
    let approved = server.post(
        "/v1/modules/text/approve",
        &json!({"digest": "", "etag": ""}),
    );
    assert_eq!(approved.status, 403, "{approved:?}");
    server.use_key(&reader);
    assert_eq!(server.post("/v1/agent", &ask("t")).status, 403);
    server.use_key(&admin);
    assert_eq!(server.get(&format!("/v1/runs/{run}")).status, 200);
    assert!(server.get("/v1/modules/calculator").good()["limits"].is_object());

    server.use_key(&bob);
    assert_eq!(host.run(&["keys", "revoke", "bob"]).code, Some(0));
    assert_eq!(server.get("/v1/runs").status, 401, "at once");
    let again = host.run(&["keys", "create", "bob"]);
    assert_eq!(again.code, Some(1), "{again:?}");
    let database = std::fs::read(host.path().join(".state/toolhold.db")).unwrap();
    let holds = |key: &str| {
        database
            .windows(key.len())
            .any(|bytes| bytes == key.as_bytes())
    };
    assert!(!holds(&ann) && !holds(&admin), "only hashes are kept");
}

/// A key's tools hold for those of MCP servers, too, however a client names them.
#[test]
fn a_keys_tools_are_those_of_servers_too() {
    let host = host("");
    let script = support::sandbox::repository().join("tests/fixtures/mcp_server.py");
    let command = json!(["python3", script.display().to_string()]);
    host.write(
        "mcp.toml",
        format!("[modules]\npinning = \"never\"\n[mcp.s]\ncommand = {command}\ntools = [\"echo\"]\noffer = true\n"),
    );
    let endpoint = Endpoint::start(Scenario::new([answers("done")]).in_order(ReplyOrder::Repeat));
    let key = |arguments: &[&str]| host.run(&[&["keys", "create"], arguments].concat()).stdout;
    let (whole, narrow) = (key(&["whole"]), key(&["narrow", "--tools", "text"]));
    let url = endpoint.base_url();
    let arguments = ["--config", "mcp.toml", "--base-url", &url, "--model", "m"];
    let mut server = Server::start(&host, &arguments);
    let mut task = ask("t");
    let echo = json!({"type": "object", "properties": {"_activity": {"const": "mcp:s/echo"}}});
    task["context"] = json!([{"type": "tool", "tool": {"mine": echo}}]);
    server.use_key(&whole);
    assert!(server.get("/v1/tools").text.contains("s.echo"));
    server.post("/v1/agent", &task).good();
    server.use_key(&narrow);
    assert!(!server.get("/v1/tools").text.contains("s.echo"));
    let refused = server.post("/v1/agent", &task);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text.contains("mcp:s/echo"), "{refused:?}");
}

/// Without keys everybody is the operator, but no page whose name was made to mean this machine; and a key
/// that was the last one closes what it closed for good.
#[test]
fn a_server_without_keys_is_this_machines_alone() {
    let (host, endpoint) = (
        host("[serve]\norigins = [\"https://console.example\"]\n"),
        scripted([]),
    );
    let server = serve(&host, &endpoint);
    let get = |headers: &[(&str, &str)]| server.ask(Method::GET, "/v1/runs", None, headers).status;
    for (headers, status) in [
        (&[][..], 200),
        (&[("host", "localhost:8700")], 200),
        (&[("host", "evil.example:8700")], 403),
        (&[("origin", "http://127.0.0.1:8700")], 200),
        (&[("origin", "https://console.example")], 200),
        (&[("origin", "https://evil.example")], 403),
        (&[("origin", "null")], 403),
    ] {
        assert_eq!(get(headers), status, "{headers:?}");
    }
    let foreign = json!({"context": [{"type": "tool", "tool": {"t": {"type": "object", "properties": {"_module": {"const": "oci://127.0.0.1:1/evil:1"}}}}}],
        "messages": [{"role": "user", "content": "t"}]});
    let refused = server.post("/v1/agent", &foreign);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text.contains("no module is fetched"), "{refused:?}");
    assert_eq!(host.run(&["keys", "create", "only"]).code, Some(0));
    assert_eq!(get(&[]), 401);
    assert_eq!(host.run(&["keys", "revoke", "only"]).code, Some(0));
    assert_eq!(get(&[]), 401, "and not open again");
}

/// A service manager may stop or reload a server as soon as it says that it serves.
#[test]
fn a_server_that_says_that_it_serves_handles_signals() {
    let (host, endpoint) = (host(""), scripted([]));
    let mut server = serve(&host, &endpoint);
    assert!(server.handles(&[1, 2, 15]));
    server.signal("HUP");
    assert_eq!(server.terminate(), Some(0));
}

/// A run that was parked can be ended.
#[test]
fn parked_runs_can_be_cancelled() {
    let host = host("[serve]\ndrain_ms = 1\n");
    let endpoint = scripted([Reply::endless()]);
    let mut server = serve(&host, &endpoint);
    let mut task = ask("t");
    task["stream"] = true.into();
    let begun = server.first_events(Method::POST, "/v1/agent", Some(&task), 1);
    let run = begun[0].json()["run"].as_str().unwrap().to_owned();
    assert_eq!(server.terminate(), Some(0));
    let cancelled = host.run(&["runs", "cancel", &run]);
    assert_eq!(cancelled.code, Some(0), "{cancelled:?}");
    assert!(host.run(&["runs"]).stdout.contains("cancelled"));
    assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0));
}

#[test]
fn a_key_asks_no_more_than_its_share() {
    let host = host("[serve]\nkey_requests_per_minute = 5\n");
    let endpoint = scripted([]);
    let server = serve(&host, &endpoint);
    let answered: Vec<u16> = (0..8).map(|_| server.get("/v1/runs").status).collect();
    assert_eq!(answered, [200, 200, 200, 200, 200, 429, 429, 429]);
    let refused = server.get("/v1/runs");
    let seconds: u32 = refused.headers["retry-after"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..=60).contains(&seconds), "{refused:?}");
}

/// Guessing keys does not lock out clients with a valid key.
#[test]
fn guessing_keys_is_throttled() {
    let host = host("[serve]\nkey_requests_per_minute = 0\n");
    let endpoint = scripted([]);
    let made = host.run(&["keys", "create", "ann"]);
    let good = format!("Bearer {}", made.stdout.trim());
    let server = serve(&host, &endpoint);
    // The good key was not used before: it is known all the same.
    let with = |key: &str| server.ask(Method::GET, "/v1/runs", None, &[("authorization", key)]);
    let mut answers = (0..60).map(|number| with(&format!("Bearer th_{number}")));
    let unknown: Vec<u16> = (answers.by_ref().take(30))
        .map(|answer| answer.status)
        .collect();
    assert_eq!(unknown, [401; 30]);
    // The address gets one more try every two seconds.
    let refused = answers.find(|answer| answer.status == 429).unwrap();
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    assert_eq!(with(&good).status, 200);
}

#[test]
fn runs_wait_for_a_place_and_no_longer_than_they_may() {
    let host = host(
        "[serve]\nconcurrent_runs = 1\nkey_concurrent_runs = 1\nwaiting_runs = 1\nqueue_timeout_ms = 400\n",
    );
    let endpoint = Endpoint::start(Scenario::new([Reply::endless()]).in_order(ReplyOrder::Repeat));
    let server = serve(&host, &endpoint);
    let mut task = ask("t");
    task["stream"] = true.into();
    server.first_events(Method::POST, "/v1/agent", Some(&task), 1);
    let late = server.post("/v1/agent", &ask("t"));
    assert_eq!(late.status, 429, "{late:?}");
    assert!(late.headers.contains_key("retry-after"));
    assert!(late.text.contains("no place"), "{late:?}");
}

/// A server that is killed goes on with its runs when it starts again, and makes no completed call again.
#[test]
fn a_killed_server_goes_on_where_it_was() {
    let host = host("");
    let endpoint = scripted([
        calls([("calculator.evaluate", json!({"expression": "2+2"}))]),
        Reply::endless(),
        answers("It is 4."),
    ]);
    let mut server = serve(&host, &endpoint);
    let mut task = ask("What is 2+2?");
    task["stream"] = true.into();
    let begun = server.first_events(Method::POST, "/v1/agent", Some(&task), 1);
    let run = begun[0].json()["run"].as_str().unwrap().to_owned();
    assert!(endpoint.wait_until(Duration::from_secs(30), |it| it.requests().len() == 2));
    server.kill();
    let server = serve(&host, &endpoint);
    let events = server.get(&format!("/v1/runs/{run}/events")).events();
    assert_eq!(
        events.last().unwrap().json()["output"],
        "It is 4.",
        "{}",
        server.said()
    );
    let count = |kind: &str| events.iter().filter(|sent| sent.event == kind).count();
    assert_eq!((count("tool_start"), count("resumed")), (1, 1));
    assert_eq!(host.run(&["runs", "replay", &run]).code, Some(0));
}

/// Told to stop, it is reached until clients know that they should go elsewhere.
#[test]
fn a_server_that_stops_sends_its_clients_away() {
    let host = host("[serve]\nlame_duck_ms = 60000\n");
    let endpoint = scripted([]);
    let mut server = serve(&host, &endpoint);
    let answers = |server: &Server| server.get("/readyz").status;
    assert_eq!(answers(&server), 200);
    server.signal("TERM");
    until("the wish", || (answers(&server) == 503).then_some(()));
    let refused = server.post("/v1/agent", &ask("t"));
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.headers.contains_key("retry-after"), "{refused:?}");
    let served = server.get("/v1/runs");
    assert_eq!(served.good(), json!({"runs": []}));
    for answered in [&refused, &served] {
        assert_eq!(answered.headers["connection"], "close", "{answered:?}");
    }
    // Told twice, it does not wait.
    assert_eq!(server.terminate(), Some(0));
}

/// Told to stop, it lets runs end; what does not is parked and goes on at the next start.
#[test]
fn a_server_that_stops_parks_what_does_not_end() {
    let host = host("[serve]\ndrain_ms = 300\n");
    let endpoint = scripted([Reply::endless(), answers("later")]);
    let mut server = serve(&host, &endpoint);
    let mut task = ask("t");
    task["stream"] = true.into();
    let begun = server.first_events(Method::POST, "/v1/agent", Some(&task), 1);
    let run = begun[0].json()["run"].as_str().unwrap().to_owned();
    assert_eq!(server.terminate(), Some(0));
    assert!(host.run(&["runs"]).stdout.contains("not over"));
    let server = serve(&host, &endpoint);
    let events = server.get(&format!("/v1/runs/{run}/events")).events();
    assert_eq!(
        events.last().unwrap().json()["output"],
        "later",
        "{}",
        server.said()
    );
}
