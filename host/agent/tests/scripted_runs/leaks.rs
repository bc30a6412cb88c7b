//! Sections 4 and 7: unrequested output of models. Calls as text, thoughts within the answer, and how both
//! are recorded.

use super::support::{
    Echo, Gate, Reply, Script, driver, end, lines, place, plain_tools, request, results, run,
    starts,
};
use serde_json::{Value, json};
use toolhold_agent::Activities;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{Event, EventKind};
use toolhold_protocol::failure::ToolFailure;

/// Plays these replies over the tools `echo` and `math.add`, and gives the events and what `echo` was
/// asked.
async fn play(contract: Contract, replies: Vec<Reply>) -> (Vec<Event>, Vec<Value>, String) {
    let script = Script::new(replies);
    let echo = Echo::default();
    let activities = Activities::default()
        .with("echo", echo.activity())
        .with("math.add", echo.activity());
    let mut request = request([plain_tools(&["echo", "math.add"])]);
    request.settings.contract = contract;
    let events = run(&driver(&script, activities), request).await;
    let made = echo.made.lock().unwrap().clone();
    let told = match script.asked() {
        0 | 1 => String::new(),
        n => script.told(n - 1),
    };
    (events, made, told)
}

fn done(contract: Contract) -> Reply {
    match contract {
        Contract::Simple => Reply::text(r#"{"final_answer": "done"}"#),
        _ => Reply::of(contract, &json!({"calls": [], "output": "done"})),
    }
}

/// The kinds of repairs, of the reply and of calls.
fn repaired(events: &[Event]) -> Vec<(Option<String>, Vec<Value>)> {
    let repaired = events.iter().filter_map(|event| match &event.kind {
        EventKind::Repaired { tool, repairs, .. } => Some((
            tool.clone(),
            repairs.iter().map(|repair| json!(repair.kind)).collect(),
        )),
        _ => None,
    });
    repaired.collect()
}

const TWO: &str = "<tool_call>\n{\"name\": \"echo\", \"arguments\": {\"of\": 7}}\n</tool_call>\n\
                   <tool_call>\n{\"name\": \"math-add\", \"arguments\": {\"of\": 8}}\n</tool_call>";

#[tokio::test]
async fn calls_written_as_text_are_made_in_every_contract() {
    for contract in Contract::ALL {
        for reply in [
            TWO.to_owned(),
            format!("<think>Both.</think>\n{TWO}"),
            format!("I look at both.\n{TWO}\n"),
            "[TOOL_CALLS]echo[ARGS]{\"of\": 7}[TOOL_CALLS]math-add[ARGS]{\"of\": 8}".to_owned(),
            "[echo(of=7), math.add(of=8)]".to_owned(),
            "```tool_code\nprint(echo(of=7))\nprint(math_add(of=8))\n```".to_owned(),
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"echo\">\n<｜DSML｜parameter name=\"of\" string=\"false\">7</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"math-add\">\n<｜DSML｜parameter name=\"of\" string=\"false\">8</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>".to_owned(),
            "<|channel|>commentary to=functions.echo <|constrain|>json<|message|>{\"of\": 7}<|call|><|start|>assistant<|channel|>commentary to=functions.math-add <|constrain|>json<|message|>{\"of\": 8}<|call|>".to_owned(),
            "```json\n[{\"name\": \"echo\", \"arguments\": {\"of\": 7}}, {\"name\": \"math.add\", \"parameters\": {\"of\": 8}}]\n```".to_owned(),
        ] {
            let (events, made, _) = play(contract, vec![Reply::text(&reply), done(contract)]).await;
            assert_eq!(
                made,
                [json!({"of": 7}), json!({"of": 8})],
                "{contract:?} {reply}: {}",
                lines(&events)
            );
            assert_eq!(end(&events), ("output".into(), json!("done")));
            let (call, kinds) = repaired(&events).remove(0);
            assert_eq!(call, None);
            assert!(kinds.contains(&json!("leaked_call")), "{kinds:?}");
            assert_eq!(kinds.contains(&json!("thought")), reply.starts_with("<think>"));
        }
    }
}

/// Values between tags are texts; what they are the tool's schema says.
#[tokio::test]
async fn values_between_tags_get_the_types_of_the_tool() {
    for reply in [
        "<tool_call>\n<function=math-add>\n<parameter=n>\n7\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>math.add\n<arg_key>n</arg_key>\n<arg_value>7</arg_value>\n</tool_call>",
    ] {
        let (events, made, _) = play(
            Contract::Tools,
            vec![Reply::text(reply), done(Contract::Tools)],
        )
        .await;
        assert_eq!(made, [json!({"n": 7})]);
        assert_eq!(
            repaired(&events),
            [
                (None, vec![json!("leaked_call")]),
                (Some("math.add".into()), vec![json!("number_as_text")]),
            ]
        );
        let call = events.iter().find_map(|event| match &event.kind {
            EventKind::Repaired { call, .. } => call.clone(),
            _ => None,
        });
        let started = events.iter().find_map(|event| match &event.kind {
            EventKind::ToolStart { call, .. } => Some(call.id.clone()),
            _ => None,
        });
        assert_eq!(call, started);
    }
}

/// Calls that begin a reply are made while it is generated.
#[tokio::test]
async fn a_leaked_call_starts_as_soon_as_it_is_complete() {
    for contract in [Contract::Schema, Contract::Simple] {
        let gate = Gate::default();
        let opened = gate.clone();
        let reply = "<tool_call>{\"name\": \"echo\"}</tool_call>\n<tool_call>{\"name\": \"late\"}</tool_call>";
        let script = Script::new([Reply::text(reply).ending_after(&gate), done(contract)]);
        let activities = Activities::default()
            .with("echo", move |_| {
                opened.open();
                async { Ok::<_, ToolFailure>(json!(1)) }
            })
            .with("late", Echo::default().activity());
        let mut request = request([plain_tools(&["echo", "late"])]);
        request.settings.contract = contract;
        let events = run(&driver(&script, activities), request).await;
        assert_eq!(starts(&events), ["echo", "late"], "{}", lines(&events));
        let replied = place(&events, |kind| matches!(kind, EventKind::Reply { .. }));
        let started = place(&events, |kind| matches!(kind, EventKind::ToolStart { .. }));
        assert!(started < replied, "{}", lines(&events));
        assert_eq!(end(&events).1, "done");
    }
}

#[tokio::test]
async fn a_native_call_and_its_copy_as_text_are_one() {
    let copy = "<tool_call>{\"name\": \"echo\", \"arguments\": {\"of\": 7}}</tool_call>\n";
    for reply in [
        Reply::function("echo", r#"{"of": 7}"#).then(copy),
        Reply::function("echo", r#"{"of": 7}"#).after_reasoning(copy),
    ] {
        let (events, made, _) = play(Contract::Tools, vec![reply, done(Contract::Tools)]).await;
        assert_eq!(made, [json!({"of": 7})]);
        assert_eq!(repaired(&events), []);
        assert_eq!(end(&events).1, "done");
    }
}

/// Servers cut a call off together with the thought before it.
#[tokio::test]
async fn a_call_at_the_end_of_a_thought_is_made_if_there_is_no_answer() {
    let call = "<tool_call>{\"name\": \"echo\", \"arguments\": {\"of\": 7}}</tool_call>";
    for contract in Contract::ALL {
        for reply in [
            Reply::text("").after_reasoning(&format!("I call it.\n{call}")),
            Reply::text(&format!("<think>\nI call it.\n{call}\n</think>\n")),
            Reply::text(&format!("<think>\nI call it.\n{call}")),
        ] {
            let (events, made, _) = play(contract, vec![reply, done(contract)]).await;
            assert_eq!(made, [json!({"of": 7})], "{contract:?} {}", lines(&events));
            assert_eq!(end(&events).1, "done");
        }
    }
    // An answer is there, so the thought is one.
    let thought = format!("Should I call it?\n{call}");
    let reply = done(Contract::Tools).after_reasoning(&thought);
    let (events, made, _) = play(Contract::Tools, vec![reply]).await;
    assert_eq!((made, end(&events).1), (vec![], json!("done")));
}

#[tokio::test]
async fn quoted_calls_are_not_executed() {
    let call = "<tool_call>{\"name\": \"echo\", \"arguments\": {\"of\": 7}}</tool_call>";
    for answer in [
        format!("Hermes models write:\n```\n{call}\n```"),
        format!("Hermes models write `{call}`."),
        format!("Hermes models write\n{call}\nand then wait."),
        format!("{call} is what Hermes models write."),
        "A call is JSON:\n```json\n{\"name\": \"echo\", \"arguments\": {\"of\": 7}}\n```"
            .to_owned(),
        "Mistral models write [TOOL_CALLS]echo[ARGS]{} first.".to_owned(),
        "Say </think> to stop.".to_owned(),
    ] {
        let (events, made, _) = play(Contract::Tools, vec![Reply::text(&answer)]).await;
        assert_eq!(made, [] as [Value; 0], "{answer}");
        assert_eq!(end(&events), ("output".into(), json!(answer)));
        assert_eq!(repaired(&events), []);
    }
    // Where the answer is data, text in it is text.
    for contract in [Contract::Schema, Contract::Simple] {
        let reply = match contract {
            Contract::Simple => json!({"final_answer": call}),
            _ => json!({"calls": [], "output": call}),
        };
        let (events, made, _) = play(contract, vec![Reply::text(&reply.to_string())]).await;
        assert_eq!((made, end(&events).1), (vec![], json!(call)));
    }
}

/// A call between sentences may be an example: it is not made, and is no answer.
#[tokio::test]
async fn a_call_beside_sentences_goes_back() {
    let call = "<tool_call>{\"name\": \"echo\", \"arguments\": {\"of\": 7}}</tool_call>";
    for reply in [
        format!("{call} I will wait for the result."),
        format!("Let me check.\n{call}\nI will wait for the result."),
        format!("Sure! {call}"),
    ] {
        let replies = vec![Reply::text(&reply), done(Contract::Tools)];
        let (events, made, told) = play(Contract::Tools, replies).await;
        assert_eq!((made, end(&events).1), (vec![], json!("done")), "{reply}");
        assert!(told.contains("beside other sentences"), "{told}");
    }
}

#[tokio::test]
async fn a_thought_is_no_part_of_the_answer() {
    for contract in Contract::ALL {
        let answer = match contract {
            Contract::Schema => r#"{"calls": [], "output": "7"}"#,
            Contract::Tools => "7",
            Contract::Simple => r#"{"final_answer": "7"}"#,
        };
        for thought in [
            "<think>\n2+5 is {\"final_answer\": \"8\"}\n</think>\n\n",
            "<reasoning>2+5</reasoning>",
            "<|channel|>analysis<|message|>2+5 is {\"final_answer\": \"8\"}<|end|><|start|>assistant<|channel|>final<|message|>",
            "2+5 is {\"final_answer\": \"8\"}, no.\n</think>\n",
        ] {
            let (events, _, _) =
                play(contract, vec![Reply::text(&[thought, answer].concat())]).await;
            assert_eq!(
                end(&events),
                ("output".into(), json!("7")),
                "{contract:?} {thought}"
            );
            assert_eq!(repaired(&events), [(None, vec![json!("thought")])]);
        }
        let endless = Reply::text("<think>\n2+5 is {\"final_answer\": \"8\"}");
        let (events, _, told) = play(contract, vec![endless, done(contract)]).await;
        assert_eq!(end(&events).1, "done", "{contract:?}");
        assert!(told.contains("thoughts and nothing else"), "{told}");
    }
}

/// gpt-oss behind a server that does not take its messages apart.
#[tokio::test]
async fn the_messages_of_harmony_are_taken_apart() {
    let thought = "<|channel|>analysis<|message|>{\"of\": 1}, perhaps.<|end|>";
    let said = "<|start|>assistant<|channel|>commentary<|message|>I ask.<|end|>";
    let call = "<|start|>assistant<|channel|>commentary to=functions.echo <|constrain|>json<|message|>{\"of\": 7}<|call|>";
    for contract in Contract::ALL {
        let answer = match contract {
            Contract::Schema => r#"{"calls": [], "output": "7"}"#,
            Contract::Tools => "7",
            Contract::Simple => r#"{"final_answer": "7"}"#,
        };
        let answer =
            format!("{thought}<|start|>assistant<|channel|>final<|message|>{answer}<|return|>");
        let calls = format!("{thought}{said}{call}");
        let (events, made, _) =
            play(contract, vec![Reply::text(&calls), Reply::text(&answer)]).await;
        assert_eq!(made, [json!({"of": 7})], "{contract:?} {}", lines(&events));
        assert_eq!(end(&events), ("output".into(), json!("7")), "{contract:?}");
        assert_eq!(
            repaired(&events),
            [
                (None, vec![json!("thought"), json!("leaked_call")]),
                (None, vec![json!("thought")]),
            ]
        );
    }
    // Nothing follows what it says, so that is the answer.
    let reply = said.replace("I ask.", "It is 7.");
    let (events, _, _) = play(Contract::Tools, vec![Reply::text(&reply)]).await;
    assert_eq!(end(&events), ("output".into(), json!("It is 7.")));
}

/// What is nothing but a call of something that is not offered is neither made nor an answer.
#[tokio::test]
async fn a_leaked_call_of_an_unknown_tool_is_told() {
    for reply in [
        "<tool_call>{\"name\": \"format_disk\", \"arguments\": {}}</tool_call>",
        "<|channel|>commentary to=functions.format_disk <|constrain|>json<|message|>{}<|call|>",
        "<｜DSML｜invoke name=\"format_disk\"></｜DSML｜invoke>",
        "```tool_code\nformat_disk()\n```",
    ] {
        for contract in Contract::ALL {
            let (events, made, told) =
                play(contract, vec![Reply::text(reply), done(contract)]).await;
            assert_eq!((made, end(&events).1), (vec![], json!("done")), "{reply}");
            assert_eq!(results(&events), []);
            assert!(told.contains("could not be used"), "{told}");
        }
    }
}
