//! Builds what answers a run's requests: an endpoint, a pool, or the router, as the configuration says.

use crate::config::{Config, Endpoint as EndpointTable, ROUTER, Routes, Target};
use crate::dialect::{self, Known};
use crate::host;
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
use toolhold_agent::model::route::{
    Class, Endpoint, Member, Pool, PoolPolicy, Retry, Router, RouterPolicy,
};
use toolhold_agent::model::{
    ChatRequest, Completion, Model, ModelError, OpenAiModel, RecordingTransport, Transport, Watch,
};

/// What answers a run's requests.
pub struct Selected {
    pub model: Arc<dyn Model>,
    /// The models that `[fallback]` lists, by their names there.
    pub candidates: BTreeMap<String, Arc<dyn Model>>,
    /// What was probed of the endpoints.
    pub known: Known,
}

/// The models that runs use. Each endpoint is built once, whatever names it, so that its limits hold for
/// all runs and sub-agents together. All exchanges are appended to the file `record`.
pub async fn selected(config: &Config, total: Duration, record: Option<&Path>) -> Result<Selected> {
    let recording = record.map(Recording::create).transpose()?;
    let mut models = Models {
        config,
        routes: config.routes(),
        total,
        recording,
        endpoints: BTreeMap::new(),
        pools: BTreeMap::new(),
        known: Known::default(),
    };
    let model = match models.routes.target(&config.endpoint) {
        Some(Target::Router) => Arc::new(models.router().await?),
        _ => models.model(&config.endpoint).await?,
    };
    Ok(Selected {
        model,
        candidates: models.candidates()?,
        known: models.known,
    })
}

struct Models<'a> {
    config: &'a Config,
    routes: Routes<'a>,
    total: Duration,
    recording: Option<Recording>,
    endpoints: BTreeMap<String, Arc<Endpoint>>,
    pools: BTreeMap<String, Arc<Pool>>,
    known: Known,
}

impl Models<'_> {
    /// What a run uses that has nothing else.
    async fn model(&mut self, name: &str) -> Result<Arc<dyn Model>> {
        match self.routes.target(name) {
            Some(Target::Endpoint(table)) => {
                let endpoint = self.endpoint(name, table).await?;
                Ok(Arc::new(Retry::new(endpoint, table.retry())))
            }
            _ => Ok(self.pool(name).await?),
        }
    }

    /// What is asked while something else could be asked instead: an endpoint is not asked twice.
    async fn once(&mut self, name: &str) -> Result<Arc<dyn Model>> {
        match self.routes.target(name) {
            Some(Target::Endpoint(table)) => Ok(self.endpoint(name, table).await?),
            _ => Ok(self.pool(name).await?),
        }
    }

    async fn endpoint(&mut self, name: &str, table: &EndpointTable) -> Result<Arc<Endpoint>> {
        if let Some(known) = self.endpoints.get(name) {
            return Ok(known.clone());
        }
        let model = host::model(table, self.transport(table)?, self.total)
            .await
            .with_context(|| format!("the endpoint {name:?}"))?;
        let (model, dialect) = Box::pin(dialect::known(self.config, table, model)).await;
        if let Some(dialect) = dialect {
            self.known.add(name, dialect);
        }
        let endpoint = Arc::new(Endpoint::new(name, model, table.policy()));
        self.endpoints.insert(name.to_owned(), endpoint.clone());
        Ok(endpoint)
    }

    fn transport(&self, table: &EndpointTable) -> Result<Arc<dyn Transport>> {
        let transport = host::transport(table)?;
        Ok(match &self.recording {
            Some(recording) => Arc::new(RecordingTransport::new(transport, recording.clone())),
            None => transport,
        })
    }

    fn candidates(&mut self) -> Result<BTreeMap<String, Arc<dyn Model>>> {
        let mut candidates: BTreeMap<String, Arc<dyn Model>> = BTreeMap::new();
        for name in self.config.candidates() {
            let Some((table, model)) = self.config.candidate(name) else {
                continue;
            };
            let mut table = table.clone();
            table.model = model;
            let endpoint = match self.endpoints.get(name) {
                Some(known) => known.clone(),
                None => {
                    let when_asked = WhenAsked {
                        transport: self.transport(&table)?,
                        table: table.clone(),
                        total: self.total,
                        model: OnceCell::new(),
                    };
                    Arc::new(Endpoint::new(name, when_asked, table.policy()))
                }
            };
            let model = Arc::new(Retry::new(endpoint, table.retry()));
            candidates.insert(name.to_owned(), model);
        }
        Ok(candidates)
    }

    /// Calls itself for smaller models, which the configuration knows to have no cycles.
    fn pool<'b>(&'b mut self, name: &'b str) -> BoxFuture<'b, Result<Arc<Pool>>> {
        async move {
            if let Some(known) = self.pools.get(name) {
                return Ok(known.clone());
            }
            let Some(Target::Pool(table)) = self.routes.target(name) else {
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
            name => Some((name.to_owned(), self.once(name).await?)),
        };
        let policy = RouterPolicy {
            picker,
            ..table.policy()
        };
        Ok(Router::new(ROUTER, classes, policy)?)
    }
}

/// A model that is not looked for before it is asked: most runs ask no candidate.
#[derive(Debug)]
struct WhenAsked {
    table: EndpointTable,
    transport: Arc<dyn Transport>,
    total: Duration,
    model: OnceCell<OpenAiModel>,
}

impl Model for WhenAsked {
    fn name(&self) -> &str {
        &self.table.model
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn Watch,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(async move {
            let find = || async {
                let found = host::model(&self.table, self.transport.clone(), self.total).await;
                found.map_err(|error| {
                    let message = format!("{error:#}");
                    error
                        .downcast::<ModelError>()
                        .unwrap_or(ModelError::Config { message })
                })
            };
            let model = self.model.get_or_try_init(find).await?;
            model.complete(request, watch).await
        })
    }
}

/// One file for the exchanges with all endpoints: a line is never written into another.
#[derive(Clone)]
struct Recording(Arc<Mutex<File>>);

impl Recording {
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

impl Write for Recording {
    /// All of it or nothing: what comes in one piece is one line.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file().write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file().flush()
    }
}
