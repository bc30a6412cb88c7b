use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;
use crate::chat::ChatRequest;
use crate::model::{CompletionObserver, Model};
use crate::route::scripted::Scripted;
use crate::route::{Endpoint, EndpointPolicy, Pool, Retry, RetryPolicy};
use crate::side::SideModel;
use toolhold_protocol::completion::Completion;
use toolhold_protocol::side_request::SideRole;

/// A model that counts a token a byte, unless its server cannot be reached.
#[derive(Clone, Debug)]
struct CountingModel {
    name: &'static str,
    path: &'static str,
    is_there: bool,
    asked: Arc<AtomicUsize>,
}

impl Model for CountingModel {
    fn name(&self) -> &str {
        self.name
    }

    fn complete<'a>(
        &'a self,
        _: &'a ChatRequest,
        _: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        std::future::pending().boxed()
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        Some(Arc::new(self.clone()))
    }
}

impl Counter for CountingModel {
    fn count<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<u64, ModelError>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let counted = if self.is_there {
            Ok(text.len() as u64)
        } else {
            Err(ModelError::Config {
                message: format!("{} is not there", self.path),
            })
        };
        async move { counted }.boxed()
    }

    fn tokenizer(&self) -> Option<Tokenizer> {
        let tokenizer = json!({"place": "root", "form": self.path});
        Some(serde_json::from_value(tokenizer).unwrap())
    }
}

fn counting(name: &'static str, path: &'static str) -> CountingModel {
    CountingModel {
        name,
        path,
        is_there: true,
        asked: Arc::default(),
    }
}

fn endpoint(model: impl Model + 'static) -> Arc<Endpoint> {
    Arc::new(Endpoint::new("e", model, EndpointPolicy::default()))
}

fn pool<const N: usize>(members: [Arc<Endpoint>; N], policy: PoolPolicy) -> Pool {
    let members = members.map(|endpoint| Member {
        endpoint,
        weight: 1,
    });
    Pool::new("pool", members.into(), policy)
}

#[test]
fn a_pool_counts_where_its_members_count_alike() {
    let one = || endpoint(counting("m", "prompt"));
    let counts = |others, policy| pool([one(), others], policy).counter().is_some();
    assert!(counts(one(), PoolPolicy::default()));
    let other_model = endpoint(counting("n", "prompt"));
    assert!(!counts(other_model, PoolPolicy::default()));
    let other_form = endpoint(counting("m", "content"));
    assert!(!counts(other_form, PoolPolicy::default()));
    let no_counter = endpoint(Scripted::default());
    assert!(!counts(no_counter, PoolPolicy::default()));
    let smaller = PoolPolicy {
        smaller: Some(("small".into(), one())),
        ..PoolPolicy::default()
    };
    assert!(!counts(one(), smaller));
}

#[tokio::test]
async fn an_unreachable_member_does_not_prevent_counting() {
    let (mut first, mut second) = (counting("m", "prompt"), counting("m", "prompt"));
    first.is_there = false;
    let members = || [endpoint(first.clone()), endpoint(second.clone())];
    let counter = pool(members(), PoolPolicy::default()).counter().unwrap();
    assert_eq!(counter.count("four").await.unwrap(), 4);
    assert_eq!(first.asked.load(Ordering::SeqCst), 1);
    second.is_there = false;
    let members = [endpoint(first), endpoint(second.clone())];
    let counter = pool(members, PoolPolicy::default()).counter().unwrap();
    assert!(counter.count("four").await.is_err());
    assert_eq!(second.asked.load(Ordering::SeqCst), 2);
}

/// Whatever is around a model counts as it does.
#[tokio::test]
async fn wrapper_of_a_model_counts_like_the_model() {
    let retry = Retry::new(endpoint(counting("m", "prompt")), RetryPolicy::default());
    let wrapped = SideModel {
        role: SideRole::Shield,
        endpoint: "e".into(),
        model: Arc::new(retry.hedging(Some(std::time::Duration::from_millis(1)))),
        price: None,
    };
    let counter = wrapped.counter().unwrap();
    assert_eq!(counter.count("four").await.unwrap(), 4);
}
