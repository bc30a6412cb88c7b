//! How many calls wait for a call, also where a saved Request is between them: each of them holds its places meanwhile.

use super::nested::{Modules, asks, driver};
use super::shields::{Words, post};
use super::support::{Reply, Script, end, lines, request, run};
use serde_json::json;
use std::sync::Arc;
use toolhold_agent::guard::shield::Shields;
use toolhold_agent::{Activities, Driver};
use toolhold_protocol::context::Message;
use toolhold_protocol::shield::ShieldPlace;

/// A module calls a saved Request, whose run calls the module, which calls a further tool.
#[tokio::test]
async fn calls_of_a_saved_request_are_as_deep_as_the_call_of_it() {
    let script = Script::new([
        asks("helper", &json!({"q": "why"})),
        Reply::calls(&[json!({"_tool": "ask", "tool": "taken", "arguments": {}})]),
        Reply::output("helped"),
        Reply::output("done"),
    ]);
    let (modules, words) = (Arc::<Modules>::default(), Arc::<Words>::default());
    let places = [ShieldPlace::ToolInput, ShieldPlace::ToolOutput];
    let driver = Driver {
        shields: Shields {
            posts: vec![post(&places, words.clone())],
            ..Shields::default()
        },
        ..driver(&script, &modules, Activities::default())
    };
    let helper = json!([{"type": "tool", "tool": {"help": {
        "type": "object", "description": "Helps.",
        "properties": {"_module": {"const": "helper"}, "q": {"type": "string"}},
    }}}]);
    let events = run(&driver, request(Message::parse_all(&helper).unwrap())).await;
    assert_eq!(end(&events).1, json!("done"), "{}", lines(&events));
    let called = [("m.ask", 0_u8), ("m.ask", 1), ("taken", 2)];
    let called = called.map(|(tool, depth)| (tool.to_owned(), depth));
    assert_eq!(*modules.depths.lock().unwrap(), called);
    // What is screened waits for as many: the call of the Request stands between the two of the module.
    let screened = words.seen.lock().unwrap();
    for place in places {
        let depths = screened.iter().filter(|it| it.place == place);
        let mut depths: Vec<u8> = depths.map(|it| it.depth).collect();
        depths.sort_unstable();
        assert_eq!(depths, [0, 1, 1, 2], "{place:?}");
    }
}
