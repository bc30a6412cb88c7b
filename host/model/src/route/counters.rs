//! Counting tokens where several endpoints serve one model.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::pool::{Member, PoolPolicy};
use crate::error::ModelError;
use crate::model::Model as _;
use crate::tokenizer::{Counter, Tokenizer};

/// Members are asked in turn until one counts, so an unreachable member does not matter, as with completions.
#[derive(Debug)]
struct AnyOf {
    first: Arc<dyn Counter>,
    others: Vec<Arc<dyn Counter>>,
}

/// The token counter of a pool, if all members tokenize alike: they serve the same model, count in the same
/// way, and no other model may answer instead.
pub(super) fn pool_counter(members: &[Member], policy: &PoolPolicy) -> Option<Arc<dyn Counter>> {
    let (first, others) = members.split_first()?;
    let counter = first.endpoint.counter()?;
    let alike = |member: &Member| {
        let own = member.endpoint.counter()?;
        let is_alike = member.endpoint.name() == first.endpoint.name()
            && own.tokenizer() == counter.tokenizer();
        is_alike.then_some(own)
    };
    let others = others.iter().map(alike).collect::<Option<Vec<_>>>()?;
    policy.smaller.is_none().then(|| {
        let all = AnyOf {
            first: counter,
            others,
        };
        Arc::new(all) as Arc<dyn Counter>
    })
}

impl Counter for AnyOf {
    fn count<'a>(&'a self, text: &'a str) -> BoxFuture<'a, Result<u64, ModelError>> {
        async move {
            let mut counted = self.first.count(text).await;
            for other in &self.others {
                if counted.is_ok() {
                    break;
                }
                counted = other.count(text).await;
            }
            counted
        }
        .boxed()
    }

    fn tokenizer(&self) -> Option<Tokenizer> {
        self.first.tokenizer()
    }
}

#[cfg(test)]
#[path = "counters_tests.rs"]
mod tests;
