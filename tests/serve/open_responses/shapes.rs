//! Shapes of objects, items and events (`tests/fixtures/open_responses.json`), and the order of events in a stream.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use support::server::Answered;
use toolhold_schema::Validator;

const SHAPES: &str = include_str!("../../fixtures/open_responses.json");

/// The specification's shapes by their names; those of events have their types as names.
#[derive(Debug)]
pub struct Shapes(BTreeMap<String, Validator>);

/// An item of a stream that is not done.
struct OpenItem {
    id: String,
    index: usize,
    /// The texts of its parts; the arguments of a call are one.
    text: String,
    has_part: bool,
    is_part_done: bool,
}

impl Shapes {
    pub fn read() -> Self {
        let shapes: Value = serde_json::from_str(SHAPES).unwrap();
        let shapes = &shapes["$defs"];
        let names = shapes.as_object().unwrap().keys();
        let validators = names.map(|name| {
            let schema = json!({"$defs": shapes, "$ref": format!("#/$defs/{name}")});
            (name.clone(), Validator::new(&schema).unwrap())
        });
        Self(validators.collect())
    }

    /// # Panics
    /// If the value has another shape than that of this name.
    pub fn check(&self, name: &str, value: &Value) {
        let shape = self.0.get(name);
        let shape = shape.unwrap_or_else(|| panic!("the specification has no {name}: {value}"));
        if let Err(misfit) = shape.check(value) {
            panic!("{name}: {misfit}: {value}");
        }
    }

    /// The response at the end of a stream.
    ///
    /// # Panics
    /// If the stream or one of its events is not as the specification has it.
    pub fn stream(&self, answered: &Answered) -> Value {
        let kind = answered.headers["content-type"].to_str().unwrap();
        assert_eq!(kind, "text/event-stream", "{answered:?}");
        let mut sent = answered.events();
        let end = sent.pop().unwrap();
        assert_eq!((end.event.as_str(), end.data.as_str()), ("", "[DONE]"));
        let mut events = Vec::new();
        for (number, event) in sent.iter().enumerate() {
            let data = event.json();
            assert_eq!(data["type"], event.event, "the field event is the type");
            assert_eq!(data["sequence_number"], number, "{data}");
            assert_eq!(event.id, "", "{data}");
            self.check(&event.event, &data);
            events.push(data);
        }
        in_order(&events)
    }
}

/// The response at the end of these events.
fn in_order(events: &[Value]) -> Value {
    let (begin, rest) = events.split_at(2);
    for (event, kind) in begin
        .iter()
        .zip(["response.created", "response.in_progress"])
    {
        assert_eq!(event["type"], kind);
        assert_eq!(event["response"]["status"], "in_progress", "{event}");
    }
    let (end, rest) = rest.split_last().unwrap();
    let response = &end["response"];
    let mut done = Vec::new();
    let mut open: Option<OpenItem> = None;
    let mut has_failed = false;
    for event in rest {
        match event["type"].as_str().unwrap() {
            "response.output_item.added" => {
                assert!(open.is_none(), "an item is open: {event}");
                open = Some(OpenItem::added(event, done.len()));
            }
            "response.output_item.done" => {
                let item = open.take().unwrap();
                done.push(item.done(event));
            }
            "error" => has_failed = true,
            _ => open.as_mut().unwrap().continued(event),
        }
    }
    let kind = end["type"].as_str().unwrap();
    let status = response["status"].as_str().unwrap();
    assert_eq!(kind, format!("response.{status}"));
    assert!(!has_failed || status == "failed", "{end}");
    // An item that is open when a stream breaks off stays so.
    let output = response["output"].as_array().unwrap();
    assert_eq!(&output[..done.len()], done.as_slice(), "{end}");
    assert_eq!(output.len(), done.len() + usize::from(open.is_some()));
    let before_the_last = done.iter().rev().skip(1);
    for item in before_the_last {
        assert_eq!(item["status"], "completed", "{end}");
    }
    if status == "completed" {
        assert!(done.iter().all(|item| item["status"] == "completed"));
        assert!(response["completed_at"].as_u64() >= response["created_at"].as_u64());
    } else {
        assert!(response["completed_at"].is_null(), "{end}");
    }
    assert_eq!(response["error"].is_object(), status == "failed", "{end}");
    let details = &response["incomplete_details"];
    assert_eq!(details.is_object(), status == "incomplete", "{end}");
    response.clone()
}

impl OpenItem {
    fn added(event: &Value, index: usize) -> Self {
        let item = &event["item"];
        assert_eq!(event["output_index"], index, "{event}");
        assert_eq!(item["status"], "in_progress", "{event}");
        Self {
            id: item["id"].as_str().unwrap().to_owned(),
            index,
            text: String::new(),
            has_part: false,
            is_part_done: false,
        }
    }

    fn continued(&mut self, event: &Value) {
        assert_eq!(event["item_id"], self.id, "{event}");
        assert_eq!(event["output_index"], self.index, "{event}");
        assert!(!self.is_part_done, "{event}");
        match event["type"].as_str().unwrap() {
            "response.content_part.added" => {
                assert!(!self.has_part, "{event}");
                assert_eq!(event["content_index"], 0, "{event}");
                self.has_part = true;
            }
            "response.output_text.delta" => {
                assert!(self.has_part, "{event}");
                self.text += event["delta"].as_str().unwrap();
            }
            "response.output_text.done" => assert_eq!(event["text"], self.text),
            "response.content_part.done" => {
                assert_eq!(event["part"]["text"], self.text);
                self.is_part_done = true;
            }
            "response.function_call_arguments.delta" => {
                self.text += event["delta"].as_str().unwrap();
            }
            "response.function_call_arguments.done" => {
                assert_eq!(event["arguments"], self.text);
                self.is_part_done = true;
            }
            other => panic!("{other} is of no item: {event}"),
        }
    }

    fn done(self, event: &Value) -> Value {
        let item = &event["item"];
        assert_eq!(
            (&item["id"], &event["output_index"]),
            (&json!(self.id), &json!(self.index))
        );
        assert_ne!(item["status"], "in_progress", "{event}");
        assert!(self.is_part_done, "{event}");
        let text = match item["type"].as_str().unwrap() {
            "function_call" => &item["arguments"],
            _ => &item["content"][0]["text"],
        };
        assert_eq!(*text, self.text, "{event}");
        item.clone()
    }
}
