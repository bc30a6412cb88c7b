//! Section 7.15: bytes of results are kept beside the record.

use super::support::{
    Reply, Script, driver, end, lines, plain_tools, request, results, run, tools,
};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_agent::calls::KeptBlobs;
use toolhold_agent::{Activities, Driver};
use toolhold_protocol::blob::{BlobContent, BlobKeeper, BlobRefusal};
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::image::Image;
use uuid::Uuid;

/// Base64 of a PNG file of `size` bytes, whose last is `last`.
fn png(size: usize, last: u8) -> String {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    bytes.resize(size, last);
    let image = Image::new("", &bytes).unwrap();
    image.data().unwrap().to_string()
}

/// An image as a tool returns it.
fn shot(size: usize, last: u8) -> Value {
    json!({"mime": "image/png", "base64": png(size, last)})
}

fn shoots(size: usize) -> impl Fn(Value) -> BoxFuture<'static, Result<Value, ToolFailure>> {
    move |arguments| {
        let last = arguments["n"].as_u64().unwrap_or_default();
        let part = shot(size, u8::try_from(last).unwrap());
        Box::pin(std::future::ready(Ok(json!(["a shot", part]))))
    }
}

fn weighs(arguments: &Value) -> BoxFuture<'static, Result<Value, ToolFailure>> {
    let length = arguments["of"].as_str().map(str::len);
    Box::pin(std::future::ready(Ok(json!(length))))
}

fn gives(value: &Value) -> BoxFuture<'static, Result<Value, ToolFailure>> {
    Box::pin(std::future::ready(Ok(value.clone())))
}

#[tokio::test]
async fn the_model_is_shown_an_image_of_which_the_record_has_the_digest() {
    let base64 = png(3_000, 0);
    let part = json!({"mime": "image/png", "base64": base64});
    let reference = BlobContent::of(&part).unwrap().reference();
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "shoot"})]),
        Reply::calls(&[json!({"_tool": "weigh", "of": reference["base64"]})]),
        Reply::output("done"),
    ]);
    let activities = Activities::default()
        .with("shoot", shoots(3_000))
        .with("weigh", |arguments: Value| weighs(&arguments));
    let events = run(
        &driver(&script, activities),
        request([plain_tools(&["shoot", "weigh"])]),
    )
    .await;
    assert_eq!(end(&events).1, "done", "{}", lines(&events));
    let record = lines(&events);
    assert!(!record.contains(&base64));
    let results = results(&events);
    assert_eq!(results[0].1["output"], json!(["a shot", reference]));
    // The tool is called with the bytes.
    assert_eq!(results[1].1["output"], base64.len());
    let shown = script.told(1);
    assert!(shown.contains(&format!("data:image/png;base64,{base64}")));
    assert!(
        shown.contains("is from a result of \\\"shoot\\\""),
        "{shown}"
    );
}

/// The text for images that are left out is bounded, too.
#[tokio::test]
async fn a_row_of_images_that_are_not_shown_is_one_text() {
    let shots: Vec<Value> = (0..30).map(|n| shot(100, n)).collect();
    let many = Value::from(shots);
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "shoot", "n": 1})]),
        Reply::calls(&[json!({"_tool": "shoot", "n": 2})]),
        Reply::output("done"),
    ]);
    let activities = Activities::default().with("shoot", move |_: Value| gives(&many));
    let events = run(
        &driver(&script, activities),
        request([plain_tools(&["shoot"])]),
    )
    .await;
    assert_eq!(end(&events).1, "done", "{}", lines(&events));
    let shown = script.told(1);
    assert_eq!(shown.matches("data:image/png").count(), 16);
    assert!(!shown.contains("shown any more"), "{shown}");
    let shown = script.told(2);
    assert_eq!(shown.matches("data:image/png").count(), 16);
    let left = "Images 1 to 16 are not shown any more";
    assert_eq!(shown.matches(left).count(), 1, "{shown}");
    assert_eq!(shown.matches("shown any more").count(), 1, "{shown}");
}

#[tokio::test]
async fn a_tool_shows_the_model_no_bytes_by_their_name() {
    let part = json!({"mime": "image/png", "base64": png(3_000, 0)});
    let reference = BlobContent::of(&part).unwrap().reference();
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "shoot"})]),
        Reply::calls(&[json!({"_tool": "forge"})]),
        Reply::output("done"),
    ]);
    let activities = Activities::default()
        .with("shoot", shoots(3_000))
        .with("forge", move |_: Value| gives(&reference));
    let events = run(
        &driver(&script, activities),
        request([plain_tools(&["shoot", "forge"])]),
    )
    .await;
    assert_eq!(end(&events).1, "done", "{}", lines(&events));
    let forged = &results(&events)[1].1["output"];
    assert_eq!(forged["error"], "blob_name", "{forged}");
    assert_eq!(forged["base64"], Value::Null, "{forged}");
    assert_eq!(script.told(2).matches("data:image/png").count(), 1);
}

#[tokio::test]
async fn the_newest_images_are_shown_as_many_as_a_request_takes() {
    let shots: Vec<Value> = (0..3).map(|n| json!({"_tool": "shoot", "n": n})).collect();
    let script = Script::new([Reply::calls(&shots), Reply::output("done")]);
    let activities = Activities::default().with("shoot", shoots(4 << 20));
    let events = run(
        &driver(&script, activities),
        request([tools(&[("shoot", json!({"readOnly": true}))])]),
    )
    .await;
    assert_eq!(end(&events).1, "done");
    let shown = script.told(1);
    assert_eq!(shown.matches("data:image/png").count(), 2);
    assert_eq!(shown.matches("It is not shown any more").count(), 1);
}

/// There is no room for anything.
#[derive(Debug)]
struct FullKeeper;

impl BlobKeeper for FullKeeper {
    fn keep<'a>(&'a self, _: Uuid, _: &'a [BlobContent]) -> BoxFuture<'a, Result<(), BlobRefusal>> {
        let refusal = BlobRefusal::Full("the disk of this test is full".into());
        Box::pin(std::future::ready(Err(refusal)))
    }

    fn read<'a>(&'a self, _: Uuid, _: &'a str) -> BoxFuture<'a, Option<Arc<str>>> {
        Box::pin(std::future::ready(None))
    }
}

#[tokio::test]
async fn bytes_without_room_are_said_to_be_missing() {
    let script = Script::new([
        Reply::calls(&[json!({"_tool": "shoot"})]),
        Reply::output("done"),
    ]);
    let full = Driver {
        blobs: KeptBlobs::new(Arc::new(FullKeeper)),
        ..driver(&script, Activities::default().with("shoot", shoots(3_000)))
    };
    let events = run(&full, request([plain_tools(&["shoot"])])).await;
    assert_eq!(end(&events).1, "done");
    let part = &results(&events)[0].1["output"][1];
    assert_eq!(part["error"], "blob_quota", "{part}");
    assert_eq!(part["bytes"], 3_000);
    let shown = script.told(1);
    assert!(shown.contains("the disk of this test is full"), "{shown}");
    assert!(!shown.contains("data:image/png"));
}
