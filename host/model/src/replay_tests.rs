//! Recording and replaying, against each other.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::TryStreamExt;
use serde_json::json;

use super::*;
use crate::record::RecordingTransport;
use crate::transport::Method;

/// A sink of which the test has a clone.
#[derive(Clone, Debug, Default)]
struct MemorySink(Arc<Mutex<Vec<u8>>>);

impl MemorySink {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for MemorySink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn exchange(content: &str, body: &[(u64, &[u8])]) -> String {
    let exchange = Exchange {
        method: Method::Post,
        path: "chat/completions".into(),
        request: canonical(Some(&request(content))),
        status: 200,
        headers: [("content-type".into(), "text/event-stream".into())]
            .into_iter()
            .collect(),
        body: body
            .iter()
            .map(|(delay_ms, bytes)| BodyChunk {
                delay_ms: *delay_ms,
                bytes: Bytes::copy_from_slice(bytes),
            })
            .collect(),
        cut: false,
    };
    serde_json::to_string(&exchange).unwrap() + "\n"
}

fn request(content: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": content}]})
}

async fn ask(transport: &dyn Transport, content: &str) -> Result<Vec<Bytes>, TransportError> {
    let request = HttpRequest {
        method: Method::Post,
        path: "chat/completions".into(),
        body: Some(request(content)),
    };
    transport.send(request).await?.body.try_collect().await
}

#[tokio::test]
async fn occurrences_are_told_apart_and_then_end() {
    let text = exchange("x", &[(0, b"first")]) + &exchange("x", &[(0, b"second")]);
    let replay = ReplayTransport::parse(&text).unwrap();
    assert_eq!(ask(&replay, "x").await.unwrap(), ["first"]);
    assert_eq!(ask(&replay, "x").await.unwrap(), ["second"]);
    let error = ask(&replay, "x").await.unwrap_err();
    assert!(error.to_string().contains("recorded 2 times"), "{error}");
}

#[tokio::test]
async fn an_unknown_request_is_shown_beside_the_nearest_recording() {
    let text = exchange("what is 17 times 23?", &[]) + &exchange("entirely different", &[]);
    let replay = ReplayTransport::parse(&text).unwrap();
    let error = ask(&replay, "what is 17 times 24?").await.unwrap_err();
    insta::assert_snapshot!(error, @r#"
    this POST chat/completions was never recorded; it differs from the nearest recording in 1 places (record again if the change is meant):
      messages[0].content: recorded "what is 17 times 23?" / now "what is 17 times 24?"
    "#);
    let request = HttpRequest {
        method: Method::Get,
        path: "models".into(),
        body: None,
    };
    let error = replay.send(request).await.unwrap_err();
    assert!(
        error.to_string().contains("no request GET models"),
        "{error}"
    );
}

#[tokio::test]
async fn delays_are_replayed_to_scale() {
    let text = exchange("x", &[(400, b"a"), (400, b"b")]);
    let replay = ReplayTransport::parse(&text).unwrap().with_pace(0.05);
    let start = Instant::now();
    ask(&replay, "x").await.unwrap();
    assert!(
        start.elapsed() >= Duration::from_millis(40),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn recorded_exchanges_replay_alike() {
    let text = exchange("x", &[(0, b"data: \xc3"), (0, b"\xbc\n\n")]) + &exchange("y", &[]);
    let sink = MemorySink::default();
    let source = Arc::new(ReplayTransport::parse(&text).unwrap());
    let recorder = RecordingTransport::new(source, sink.clone());
    let pieces = ask(&recorder, "x").await.unwrap();
    ask(&recorder, "y").await.unwrap();
    let replay = ReplayTransport::parse(&sink.text()).unwrap();
    assert_eq!(ask(&replay, "x").await.unwrap(), pieces);
    assert_eq!(sink.text(), text);
}

/// Each piece has a cost of its own, in memory and in the file.
#[tokio::test]
async fn a_body_in_very_many_pieces_is_recorded_in_fewer() {
    let pieces: Vec<(u64, &[u8])> = vec![(0, b"x"); 100_000];
    let sink = MemorySink::default();
    let source = Arc::new(ReplayTransport::parse(&exchange("x", &pieces)).unwrap());
    let recorder = RecordingTransport::new(source, sink.clone());
    assert_eq!(ask(&recorder, "x").await.unwrap().len(), pieces.len());
    let recorded = exchange::parse(&sink.text()).unwrap();
    let lengths: Vec<_> = recorded[0].body.iter().map(|it| it.bytes.len()).collect();
    assert_eq!(lengths.iter().sum::<usize>(), pieces.len());
    assert_eq!(lengths.len(), 10_000 + 90_000_usize.div_ceil(16 << 10));
    assert!(!recorded[0].cut);
}

#[tokio::test(start_paused = true)]
async fn an_unfinished_body_is_recorded_as_cut() {
    let text = exchange("x", &[(0, b"a"), (0, b"b")]);
    let sink = MemorySink::default();
    let source = Arc::new(ReplayTransport::parse(&text).unwrap());
    let recorder = RecordingTransport::new(source, sink.clone());
    let request = HttpRequest {
        method: Method::Post,
        path: "chat/completions".into(),
        body: Some(request("x")),
    };
    let mut response = recorder.send(request).await.unwrap();
    assert!(response.body.next().await.is_some());
    assert_eq!(sink.text(), "");
    drop(response);
    let exchanges = exchange::parse(&sink.text()).unwrap();
    assert!(exchanges[0].cut);
    assert_eq!(exchanges[0].body.len(), 1);
    let replay = ReplayTransport::parse(&sink.text()).unwrap();
    assert!(matches!(
        ask(&replay, "x").await,
        Err(TransportError::Broken { .. })
    ));
}
