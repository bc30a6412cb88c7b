//! Results of calls that only read, given again to equal calls (docs/protocol.md, 7.8).
//!
//! A result is given again only to a call of the same tool, of the same module under the same grant, with the same
//! arguments and the same context, and only while no call that may have changed what it read was made: a call of a tool
//! that does not say that it only reads takes away all results of its client, of all of the client's runs, when it
//! begins and when it ends. Failures are not kept, nor are results of tools whose calls a person is asked about, nor
//! results of calls that made calls themselves: these depend on what the run may call. What is kept is what the tool
//! returned: shields screen it, and hidden values are revealed in it, for each call anew.

use crate::toolbox::{ToolCall, ToolSource};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use toolhold_policy::names;
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_protocol::result::{Cached, ToolOutput, ToolResult, ToolUsage};
use toolhold_protocol::result_cache::{CacheScope, ResultCaching};
use uuid::Uuid;

/// Results that are kept at most, of all runs of the process. When there are more, the oldest of the client gives way of
/// whose results most are kept: one that fills the cache takes the places of its own results.
const MAX_ENTRIES: usize = 1_024;

/// Bytes that are kept at most, of all runs of the process.
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

/// Bytes that a kept result takes beside its texts, roughly.
const ENTRY_BYTES: usize = 256;

/// The digest of all that a result depends on, the run included if it is given to calls of that run alone.
type CacheKey = [u8; 32];

#[derive(Debug, Default)]
struct CacheState {
    /// By the client's name.
    owners: HashMap<Arc<str>, OwnedResults>,
    entries: usize,
    bytes: usize,
    /// Counts what is kept, and the begins and ends of calls with effects.
    clock: u64,
}

/// The results of one client, and the calls of it that are under way.
#[derive(Debug, Default)]
struct OwnedResults {
    kept: HashMap<CacheKey, KeptResult>,
    /// By the number under which they were kept, the oldest first.
    order: BTreeMap<u64, CacheKey>,
    bytes: usize,
    /// Calls whose results may be kept.
    reads: usize,
    /// Calls that may change what others read.
    effects: usize,
    /// The last begin or end of such a call.
    last_effect: u64,
}

impl OwnedResults {
    /// What it takes of that of which there is too much.
    fn share(&self, is_of_bytes: bool) -> usize {
        if is_of_bytes {
            self.bytes
        } else {
            self.kept.len()
        }
    }

    /// Forgets a result that was taken away, and says its bytes.
    fn gone(&mut self, kept: &KeptResult) -> usize {
        let bytes = kept.content.bytes();
        self.bytes = self.bytes.saturating_sub(bytes);
        self.order.remove(&kept.number);
        bytes
    }
}

#[derive(Debug)]
struct KeptResult {
    number: u64,
    /// Whether only calls of its run are given it.
    is_of_run: bool,
    content: Arc<KeptContent>,
}

#[derive(Debug)]
struct KeptContent {
    at: Instant,
    /// The value as JSON text, whose size is known.
    value: String,
    output_path: Option<String>,
    is_named: bool,
    module: Option<String>,
    run: Uuid,
    call: String,
}

impl KeptContent {
    fn bytes(&self) -> usize {
        let path = self.output_path.as_ref().map_or(0, String::len);
        ENTRY_BYTES + self.value.len() + path + self.call.len()
    }
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

    fn remove(&mut self, owner: &str, key: &CacheKey) {
        let Some(owned) = self.owners.get_mut(owner) else {
            return;
        };
        if let Some(kept) = owned.kept.remove(key) {
            let bytes = owned.gone(&kept);
            self.entries -= 1;
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        self.forget_idle(owner);
    }

    /// Takes away the results of `owner` that are `stale`.
    fn clear(&mut self, owner: &str, stale: impl Fn(&KeptResult) -> bool) {
        let Some(owned) = self.owners.get_mut(owner) else {
            return;
        };
        let gone: Vec<_> = owned
            .kept
            .extract_if(|_, kept| stale(kept))
            .map(|(_, kept)| kept)
            .collect();
        for kept in gone {
            let bytes = owned.gone(&kept);
            self.entries -= 1;
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        self.forget_idle(owner);
    }

    fn forget_idle(&mut self, owner: &str) {
        let is_idle =
            |owned: &OwnedResults| owned.kept.is_empty() && owned.reads == 0 && owned.effects == 0;
        if self.owners.get(owner).is_some_and(is_idle) {
            self.owners.remove(owner);
        }
    }

    /// A call that may change what others read begins, or ends.
    fn effect(&mut self, owner: &Arc<str>, change: impl FnOnce(&mut usize)) {
        let now = self.tick();
        let owned = self.owners.entry(owner.clone()).or_default();
        change(&mut owned.effects);
        owned.last_effect = now;
        self.clear(owner, |_| true);
    }

    fn keep(&mut self, owner: &Arc<str>, key: CacheKey, mut kept: KeptResult) {
        self.remove(owner, &key);
        kept.number = self.tick();
        let bytes = kept.content.bytes();
        let owned = self.owners.entry(owner.clone()).or_default();
        owned.bytes += bytes;
        owned.order.insert(kept.number, key);
        owned.kept.insert(key, kept);
        self.bytes += bytes;
        self.entries += 1;
        while self.entries > MAX_ENTRIES || self.bytes > MAX_BYTES {
            let most = self
                .owners
                .iter()
                .max_by_key(|(_, owned)| owned.share(self.bytes > MAX_BYTES));
            let oldest = most.and_then(|(owner, owned)| {
                let (_, key) = owned.order.first_key_value()?;
                Some((owner.clone(), *key))
            });
            let Some((owner, key)) = oldest else {
                return;
            };
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
    client: Arc<str>,
    /// Absent: no run has begun with them.
    run: Option<(Uuid, ResultCaching)>,
    /// Whether the run is over. Changed and read under the lock of the cache.
    is_over: AtomicBool,
}

impl KeptResults {
    /// For the runs of `client`.
    pub fn new(cache: Arc<ResultCache>, client: &str) -> Self {
        Self(Arc::new(ResultsOfClient {
            cache,
            client: client.into(),
            ..ResultsOfClient::default()
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
            is_over: AtomicBool::new(false),
        }))
    }

    /// What a call of `bound` that is about to be made has to do with the results that are kept. `waits`: whether a
    /// person is asked about such calls.
    pub(crate) fn begin(
        &self,
        call: &ToolCall,
        bound: &Bound,
        waits: impl FnOnce() -> bool,
        source: &dyn ToolSource,
    ) -> CallCaching {
        // The calls of sub-agents are looked at one by one.
        let (Runner::Module(_) | Runner::Activity(_), Some((run, policy))) =
            (&bound.runner, &self.0.run)
        else {
            return CallCaching::None;
        };
        if !bound.tool.annotations.read_only {
            return CallCaching::Effect(EffectInProgress::begin(self.0.clone()));
        }
        let is_of_run = match policy.scope {
            CacheScope::Off => return CallCaching::None,
            CacheScope::Run => true,
            CacheScope::Client => false,
        };
        let tools = &policy.tools;
        let is_named = tools.is_empty() || names::allows(Some(tools), &call.tool);
        if !is_named || waits() {
            return CallCaching::None;
        }
        let Some(depends_on) = source.result_depends_on(call) else {
            return CallCaching::None;
        };
        // From here on effects are noted.
        self.0.cache.is_used.store(true, Ordering::Release);
        let of = Reader {
            module: depends_on["module"].as_str().map(str::to_owned),
            key: key(call, depends_on, is_of_run.then_some(*run)),
            is_of_run,
            run: *run,
            call: call.id.clone(),
        };
        self.read(of, policy.max_age)
    }

    fn read(&self, by: Reader, max_age: Duration) -> CallCaching {
        let mut state = self.0.cache.state();
        let began = state.tick();
        let client = self.0.client.clone();
        let owned = state.owners.entry(client).or_default();
        let known = owned.kept.get(&by.key).filter(|_| owned.effects == 0);
        let known = known.map(|kept| kept.content.clone());
        // Counted as a read until it is known that it is none: the lock is not held while the text is read.
        owned.reads += 1;
        drop(state);
        let read = ReadInProgress {
            of: self.0.clone(),
            by,
            began,
        };
        match known.and_then(|kept| kept.result(max_age)) {
            Some(result) => CallCaching::Known(Box::new(result)),
            None => CallCaching::Read(read),
        }
    }
}

impl KeptContent {
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
                job: None,
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
pub(crate) struct ResultsOfRun {
    results: KeptResults,
    /// Whether the client makes calls itself. It makes them between its runs, which is not seen: they count as calls
    /// that change something, before the run and after it.
    has_client_tools: bool,
}

impl ResultsOfRun {
    pub fn new(results: KeptResults, has_client_tools: bool) -> Self {
        if has_client_tools {
            results.0.note(|_| {});
        }
        Self {
            results,
            has_client_tools,
        }
    }
}

impl Drop for ResultsOfRun {
    fn drop(&mut self) {
        let of = &self.results.0;
        if !of.cache.is_used.load(Ordering::Acquire) {
            return;
        }
        if let Some((run, _)) = &of.run {
            let mut state = of.cache.state();
            // A call that is not dropped yet keeps nothing any more.
            of.is_over.store(true, Ordering::Relaxed);
            state.clear(&of.client, |kept| {
                kept.is_of_run && kept.content.run == *run
            });
        }
        if self.has_client_tools {
            of.note(|_| {});
        }
    }
}

impl ResultsOfClient {
    /// Takes the client's results away, where any were kept.
    fn note(&self, change: impl FnOnce(&mut usize)) {
        if self.cache.is_used.load(Ordering::Acquire) {
            self.cache.state().effect(&self.client, change);
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

    /// The call was made, and this is what its tool returned. `has_called`: it made calls itself, whose tools,
    /// decisions and hidden values the key does not know.
    pub fn keep(self, result: &ToolResult, has_called: bool) {
        if let Self::Read(read) = self
            && !has_called
        {
            read.keep(result);
        }
    }
}

/// A call that reads.
#[derive(Debug)]
struct Reader {
    key: CacheKey,
    /// The module that the key is about.
    module: Option<String>,
    is_of_run: bool,
    run: Uuid,
    call: String,
}

/// A call whose result may be kept.
#[derive(Debug)]
pub(crate) struct ReadInProgress {
    of: Arc<ResultsOfClient>,
    by: Reader,
    began: u64,
}

impl ReadInProgress {
    fn keep(self, result: &ToolResult) {
        let Ok(output) = &result.outcome else {
            return;
        };
        let by = &self.by;
        // The module may have been replaced between the key and the call.
        if by.module.is_some() && result.module.is_some() && by.module != result.module {
            return;
        }
        let content = KeptContent {
            at: Instant::now(),
            value: output.value.to_string(),
            output_path: output.output_path.clone(),
            is_named: output.is_named,
            module: result.module.clone(),
            run: by.run,
            call: by.call.clone(),
        };
        if content.bytes() > MAX_RESULT_BYTES {
            return;
        }
        let client = &self.of.client;
        let mut state = self.of.cache.state();
        let owned = state.owners.get(client);
        // Something may have changed while it read.
        if self.of.is_over.load(Ordering::Relaxed)
            || owned.is_none_or(|owned| owned.effects > 0 || owned.last_effect > self.began)
        {
            return;
        }
        let kept = KeptResult {
            number: 0,
            is_of_run: by.is_of_run,
            content: Arc::new(content),
        };
        state.keep(client, by.key, kept);
    }
}

impl Drop for ReadInProgress {
    fn drop(&mut self) {
        let client = &self.of.client;
        let mut state = self.of.cache.state();
        if let Some(owned) = state.owners.get_mut(client) {
            owned.reads = owned.reads.saturating_sub(1);
        }
        state.forget_idle(client);
    }
}

/// A call that may change what others read.
#[derive(Debug)]
pub(crate) struct EffectInProgress {
    of: Arc<ResultsOfClient>,
    /// Whether its begin was noted: results were kept then.
    is_noted: bool,
}

impl EffectInProgress {
    fn begin(of: Arc<ResultsOfClient>) -> Self {
        let is_noted = of.cache.is_used.load(Ordering::Acquire);
        if is_noted {
            of.note(|effects| *effects += 1);
        }
        Self { of, is_noted }
    }
}

impl Drop for EffectInProgress {
    fn drop(&mut self) {
        let was_noted = usize::from(self.is_noted);
        // Where its begin was not noted, results may have been kept while it ran.
        self.of
            .note(|effects| *effects = effects.saturating_sub(was_noted));
    }
}

/// `depends_on` comes from the tool's source; the rest is what a module gets, and the run that alone may be
/// given the result. Keys sorted:
/// `{"a":1,"b":2}` and `{"b":2,"a":1}` are the same call.
fn key(call: &ToolCall, depends_on: Value, run: Option<Uuid>) -> CacheKey {
    let context = call.context.iter();
    let context: Vec<(String, &Value)> = context
        .map(|(path, value)| (path.to_string(), value))
        .collect();
    let mut key = json!([call.tool, call.arguments, context, depends_on, run]);
    key.sort_all_objects();
    Sha256::digest(key.to_string()).into()
}

#[cfg(test)]
#[path = "cached_tests.rs"]
mod tests;
