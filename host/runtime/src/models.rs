//! Builds what answers a run's requests: an endpoint, a pool, or the router, as the configuration says; and
//! the models that are asked beside it, by shields and in fallbacks.

use crate::candidate_scores::{CandidateScores, ScoreBook};
use crate::config::{Configuration, EndpointTable, FallbackCandidate, ROUTER, RouteTarget, Routes};
use crate::dialect;
use crate::dialect::ProbedDialects;
use crate::host;
use crate::probed::Dialects;
use anyhow::{Context as _, Result, anyhow};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use toolhold_agent::router::{Class, Router, RouterPolicy};
use toolhold_agent::run::CandidateOutcomes;
use toolhold_model::route::{
    Endpoint, EndpointPolicy, EndpointState, Member, Pool, PoolPolicy, Protection, Retry,
};
use toolhold_model::{
    ChatRequest, CompletionObserver, Counter, Model, ModelError, NoModel, OpenAiModel,
    RecordingTransport, SideModel, Transport,
};
use toolhold_protocol::completion::Completion;
use toolhold_protocol::side_request::SideRole;

/// How long the begin of a run waits for the list of the endpoint's models. A list is answered at once, and without it
/// the run has less of a fallback.
const LISTING_TIMEOUT: Duration = Duration::from_secs(2);

/// The models of a run.
#[derive(Debug)]
pub struct RunModels {
    pub model: Arc<dyn Model>,
    /// The candidates of `[fallback]`, by name.
    pub candidates: BTreeMap<String, Arc<dyn Model>>,
    /// Sums up conversations, if the configuration names one.
    pub summarizer: Option<Arc<dyn Model>>,
    /// Told what the candidates do, where their order depends on it.
    pub outcomes: Option<Arc<dyn CandidateOutcomes>>,
    /// What was probed of the endpoints.
    pub known: ProbedDialects,
}

impl RunModels {
    /// No models, for runs that ask none: their endpoint has not told its model yet.
    pub fn none() -> Self {
        Self {
            model: Arc::new(NoModel),
            candidates: BTreeMap::new(),
            summarizer: None,
            outcomes: None,
            known: ProbedDialects::default(),
        }
    }
}

/// The models of shields, by endpoint.
pub type Guards = BTreeMap<String, Arc<dyn Model>>;

/// Limits and breakers of servers, shared by all configurations that name the same server: the variants of an
/// evaluation use it at the same time. So is what is known of the candidates of fallbacks.
#[derive(Debug, Clone, Default)]
pub struct SharedProtection {
    servers: Arc<Mutex<Vec<ProtectedServer>>>,
    scores: ScoreBook,
}

#[derive(Debug)]
struct ProtectedServer {
    name: String,
    base_url: String,
    api_key_env: String,
    policy: EndpointPolicy,
    protection: Arc<Protection>,
}

impl SharedProtection {
    /// Configurations with different limits for a server do not share them.
    pub(crate) fn of(&self, name: &str, table: &EndpointTable) -> Arc<Protection> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let policy = table.policy();
        let is_it = |known: &&ProtectedServer| {
            known.name == name
                && known.base_url == table.base_url
                && known.api_key_env == table.api_key_env
                && known.policy.limits == policy.limits
                && known.policy.breaker == policy.breaker
                && known.policy.max_rest == policy.max_rest
        };
        if let Some(known) = servers.iter().find(is_it) {
            return known.protection.clone();
        }
        let protection = Arc::new(Protection::new(name, &policy));
        // With other limits it is the same server, which need not show again that it is there.
        let has_answered = |known: &ProtectedServer| {
            known.base_url == table.base_url && known.protection.has_answered()
        };
        if servers.iter().any(has_answered) {
            protection.answered();
        }
        servers.push(ProtectedServer {
            name: name.to_owned(),
            base_url: table.base_url.clone(),
            api_key_env: table.api_key_env.clone(),
            policy,
            protection: protection.clone(),
        });
        protection
    }
}

impl SharedProtection {
    /// The endpoints that a model is asked at. Those of an earlier configuration are among them while runs use them.
    pub fn states(&self) -> Vec<EndpointState> {
        self.used(toolhold_model::route::Protection::state)
    }

    /// Has the endpoint of this name asked again at once. Returns whether it was left alone; `None` if there is none.
    pub fn clear(&self, name: &str) -> Option<bool> {
        let named = self.used(|protection| (protection.name() == name).then(|| protection.clear()));
        let cleared: Vec<bool> = named.into_iter().flatten().collect();
        (!cleared.is_empty()).then(|| cleared.contains(&true))
    }

    fn used<T>(&self, of: impl Fn(&Protection) -> T) -> Vec<T> {
        let servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is only kept here is of a configuration that nothing uses any more.
        let used = servers
            .iter()
            .filter(|server| Arc::strong_count(&server.protection) > 1);
        used.map(|server| of(&server.protection)).collect()
    }
}

/// The models of runs. Each endpoint is built once, so that its limits apply to all runs, sub-agents, shields
/// and candidates together.
#[derive(Debug)]
pub struct Models<'a> {
    config: &'a Configuration,
    routes: Routes<'a>,
    total: Duration,
    recording: Option<RecordingFile>,
    spared: SharedProtection,
    is_patient: bool,
    is_listing: bool,
    endpoints: BTreeMap<String, Arc<Endpoint>>,
    pools: BTreeMap<String, Arc<Pool>>,
    known: ProbedDialects,
}

impl<'a> Models<'a> {
    /// `total` is the timeout of a request. All exchanges are appended to the file `record`.
    pub fn new(config: &'a Configuration, total: Duration, record: Option<&Path>) -> Result<Self> {
        Ok(Self {
            config,
            routes: config.routes(),
            total,
            recording: record.map(RecordingFile::create).transpose()?,
            spared: SharedProtection::default(),
            is_patient: false,
            is_listing: false,
            endpoints: BTreeMap::new(),
            pools: BTreeMap::new(),
            known: ProbedDialects::default(),
        })
    }

    /// Shares limits and breakers with others.
    #[must_use]
    pub fn sparing(mut self, spared: &SharedProtection) -> Self {
        self.spared = spared.clone();
        self
    }

    /// Waits for endpoints that still load the model whose name is needed, for callers that do not retry.
    #[must_use]
    pub fn patient(mut self) -> Self {
        self.is_patient = true;
        self
    }

    /// Asks the run's own endpoint for its other models, for a fallback without a list of candidates.
    #[must_use]
    pub fn listing(mut self) -> Self {
        self.is_listing = true;
        self
    }

    /// The model that answers the requests of a run.
    pub async fn selected(mut self) -> Result<RunModels> {
        let model = match self.routes.target(&self.config.endpoint) {
            Some(RouteTarget::Router) => Arc::new(self.router().await?),
            _ => self.model(&self.config.endpoint).await?,
        };
        let own_models = self.own_models().await;
        let candidates = self.candidates(&own_models)?;
        let config = self.config;
        let summarizer = match config.summarizer() {
            Some(name) => {
                let model = self.model(name).await.context("run.summarizer")?;
                Some(self.beside(SideRole::Summary, name, model))
            }
            None => None,
        };
        let names = config.candidates(&own_models);
        let scores = CandidateScores::load(config, names, &self.spared.scores).await;
        let outcomes = scores.clone();
        self.known.measured(scores);
        self.known.own_models(own_models);
        Ok(RunModels {
            model,
            candidates,
            summarizer,
            outcomes: outcomes.map(|scores| scores as Arc<dyn CandidateOutcomes>),
            known: self.known,
        })
    }

    /// The models of shields. If one is missing, that is an error, as [`crate::shields`] says.
    pub async fn guards(&mut self) -> Result<Guards> {
        let mut guards = Guards::new();
        for (shield, name) in self.config.guards() {
            if guards.contains_key(name) {
                continue;
            }
            let built = self.model(name).await;
            let model = built.with_context(|| format!("the shield {shield:?} cannot be used"))?;
            guards.insert(name.to_owned(), self.beside(SideRole::Shield, name, model));
        }
        Ok(guards)
    }

    /// A model whose replies are no part of the run, but whose costs are.
    fn beside(&self, role: SideRole, name: &str, model: Arc<dyn Model>) -> Arc<dyn Model> {
        Arc::new(SideModel {
            role,
            endpoint: name.to_owned(),
            model,
            price: self.routes.price(name),
        })
    }

    /// Settings for an endpoint without alternatives.
    async fn model(&mut self, name: &str) -> Result<Arc<dyn Model>> {
        match self.routes.target(name) {
            Some(RouteTarget::Endpoint(table)) => {
                let endpoint = self.endpoint(name, table).await?;
                let retry = Retry::new(endpoint, table.retry()).hedging(table.hedge_after());
                Ok(Arc::new(retry))
            }
            _ => Ok(self.pool(name).await?),
        }
    }

    /// Settings for an endpoint with alternatives: requests to it are not retried.
    async fn once(&mut self, name: &str) -> Result<Arc<dyn Model>> {
        match self.routes.target(name) {
            Some(RouteTarget::Endpoint(table)) => Ok(self.endpoint(name, table).await?),
            _ => Ok(self.pool(name).await?),
        }
    }

    async fn endpoint(&mut self, name: &str, table: &EndpointTable) -> Result<Arc<Endpoint>> {
        if let Some(known) = self.endpoints.get(name) {
            return Ok(known.clone());
        }
        if self.config.has_temperature() && table.leaves_out_temperature() {
            tracing::warn!(
                "run.temperature is not sent to {name}, whose models refuse it; fields = {{ temperature = \
                 \"temperature\" }} in [endpoints.{name}] sends it"
            );
        }
        let transport = self.transport(table)?;
        let model = if self.is_patient {
            Box::pin(host::awaited_model(name, table, transport, self.total)).await
        } else {
            host::model(table, transport, self.total).await
        };
        let model = model.with_context(|| format!("the endpoint {name:?}"))?;
        let dialects = Dialects::new(self.config.state_folder());
        let (model, dialect) = Box::pin(dialect::known(&dialects, table, model)).await;
        if let Some(dialect) = dialect {
            self.known.add(name, dialect);
        }
        let protection = self.spared.of(name, table);
        if table.model.is_empty() {
            // It has told the model's name.
            protection.answered();
        }
        let endpoint = Arc::new(Endpoint::behind(protection, model, &table.policy()));
        self.endpoints.insert(name.to_owned(), endpoint.clone());
        Ok(endpoint)
    }

    fn transport(&self, table: &EndpointTable) -> Result<Arc<dyn Transport>> {
        let transport = host::transport(table, self.config.api_key(table))?;
        Ok(match &self.recording {
            Some(recording) => Arc::new(RecordingTransport::new(transport, recording.clone())),
            None => transport,
        })
    }

    /// The models that the run's own endpoint lists, where the fallback may ask them. A run does without where the
    /// endpoint does not answer this in time: it needs no fallback.
    async fn own_models(&self) -> Vec<String> {
        let table = self.config.listing_endpoint();
        let Some(table) = table.filter(|_| self.is_listing) else {
            return Vec::new();
        };
        let asked = Box::pin(host::listed_models(table, self.config.api_key(table)));
        match tokio::time::timeout(LISTING_TIMEOUT, asked).await {
            Ok(Ok(models)) => models,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the fallback does not know the endpoint's other models");
                Vec::new()
            }
            Err(_) => {
                tracing::debug!("the endpoint did not list its models in time for the fallback");
                Vec::new()
            }
        }
    }

    fn candidates(&mut self, own_models: &[String]) -> Result<BTreeMap<String, Arc<dyn Model>>> {
        let mut candidates: BTreeMap<String, Arc<dyn Model>> = BTreeMap::new();
        for name in self.config.candidates(own_models) {
            let Some(named) = self.config.candidate(&name) else {
                continue;
            };
            let table = named.endpoint;
            let endpoint = match self.candidate(&name, &named) {
                Ok(endpoint) => endpoint,
                // A run must not fail for an endpoint that nobody named for it.
                Err(error) if !self.config.lists_candidate(&name) => {
                    tracing::warn!(name, %error, "the fallback cannot ask this endpoint");
                    continue;
                }
                Err(error) => return Err(error),
            };
            let retry = Retry::new(endpoint, table.retry()).hedging(table.hedge_after());
            candidates.insert(name, Arc::new(retry));
        }
        Ok(candidates)
    }

    /// The probe's result is read now, because Requests are written in its contract before the endpoint is
    /// asked; whether it still applies is checked with the first request.
    fn candidate(&mut self, name: &str, named: &FallbackCandidate<'_>) -> Result<Arc<Endpoint>> {
        let is_own = named.endpoint.model == named.model;
        if let Some(built) = self.endpoints.get(named.key).filter(|_| is_own) {
            self.known.is_candidate(name, named.key);
            return Ok(built.clone());
        }
        let table = named.table();
        let dialects = Dialects::new(self.config.state_folder());
        let transport = self.transport(&table)?;
        if let Some(probed) = dialects.find(transport.target(), &named.model) {
            self.known.add_candidate(name, &probed.dialect);
        }
        let policy = table.policy();
        let protection = self.spared.of(named.key, named.endpoint);
        let when_asked = LazyModel {
            table,
            transport,
            dialects,
            total: self.total,
            model: OnceCell::new(),
        };
        Ok(Arc::new(Endpoint::behind(protection, when_asked, &policy)))
    }

    /// Recurses into smaller models, which the configuration has checked for cycles.
    fn pool<'b>(&'b mut self, name: &'b str) -> BoxFuture<'b, Result<Arc<Pool>>> {
        async move {
            if let Some(known) = self.pools.get(name) {
                return Ok(known.clone());
            }
            let Some(RouteTarget::Pool(table)) = self.routes.target(name) else {
                return Err(anyhow!(self.routes.unknown(name)));
            };
            let mut members = Vec::new();
            for (member, table) in self.routes.members(name) {
                members.push(Member {
                    endpoint: self.endpoint(member, table).await?,
                    weight: table.weight,
                });
            }
            let smaller = match &table.smaller {
                Some(smaller) => Some((smaller.clone(), self.once(smaller).await?)),
                None => None,
            };
            let policy = PoolPolicy {
                smaller,
                ..table.policy()
            };
            let pool = Arc::new(Pool::new(name, members, policy));
            self.pools.insert(name.to_owned(), pool.clone());
            Ok(pool)
        }
        .boxed()
    }

    async fn router(&mut self) -> Result<Router> {
        let table = self.routes.router;
        let mut classes = Vec::new();
        for (name, class) in &table.classes {
            classes.push(Class {
                name: name.clone(),
                description: class.description.clone(),
                to: class.to.clone(),
                model: self.model(&class.to).await?,
                rules: class.rules(),
            });
        }
        let picker = match table.model.as_str() {
            "" => None,
            name => {
                let model = self.once(name).await?;
                Some((name.to_owned(), self.beside(SideRole::Router, name, model)))
            }
        };
        let policy = RouterPolicy {
            picker,
            ..table.policy()
        };
        Ok(Router::new(ROUTER, classes, policy)?)
    }
}

/// A model that connects on its first request: most runs ask no candidate.
#[derive(Debug)]
struct LazyModel {
    table: EndpointTable,
    transport: Arc<dyn Transport>,
    dialects: Dialects,
    total: Duration,
    model: OnceCell<OpenAiModel>,
}

impl Model for LazyModel {
    fn name(&self) -> &str {
        &self.table.model
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let find = || async {
                let found = host::model(&self.table, self.transport.clone(), self.total).await;
                let found = found.map_err(|error| {
                    let message = format!("{error:#}");
                    error
                        .downcast::<ModelError>()
                        .unwrap_or(ModelError::Config { message })
                })?;
                let (model, _) = dialect::known(&self.dialects, &self.table, found).await;
                Ok::<_, ModelError>(model)
            };
            let model = self.model.get_or_try_init(find).await?;
            model.complete(request, watch).await
        })
    }

    /// Empty before the first request.
    fn counter(&self) -> Option<Arc<dyn Counter>> {
        self.model.get()?.counter()
    }
}

/// One file for the exchanges with all endpoints: lines are never interleaved.
#[derive(Debug, Clone)]
struct RecordingFile(Arc<Mutex<File>>);

impl RecordingFile {
    fn create(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path);
        let file = file.with_context(|| format!("--record {}", path.display()))?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    fn file(&self) -> std::sync::MutexGuard<'_, File> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for RecordingFile {
    /// Writes a whole line at once.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_of_one_server_share_its_protection() {
        let table = |text: &str| EndpointTable::of_test(text).unwrap();
        let spared = SharedProtection::default();
        let first = spared.of("a", &table("model = \"m\""));
        for (name, text, is_same) in [
            ("a", "model = \"other\"", true),
            ("a", "contract = \"tools\"\nextra = { min_p = 0.1 }", true),
            ("b", "model = \"m\"", false),
            ("a", "base_url = \"http://elsewhere/v1\"", false),
            ("a", "concurrent_requests = 3", false),
            ("a", "breaker_failures = 9", false),
            ("a", "api_key_env = \"OTHER\"", false),
        ] {
            let other = spared.clone().of(name, &table(text));
            assert_eq!(Arc::ptr_eq(&first, &other), is_same, "{name} {text}");
            assert!(Arc::ptr_eq(&other, &spared.of(name, &table(text))));
        }
    }

    #[test]
    fn a_server_that_has_answered_is_there_under_other_limits() {
        let table = |text: &str| EndpointTable::of_test(text).unwrap();
        let spared = SharedProtection::default();
        let answers = |text: &str| spared.of("a", &table(text)).has_answered();
        assert!(!answers("concurrent_requests = 2"));
        spared.of("a", &table("model = \"m\"")).answered();
        assert!(answers("concurrent_requests = 3"));
        assert!(!answers("base_url = \"http://elsewhere/v1\""));
    }
}
