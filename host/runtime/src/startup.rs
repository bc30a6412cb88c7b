//! How far a process is with what it begins with: modules that the configuration names and that are loaded while it serves
//! already, and MCP servers that have not listed their tools yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use toolhold_protocol::bound::{Bound, Runner};
use toolhold_sandbox::Registry;

/// Longest time after the begin of the process for which runs wait for modules and MCP servers. A cold start of many large
/// modules takes minutes; a fetch or a compilation that hangs must not hold runs for ever.
const MAX_START_WAIT: Duration = Duration::from_mins(10);

/// Longest time after the begin of the process for which resumed runs wait for another version of a module that is loaded,
/// although no file that claims its name is being loaded. The files may not be listed yet, or a version is fetched. But the
/// operator may have exchanged the module, and then the version never comes.
const MAX_VERSIONS_WAIT: Duration = Duration::from_secs(30);

/// Clones share the state.
#[derive(Debug, Clone)]
pub struct Startup {
    progress: Arc<watch::Sender<StartProgress>>,
    /// End of the time in which runs wait for modules and MCP servers.
    deadline: Instant,
    /// End of the time in which they wait for other versions of modules whose names are not being loaded.
    versions_deadline: Instant,
}

#[derive(Debug, Default)]
struct StartProgress {
    /// True if every module that the configuration names is loaded, or cannot be.
    has_modules: bool,
    /// MCP servers that have neither listed their tools nor failed, behind their agents: agents share no sessions.
    silent_servers: BTreeSet<(String, String)>,
}

impl Default for Startup {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            progress: Arc::default(),
            deadline: now + MAX_START_WAIT,
            versions_deadline: now + MAX_VERSIONS_WAIT,
        }
    }
}

impl Startup {
    /// Notes that every module that the configuration names is loaded, or cannot be.
    pub fn end_modules(&self) {
        self.progress
            .send_modify(|progress| progress.has_modules = true);
    }

    /// True until every module that the configuration names is loaded or refused.
    pub fn loads_modules(&self) -> bool {
        !self.progress.borrow().has_modules
    }

    /// Adds MCP servers that are waited for, each behind its agent, until [`Self::end_server`] names them.
    pub fn await_servers(&self, servers: impl Iterator<Item = (String, String)>) {
        let servers: Vec<_> = servers.collect();
        self.progress
            .send_modify(|progress| progress.silent_servers.extend(servers));
    }

    /// Notes that the agent's MCP server has listed its tools, or has failed.
    pub fn end_server(&self, agent: &str, server: &str) {
        let named = (agent.to_owned(), server.to_owned());
        self.progress.send_modify(|progress| {
            progress.silent_servers.remove(&named);
        });
    }

    /// Number of MCP servers that have neither listed their tools nor failed. One that several agents use counts once.
    pub fn silent_servers(&self) -> usize {
        let progress = self.progress.borrow();
        let servers = progress.silent_servers.iter();
        let names: BTreeSet<&String> = servers.map(|(_, server)| server).collect();
        names.len()
    }

    /// Names of the agent's MCP servers that its new runs wait for; none ten minutes after the begin of the process.
    pub fn awaited_servers(&self, agent: &str) -> BTreeSet<String> {
        if Instant::now() >= self.deadline {
            return BTreeSet::new();
        }
        let progress = self.progress.borrow();
        let of_agent = progress
            .silent_servers
            .iter()
            .filter(|(own, _)| own == agent);
        of_agent.map(|(_, server)| server.clone()).collect()
    }

    /// Names of the agent's MCP servers that a resumed run with these `tools` waits for. A call of an activity starts its
    /// server by itself. Which tools a sub-agent needs its Request says, so with one of them all are waited for.
    pub fn awaited_servers_of(&self, agent: &str, tools: &[Bound]) -> BTreeSet<String> {
        let mut awaited = self.awaited_servers(agent);
        let needs = |server: &String| {
            tools.iter().any(|bound| match &bound.runner {
                Runner::Module(own) => module_of(own) == *server,
                Runner::Request(_) | Runner::CleanRoom => true,
                Runner::Activity(_) | Runner::Advisor | Runner::Client | Runner::Model => false,
            })
        };
        awaited.retain(needs);
        awaited
    }

    /// Completes when no MCP server of the agent is waited for any more: each has listed its tools or has failed, or ten
    /// minutes have passed since the begin of the process.
    pub async fn servers_end(&self, agent: &str) {
        let mut progress = self.progress.subscribe();
        let is_over = |progress: &StartProgress| {
            let mut servers = progress.silent_servers.iter();
            servers.all(|(own, _)| own != agent)
        };
        drop(timeout_at(self.deadline, progress.wait_for(is_over)).await);
    }

    /// True if nothing is waited for any more: no module, and no MCP server.
    pub fn is_over(&self) -> bool {
        let progress = self.progress.borrow();
        progress.has_modules && progress.silent_servers.is_empty()
    }

    /// Completes when it is over, or when a module more is loaded or refused, or an MCP server has listed its tools or
    /// failed.
    pub async fn goes_on(&self, registry: &Registry) {
        let (mut progress, mut changes) = (self.progress.subscribe(), registry.changes());
        if self.is_over() {
            return;
        }
        tokio::select! {
            _ = progress.changed() => {}
            _ = changes.changed() => {}
        }
    }

    /// True while a run with these `tools` may have to wait for another version of a module: only then are the digests of its
    /// modules worth reading.
    pub fn awaits_versions(&self, tools: &[Bound], registry: &Registry) -> bool {
        let is_awaited = |bound: &Bound| match &bound.runner {
            Runner::Module(own) => self.awaits_version(own, registry),
            _ => false,
        };
        self.loads_modules() && tools.iter().any(is_awaited)
    }

    /// True while resumed runs wait for another version of this loaded module: while files that claim its name are being
    /// loaded, or the process has just begun.
    fn awaits_version(&self, name: &str, registry: &Registry) -> bool {
        Instant::now() < self.versions_deadline || registry.is_loading(&module_of(name))
    }

    /// The modules that `tools` need and that are not loaded yet: those that run them, and those that these may call.
    /// `modules`: digests, in hex, of the modules that the run was working with. A module that is loaded with another digest
    /// counts as not loaded while files that claim its name are being loaded, and for thirty seconds after the begin of the
    /// process: of two versions the older one may be there first. None, once all are loaded or refused, or ten minutes after
    /// that begin. Which modules a sub-agent needs its Request says, so with one of them all are waited for.
    pub fn awaited(
        &self,
        tools: &[Bound],
        modules: &BTreeMap<String, String>,
        registry: &Registry,
    ) -> BTreeSet<String> {
        let mut awaited = BTreeSet::new();
        if !self.loads_modules() || Instant::now() >= self.deadline {
            return awaited;
        }
        let failures = registry.failures();
        let has_failed = |name: &str| {
            let module = module_of(name);
            failures.iter().any(|failed| failed.name.raw() == module)
        };
        let mut looked_for = BTreeSet::new();
        let mut names = Vec::new();
        for bound in tools {
            match &bound.runner {
                Runner::Module(own) => match own.rsplit_once('.') {
                    // A component by its path or address.
                    Some((module, _)) if !module.contains(['/', ':']) => {
                        names.push(module.to_owned());
                    }
                    _ => drop(awaited.insert(EVERY_MODULE.to_owned())),
                },
                Runner::Request(_) | Runner::CleanRoom => {
                    awaited.insert(EVERY_MODULE.to_owned());
                }
                Runner::Activity(_) | Runner::Advisor | Runner::Client | Runner::Model => {}
            }
        }
        while let Some(name) = names.pop() {
            if !looked_for.insert(name.clone()) {
                continue;
            }
            match registry.module(&name) {
                Some(module) => {
                    let digest = modules.get(&name);
                    let is_it = digest.is_none_or(|digest| module.digest.to_string() == *digest);
                    if is_it || has_failed(&name) || !self.awaits_version(&name, registry) {
                        let grant = module.grant();
                        names.extend(grant.tools.iter().map(|tool| module_of(tool)));
                    } else {
                        awaited.insert(format!("{name} in the version that the run works with"));
                    }
                }
                None if has_failed(&name) => {}
                None => {
                    awaited.insert(name);
                }
            }
        }
        awaited
    }
}

/// In the place of names, where all modules are waited for.
const EVERY_MODULE: &str = "those of its Requests and paths";

/// The name of the module of a tool, `MODULE.tool`, or `MODULE@VERSION.tool`, or of the module itself.
fn module_of(tool: &str) -> String {
    let module = tool.split(['.', '@']).next().unwrap_or_default();
    module.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use std::path::{Path, PathBuf};
    use toolhold_protocol::tool::Tool;
    use toolhold_sandbox::{Engine, EngineConfig, LoadEvent, Policy};

    fn registry() -> Registry {
        let engine = Engine::new(EngineConfig::default()).unwrap();
        Registry::new(engine, None, Policy::default())
    }

    fn units_file() -> PathBuf {
        let file = "../../tests/components/units/units.wasm";
        Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
    }

    /// A registry with the small module `units`, and its digest in hex.
    async fn with_units() -> (Registry, String) {
        let bytes = std::fs::read(units_file()).unwrap();
        let registry = registry();
        registry.load_bytes("units", bytes).await.unwrap();
        let digest = registry.module("units").unwrap().digest.to_string();
        (registry, digest)
    }

    fn bound(runner: Runner) -> Bound {
        Bound {
            tool: Tool::new("t").into(),
            runner,
        }
    }

    #[tokio::test]
    async fn what_is_not_loaded_is_waited_for_until_the_start_is_over() {
        let registry = registry();
        let startup = Startup::default();
        let awaited = |tools: &[Bound]| startup.awaited(tools, &BTreeMap::new(), &registry);
        let module = || bound(Runner::Module("calc@1.2.0.evaluate".into()));
        let client = bound(Runner::Client);
        assert_eq!(
            awaited(&[module(), client]),
            ["calc@1.2.0".to_owned()].into()
        );
        assert!(awaited(&[]).is_empty());
        let room = bound(Runner::CleanRoom);
        assert_eq!(awaited(&[room]).len(), 1);
        startup.clone().end_modules();
        assert!(startup.is_over() && awaited(&[module()]).is_empty());
    }

    /// A startup whose modules are loaded, and that waits for these MCP servers, behind their agents.
    fn awaiting(servers: &[(&str, &str)]) -> Startup {
        let startup = Startup::default();
        startup.end_modules();
        let servers = servers.iter();
        startup.await_servers(servers.map(|&(agent, name)| (agent.to_owned(), name.to_owned())));
        startup
    }

    #[tokio::test(start_paused = true)]
    async fn runs_wait_for_the_servers_of_their_agent_and_not_for_ever() {
        let startup = awaiting(&[("one", "maps"), ("one", "mail"), ("other", "mail")]);
        assert!(!startup.is_over() && !startup.loads_modules());
        assert_eq!(startup.silent_servers(), 2, "one of them is of two agents");
        let begun = Instant::now();
        startup.servers_end("third").await;
        startup.end_server("other", "mail");
        startup.servers_end("other").await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let both = ["mail".to_owned(), "maps".to_owned()].into();
        assert_eq!(startup.awaited_servers("one"), both);
        assert!(startup.awaited_servers("other").is_empty());
        startup.servers_end("one").await;
        assert!(begun.elapsed() >= MAX_START_WAIT);
        assert!(startup.awaited_servers("one").is_empty());
        assert!(!startup.is_over(), "readiness goes on waiting");
        startup.end_server("one", "mail");
        startup.end_server("one", "maps");
        assert!(startup.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_that_waits_goes_on_when_its_server_has_listed_its_tools() {
        let startup = awaiting(&[("one", "maps")]);
        let begun = Instant::now();
        let registry = registry();
        let waits = async { tokio::join!(startup.servers_end("one"), startup.goes_on(&registry)) };
        tokio::join!(waits, async { startup.end_server("one", "maps") });
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }

    #[tokio::test]
    async fn a_resumed_run_waits_for_the_servers_that_it_needs() {
        let startup = awaiting(&[("one", "maps")]);
        let awaited = |runner: Runner| {
            let awaited = startup.awaited_servers_of("one", &[bound(runner)]);
            !awaited.is_empty()
        };
        assert!(awaited(Runner::Module("maps.route".into())));
        assert!(awaited(Runner::CleanRoom));
        assert!(!awaited(Runner::Module("mail.send".into())));
        assert!(!awaited(Runner::Client));
        let tools = [bound(Runner::CleanRoom)];
        assert!(startup.awaited_servers_of("other", &tools).is_empty());
    }

    /// The digest is the last one that the run worked with, and not the one of its begin.
    #[tokio::test]
    async fn another_version_of_a_loaded_module_is_waited_for_shortly() {
        let (registry, digest) = with_units().await;
        let tool = Tool {
            module_digest: Some("old".into()),
            ..Tool::new("units.length")
        };
        let tools = [Bound {
            tool: tool.into(),
            runner: Runner::Module("units.length".into()),
        }];
        let modules = |digest: &str| BTreeMap::from([("units".to_owned(), digest.to_owned())]);
        let mut startup = Startup::default();
        assert!(
            startup
                .awaited(&tools, &modules(&digest), &registry)
                .is_empty()
        );
        let awaited = startup.awaited(&tools, &modules("aa"), &registry);
        let expected = "units in the version that the run works with";
        assert_eq!(awaited, [expected.to_owned()].into());
        startup.versions_deadline = Instant::now();
        assert!(
            startup
                .awaited(&tools, &modules("aa"), &registry)
                .is_empty()
        );
        let missing = [bound(Runner::Module("calc.evaluate".into()))];
        let awaited = |startup: &Startup| startup.awaited(&missing, &modules("aa"), &registry);
        assert_eq!(
            awaited(&startup).len(),
            1,
            "a missing module is waited for longer"
        );
        startup.deadline = Instant::now();
        assert!(awaited(&startup).is_empty());
        assert!(!startup.is_over(), "readiness goes on waiting");
    }

    #[tokio::test]
    async fn another_version_is_waited_for_while_its_name_is_loaded() {
        let (registry, _) = with_units().await;
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(units_file(), folder.path().join("units.wasm")).unwrap();
        let ignored = |_: LoadEvent| ();
        let mut load = Box::pin(registry.load_folder(folder.path(), None, &ignored));
        while !registry.is_loading("units") {
            assert!(load.as_mut().now_or_never().is_none(), "it takes longer");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let tools = [bound(Runner::Module("units.length".into()))];
        let modules = BTreeMap::from([("units".to_owned(), "aa".to_owned())]);
        let startup = Startup {
            versions_deadline: Instant::now(),
            ..Startup::default()
        };
        assert_eq!(startup.awaited(&tools, &modules, &registry).len(), 1);
        assert!(startup.awaits_versions(&tools, &registry));
        drop(load);
        assert!(!startup.awaits_versions(&tools, &registry));
        assert!(startup.awaited(&tools, &modules, &registry).is_empty());
    }
}
