//! Light faults that are put right, and what the endpoint is asked for.

use super::{ask, server};
use serde_json::{Value, json};
use support::endpoint::Reply;
use support::transcript::{answers, calls, told};

/// As the documents' own definition of a tool says what a date is.
const DATE: &str = r"^\d{4}-\d{2}-\d{2}$";

fn booking() -> Value {
    json!({"type": "function", "name": "book", "description": "Books a day.", "parameters": {
        "type": "object", "required": ["day"],
        "properties": {"day": {"type": "string", "pattern": DATE}},
    }})
}

#[test]
fn statement_000_36_dates_are_put_right_under_a_pattern() {
    for (written, day) in [
        ("25.09.2025", "2025-09-25"),
        ("1 September 2025", "2025-09-01"),
        ("September 1, 2025", "2025-09-01"),
        ("2025/09/01", "2025-09-01"),
        ("25 сентября 2025 г.", "2025-09-25"),
        ("2025年9月25日", "2025-09-25"),
    ] {
        let (_host, _endpoint, server) = server("", [calls([("book", json!({"day": written}))])]);
        let mut asked = ask("Book it.");
        asked["tools"] = json!([booking()]);
        let answer = server.post("/v1/agent", &asked).good();
        let call = &answer["steps"][0]["calls"][0];
        assert_eq!(
            call["arguments"],
            json!({"day": day}),
            "{written}: {answer}"
        );
        assert_eq!(call["status"], "client", "{answer}");
    }
}

/// The model is told both readings, and none is chosen.
#[test]
fn statement_000_36_a_date_with_two_readings_is_refused_under_a_pattern() {
    let (_host, endpoint, server) = server(
        "",
        [
            calls([("book", json!({"day": "05/03/2026"}))]),
            answers("Which day?"),
        ],
    );
    let mut asked = ask("Book it.");
    asked["tools"] = json!([booking()]);
    let answer = server.post("/v1/agent", &asked).good();
    assert_eq!(
        answer["steps"][0]["calls"][0]["status"], "refused",
        "{answer}"
    );
    let text = told(&endpoint, 1);
    assert!(
        text.contains("2026-03-05") && text.contains("2026-05-03"),
        "{text}"
    );
}

#[test]
fn statement_000_36_arguments_of_latent_calls_are_put_right() {
    let tool = json!({"type": "object", "description": "Rates a text.", "required": ["of", "marks"],
    "properties": {
        "of": {"type": "string"},
        "marks": {"type": "array", "items": {"type": "integer"}},
        "day": {"type": "string", "pattern": DATE},
        "_output": {"type": "string"},
    }});
    let call = json!({"of": "x", "marks": "7", "day": "1 September 2025", "_output": "good"});
    let reference = json!({"of": "x", "marks": "†data.marks", "_output": "good"});
    let (_host, _endpoint, server) = server(
        "",
        [
            calls([("rate", call), ("rate", reference)]),
            answers("It is good."),
        ],
    );
    let mut asked = ask("Rate it.");
    asked["context"] = json!([
        {"type": "tool", "tool": {"rate": tool}},
        {"type": "data", "data": {"marks": [1, 2]}},
    ]);
    let answer = server.post("/v1/agent", &asked).good();
    let made = &answer["steps"][0]["calls"];
    assert_eq!(
        (&made[0]["status"], &made[1]["status"]),
        (&json!("done"), &json!("done")),
        "{answer}"
    );
    assert_eq!(
        made[0]["arguments"],
        json!({"of": "x", "marks": [7], "day": "2025-09-01"}),
        "{answer}"
    );
    assert_eq!(made[1]["arguments"]["marks"], "†data.marks", "{answer}");
}

#[test]
fn statement_000_36_a_final_answer_is_read_under_the_contract_schema() {
    let (host, endpoint, server) = server("", [Reply::content(r#"{"final_answer": "It is 4."}"#)]);
    let answer = server.post("/v1/agent", &ask("2+2?")).good();
    assert_eq!(answer["output"], "It is 4.", "{answer}");
    assert_eq!(endpoint.requests().len(), 1, "it was not asked again");
    let run = answer["id"].as_str().unwrap();
    assert_eq!(host.run(&["runs", "replay", run]).code, Some(0));
}

#[test]
fn statement_000_36_results_without_ids_answer_calls_by_name_and_order() {
    let call = |id: &str, name: &str, city: &str| {
        json!({"id": id, "type": "function", "function": {
            "name": name, "arguments": json!({"city": city}).to_string(),
        }})
    };
    let messages = json!([
        {"role": "user", "content": "The weather and the news?"},
        {"role": "assistant", "content": null, "tool_calls": [
            call("a", "weather", "Bern"), call("b", "news", "Oslo"), call("c", "weather", "Rome"),
        ]},
        {"role": "tool", "name": "news", "content": "nothing new"},
        {"role": "tool", "content": "sunlit"},
        {"role": "tool", "name": "weather", "content": "drizzle"},
    ]);
    let (_host, endpoint, server) = server("", [answers("done"), answers("done")]);
    server
        .post("/v1/agent", &json!({"messages": messages}))
        .good();
    let mut asked = json!({"model": "default", "messages": messages});
    server.post("/v1/chat/completions", &asked).good();
    for n in [0, 1] {
        let text = told(&endpoint, n);
        let place = |part: &str| {
            let at = text.find(part);
            at.unwrap_or_else(|| panic!("{part} is missing: {text}"))
        };
        // The calls stand in the order of their results.
        for parts in [
            ["Oslo", "Bern", "Rome"],
            ["nothing new", "sunlit", "drizzle"],
        ] {
            let places = parts.map(place);
            assert!(places.is_sorted(), "{parts:?}: {text}");
        }
    }
    let more = json!({"role": "tool", "name": "weather", "content": "fog"});
    asked["messages"].as_array_mut().unwrap().push(more);
    let refused = server.post("/v1/chat/completions", &asked);
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.text.contains("tool_call_id"), "{refused:?}");
}

#[test]
fn statement_000_38_top_p_is_set_by_the_configuration() {
    let config = "[run]\ntop_p = 0.9\n[agents.other.run]\ntop_p = 0.5\n";
    let (_host, endpoint, server) = server(config, (0..3).map(|_| answers("done")));
    server.post("/v1/agent", &ask("t")).good();
    let mut asked = ask("t");
    asked["agent"] = "other".into();
    server.post("/v1/agent", &asked).good();
    let mut asked = ask("t");
    asked["top_p"] = 0.25.into();
    server.post("/v1/agent", &asked).good();
    let sent = endpoint.requests();
    let sent: Vec<&Value> = sent.iter().map(|request| &request["top_p"]).collect();
    assert_eq!(sent, [&json!(0.9), &json!(0.5), &json!(0.25)]);
}

#[test]
fn statement_000_38_a_reduced_limit_of_replies_is_told() {
    let config = "[run]\nmax_tokens = 300\n";
    let (_host, endpoint, server) = server(config, [answers("done"), answers("done")]);
    let mut asked = ask("t");
    asked["max_tokens"] = 4_000.into();
    let answer = server.post("/v1/agent", &asked).good();
    assert_eq!(endpoint.requests()[0]["max_tokens"], 300);
    let notices = answer["notices"].to_string();
    assert!(
        notices.contains("at most 300 tokens") && notices.contains("4000"),
        "{answer}"
    );
    asked["max_tokens"] = 200.into();
    let answer = server.post("/v1/agent", &asked).good();
    assert!(
        !answer["notices"].to_string().contains("tokens"),
        "{answer}"
    );
}
