//! Runs a script over tools, to the end, and holds the run to its record.

use super::events::{kept, lines};
use super::script::Script;
use super::tools::NoModules;
use std::sync::Arc;
use std::time::Duration;
use toolhold_agent::run::replay::replay;
use toolhold_agent::{Activities, Driver, Run};
use toolhold_protocol::context::Message;
use toolhold_protocol::event::Event;
use toolhold_protocol::event::NoJournal;
use toolhold_protocol::settings::RunRequest;

/// The most that anything here may take; a run that hangs fails its test.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn request(context: impl IntoIterator<Item = Message>) -> RunRequest {
    let mut request = RunRequest::new(uuid::Uuid::now_v7(), "the task");
    request.context.splice(0..0, context);
    request.settings.max_calls = 1_000;
    request
}

pub fn driver(script: &Arc<Script>, activities: Activities) -> Driver {
    Driver {
        activities,
        ..Driver::new(script.clone(), Arc::new(NoModules))
    }
}

/// Runs to the end. Its record, run again, comes to the same.
pub async fn run(driver: &Driver, request: RunRequest) -> Vec<Event> {
    watched(driver, request, |_| ()).await
}

/// As [`run`], telling of every event when it happens.
pub async fn watched(
    driver: &Driver,
    request: RunRequest,
    on_event: impl FnMut(&Event),
) -> Vec<Event> {
    let started = Box::pin(driver.start(request, Box::new(NoJournal)));
    let run = started.await.expect("a run");
    let events = watch(run, on_event).await;
    holds(&events);
    events
}

/// The events of [`watched`], and the pieces of replies, which are shown and not recorded.
pub async fn shown(
    driver: &Driver,
    request: RunRequest,
    on_event: impl FnMut(&Event),
) -> Vec<Event> {
    let started = Box::pin(driver.start(request, Box::new(NoJournal)));
    let run = started.await.expect("a run");
    let events = all(run, on_event).await;
    holds(&events);
    events
}

/// The events of a run until it ends.
pub async fn rest(run: Run) -> Vec<Event> {
    watch(run, |_| ()).await
}

/// The events of a run until it ends, as they are recorded: without the pieces of replies.
pub async fn watch(run: Run, on_event: impl FnMut(&Event)) -> Vec<Event> {
    let mut events = all(run, on_event).await;
    events.retain(|event| !event.kind.is_shown_only());
    events
}

async fn all(mut run: Run, mut on_event: impl FnMut(&Event)) -> Vec<Event> {
    let all = async {
        let mut events = Vec::new();
        while let Some(event) = run.events.recv().await {
            on_event(&event);
            events.push(event);
        }
        run.finished().await.expect("a journal");
        events
    };
    tokio::time::timeout(PATIENCE, all)
        .await
        .expect("the run ends")
}

/// A record that is over comes to the same again, as a journal keeps it.
pub fn holds(events: &[Event]) {
    let replayed =
        replay(&kept(events)).unwrap_or_else(|error| panic!("{error}\n{}", lines(events)));
    assert!(
        replayed.is_done && replayed.unsaid.is_empty(),
        "{:?}",
        replayed.unsaid
    );
}
