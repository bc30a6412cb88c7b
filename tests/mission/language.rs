//! 000.12: the language of a task is normalised, and people read the texts of the host in it.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::Host;
use support::server::Server;
use support::transcript::{answers, calls, told};
use toolhold_agent::language::recognise;

/// Short tasks with the tags of their languages, of all authors: a tag, a tab and a task on each line.
fn tasks() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/languages");
    let mut tasks = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        for line in text.lines() {
            let (tag, task) = line.split_once('\t').unwrap();
            tasks.push((tag.to_owned(), task.to_owned()));
        }
    }
    tasks
}

/// Languages in which 97 of 100 short tasks are recognised.
const MOST_ASKED: [&str; 20] = [
    "ar", "de", "en", "es", "fr", "hi", "id", "it", "ja", "ko", "nl", "pl", "pt", "ru", "sv", "th",
    "tr", "uk", "vi", "zh",
];

#[test]
fn statement_000_12_languages_of_short_tasks_are_told_or_left_open_but_never_wrong() {
    let tasks = tasks();
    let tags: BTreeSet<&str> = tasks.iter().map(|(tag, _)| tag.as_str()).collect();
    assert!(
        tasks.len() >= 1_200 && tags.len() >= 20,
        "{} {tags:?}",
        tasks.len()
    );
    let mut open = Vec::new();
    let mut wrong = Vec::new();
    for (tag, task) in &tasks {
        match recognise(task) {
            Some(found) if found == tag => {}
            Some(found) => wrong.push(format!("{tag} as {found}: {task}")),
            None => open.push(format!("{tag}: {task}")),
        }
    }
    // English is recorded and not told to a model.
    let is_told = |wrong: &&String| !wrong.contains(" as en: ");
    let wrong_told: Vec<&String> = wrong.iter().filter(is_told).collect();
    assert!(wrong_told.is_empty(), "{wrong_told:#?}");
    let found = tasks.len() - open.len();
    assert!(wrong.len() * 100 <= found * 3, "{wrong:#?}");
    // What is left open is as good in two languages: Indonesian and Malay, Danish and Norwegian.
    assert!(open.len() * 100 <= tasks.len() * 4, "{open:#?}");
    let of_most = |tag: &str| MOST_ASKED.contains(&tag);
    let asked = tasks.iter().filter(|(tag, _)| of_most(tag)).count();
    let missed: Vec<&String> = open
        .iter()
        .chain(&wrong)
        .filter(|task| of_most(&task[..2]))
        .collect();
    assert!(
        missed.len() * 100 <= asked * 3,
        "{} of {asked}: {missed:#?}",
        missed.len()
    );
}

/// Tasks in languages of the table of texts, and words of the texts that people read in them.
const TASKS: [(&str, &str, &str); 3] = [
    ("ru", "Посчитай сумму заказов за март.", "Продолжить"),
    ("zh", "请把这句话翻译成英文。", "要我继续吗"),
    ("en", "Add up the orders of March.", "Shall I go on"),
];

fn host(config: &str) -> Host {
    let host = Host::new();
    host.ship("calculator").write("toolhold.toml", config);
    host
}

fn serve(host: &Host, endpoint: &Endpoint) -> Server {
    let url = endpoint.base_url();
    Server::start(host, &["--base-url", &url, "--model", "m"])
}

/// The text that a client shows.
fn shown(answer: &Value) -> String {
    let of_choice = &answer["choices"][0]["message"]["content"];
    let of_item = &answer["output"][0]["content"][0]["text"];
    let text = of_choice.as_str().or(of_item.as_str());
    text.unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn asked(path: &str, task: &str) -> Value {
    if path == "/v1/responses" {
        return json!({"model": "default", "input": task});
    }
    let messages = json!([{"role": "user", "content": task}]);
    match path {
        "/v1/agent" => json!({"messages": messages}),
        _ => json!({"model": "default", "messages": messages}),
    }
}

const PATHS: [&str; 3] = ["/v1/agent", "/v1/chat/completions", "/v1/responses"];

#[test]
fn statement_000_12_after_the_last_step_the_answer_asks_back_in_the_language_of_the_task() {
    let host = host("[run]\nmax_steps = 1\n");
    let call = || calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
    let endpoint = Endpoint::start(Scenario::new((0..9).map(|_| call())));
    let server = serve(&host, &endpoint);
    for (tag, task, words) in TASKS {
        for path in PATHS {
            let answer = server.post(path, &asked(path, task)).good();
            let text = shown(&answer);
            assert!(text.contains(words), "{path} {tag}: {answer}");
            assert!(text.ends_with(['?', '？']), "{path} {tag}: {text}");
            assert!(!text.contains("run."), "{path} {tag}: {text}");
            // The question is asked once.
            let error = answer["error"]["message"].as_str().unwrap_or_default();
            assert!(!error.contains(words), "{path} {tag}: {answer}");
        }
    }
}

#[test]
fn statement_000_12_a_blocked_task_is_answered_in_its_language() {
    let host = host("[shields.mails]\nkind = \"pii\"\nblock = [\"email\"]\nplaces = [\"input\"]\n");
    let endpoint = Endpoint::start(Scenario::new([answers("no")]));
    let server = serve(&host, &endpoint);
    for (task, words) in [
        ("Напиши письмо на ann@example.com, пожалуйста.", "правило"),
        ("请给 ann@example.com 写一封信，谢谢您。", "规则"),
        ("Write a letter to ann@example.com, please.", "rule"),
    ] {
        for path in PATHS {
            let answer = server.post(path, &asked(path, task)).good();
            let text = shown(&answer);
            assert!(text.contains(words), "{path}: {answer}");
            assert!(!text.contains("mails"), "{path}: {text}");
        }
    }
    assert!(endpoint.requests().is_empty());
}

/// Clients show the message of an error to people, so it begins with a text for them.
#[test]
fn statement_000_12_unusable_replies_are_told_in_the_language_of_the_task() {
    let host = host("[endpoints.default]\ncontract = \"simple\"\n");
    let repeated = Scenario::new([Reply::content("Hm.")]).in_order(ReplyOrder::Repeat);
    let endpoint = Endpoint::start(repeated);
    let server = serve(&host, &endpoint);
    for ((tag, task, _), words) in TASKS.iter().zip([
        "не удалось использовать",
        "都无法使用",
        "none of my replies could be used",
    ]) {
        for path in PATHS {
            let answer = server.post(path, &asked(path, task));
            assert_eq!(answer.status, 502, "{path} {tag}: {answer:?}");
            let error = &answer.json()["error"];
            let message = error["message"].as_str().unwrap();
            let (text, rest) = message.split_once(" [run ").unwrap();
            assert!(text.contains(words), "{path} {tag}: {message}");
            assert!(text.ends_with(['?', '？']), "{path} {tag}: {message}");
            assert!(rest.ends_with(']'), "{path} {tag}: {message}");
        }
    }
}

/// A person who says yes to the question is understood: the model of the next turn knows that it was put.
#[test]
fn statement_000_12_the_next_turn_knows_that_the_user_was_asked_to_go_on() {
    let host = host("[run]\nmax_steps = 1\n");
    let call = calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
    let endpoint = Endpoint::start(Scenario::new([call, answers("4")]));
    let server = serve(&host, &endpoint);
    let session = server.post("/v1/sessions", &json!({})).good();
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    let first = asked("/v1/agent", "Посчитай сумму заказов за март.");
    let answer = server.post(&turns, &first).good();
    assert_eq!(answer["reason"], "max_steps", "{answer}");
    let answer = server.post(&turns, &asked("/v1/agent", "Да")).good();
    assert_eq!(answer["language"], "ru", "{answer}");
    let request = told(&endpoint, 1);
    assert!(request.contains("whether I should go on"), "{request}");
}

/// One request of each API in a language of its own for each limit.
#[test]
fn statement_000_12_each_limit_asks_back_in_the_language_of_the_task() {
    let sum = |of: &str| ("calculator.evaluate", json!({"expression": of}));
    let counted = Reply {
        usage: Some((1_000, 1_000)),
        ..calls([sum("2+2")])
    };
    for (reason, config, reply) in [
        (
            "max_tool_calls",
            "[run]\nmax_tool_calls = 1\n",
            calls([sum("2+2"), sum("3+3")]),
        ),
        (
            "max_cost",
            "[run]\ncurrency = \"EUR\"\nmax_cost = \"0.0001\"\n\
             [endpoints.default]\nprice_per_million = { prompt = 1, completion = 1 }\n",
            counted,
        ),
        ("timeout", "[run]\ntimeout_ms = 300\n", Reply::never()),
    ] {
        let host = host(config);
        let repeated = Scenario::new([reply]).in_order(ReplyOrder::Repeat);
        let endpoint = Endpoint::start(repeated);
        let server = serve(&host, &endpoint);
        for ((tag, task, words), path) in TASKS.into_iter().zip(PATHS) {
            let answer = server.post(path, &asked(path, task)).good();
            let text = shown(&answer);
            assert!(text.contains(words), "{reason} {path} {tag}: {answer}");
            assert!(text.ends_with(['?', '？']), "{reason} {path} {tag}: {text}");
            assert!(!text.contains("run."), "{reason} {path} {tag}: {text}");
            if path == "/v1/agent" {
                assert_eq!(answer["reason"], reason, "{answer}");
            }
        }
    }
}

/// The text for used-up tokens is like the one for steps, and the model of the next turn reads the question.
#[test]
fn statement_000_12_a_task_that_is_too_long_is_answered_in_its_language() {
    let host = host("[run]\ntoken_budget = 1\n");
    let call = calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
    let repeated = Scenario::new([call]).in_order(ReplyOrder::Repeat);
    let endpoint = Endpoint::start(repeated);
    let server = serve(&host, &endpoint);
    for ((tag, task, _), words) in TASKS.iter().zip([
        "какой её части",
        "先处理哪一部分",
        "part of it should I work on first",
    ]) {
        for path in PATHS {
            let answer = server.post(path, &asked(path, task)).good();
            let text = shown(&answer);
            assert!(text.contains(words), "{path} {tag}: {answer}");
            assert!(!text.contains("run."), "{path} {tag}: {text}");
        }
    }
    let session = server.post("/v1/sessions", &json!({})).good();
    let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
    for text in [TASKS[0].1, "С первой"] {
        let answer = server.post(&turns, &asked("/v1/agent", text)).good();
        assert_eq!(answer["reason"], "token_budget", "{answer}");
    }
    let last = endpoint.requests().len() - 1;
    let request = told(&endpoint, last);
    assert!(
        request.contains("which part of it to work on first"),
        "{request}"
    );
}

/// The notice about an answer that a limit of the endpoint cut is for its reader, too.
#[test]
fn statement_000_12_a_cut_answer_is_told_in_the_language_of_the_task() {
    let host = host("[endpoints.default]\ncontract = \"tools\"\n");
    for (reason, texts) in [
        ("length", ["продолжение", "继续写完", "write the rest"]),
        ("content_filter", ["иначе", "换一种说法", "in other words"]),
    ] {
        let reply = Reply {
            finish_reason: Some(reason.into()),
            ..Reply::content("4, 5")
        };
        let repeated = Scenario::new([reply]).in_order(ReplyOrder::Repeat);
        let endpoint = Endpoint::start(repeated);
        let server = serve(&host, &endpoint);
        for ((tag, task, _), words) in TASKS.iter().zip(texts) {
            for path in PATHS {
                let answer = server.post(path, &asked(path, task)).good();
                assert_eq!(shown(&answer), "4, 5", "{path} {tag}: {answer}");
                let notices = match path {
                    "/v1/agent" => &answer["notices"],
                    _ => &answer["toolhold"]["notices"],
                };
                let notices = notices.to_string();
                assert!(notices.contains(words), "{path} {tag}: {answer}");
                assert!(!notices.contains("run."), "{path} {tag}: {notices}");
            }
        }
    }
}

/// Data that calls wrote are no answer: the question stands behind them.
#[test]
fn statement_000_12_data_of_a_stopped_run_do_not_take_the_place_of_the_question() {
    let host = host("[run]\nmax_steps = 1\n");
    let sum = json!({"expression": "2+2", "_outputPath": "†state.sum"});
    let call = calls([("calculator.evaluate", sum)]);
    let repeated = Scenario::new([call]).in_order(ReplyOrder::Repeat);
    let endpoint = Endpoint::start(repeated);
    let server = serve(&host, &endpoint);
    let (_, task, words) = TASKS[0];
    for path in PATHS {
        let answer = server.post(path, &asked(path, task)).good();
        let text = shown(&answer);
        assert!(text.contains("\"sum\""), "{path}: {answer}");
        assert!(text.contains(words), "{path}: {answer}");
    }
}

/// A client sends the whole conversation, and its user says little at the end.
#[test]
fn statement_000_12_the_language_of_earlier_messages_counts() {
    let host = host("[run]\nmax_steps = 1\n");
    let call = calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
    let repeated = Scenario::new([call]).in_order(ReplyOrder::Repeat);
    let endpoint = Endpoint::start(repeated);
    let server = serve(&host, &endpoint);
    for (tag, task, words) in TASKS {
        let mut messages = vec![json!({"role": "user", "content": task})];
        for n in 1..=6 {
            messages.push(json!({"role": "assistant", "content": "1 + 1"}));
            messages.push(json!({"role": "user", "content": n.to_string()}));
        }
        for path in PATHS {
            let conversation = match path {
                "/v1/responses" => "input",
                _ => "messages",
            };
            let mut asked = asked(path, task);
            asked[conversation] = json!(messages);
            let answer = server.post(path, &asked).good();
            let text = shown(&answer);
            assert!(text.contains(words), "{path} {tag}: {answer}");
        }
    }
}

/// A task may be given in the protocol's own messages.
#[test]
fn statement_000_12_the_language_of_a_context_counts() {
    let host = host("[run]\nmax_steps = 1\n");
    let call = calls([("calculator.evaluate", json!({"expression": "2+2"}))]);
    let repeated = Scenario::new([call]).in_order(ReplyOrder::Repeat);
    let endpoint = Endpoint::start(repeated);
    let server = serve(&host, &endpoint);
    for (tag, task, words) in TASKS {
        let schema = json!({"type": "object"});
        for context in [
            json!([{"role": "user", "content": task}]),
            json!([{"role": "user", "content": task}, {"role": "user", "content": "1"}]),
            json!([{"type": "text", "text": task}, {"type": "data", "data": {"march": [1, 2]}}]),
            json!([{"type": "input", "input": {"task": task}, "schema": schema}]),
        ] {
            let asked = json!({"context": context});
            let answer = server.post("/v1/agent", &asked).good();
            assert_eq!(answer["language"], tag, "{context}: {answer}");
            assert!(shown(&answer).contains(words), "{context}: {answer}");
            let session = server.post("/v1/sessions", &json!({})).good();
            let turns = format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap());
            let answer = server.post(&turns, &asked).good();
            assert_eq!(answer["language"], tag, "{context}: {answer}");
        }
        let (_, other, _) = TASKS[0];
        let both = json!({"context": [{"role": "user", "content": other}], "messages": [{"role": "user", "content": task}]});
        let answer = server.post("/v1/agent", &both).good();
        assert_eq!(answer["language"], tag, "{answer}");
    }
}

/// A saved Request has no task in words: the texts of its input tell the language of its user.
#[test]
fn statement_000_12_the_language_of_the_input_of_a_saved_request_counts() {
    let host = host("[run]\nmax_steps = 1\n");
    let input =
        json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
    let reckon = json!({
        "type": "object", "required": ["expression"],
        "properties": {"_module": {"const": "calculator"}, "expression": {"type": "string"}},
    });
    let saved = json!({"context": [
        {"type": "input", "schema": input},
        {"type": "tool", "tool": {"reckon": reckon}},
        {"role": "user", "content": "Do what the input asks for."},
    ]});
    host.write("requests/say.json", saved.to_string());
    let call = calls([("reckon", json!({"expression": "2+2"}))]);
    let repeated = Scenario::new([call]).in_order(ReplyOrder::Repeat);
    let endpoint = Endpoint::start(repeated);
    let server = serve(&host, &endpoint);
    for (tag, task, words) in TASKS {
        let asked = json!({"input": {"text": task}});
        let answer = server.post("/v1/requests/say", &asked).good();
        assert_eq!(answer["language"], tag, "{answer}");
        assert!(shown(&answer).contains(words), "{answer}");
    }
    // What the model is told is the author's.
    assert!(!told(&endpoint, 0).contains("The language of the task"));
}
