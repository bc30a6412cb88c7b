//! `toolhold resume`: a run whose process ended, from its record.

use super::options::ResumeArgs;
use super::{AllowedTools, PreparedRun, driver, retriever, subject, watch};
use crate::commands::plan;
use crate::config::Loaded;
use crate::exit::Exit;
use crate::terminal::output::{self, NoteMark};
use crate::terminal::view::EventPrinter;
use anyhow::{Context as _, Result, bail};
use tokio_util::task::AbortOnDropHandle;
use toolhold_agent::run::replay::replay;
use toolhold_model::ProbeVerdict;
use toolhold_protocol::bound::Runner;
use toolhold_protocol::event::{Event, EventKind};
use toolhold_protocol::settings::Settings;
use toolhold_protocol::tool::Execution;
use toolhold_runtime::host;
use toolhold_runtime::resume_notes::resume_notes;
use toolhold_runtime::telemetry;
use toolhold_server::rights::{Right, Rights};
use toolhold_telemetry::ObservedRun;

/// Resumes a run whose process ended.
pub async fn resume(loaded: &Loaded, args: ResumeArgs) -> Result<Exit> {
    let config = &*loaded.run_agent()?.configuration;
    let store = host::store(config).await?;
    let id = store.find(&args.run).await?.run()?;
    let rights = Rights::new(store.clone());
    let mut right = Right::of_operator();
    if let Some(row) = store.run(id).await? {
        // A key's run does not go on without the key's right, whoever asks for it.
        right = rights.of_owner(&row.owner);
        right.look().await.with_context(|| {
            format!("run {id} does not go on; `toolhold runs cancel {id}` ends it")
        })?;
    }
    let (mut journal, mut events) = store.reopen(id).await?;
    store.restore_record(id, &mut events).await?;
    let mut replayed = replay(&events).with_context(|| format!("run {id}"))?;
    let request = replayed.machine.request();
    let means = &args.means;
    let prepared = if request.plan.is_some() {
        if let Some(flag) = means.asking() {
            bail!("{flag} has no meaning here: the run is a saved plan's and asks no model");
        }
        plan::driver(loaded, config, &store, request, means.json).await?
    } else {
        let timeout = request.settings.timeout;
        let own = request.own_tools_only;
        let allowed = AllowedTools {
            names: request.allowed.as_deref(),
            origin: "the run's tool",
        };
        let (prepared, known) = Box::pin(driver(
            (loaded, config),
            &store,
            means,
            allowed,
            timeout,
            own,
        ))
        .await?;
        let change = EndpointChange {
            doubt: known.doubt(request.settings.contract, config),
            settings: &request.settings,
            before: began_with(&events),
            now: prepared.driver.model.name(),
        };
        if change.before != change.now || means.endpoint.given().is_some() {
            change.tell()?;
        }
        prepared
    };
    let PreparedRun {
        mut driver,
        servers,
        registry,
    } = prepared;
    driver.retriever = retriever(config, &store, request).await?;
    let policy = driver.shields.policy(
        &request.settings,
        Some(&replayed.instructions),
        request.depth,
    );
    journal.under(&policy.hash);
    if policy.hash != request.policy.hash {
        let text = "the policy is another than the one that this run began under; the present one holds for its calls";
        output::note(NoteMark::Warn("policy:"), text);
    }
    // Modules that tools named by path or by reference are loaded again.
    for bound in replayed.tools() {
        if let (Execution::Module(name), Runner::Module(_)) = (&bound.tool.execution, &bound.runner)
        {
            // Calls of its tools will fail for this reason; the run may not need them any more.
            if let Err(reason) = driver.toolbox.source.module(name).await {
                output::left_out(&format!("{}: {reason}", bound.tool.name));
            }
        }
    }
    replayed.notes = resume_notes(&driver, &replayed, &registry);
    let telemetry = host::telemetry(config, false)?;
    let mut view = EventPrinter::of_run(means.shown());
    view.is_about(replayed.machine.request(), replayed.machine.tools());
    let run = driver.resume(replayed, Box::new(journal));
    let cancel = run.cancel.clone();
    let _revocation = AbortOnDropHandle::new(tokio::spawn(async move {
        let end = rights.wait_for_end(&right).await;
        cancel.cancel_because(end.to_string());
    }));
    let observer = telemetry.observe(ObservedRun {
        parent: telemetry::recorded_trace(&store, run.id).await,
        ..subject(run.id)
    });
    let watched = watch(run, Some(&store), observer, view).await;
    telemetry.close().await;
    servers.close().await;
    Ok(watched?.exit())
}

fn began_with(events: &[Event]) -> &str {
    match events.first().map(|event| &event.kind) {
        Some(EventKind::Run { model, .. }) => model,
        _ => "",
    }
}

/// A resumed run whose endpoint may have changed. The run keeps its recorded settings, because a replay
/// rebuilds the same Requests from them.
struct EndpointChange<'a> {
    /// An answering endpoint that the probe found not to support the run's contract, with its verdict.
    doubt: Option<(&'a str, &'a ProbeVerdict)>,
    settings: &'a Settings,
    before: &'a str,
    now: &'a str,
}

impl EndpointChange<'_> {
    /// Warns about recorded settings that differ from the endpoint's.
    ///
    /// # Errors
    /// The probe found that the endpoint refuses the run's contract.
    fn tell(&self) -> Result<()> {
        let contract = self.settings.contract;
        let mut doubt = String::new();
        match self.doubt {
            Some((endpoint, ProbeVerdict::Refused { reason })) => bail!(
                "the run goes on under the {} contract that it began with, and toolhold doctor --probe found that the \
                 endpoint {endpoint:?} refuses it: {reason}. Resume it with an endpoint that knows it, or begin a new \
                 run",
                contract.name()
            ),
            Some((endpoint, ProbeVerdict::Ignored { .. })) => {
                doubt = format!(", which the endpoint {endpoint:?} was found to accept and ignore");
            }
            _ => {}
        }
        let window = match self.settings.window.tokens {
            Some(tokens) => format!("a window of {tokens} tokens"),
            None => "no known window".into(),
        };
        let price = match self.settings.price {
            Some(_) => "the price that it began with",
            None => "no price",
        };
        let text = format!(
            "{} goes on with what {} began; kept from the record, by which the run can be replayed: the {} \
             contract{doubt}, {window}, {price}, at most {} tokens a reply",
            self.now,
            self.before,
            contract.name(),
            self.settings.max_tokens
        );
        output::note(NoteMark::Warn("note:"), &text);
        Ok(())
    }
}
