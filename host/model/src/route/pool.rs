//! Several endpoints that can answer for each other.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::counters;
use super::course::Course;
use super::endpoint::{Endpoint, Entry};
use super::retry::{RetryPolicy, retry};
use crate::chat::ChatRequest;
use crate::error::ModelError;
use crate::model::{Model, Session, Watch};
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
    /// Each attempt asks every member that can be asked.
    pub retry: RetryPolicy,
    /// How long a member that failed comes behind all others.
    pub left_out: Duration,
    /// What is tried, in this order, when no member has a place.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// A shorter answer.
    FewerTokens,
    /// A member whose window the prompt fits in, but not with the longest answer that was asked for.
    ShortWindow,
    /// Another model.
    SmallerModel,
}

/// Members with places, health and weights. A request goes to a member that it fits, those with the
/// smallest such window first, so that long windows are free for long requests.
///
/// One run stays with one member, whose prefix cache knows it by then.
#[derive(Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    home: Home,
}

/// The member that the run's last request went to.
pub(super) type Home = Mutex<Option<usize>>;

#[derive(Debug)]
pub(super) struct Shared {
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
            shared: Arc::new(Shared {
                name: name.into(),
                members,
                policy,
                turns: Mutex::new(Turns { credits }),
            }),
            home: Home::default(),
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
        watch: &'a mut dyn Watch,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        let course = Course::new(&self.shared, &self.home, request);
        let Shared { name, policy, .. } = self.shared.as_ref();
        retry(name, &policy.retry, course, watch).boxed()
    }

    fn session(&self, _: &Session<'_>) -> Option<Arc<dyn Model>> {
        Some(Arc::new(Self {
            shared: self.shared.clone(),
            home: Home::default(),
        }))
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        counters::of(&self.shared.members, &self.shared.policy)
    }
}

/// A member that may be asked, and how gladly.
#[derive(Debug)]
pub(super) struct Candidate {
    pub member: usize,
    /// Tokens to ask it for.
    pub tokens: u64,
    /// The answer must be cut to its window.
    pub is_short: bool,
    pub is_home: bool,
}

/// What came of looking for a place.
pub(super) enum Found<'a> {
    Place(usize, Entry<'a>),
    /// Why there was none, where a member said so; others are busy.
    Nothing(Vec<Unavailable>),
}

impl Shared {
    /// A place at the best of the candidates that has one.
    pub fn place(&self, mut candidates: Vec<Candidate>) -> Found<'_> {
        // Held while looking, so that runs that begin together are shared out.
        let mut turns = self.turns();
        self.sort(&mut candidates, &turns);
        let mut refusals = Vec::new();
        for candidate in &candidates {
            let endpoint = &self.members[candidate.member].endpoint;
            match endpoint.try_enter(candidate.tokens) {
                Ok(entry) => {
                    // Turns are taken by runs, not by requests.
                    if !candidate.is_home {
                        turns.took(candidate.member, &candidates, &self.members);
                    }
                    return Found::Place(candidate.member, entry);
                }
                Err(Some(refusal)) => refusals.push(refusal),
                Err(None) => {}
            }
        }
        Found::Nothing(refusals)
    }

    fn sort(&self, candidates: &mut [Candidate], turns: &Turns) {
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
    fn took(&mut self, taken: usize, candidates: &[Candidate], members: &[Member]) {
        // Among equals alone: a turn of the short ones is none of the long ones.
        let window = members[taken].endpoint.window();
        let mut total = 0;
        for Candidate { member, .. } in candidates {
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
