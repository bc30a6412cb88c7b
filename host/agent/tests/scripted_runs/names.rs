//! Section 4.12: names of tools and parameters as they go out and come in.

use super::support::{
    Echo, Reply, Script, driver, end, lines, output, plain_tools, request, results, run,
};
use serde_json::{Value, json};
use toolhold_agent::Activities;
use toolhold_agent::run::replay::replay;
use toolhold_protocol::context::Message;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::event::{EventKind, FORMAT, OLDEST_FORMAT};
use toolhold_protocol::settings::RunRequest;

/// A tool that the client runs, with this schema of its arguments.
fn clients(name: &str, parameters: &Value) -> Message {
    let properties = json!({"_activity": {"const": name}, "_parameters": parameters});
    let tool =
        json!({"type": "tool", "tool": {name: {"type": "object", "properties": properties}}});
    Message::parse_all(&json!([tool])).unwrap().remove(0)
}

fn asked(contract: Contract, messages: impl IntoIterator<Item = Message>) -> RunRequest {
    let mut asked = request(messages);
    asked.settings.contract = contract;
    asked
}

/// The names of the functions of the first request.
fn functions(script: &Script) -> Vec<String> {
    let body = script.bodies().remove(0);
    let tools = body["tools"].as_array().unwrap().iter();
    let name = |tool: &Value| tool["function"]["name"].as_str().unwrap().to_owned();
    tools.map(name).collect()
}

#[tokio::test]
async fn a_name_with_something_around_it_is_the_tool_that_was_offered() {
    for written in [
        "echo-of",
        "echo.of",
        "echo_of",
        "Echo-Of",
        "echo-of<|channel|>commentary",
        "functions.echo-of",
        "tools.echo_of",
        "echo-of\n",
    ] {
        let script = Script::new([
            Reply::function(written, "{\"of\": 7}"),
            Reply::of(Contract::Tools, &output("done")),
        ]);
        let echo = Echo::default();
        let activities = Activities::default().with("echo.of", echo.activity());
        let asked = asked(Contract::Tools, [plain_tools(&["echo.of"])]);
        let events = run(&driver(&script, activities), asked).await;
        assert_eq!(functions(&script), ["echo-of"]);
        let called = results(&events);
        assert_eq!(called.len(), 1, "{written:?}: {}", lines(&events));
        assert_eq!(
            (called[0].0.as_str(), echo.count()),
            ("echo.of", 1),
            "{written:?}"
        );
    }
}

/// `finish` gives way, and stands for the output under another name.
#[tokio::test]
async fn a_client_calls_its_tools_as_it_likes() {
    for name in ["resolve-library-id", "finish", "meta", "9", "_x", "-"] {
        let script = Script::new([Reply::function(name, "{\"count\": 3}")]);
        let schema = json!({"properties": {"_count": {"type": "integer"}}, "required": ["_count"]});
        let mut asked = asked(Contract::Tools, [clients(name, &schema)]);
        asked.output_schema = Some(json!({"type": "integer"}));
        let activities = Activities::default().with_clients(name);
        let events = run(&driver(&script, activities), asked).await;
        let (reason, output) = end(&events);
        assert_eq!(reason, "tool_calls", "{name}: {}", lines(&events));
        let call = &output["calls"][0];
        assert_eq!(
            (&call["tool"], &call["arguments"]),
            (&json!(name), &json!({"_count": 3})),
            "{output}"
        );
        let functions = functions(&script);
        let finish = if name == "finish" {
            "finish_solution"
        } else {
            "finish"
        };
        assert_eq!(functions, [name, finish]);
        let body = script.bodies().remove(0);
        let parameters = &body["tools"][0]["function"]["parameters"];
        assert!(
            parameters["properties"]["count"].is_object(),
            "{parameters}"
        );
        assert!(parameters["properties"].get("_count").is_none());
    }
}

#[tokio::test]
async fn parameters_come_in_under_their_own_names_in_each_contract() {
    for contract in [Contract::Schema, Contract::Tools, Contract::Simple] {
        for written in ["count", "_count"] {
            let call = json!({"_tool": "search", written: 3, "user-id": "x"});
            let reply = Reply::of(contract, &json!({"calls": [call], "output": null}));
            let script = Script::new([reply]);
            let schema = json!({"properties": {"_count": {"type": "integer"}, "user.id": {}}});
            let asked = asked(contract, [clients("search", &schema)]);
            let activities = Activities::default().with_clients("search");
            let events = run(&driver(&script, activities), asked).await;
            let (_, output) = end(&events);
            assert_eq!(
                output["calls"][0]["arguments"],
                json!({"_count": 3, "user.id": "x"}),
                "{contract:?} {written}: {}",
                lines(&events)
            );
        }
    }
}

#[tokio::test]
async fn a_keyword_that_cannot_be_checked_is_told_and_refuses_nothing() {
    let schema = json!({"properties": {
        "code": {"type": "string", "pattern": "^(?!x)"}, "of": {"$ref": "#/$defs/none"},
    }});
    let script = Script::new([Reply::function("search", "{\"code\": \"a\", \"of\": 1}")]);
    let asked = asked(Contract::Tools, [clients("search", &schema)]);
    let activities = Activities::default().with_clients("search");
    let events = run(&driver(&script, activities), asked).await;
    assert_eq!(end(&events).0, "tool_calls", "{}", lines(&events));
    let notices = events.iter().filter_map(|event| match &event.kind {
        EventKind::Notice { message, .. } => Some(message.as_str()),
        _ => None,
    });
    let notices: Vec<&str> = notices.collect();
    for place in ["/properties/code/pattern", "/properties/of/$ref"] {
        let count = notices
            .iter()
            .filter(|notice| notice.contains(place))
            .count();
        assert_eq!(count, 1, "{place}: {notices:?}");
    }
}

/// In format 3 a name with something around it was no tool.
#[tokio::test]
async fn a_record_keeps_the_names_of_its_format() {
    for (written, is_same) in [("echo", true), ("functions.echo", false)] {
        let script = Script::new([
            Reply::function(written, "{\"of\": 7}"),
            Reply::of(Contract::Tools, &output("done")),
        ]);
        let activities = Activities::default().with("echo", Echo::default().activity());
        let asked = asked(Contract::Tools, [plain_tools(&["echo"])]);
        let mut events = run(&driver(&script, activities), asked).await;
        let mut replayed_as = |of: u32| {
            if let EventKind::Run { format, .. } = &mut events[0].kind {
                *format = of;
            }
            replay(&events)
        };
        assert!(replayed_as(FORMAT).is_ok());
        assert_eq!(replayed_as(OLDEST_FORMAT).is_ok(), is_same, "{written}");
    }
}
