//! 000.51 and 000.56: a conversation longer than the model's window continues and keeps its facts.

mod many_turns;

use serde_json::{Value, json};
use std::io::Write as _;
use std::process::Stdio;
use support::endpoint::{Endpoint, Reply, ReplyOrder, Scenario};
use support::host::{Finished, Host, finish};
use support::records::Records;
use support::server::Server;
use support::transcript::{answers, told};

/// The window in tokens. The host estimates a token as three bytes.
const WINDOW: usize = 5_000;
const BYTES_PER_TOKEN: usize = 3;

/// The turns of a user in one language.
#[derive(Clone, Copy)]
struct Talk {
    /// The text of turn 3; `kept` has its parts that must not be lost.
    fact: &'static str,
    kept: [&'static str; 2],
    /// The text of all other turns, before the turn's number.
    topic: &'static str,
    answer: &'static str,
}

const RUSSIAN: Talk = Talk {
    fact: "Запомни: мой заказ А-1741 стоит 55,50 евро, его ждёт Ада в Кёльне.",
    kept: ["А-1741", "55,50"],
    topic: "Расскажи, пожалуйста, ещё немного про следующую тему из нашего длинного списка. Это тема номер",
    answer: "Об этом можно говорить очень долго, и каждый раз находится что-нибудь новое и приятное.",
};
const CHINESE: Talk = Talk {
    fact: "请记住：我的订单是A-1741，价格是55.50欧元，收件人是艾达。",
    kept: ["A-1741", "艾达"],
    topic: "请再告诉我一些关于我们长长的清单里下一个题目的事情，慢慢来，不用着急。题目编号",
    answer: "关于这个题目可以说很多很多，每一次都能发现一些新鲜而有趣的东西。",
};
const ENGLISH: Talk = Talk {
    fact: "We decided to send the order A-1741, which costs 55.50 euros, to Ada in Cologne.",
    kept: ["A-1741", "Ada in Cologne"],
    topic: "Please tell me a little more about the next topic on our long list, and take your time. This is topic number",
    answer: "There is a lot to say about it, and each time there is something new and pleasant to be found.",
};
const TALKS: [Talk; 3] = [RUSSIAN, CHINESE, ENGLISH];

impl Talk {
    /// The text of a turn, from 0 on. `length`: repetitions of the topic.
    fn said(self, turn: usize, length: usize) -> String {
        match turn {
            2 => self.fact.to_owned(),
            _ => format!("{} {turn}.", vec![self.topic; length].join(" ")),
        }
    }

    /// The last request has the facts, fits the window, and does not have all that was said.
    fn holds(self, endpoint: &Endpoint) {
        self.holds_within(endpoint, WINDOW * BYTES_PER_TOKEN);
    }

    fn holds_within(self, endpoint: &Endpoint, bytes: usize) {
        let last = told(endpoint, endpoint.requests().len() - 1);
        for part in self.kept {
            assert!(last.contains(part), "{part}: {last}");
        }
        assert!(last.len() < bytes, "{}: {last}", last.len());
        assert!(!last.contains(&format!("{} 3.", self.topic)), "{last}");
    }
}

fn host() -> Host {
    let host = Host::new();
    host.write(
        "toolhold.toml",
        format!("[endpoints.default]\nwindow = {WINDOW}\n"),
    );
    host
}

fn endpoint(talk: Talk) -> Endpoint {
    let scenario = Scenario::new([answers(talk.answer)]);
    Endpoint::start(scenario.in_order(ReplyOrder::Repeat))
}

fn serve(host: &Host, endpoint: &Endpoint) -> Server {
    let url = endpoint.base_url();
    Server::start(host, &["--base-url", &url, "--model", "m"])
}

fn ask(text: &str) -> Value {
    json!({"messages": [{"role": "user", "content": text}]})
}

fn session(server: &Server) -> String {
    let session = server.post("/v1/sessions", &json!({})).good();
    format!("/v1/sessions/{}/turns", session["id"].as_str().unwrap())
}

/// Turns of a session, all of which are answered. Returns the last answer.
fn talk_in_session(server: &Server, turns: &str, talk: Talk, count: usize, length: usize) -> Value {
    let mut last = Value::Null;
    for turn in 0..count {
        last = server.post(turns, &ask(&talk.said(turn, length))).good();
        assert_eq!(last["output"], talk.answer, "{turn}: {last}");
    }
    last
}

/// The types of the messages with which a run began.
fn types(host: &Host, run: &str) -> Vec<String> {
    let lines = Records::of(host).lines(run);
    let first: Value = serde_json::from_str(&lines[0]).unwrap();
    let context = first["request"]["context"].as_array().unwrap();
    let types = context
        .iter()
        .map(|message| message["type"].as_str().unwrap());
    types.map(str::to_owned).collect()
}

fn replays(host: &Host, run: &str) {
    let replayed = host.run(&["runs", "replay", run]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
}

#[test]
fn statement_000_51_sessions_in_each_language() {
    for talk in TALKS {
        let (host, endpoint) = (host(), endpoint(talk));
        let server = serve(&host, &endpoint);
        let turns = session(&server);
        talk_in_session(&server, &turns, talk, 30, 4);
        talk.holds(&endpoint);
        let runs = Records::of(&host).runs();
        let summed_up = runs.iter().filter(|run| {
            let lines = Records::of(&host).lines(run);
            lines
                .iter()
                .any(|line| line.contains("\"event\":\"conversation_summarized\""))
        });
        let summed_up: Vec<&String> = summed_up.collect();
        assert!((1..29).contains(&summed_up.len()), "{}", summed_up.len());
        for run in summed_up {
            replays(&host, run);
        }
        // The record of the turn has what was said in it.
        let third = Records::of(&host).lines(&runs[2]).join("\n");
        assert!(third.contains(talk.fact), "{third}");
    }
}

#[test]
fn statement_000_51_responses_in_each_language() {
    for talk in TALKS {
        let (host, endpoint) = (host(), endpoint(talk));
        let server = serve(&host, &endpoint);
        let last = talk_in_responses(&server, talk, 30, 4);
        talk.holds(&endpoint);
        // What it was made from is listed as the client gave it.
        let items = server.get(&format!("/v1/responses/{last}/input_items?limit=100"));
        assert!(items.good().to_string().contains(talk.fact));
    }
}

/// Responses, each of which names the one before, and all of which are complete. Returns the id of the last one.
fn talk_in_responses(server: &Server, talk: Talk, count: usize, length: usize) -> String {
    let mut before = Value::Null;
    for turn in 0..count {
        let asked = json!({"model": "default", "input": talk.said(turn, length), "previous_response_id": before});
        let response = server.post("/v1/responses", &asked).good();
        assert_eq!(response["status"], "completed", "{turn}: {response}");
        before = response["id"].clone();
    }
    before.as_str().unwrap().to_owned()
}

#[test]
fn statement_000_51_chat_completions_in_each_language() {
    for talk in TALKS {
        let (host, endpoint) = (host(), endpoint(talk));
        let server = serve(&host, &endpoint);
        talk_in_completions(&server, talk, 30, 4);
        talk.holds(&endpoint);
    }
}

/// Turns of a client that sends all messages each time, all of which are answered.
fn talk_in_completions(server: &Server, talk: Talk, count: usize, length: usize) {
    let mut messages = Vec::new();
    for turn in 0..count {
        messages.push(json!({"role": "user", "content": talk.said(turn, length)}));
        let asked = json!({"model": "default", "messages": messages});
        let answer = server.post("/v1/chat/completions", &asked).good();
        let message = answer["choices"][0]["message"].clone();
        assert_eq!(message["content"], talk.answer, "{turn}: {answer}");
        messages.push(message);
    }
}

/// Each request has a cue ("my list"), and the fact of the third turn has none.
const UNMARKED: [Talk; 3] = [
    Talk {
        fact: "За печать отвечает Чжан Вэй, обложка остаётся зелёной.",
        kept: ["Чжан Вэй", "зелёной"],
        topic: "Расскажи ещё немного про мои заказы, это важно: теперь пункт",
        answer: "Этот пункт всегда можно обсудить ещё раз.",
    },
    Talk {
        fact: "项目代号是蓝鲸，印刷由张伟负责。",
        kept: ["蓝鲸", "张伟"],
        topic: "请继续讲我的清单上的下一个题目，这很重要，题目编号",
        answer: "这个题目总是可以再谈一谈。",
    },
    Talk {
        fact: "The cover stays green, and zhang wei answers for the printing.",
        kept: ["green", "zhang wei"],
        topic: "Let's go on with my list, which is important: this is item",
        answer: "There is always more to say about this one.",
    },
];

#[test]
fn statement_000_51_a_fact_without_a_cue_is_kept_among_requests_with_one() {
    for talk in UNMARKED {
        let (host, endpoint) = (host(), endpoint(talk));
        let server = serve(&host, &endpoint);
        let mut messages = Vec::new();
        for turn in 0..300 {
            messages.push(json!({"role": "user", "content": talk.said(turn, 1)}));
            messages.push(json!({"role": "assistant", "content": talk.answer}));
        }
        messages.push(json!({"role": "user", "content": talk.said(300, 1)}));
        let asked = json!({"model": "default", "messages": messages});
        let answer = server.post("/v1/chat/completions", &asked).good();
        assert_eq!(answer["choices"][0]["message"]["content"], talk.answer);
        talk.holds(&endpoint);
    }
}

#[test]
fn statement_000_51_chat_at_the_terminal_in_each_language() {
    for talk in TALKS {
        let (host, endpoint) = (host(), endpoint(talk));
        let chatted = talk_at_terminal(&host, &endpoint, talk, 30, 4);
        let shown = format!("{}{}", chatted.stdout, chatted.stderr);
        assert!(
            shown.contains("messages of the conversation are summed up"),
            "{shown}"
        );
        talk.holds(&endpoint);
    }
}

/// Turns of `toolhold chat`, all of which are answered.
fn talk_at_terminal(
    host: &Host,
    endpoint: &Endpoint,
    talk: Talk,
    count: usize,
    length: usize,
) -> Finished {
    let typed: String = (0..count)
        .map(|turn| talk.said(turn, length) + "\n")
        .collect();
    let url = endpoint.base_url();
    let mut child = host
        .command(&["chat", "--base-url", &url, "--model", "m"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    // The answers fill a pipe meanwhile.
    let writer = std::thread::spawn(move || input.write_all(typed.as_bytes()));
    let finished = finish(child.wait_with_output().unwrap());
    writer.join().unwrap().unwrap();
    assert_eq!(finished.code, Some(0), "{finished:?}");
    assert_eq!(endpoint.requests().len(), count, "{finished:?}");
    let answers = finished.stdout.matches(talk.answer).count();
    assert_eq!(answers, count, "{finished:?}");
    finished
}

/// Its earlier turns were had with a larger window, as if by a version that summed up nothing.
#[test]
fn statement_000_51_a_session_that_is_full_goes_on() {
    let host = Host::new();
    let endpoint = endpoint(ENGLISH);
    let turns = {
        let server = serve(&host, &endpoint);
        let turns = session(&server);
        talk_in_session(&server, &turns, ENGLISH, 30, 5);
        turns
    };
    let before = told(&endpoint, endpoint.requests().len() - 1);
    assert!(before.len() > WINDOW * BYTES_PER_TOKEN, "{}", before.len());
    host.write(
        "toolhold.toml",
        format!("[endpoints.default]\nwindow = {WINDOW}\n"),
    );
    let server = serve(&host, &endpoint);
    let answer = server.post(&turns, &ask("Where does the order go?")).good();
    assert_eq!(answer["output"], ENGLISH.answer, "{answer}");
    ENGLISH.holds(&endpoint);
    let notices = answer["notices"].to_string();
    assert!(
        notices.contains("of its oldest messages are a summary"),
        "{answer}"
    );
}

/// The endpoint knows its window, and the host does not.
#[test]
fn statement_000_51_an_endpoint_that_refuses_a_conversation_is_asked_again() {
    let host = Host::new();
    let refusal = json!({"error": {"type": "invalid_request_error", "code": "context_length_exceeded", "message":
        "This model's maximum context length is 2048 tokens. However, your messages resulted in 4000 tokens."}});
    let endpoint = Endpoint::start(Scenario::new([
        Reply::error(400, refusal),
        answers(ENGLISH.answer),
    ]));
    let server = serve(&host, &endpoint);
    let mut messages = Vec::new();
    for turn in 0..60 {
        messages.push(json!({"role": "user", "content": ENGLISH.said(turn, 4)}));
        messages.push(json!({"role": "assistant", "content": ENGLISH.answer}));
    }
    messages.push(json!({"role": "user", "content": "Where does the order go?"}));
    let answer = server
        .post("/v1/agent", &json!({"messages": messages}))
        .good();
    assert_eq!(answer["output"], ENGLISH.answer, "{answer}");
    // By the refusal, the first request is 4000 tokens and 2048 fit.
    ENGLISH.holds_within(&endpoint, told(&endpoint, 0).len() * 2048 / 4000);
}

#[test]
fn statement_000_56_a_maximum_of_context_holds_for_a_conversation() {
    let (host, endpoint) = (Host::new(), endpoint(ENGLISH));
    let server = serve(&host, &endpoint);
    let turns = session(&server);
    for turn in 0..20 {
        let mut asked = ask(&ENGLISH.said(turn, 4));
        asked["max_context_tokens"] = 3_000.into();
        let answer = server.post(&turns, &asked).good();
        assert_eq!(answer["reason"], "output", "{turn}: {answer}");
    }
    let last = told(&endpoint, 19);
    assert!(last.len() < 3_000 * BYTES_PER_TOKEN, "{}", last.len());
    assert!(last.contains("A-1741"), "{last}");

    // One message alone is too long, and the error names it.
    let mut asked = ask(&format!("Count these words. {}", "word ".repeat(4_000)));
    asked["max_context_tokens"] = 3_000.into();
    let answer = server.post("/v1/agent", &asked).good();
    assert_eq!(answer["reason"], "token_budget", "{answer}");
    let error = answer["error"].as_str().unwrap();
    assert!(
        error.contains("the longest message is number 1 of 1, the user's \"Count these words."),
        "{error}"
    );
    assert_eq!(endpoint.requests().len(), 20);
}

/// A small model that is named writes beside the statements; the usage has what it took.
#[test]
fn statement_000_51_a_smaller_model_sums_up_where_it_is_named() {
    let host = host();
    let small = Endpoint::start(
        Scenario::new([Reply::content("They spoke of a list.")]).in_order(ReplyOrder::Repeat),
    );
    host.write(
        "toolhold.toml",
        format!(
            "[run]\nsummarizer = \"small\"\n[endpoints.default]\nwindow = {WINDOW}\n[endpoints.small]\nbase_url = \"{}\"\n\
             model = \"small\"\n",
            small.base_url()
        ),
    );
    let endpoint = endpoint(ENGLISH);
    let server = serve(&host, &endpoint);
    let turns = session(&server);
    talk_in_session(&server, &turns, ENGLISH, 20, 4);
    ENGLISH.holds(&endpoint);
    assert!(!small.requests().is_empty());
    assert!(told(&small, 0).contains("user: "), "{}", told(&small, 0));
    assert!(told(&endpoint, 19).contains("They spoke of a list."));
    let runs = Records::of(&host).runs();
    let beside = runs.iter().find(|run| {
        let lines = Records::of(&host).lines(run);
        lines
            .iter()
            .any(|line| line.contains("\"role\":\"summary\""))
    });
    replays(&host, beside.unwrap());
}
