//! Section 11: a run whose record has format 3 ends as it did, also where its replies would mean something else by now.

use super::support::{
    Echo, Reply, Script, driver, end, holds, lines, output, plain_tools, request, rest, run,
    some_data,
};
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver};
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{Event, EventKind, FORMAT, NoJournal, OLDEST_FORMAT};
use toolhold_protocol::settings::RunRequest;

/// A run in which this reply comes first. The next one ends it.
#[derive(Debug)]
pub(super) struct OldRun {
    contract: Contract,
    context: Vec<Message>,
    reply: Reply,
}

impl OldRun {
    pub(super) fn of(contract: Contract, reply: Reply) -> Self {
        Self {
            contract,
            context: vec![plain_tools(&["echo"])],
            reply,
        }
    }

    /// The run with this context.
    pub(super) fn over(self, context: Vec<Message>) -> Self {
        Self { context, ..self }
    }

    fn asked(&self) -> RunRequest {
        let mut asked = request(self.context.clone());
        asked.settings.contract = self.contract;
        asked
    }

    fn driver(&self, echo: &Echo) -> (Arc<Script>, Driver) {
        let last = Reply::of(self.contract, &output("done"));
        let script = Script::new([self.reply.clone(), last]);
        let activities = Activities::default().with("echo", echo.activity());
        (script.clone(), driver(&script, activities))
    }

    /// Runs by the current rules. Returns the output and the calls.
    pub(super) async fn now(&self) -> (Value, Vec<Value>) {
        let echo = Echo::default();
        let (_, driver) = self.driver(&echo);
        let events = run(&driver, self.asked()).await;
        assert_eq!(end(&events).0, "output", "{}", lines(&events));
        let made = echo.made.lock().unwrap().clone();
        (end(&events).1, made)
    }

    /// [`Self::under`] the rules of format 3.
    async fn then(&self) -> (Value, Vec<Value>) {
        self.under(OLDEST_FORMAT).await
    }

    /// Runs by the rules of this older format: as a record of that format is resumed that has nothing but its beginning.
    /// Returns the output and the calls, after the whole record was replayed.
    pub(super) async fn under(&self, format: u32) -> (Value, Vec<Value>) {
        let (_, begun) = self.driver(&Echo::default());
        let mut events = run(&begun, self.asked()).await;
        events.truncate(1);
        set_format(&mut events, format);
        let echo = Echo::default();
        let (_, driver) = self.driver(&echo);
        let resumed = driver.resume(replay(&events).unwrap(), Box::new(NoJournal));
        events.extend(rest(resumed).await);
        holds(&events);
        assert_eq!(end(&events).0, "output", "{}", lines(&events));
        let found = (end(&events).1, echo.made.lock().unwrap().clone());
        set_format(&mut events, FORMAT);
        assert!(replay(&events).is_err(), "{}", lines(&events));
        found
    }
}

pub(super) fn set_format(events: &mut [Event], of: u32) {
    if let EventKind::Run { format, .. } = &mut events[0].kind {
        *format = of;
    }
}

/// Marks that were not known then are text, and so is what stands between them.
#[tokio::test]
async fn calls_between_later_marks_were_answers() {
    for (text, is_call) in [
        (
            "<TOOLCALL>[{\"name\": \"echo\", \"arguments\": {\"of\": 7}}]</TOOLCALL>",
            true,
        ),
        (
            "<|new_call|>{\"name\": \"echo\", \"arguments\": {\"of\": 7}}<|/new_call|>",
            true,
        ),
        ("<my_tool>echo {\"of\": </my_tool>", false),
    ] {
        let run = OldRun::of(Contract::Tools, Reply::text(text));
        let made: Vec<Value> = is_call.then(|| json!({"of": 7})).into_iter().collect();
        assert_eq!(run.now().await, (json!("done"), made), "{text}");
        assert_eq!(run.then().await, (json!(text), Vec::new()), "{text}");
    }
}

#[tokio::test]
async fn arguments_that_were_encoded_twice_were_refused() {
    let twice = json!("{\"of\": 7}").to_string();
    let run = OldRun::of(Contract::Tools, Reply::function("echo", &twice));
    assert_eq!(run.now().await, (json!("done"), vec![json!({"of": 7})]));
    assert_eq!(run.then().await, (json!("done"), Vec::new()));
}

#[tokio::test]
async fn numbers_that_lose_digits_were_taken() {
    let arguments = "{\"of\": 36893488147419103232}";
    let solution =
        "{\"calls\": [{\"_tool\": \"echo\", \"of\": 36893488147419103232}], \"output\": null}";
    let leaked =
        format!("<tool_call>{{\"name\": \"echo\", \"arguments\": {arguments}}}</tool_call>");
    let repaired = solution.replace("null", "null,");
    let made: Value = serde_json::from_str(arguments).unwrap();
    for run in [
        OldRun::of(Contract::Tools, Reply::function("echo", arguments)),
        OldRun::of(Contract::Tools, Reply::text(&leaked)),
        OldRun::of(Contract::Schema, Reply::text(solution)),
        OldRun::of(Contract::Schema, Reply::text(&repaired)),
    ] {
        assert_eq!(run.now().await, (json!("done"), Vec::new()), "{run:?}");
        assert_eq!(
            run.then().await,
            (json!("done"), vec![made.clone()]),
            "{run:?}"
        );
    }
}

#[tokio::test]
async fn an_answer_in_the_form_of_another_contract_was_none() {
    let reply = Reply::text("{\"final_answer\": \"7\"}");
    let run = OldRun::of(Contract::Schema, reply);
    assert_eq!(run.now().await, (json!("7"), Vec::new()));
    assert_eq!(run.then().await, (json!("done"), Vec::new()));
}

/// A tool that takes a day.
pub(super) fn tool_for_a_day() -> Vec<Message> {
    let properties = json!({"of": {"type": "string", "pattern": "^\\d{4}-\\d{2}-\\d{2}$"}});
    let tool = json!({"echo": {"type": "object", "properties": properties}});
    Message::parse_all(&json!([{"type": "tool", "tool": tool}])).unwrap()
}

#[tokio::test]
async fn a_pattern_demanded_no_notation_of_a_date() {
    let run = OldRun::of(
        Contract::Schema,
        Reply::calls(&[json!({"_tool": "echo", "of": "25.09.2025"})]),
    );
    let run = run.over(tool_for_a_day());
    let made = vec![json!({"of": "2025-09-25"})];
    assert_eq!(run.now().await, (json!("done"), made));
    assert_eq!(run.then().await, (json!("done"), Vec::new()));
}

#[tokio::test]
async fn a_pair_of_daggers_was_one_wherever_it_stood() {
    let call = json!({"_tool": "echo", "of": "a††b"});
    let run = OldRun::of(Contract::Schema, Reply::calls(&[call]));
    let run = run.over(vec![plain_tools(&["echo"]), some_data()]);
    assert_eq!(run.now().await.1, [json!({"of": "a††b"})]);
    assert_eq!(run.then().await.1, [json!({"of": "a†b"})]);
}
