//! Several interchangeable endpoints.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::Deserialize;

use super::counters;
use super::course::PooledRequest;
use super::endpoint::{Endpoint, EndpointLease};
use super::retry::{RetryPolicy, retry};
use crate::chat::ChatRequest;
use crate::error::ModelError;
use crate::model::{CompletionObserver, Model, RunContext};
use crate::tokenizer::Counter;
use crate::unavailable::Unavailable;
use toolhold_protocol::completion::Completion;

/// An endpoint of a pool.
#[derive(Clone, Debug)]
pub struct Member {
    pub endpoint: Arc<Endpoint>,
    /// Its share of the runs, among members with the same window. 0 counts as 1.
    pub weight: u32,
}

/// How a pool behaves.
#[derive(Clone, Debug)]
pub struct PoolPolicy {
    /// One attempt asks every available member.
    pub retry: RetryPolicy,
    /// How long a failed member is asked only after all others.
    pub left_out: Duration,
    /// Reliefs tried in this order when no member is free.
    pub overload: Vec<Relief>,
    /// For [`Relief::FewerTokens`], and the least room for an answer in [`Relief::ShortWindow`].
    pub fewer_tokens: u32,
    /// Without a piece of an answer after so long, another member is sent the request as well, once;
    /// `None`: never.
    pub hedge_after: Option<Duration>,
    /// For [`Relief::SmallerModel`].
    pub smaller: Option<(String, Arc<dyn Model>)>,
}

impl Default for PoolPolicy {
    fn default() -> Self {
        Self {
            retry: RetryPolicy::default(),
            left_out: Duration::from_secs(10),
            overload: Vec::new(),
            fewer_tokens: 256,
            hedge_after: None,
            smaller: None,
        }
    }
}

/// How a pool asks for less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relief {
    /// A shorter answer.
    FewerTokens,
    /// A member whose window the prompt fits in, but not with the longest answer that was asked for.
    ShortWindow,
    /// Another model.
    SmallerModel,
}

/// Members with limits, health and weights. A request goes to a member that it fits, those with the
/// smallest such window first, so that long windows are free for long requests.
///
/// One run stays with one member, whose prefix cache knows it by then.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<PoolState>,
    home: LastMember,
}

/// The member that the run's last request went to.
pub(super) type LastMember = Mutex<Option<usize>>;

#[derive(Debug)]
pub(super) struct PoolState {
    pub name: String,
    pub members: Vec<Member>,
    pub policy: PoolPolicy,
    turns: Mutex<Turns>,
}

impl Pool {
    /// `name` is what it is called in the configuration.
    pub fn new(name: impl Into<String>, members: Vec<Member>, policy: PoolPolicy) -> Self {
        let credits = vec![0; members.len()];
        Self {
            shared: Arc::new(PoolState {
                name: name.into(),
                members,
                policy,
                turns: Mutex::new(Turns { credits }),
            }),
            home: LastMember::default(),
        }
    }
}

impl Model for Pool {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        let course = PooledRequest::new(&self.shared, &self.home, request);
        let PoolState { name, policy, .. } = self.shared.as_ref();
        retry(name, &policy.retry, course, watch).boxed()
    }

    fn session(&self, _: &RunContext<'_>) -> Option<Arc<dyn Model>> {
        Some(Arc::new(Self {
            shared: self.shared.clone(),
            home: LastMember::default(),
        }))
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        counters::pool_counter(&self.shared.members, &self.shared.policy)
    }
}

/// A member that may be asked, with its rank.
#[derive(Debug)]
pub(super) struct PoolCandidate {
    pub member: usize,
    /// Tokens to ask it for.
    pub tokens: u64,
    /// The answer must be cut to its window.
    pub is_short: bool,
    pub is_home: bool,
}

/// The result of choosing a member.
pub(super) enum PoolChoice<'a> {
    Place(usize, EndpointLease<'a>),
    /// No member is available; holds the reasons of those that gave one, the others are busy.
    Nothing(Vec<Unavailable>),
}

impl PoolState {
    /// A lease at the best available candidate.
    pub fn place(&self, owner: &Arc<str>, mut candidates: Vec<PoolCandidate>) -> PoolChoice<'_> {
        // Held while looking, so that runs that begin together are shared out.
        let mut turns = self.turns();
        self.sort(&mut candidates, &turns);
        let mut refusals = Vec::new();
        for candidate in &candidates {
            let endpoint = &self.members[candidate.member].endpoint;
            match endpoint.try_enter(owner, candidate.tokens) {
                Ok(entry) => {
                    // The round robin counts runs, not requests.
                    if !candidate.is_home {
                        turns.took(candidate.member, &candidates, &self.members);
                    }
                    return PoolChoice::Place(candidate.member, entry);
                }
                Err(Some(refusal)) => refusals.push(refusal),
                Err(None) => {}
            }
        }
        PoolChoice::Nothing(refusals)
    }

    fn sort(&self, candidates: &mut [PoolCandidate], turns: &Turns) {
        candidates.sort_by_cached_key(|candidate| {
            let member = &self.members[candidate.member];
            (
                candidate.is_short,
                member.endpoint.failed_within(self.policy.left_out),
                member.endpoint.window().unwrap_or(u64::MAX),
                !candidate.is_home,
                Reverse(turns.credits[candidate.member] + member.share()),
            )
        });
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    fn share(&self) -> i64 {
        i64::from(self.weight.max(1))
    }
}

/// Smooth weighted round robin: with the weights 3 and 1, a a b a rather than a a a b.
#[derive(Debug)]
struct Turns {
    credits: Vec<i64>,
}

impl Turns {
    fn took(&mut self, taken: usize, candidates: &[PoolCandidate], members: &[Member]) {
        // Only among members with the same window: short ones and long ones take turns separately.
        let window = members[taken].endpoint.window();
        let mut total = 0;
        for PoolCandidate { member, .. } in candidates {
            if members[*member].endpoint.window() == window {
                let share = members[*member].share();
                self.credits[*member] += share;
                total += share;
            }
        }
        self.credits[taken] -= total;
    }
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
