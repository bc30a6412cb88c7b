//! Sections 3 and 7: calls that the run's client makes. The run ends with them.

use super::support::{
    Echo, Reply, Script, driver, end, holds, lines, plain_tools, request, rest, results, run,
    starts,
};
use serde_json::{Value, json};
use toolhold_agent::Activities;
use toolhold_agent::run::replay::replay;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::settings::RunRequest;

fn asked() -> RunRequest {
    request([plain_tools(&["weather", "echo"])])
}

fn activities(echo: &Echo) -> Activities {
    let own = Activities::default().with("echo", echo.activity());
    own.with_clients("weather")
}

fn call(tool: &str, of: impl Into<Value>) -> Value {
    json!({"_tool": tool, "of": of.into()})
}

/// Our own calls are made first, whatever of the client's came before them; the client's take no place.
#[tokio::test]
async fn a_run_ends_with_the_calls_that_are_the_clients() {
    let script = Script::new([Reply::calls(&[
        call("weather", 1),
        call("weather", 2),
        call("echo", 3),
        call("echo", 4),
        call("weather", 5),
    ])]);
    let echo = Echo::taking(30);
    let mut asked = asked();
    asked.settings.parallel_calls = 1;
    let events = run(&driver(&script, activities(&echo)), asked).await;
    assert_eq!(end(&events).0, "tool_calls", "{}", lines(&events));
    let started = starts(&events);
    let count = |tool: &str| started.iter().filter(|it| it.contains(tool)).count();
    assert_eq!((count("weather"), count("echo")), (3, 2), "{started:?}");
    assert_eq!((results(&events).len(), echo.count()), (2, 2));
    assert_eq!(script.asked(), 1);
}

/// However the reply goes on: what was handed over is not asked for again.
#[tokio::test]
async fn a_reply_that_goes_wrong_after_a_clients_call_ends_the_run() {
    let one = || Reply::calls(&[call("weather", 1)]);
    let two = || Reply::calls(&[call("echo", 1), call("weather", 2)]);
    // Without the end of the whole, which the last pieces are.
    let broken = |reply: Reply| {
        let pieces = reply.len() - 3;
        reply.breaking_after(pieces)
    };
    for reply in [broken(one()), broken(two()), one().then("and then some")] {
        for most in [1, 3] {
            let script = Script::new([reply.clone()]);
            let mut asked = asked();
            asked.settings.max_unusable = most;
            let echo = Echo::default();
            let events = run(&driver(&script, activities(&echo)), asked).await;
            assert_eq!(end(&events).0, "tool_calls", "{}", lines(&events));
            assert_eq!(script.asked(), 1);
        }
    }
}

/// A call that reads what the client's writes waits for the client, as the run does.
#[tokio::test]
async fn calls_that_need_a_client_result_are_not_made() {
    let script = Script::new([Reply::calls(&[
        json!({"_tool": "weather", "of": 1, "_outputPath": "†state.w"}),
        call("echo", "†state.w"),
    ])]);
    let echo = Echo::default();
    let events = run(&driver(&script, activities(&echo)), asked()).await;
    assert_eq!(end(&events).0, "tool_calls", "{}", lines(&events));
    assert_eq!(echo.count(), 0);
}

/// The process ends at any moment; the next needs to know nothing of the client's tools.
#[tokio::test]
async fn a_run_that_is_taken_up_again_ends_with_them_too() {
    let script = Script::new([Reply::calls(&[call("weather", 1), call("echo", 2)])]);
    let whole = run(&driver(&script, activities(&Echo::default())), asked()).await;
    let handed_over = whole
        .iter()
        .position(|event| matches!(event.kind, EventKind::ToolStart { .. }));
    for kept in handed_over.unwrap() + 1..whole.len() {
        let mut events = whole[..kept].to_vec();
        let echo = Activities::default().with("echo", Echo::default().activity());
        let replayed = replay(&events).unwrap();
        let resumed = driver(&Script::new([]), echo).resume(replayed, Box::new(NoJournal));
        events.extend(rest(resumed).await);
        holds(&events);
        assert_eq!(end(&events).0, "tool_calls", "{kept}: {}", lines(&events));
    }
}
