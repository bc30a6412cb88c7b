//! Section 7.5: a cost that cannot be known is unknown, never 0.

use super::support::{Reply, Script, driver, end, json_of, request, run};
use serde_json::{Value, json};
use toolhold_agent::Activities;
use toolhold_protocol::cost::Price;

/// What the run cost, as its end says, and what each reply did.
async fn costs(price: Price, replies: Vec<Reply>) -> (Option<Value>, Vec<Option<Value>>) {
    let script = Script::new(replies);
    let mut asked = request([]);
    asked.settings.price = Some(price);
    let events = run(&driver(&script, Activities::default()), asked).await;
    assert_eq!(end(&events), ("output".into(), json!("done")));
    let events: Vec<Value> = events.iter().map(json_of).collect();
    let cost = |event: &Value| event.get("cost_nano").cloned();
    let tokens = events.iter().filter(|event| event["event"] == "tokens");
    for failed in events
        .iter()
        .filter(|event| event["event"] == "model_failed")
    {
        assert!(failed["failure"]["took_ms"].is_u64(), "{failed}");
    }
    (events.last().and_then(cost), tokens.map(cost).collect())
}

/// One that broke off was written in part, and paid for.
#[tokio::test]
async fn cost_of_a_broken_reply_is_unknown_unless_priced_by_time() {
    let amount = |text: &str| text.parse().unwrap();
    let of_tokens = Price::Tokens {
        prompt: amount("1"),
        cached: amount("1"),
        completion: amount("2"),
    };
    let of_time = Price::Time {
        gpu_hour: amount("3.60"),
        gpus: 1,
        in_flight: 1,
    };
    let done = || Reply::output("done").counted(100, 10);
    let broken = || Reply::output("done").breaking_after(2);
    let known = Some(json!(120_000));
    assert_eq!(
        costs(of_tokens, vec![done()]).await,
        (known.clone(), vec![known.clone()])
    );
    assert_eq!(
        costs(of_tokens, vec![broken(), done()]).await,
        (None, vec![None, known])
    );
    let (cost, replies) = costs(of_time, vec![broken(), done()]).await;
    assert!(cost.is_some(), "{replies:?}");
    assert_eq!(replies.len(), 2);
    assert!(replies.iter().all(Option::is_some), "{replies:?}");
}
