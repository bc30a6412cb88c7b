//! Section 11: a run whose record has format 4 ends as it did, also where its calls and replies would be judged otherwise by
//! now.

use super::conversations::{UNMARKED, asking};
use super::rules_of_format_3::{OldRun, set_format, tool_for_a_day};
use super::support::{
    Echo, Reply, Script, driver, end, holds, lines, output, plain_tools, request, rest, results,
    run,
};
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{EventKind, FORMAT, NoJournal};

pub(super) const FORMAT_4: u32 = 4;

/// The message of the refusal of a call that is made again and again.
const MESSAGE: &str = "this very call was not made again; it gave the same result each time before: 1. Use that result, or \
                       do something else";

/// A call that may change something kept its count, and was refused from the third one on.
#[tokio::test]
async fn calls_kept_their_counts_until_the_end_of_the_run() {
    let after_change = ["recall", "recall", "remember", "recall"];
    let waiting = ["recall"; 4];
    for (tools, made_now, made_then) in [(after_change, 3, 2), (waiting, 3, 2)] {
        let started = |recall: &Echo| -> (Arc<Script>, Driver) {
            let replies = tools.map(|tool| Reply::calls(&[json!({"_tool": tool, "of": 1})]));
            let script = Script::new(replies.into_iter().chain([Reply::output("done")]));
            let activities = Activities::default()
                .with("recall", recall.activity())
                .with("remember", Echo::default().activity());
            (script.clone(), driver(&script, activities))
        };
        let asked = || request([plain_tools(&["recall", "remember"])]);
        let recall = Echo::default();
        let (_, current) = started(&recall);
        let mut events = run(&current, asked()).await;
        assert_eq!(recall.count(), made_now, "{}", lines(&events));
        holds(&events);
        events.truncate(1);
        set_format(&mut events, FORMAT_4);
        let recall = Echo::default();
        let (_, old) = started(&recall);
        let resumed = old.resume(replay(&events).unwrap(), Box::new(NoJournal));
        events.extend(rest(resumed).await);
        holds(&events);
        assert_eq!(end(&events), ("output".into(), json!("done")));
        assert_eq!(recall.count(), made_then, "{}", lines(&events));
        let last = &results(&events)[3].1;
        assert_eq!(last["error"]["message"], MESSAGE, "{last}");
        set_format(&mut events, FORMAT);
        assert!(replay(&events).is_err(), "{}", lines(&events));
    }
}

/// Forms of calls that were not known then are text.
#[tokio::test]
async fn calls_in_later_forms_were_answers() {
    for (text, is_call) in [
        ("✿FUNCTION✿: echo\n✿ARGS✿: {\"of\": 7}", true),
        (
            "{\"function_name\": \"echo\", \"function_args\": {\"of\": 7}}",
            true,
        ),
        (
            "{\"thought\": \"I look.\", \"name\": \"echo\", \"arguments\": {\"of\": 7}}",
            true,
        ),
        ("⟦tool⟧echo⟦args⟧{\"of\": 7}⟦end⟧", true),
        ("-> echo({\"of\": 7})", false),
    ] {
        let run = OldRun::of(Contract::Tools, Reply::text(text));
        let made: Vec<Value> = is_call.then(|| json!({"of": 7})).into_iter().collect();
        assert_eq!(run.now().await, (json!("done"), made), "{text}");
        let then = run.under(FORMAT_4).await;
        assert_eq!(then, (json!(text), Vec::new()), "{text}");
    }
}

/// Dates had no words but English ones.
#[tokio::test]
async fn dates_in_other_languages_were_refused() {
    for written in [
        "25 сентября 2025 г.",
        "25 września 2025 r.",
        "2025年9月25日",
    ] {
        let call = json!({"_tool": "echo", "of": written});
        let run = OldRun::of(Contract::Schema, Reply::calls(&[call]));
        let run = run.over(tool_for_a_day());
        let made = vec![json!({"of": "2025-09-25"})];
        assert_eq!(run.now().await, (json!("done"), made), "{written}");
        let then = run.under(FORMAT_4).await;
        assert_eq!(then, (json!("done"), Vec::new()), "{written}");
    }
}

/// An answer in the form of another contract had beside it only members that were null.
#[tokio::test]
async fn answers_of_another_contract_stood_alone() {
    for text in [
        "{\"calls\": [], \"final_answer\": \"It is 4.\"}",
        "{\"thought\": \"2+2\", \"final_answer\": \"It is 4.\"}",
    ] {
        let run = OldRun::of(Contract::Schema, Reply::text(text));
        assert_eq!(run.now().await, (json!("It is 4."), Vec::new()), "{text}");
        let then = run.under(FORMAT_4).await;
        assert_eq!(then, (json!("done"), Vec::new()), "{text}");
    }
}

/// Words before an answer that are a thought by now.
#[tokio::test]
async fn thoughts_in_later_forms_were_part_of_the_answer() {
    for (text, answer) in [
        ("Thought: 2+5\nFinal Answer: 7", "7"),
        ("<|thought_start|>2+5<|thought_end|>7", "7"),
    ] {
        let run = OldRun::of(Contract::Tools, Reply::text(text));
        assert_eq!(run.now().await, (json!(answer), Vec::new()), "{text}");
        let then = run.under(FORMAT_4).await;
        assert_eq!(then, (json!(text), Vec::new()), "{text}");
    }
    // In a reply that is read while it is generated.
    let solution = output("7").to_string();
    let text = format!("Thought: 2+5\nFinal Answer: {solution}");
    let run = OldRun::of(Contract::Schema, Reply::text(&text));
    assert_eq!(run.now().await, (json!("7"), Vec::new()));
}

/// In format 4 a text with the members of a call was no output, also with the name of no tool.
#[tokio::test]
async fn an_output_had_not_the_members_of_a_call() {
    for (text, is_same) in [
        (r#"{"name":"Ann","age":3}"#, true),
        (r#"{"name":"Ann","parameters":{"age":3}}"#, false),
    ] {
        let script = Script::new([Reply::text(text)]);
        let mut asked = request([plain_tools(&["echo"])]);
        asked.settings.contract = Contract::Tools;
        asked.output_schema = Some(json!({"type": "object"}));
        let activities = Activities::default().with("echo", Echo::default().activity());
        let mut events = run(&driver(&script, activities), asked).await;
        let expected: Value = serde_json::from_str(text).unwrap();
        assert_eq!(end(&events), ("output".into(), expected));
        assert!(matches!(events[0].kind, EventKind::Run { .. }));
        set_format(&mut events, FORMAT_4);
        assert_eq!(replay(&events).is_ok(), is_same, "{text}");
    }
}

/// In format 4 a statement with a cue outlasted one without, however many had the same cue.
#[tokio::test]
async fn statements_left_a_summary_by_their_weight() {
    for talk in &UNMARKED {
        let fact = talk.facts[1];
        let started = || -> (Arc<Script>, Driver) {
            let script = Script::new([Reply::of(Contract::Schema, &output("done"))]);
            (script.clone(), driver(&script, Activities::default()))
        };
        let (script, current) = started();
        let asked = asking(talk.turns(300), Some(2_500));
        let mut events = run(&current, asked).await;
        assert!(script.told(0).contains(fact), "{}", script.told(0));
        events.truncate(1);
        set_format(&mut events, FORMAT_4);
        let (script, old) = started();
        let resumed = old.resume(replay(&events).unwrap(), Box::new(NoJournal));
        events.extend(rest(resumed).await);
        holds(&events);
        assert_eq!(end(&events), ("output".into(), json!("done")));
        assert!(!script.told(0).contains(fact), "{}", script.told(0));
        set_format(&mut events, FORMAT);
        assert!(replay(&events).is_err(), "{}", lines(&events));
    }
}
