//! Results of calls that only read, given again to equal calls (docs/protocol.md, 7.8).
//!
//! A result is given again only to a call of the same tool, of the same module under the same grant, with the same
//! arguments and the same context, and only while no call that may have changed what it read was made: a call of a tool
//! that does not say that it only reads takes away all results of its run and of its client, when it begins and when it
//! ends. Failures are not kept, nor are results of tools whose calls a person is asked about. What is kept is what the
//! tool returned: shields screen it, and hidden values are revealed in it, for each call anew.

use crate::toolbox::{ToolCall, Toolbox};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toolhold_policy::names;
use toolhold_protocol::approval::Approvals;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::result::{Cached, ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::result_cache::{CacheScope, ResultCaching};
use uuid::Uuid;

/// Results that are kept at most, of all runs of the process. The oldest gives way.
const MAX_ENTRIES: usize = 1_024;

/// Bytes of JSON that are kept at most, of all runs of the process.
const MAX_BYTES: usize = 16 << 20;

/// Bytes of one result that is kept: one must not take the place of most others.
const MAX_RESULT_BYTES: usize = 1 << 20;

/// The results that a process keeps, of all its runs and clients. It is empty, and costs a call nothing, until a run
/// has a use for it.
#[derive(Debug, Default)]
pub struct ResultCache {
    is_used: AtomicBool,
    state: Mutex<CacheState>,
}

/// Whose results they are, and whom they are given to: one run with its sub-agents, or all runs of one client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum CacheOwner {
    Run(Uuid),
    Client(String),
}

/// The digest of all that a result depends on.
type CacheKey = [u8; 32];

#[derive(Debug, Default)]
struct CacheState {
    owners: HashMap<CacheOwner, OwnedResults>,
    /// By the number under which they were kept, the oldest first.
    order: BTreeMap<u64, (CacheOwner, CacheKey)>,
    bytes: usize,
    /// Counts what is kept, and the begins and ends of calls with effects.
    clock: u64,
}

/// The results of one owner, and the calls of it that are under way.
#[derive(Debug, Default)]
struct OwnedResults {
    kept: HashMap<CacheKey, KeptResult>,
    /// Calls whose results may be kept.
    reads: usize,
    /// Calls that may change what others read.
    effects: usize,
    /// The last begin or end of such a call.
    last_effect: u64,
}

#[derive(Debug)]
struct KeptResult {
    number: u64,
    at: Instant,
    /// The value as JSON text, whose size is known.
    value: String,
    output_path: Option<String>,
    is_named: bool,
    module: Option<String>,
    run: Uuid,
    call: String,
}

impl ResultCache {
    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn remove(&mut self, owner: &CacheOwner, key: &CacheKey) {
        let Some(owned) = self.owners.get_mut(owner) else {
            return;
        };
        if let Some(kept) = owned.kept.remove(key) {
            self.bytes = self.bytes.saturating_sub(kept.value.len());
            self.order.remove(&kept.number);
        }
        self.forget_idle(owner);
    }

    fn clear(&mut self, owner: &CacheOwner) {
        let Some(owned) = self.owners.get_mut(owner) else {
            return;
        };
        for kept in std::mem::take(&mut owned.kept).into_values() {
            self.bytes = self.bytes.saturating_sub(kept.value.len());
            self.order.remove(&kept.number);
        }
        self.forget_idle(owner);
    }

    fn forget_idle(&mut self, owner: &CacheOwner) {
        let is_idle =
            |owned: &OwnedResults| owned.kept.is_empty() && owned.reads == 0 && owned.effects == 0;
        if self.owners.get(owner).is_some_and(is_idle) {
            self.owners.remove(owner);
        }
    }

    /// A call that may change what others read begins, or ends.
    fn effect(&mut self, owner: &CacheOwner, change: impl FnOnce(&mut usize)) {
        let now = self.tick();
        let owned = self.owners.entry(owner.clone()).or_default();
        change(&mut owned.effects);
        owned.last_effect = now;
        self.clear(owner);
    }

    fn keep(&mut self, owner: &CacheOwner, key: CacheKey, mut kept: KeptResult) {
        self.remove(owner, &key);
        kept.number = self.tick();
        self.bytes += kept.value.len();
        self.order.insert(kept.number, (owner.clone(), key));
        let owned = self.owners.entry(owner.clone()).or_default();
        owned.kept.insert(key, kept);
        while self.order.len() > MAX_ENTRIES || self.bytes > MAX_BYTES {
            let Some((_, (owner, key))) = self.order.first_key_value() else {
                return;
            };
            let (owner, key) = (owner.clone(), *key);
            self.remove(&owner, &key);
        }
    }
}

/// The results that the calls of a run may be given, and to which theirs are added. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct KeptResults(Arc<ResultsOfClient>);

#[derive(Debug, Default)]
struct ResultsOfClient {
    cache: Arc<ResultCache>,
    /// Name of the client.
    client: String,
    /// Absent: no run has begun with them.
    run: Option<(Uuid, ResultCaching)>,
}

impl KeptResults {
    /// For the runs of `client`.
    pub fn new(cache: Arc<ResultCache>, client: &str) -> Self {
        Self(Arc::new(ResultsOfClient {
            cache,
            client: client.to_owned(),
            run: None,
        }))
    }

    /// For the calls of `run`, or of the run that it is a sub-agent of.
    pub(crate) fn of_run(&self, run: Uuid, policy: &ResultCaching) -> Self {
        if self.0.run.is_some() {
            return self.clone();
        }
        Self(Arc::new(ResultsOfClient {
            cache: self.0.cache.clone(),
            client: self.0.client.clone(),
            run: Some((run, policy.clone())),
        }))
    }

    /// What a call of `bound` that is about to be made has to do with the results that are kept.
    pub(crate) fn begin(
        &self,
        call: &ToolCall,
        bound: &Bound,
        approvals: &Approvals,
        toolbox: &dyn Toolbox,
    ) -> CallCaching {
        // The calls of sub-agents are looked at one by one.
        let (Runner::Module(_) | Runner::Activity(_), Some((run, policy))) =
            (&bound.runner, &self.0.run)
        else {
            return CallCaching::None;
        };
        if !bound.tool.annotations.read_only {
            return CallCaching::Effect(EffectInProgress::begin(self.0.clone(), *run));
        }
        let owner = match policy.scope {
            CacheScope::Off => return CallCaching::None,
            CacheScope::Run => CacheOwner::Run(*run),
            CacheScope::Client => CacheOwner::Client(self.0.client.clone()),
        };
        let tools = &policy.tools;
        let is_named = tools.is_empty() || names::allows(Some(tools), &call.tool);
        if !is_named || bound.waits(approvals) {
            return CallCaching::None;
        }
        let Some(depends_on) = toolbox.result_depends_on(call) else {
            return CallCaching::None;
        };
        // From here on effects are noted.
        self.0.cache.is_used.store(true, Ordering::Release);
        let of = Reader {
            owner,
            key: key(call, depends_on),
            run: *run,
            call: call.id.clone(),
        };
        self.read(of, policy.max_age)
    }

    fn read(&self, by: Reader, max_age: Duration) -> CallCaching {
        let cache = &self.0.cache;
        let mut state = cache.state();
        let began = state.tick();
        let owned = state.owners.entry(by.owner.clone()).or_default();
        let known = owned.kept.get(&by.key).filter(|_| owned.effects == 0);
        if let Some(result) = known.and_then(|kept| kept.result(max_age)) {
            return CallCaching::Known(Box::new(result));
        }
        owned.reads += 1;
        drop(state);
        CallCaching::Read(ReadInProgress {
            cache: cache.clone(),
            by,
            began,
        })
    }
}

impl KeptResult {
    /// As the result of another call; absent if it is too old.
    fn result(&self, max_age: Duration) -> Option<ToolResult> {
        let age = self.at.elapsed();
        if age > max_age {
            return None;
        }
        Some(ToolResult {
            outcome: Ok(ToolOutput {
                value: serde_json::from_str(&self.value).ok()?,
                output_path: self.output_path.clone(),
                is_named: self.is_named,
            }),
            usage: ToolUsage::default(),
            printed: Vec::new(),
            module: self.module.clone(),
            cached: Some(Cached {
                run: self.run,
                call: self.call.clone(),
                age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            }),
        })
    }
}

/// Dropped with a run: what only it may be given is not kept any longer.
#[derive(Debug)]
pub(crate) struct ResultsOfRun(pub KeptResults);

impl Drop for ResultsOfRun {
    fn drop(&mut self) {
        let ResultsOfClient { cache, run, .. } = &*self.0.0;
        if let Some((run, _)) = run
            && cache.is_used.load(Ordering::Acquire)
        {
            cache.state().clear(&CacheOwner::Run(*run));
        }
    }
}

/// What a call has to do with the results that are kept. It is dropped when the call is over.
#[derive(Debug)]
pub(crate) enum CallCaching {
    /// Nothing.
    None,
    /// It need not be made: this is its result.
    Known(Box<ToolResult>),
    /// Its result may be kept.
    Read(ReadInProgress),
    /// It may change what others read.
    Effect(#[expect(dead_code, reason = "ends when it is dropped")] EffectInProgress),
}

impl CallCaching {
    /// The result, if the call need not be made.
    pub fn known(&mut self) -> Option<ToolResult> {
        match std::mem::replace(self, Self::None) {
            Self::Known(result) => Some(*result),
            other => {
                *self = other;
                None
            }
        }
    }

    /// The call was made, and this is what its tool returned.
    pub fn keep(self, result: &ToolResult) {
        if let Self::Read(read) = self {
            read.keep(result);
        }
    }
}

/// A call that reads.
#[derive(Debug)]
struct Reader {
    owner: CacheOwner,
    key: CacheKey,
    run: Uuid,
    call: String,
}

/// A call whose result may be kept.
#[derive(Debug)]
pub(crate) struct ReadInProgress {
    cache: Arc<ResultCache>,
    by: Reader,
    began: u64,
}

impl ReadInProgress {
    fn keep(self, result: &ToolResult) {
        let Ok(output) = &result.outcome else {
            return;
        };
        let value = output.value.to_string();
        if value.len() > MAX_RESULT_BYTES {
            return;
        }
        let by = &self.by;
        let mut state = self.cache.state();
        let owned = state.owners.get(&by.owner);
        // Something may have changed while it read.
        if owned.is_none_or(|owned| owned.effects > 0 || owned.last_effect > self.began) {
            return;
        }
        let kept = KeptResult {
            number: 0,
            at: Instant::now(),
            value,
            output_path: output.output_path.clone(),
            is_named: output.is_named,
            module: result.module.clone(),
            run: by.run,
            call: by.call.clone(),
        };
        state.keep(&by.owner, by.key, kept);
    }
}

impl Drop for ReadInProgress {
    fn drop(&mut self) {
        let mut state = self.cache.state();
        if let Some(owned) = state.owners.get_mut(&self.by.owner) {
            owned.reads = owned.reads.saturating_sub(1);
        }
        state.forget_idle(&self.by.owner);
    }
}

/// A call that may change what others read.
#[derive(Debug)]
pub(crate) struct EffectInProgress {
    of: Arc<ResultsOfClient>,
    run: Uuid,
    /// Whether its begin was noted: results were kept then.
    is_noted: bool,
}

impl EffectInProgress {
    fn begin(of: Arc<ResultsOfClient>, run: Uuid) -> Self {
        let is_noted = of.cache.is_used.load(Ordering::Acquire);
        let effect = Self { of, run, is_noted };
        if is_noted {
            effect.note(|effects| *effects += 1);
        }
        effect
    }

    fn note(&self, change: impl Fn(&mut usize)) {
        let owners = [
            CacheOwner::Run(self.run),
            CacheOwner::Client(self.of.client.clone()),
        ];
        let mut state = self.of.cache.state();
        for owner in &owners {
            state.effect(owner, &change);
        }
    }
}

impl Drop for EffectInProgress {
    fn drop(&mut self) {
        if self.is_noted {
            self.note(|effects| *effects = effects.saturating_sub(1));
        } else if self.of.cache.is_used.load(Ordering::Acquire) {
            // Results may have been kept while it ran.
            self.note(|_| {});
        }
    }
}

/// `depends_on` is what the toolbox says of the tool; the rest is what a module is told. Keys sorted:
/// `{"a":1,"b":2}` and `{"b":2,"a":1}` are the same call.
fn key(call: &ToolCall, depends_on: Value) -> CacheKey {
    let context = call.context.iter();
    let context: Vec<(String, &Value)> = context
        .map(|(path, value)| (path.to_string(), value))
        .collect();
    let mut key = json!([call.tool, call.arguments, context, depends_on]);
    key.sort_all_objects();
    Sha256::digest(key.to_string()).into()
}

#[cfg(test)]
#[path = "cached_tests.rs"]
mod tests;
