//! `toolhold eval`: tasks with expected outcomes, for one configuration or several side by side.

mod capture;
mod table;

use crate::commands::endpoint::EndpointArgs;
use crate::commands::{run, trust};
use crate::config;
use crate::config::Flags;
use crate::config::secrets::Needs;
use crate::exit::Exit;
use crate::terminal::output::{self, NoteMark};
use crate::terminal::progress::Loading;
use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, Subcommand};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use toolhold_devkit::eval::SHIPPED;
use toolhold_devkit::eval::arm::Arm;
use toolhold_devkit::eval::bench::EvalResources;
use toolhold_devkit::eval::report::Report;
use toolhold_devkit::eval::schedule;
use toolhold_devkit::eval::set::Set;
use toolhold_devkit::eval::store::AttemptStore;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::models::SharedProtection;
use toolhold_sandbox::Registry;

/// Most configurations side by side: more columns would be unreadable.
const MAX_ARMS: usize = 6;

/// Native tool calling as a plain loop does it; docs/evaluation.md explains it.
const PLAIN: [(&str, &str); 6] = [
    ("endpoints.{endpoint}.contract", "tools"),
    ("run.repair", "false"),
    ("fallback.enabled", "false"),
    ("run.wiring", "never"),
    ("run.reasons", "false"),
    ("run.examples", "0"),
];

/// Short names of settings that are often compared, after their flags.
const SHORT: [(&str, &str); 4] = [
    ("contract", "endpoints.{endpoint}.contract"),
    ("model", "endpoints.{endpoint}.model"),
    ("base_url", "endpoints.{endpoint}.base_url"),
    ("temperature", "run.temperature"),
];

#[derive(Debug, Subcommand)]
pub enum EvalCommand {
    /// Make tasks of recorded runs, without personal data and secrets, and print them as one JSON object.
    Capture(capture::CaptureArgs),
}

#[derive(Debug, Args)]
pub struct EvalArgs {
    #[command(subcommand)]
    command: Option<EvalCommand>,
    /// File of tasks, TOML or JSON [default: 40 tasks over the modules that come with Toolhold].
    file: Option<PathBuf>,
    /// Number of attempts of each configuration at each task.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    times: u32,
    /// Number of attempts at the same time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    parallel: u16,
    /// Run only these tasks, by id; NAME* for all ids that begin with NAME.
    #[arg(long = "task", value_name = "IDS", value_delimiter = ',')]
    tasks: Vec<String>,
    /// Run only tasks of these levels.
    #[arg(long = "level", value_name = "N", value_delimiter = ',')]
    levels: Vec<u8>,
    /// List the tasks without attempting any.
    #[arg(long)]
    list: bool,

    /// Compare with the settings of this file, which override the others; repeatable.
    #[arg(long, value_name = "FILE", help_heading = "What is compared")]
    against: Vec<PathBuf>,
    /// Compare these values of a setting, such as contract=schema,tools or run.examples=0,2. Given for
    /// several settings, every combination is compared.
    #[arg(long, value_name = "KEY=VALUES", help_heading = "What is compared")]
    vary: Vec<String>,
    /// Compare with plain native tool calling: no schema, repair, fallback, examples or references.
    #[arg(long, help_heading = "What is compared")]
    plain: bool,

    /// Fail unless the first configuration solves this share of its attempts: 0.8, or 80%.
    #[arg(long, value_name = "SHARE", value_parser = share, help_heading = "How it ends")]
    min_success: Option<f64>,
    /// Stop after this many seconds and report the results so far.
    #[arg(long, value_name = "SECONDS", help_heading = "How it ends")]
    time_limit: Option<f64>,
    /// Save every attempt in this file, and skip attempts that it already has under the same settings.
    #[arg(long, value_name = "FILE", help_heading = "How it ends")]
    save: Option<PathBuf>,
    /// Print one JSON object on stdout.
    #[arg(long, help_heading = "How it ends")]
    json: bool,

    #[command(flatten, next_help_heading = "Settings")]
    endpoint: EndpointArgs,
    /// Contract by which the model calls tools: auto, schema, tools or simple.
    #[arg(long, value_name = "NAME", help_heading = "Settings")]
    contract: Option<String>,
    /// Sampling temperature; 0 makes attempts repeatable as far as the endpoint can.
    #[arg(long, value_name = "T", help_heading = "Settings")]
    temperature: Option<f64>,
    /// Seed of each task's first attempt; each further attempt uses the next number.
    #[arg(long, value_name = "N", help_heading = "Settings")]
    seed: Option<i64>,
    /// Maximum number of tokens of one reply [default: run.max_tokens].
    #[arg(long, value_name = "N", help_heading = "Settings")]
    max_tokens: Option<i64>,
    /// Maximum number of requests of one attempt; a task may allow fewer [default: run.max_steps].
    #[arg(long, value_name = "N", help_heading = "Settings")]
    max_steps: Option<i64>,
    /// Maximum duration of one attempt, in seconds; a task may allow less [default: run.timeout_ms].
    #[arg(long, value_name = "SECONDS", help_heading = "Settings")]
    timeout: Option<f64>,
}

impl EvalArgs {
    /// The flags that are settings of the configuration.
    pub fn put(&self, flags: &mut Flags) {
        self.endpoint.put(flags);
        let contract = self.contract.clone();
        flags.set("--contract", "endpoints.{endpoint}.contract", contract);
        flags.set("--temperature", "run.temperature", self.temperature);
        flags.set("--seed", "run.seed", self.seed);
        flags.set("--max-tokens", "run.max_tokens", self.max_tokens);
        flags.set("--max-steps", "run.max_steps", self.max_steps);
        let timeout = self.timeout.map(|s| (s * 1_000.0).ceil() as i64);
        flags.set("--timeout", "run.timeout_ms", timeout);
    }
}

fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().map(|number| number / scale);
    share
        .ok()
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| "write a share such as 0.8 or 80%".into())
}

/// Loads the configuration with `file` and `flags`; each compared configuration adds its own settings.
pub async fn eval(file: Option<&Path>, flags: &Flags, args: EvalArgs) -> Result<Exit> {
    if let Some(EvalCommand::Capture(args)) = &args.command {
        let loaded = config::load(file, flags, Needs::All)?;
        return capture::capture(&loaded.configuration, args).await;
    }
    let set = set(&args)?;
    if args.list {
        if args.json {
            output::json(&set)?;
        } else {
            table::list(&set);
        }
        return Ok(Exit::Ok);
    }
    let mut arms = arms(file, flags, &args).await?;
    for (index, arm) in arms.iter_mut().enumerate() {
        let registry = compile(&arm.config, &set, index == 0).await?;
        arm.note(registry).await?;
    }
    let first = arms.first().context("there is nothing to evaluate")?;
    let bench = EvalResources::new(&first.config).await?;
    for task in &set.tasks {
        bench.check(&first.config, task).await?;
    }
    let store = args.save.as_deref().map(AttemptStore::open).transpose()?;
    let planned = schedule::order(&set, &arms, args.times);
    let all = planned.len();
    if !args.json {
        table::head(&arms, set.tasks.len(), args.times);
    }
    let stop = EarlyEnd::watch(args.time_limit);
    let mut attempts = Vec::with_capacity(all);
    schedule::perform(
        &bench,
        planned,
        usize::from(args.parallel),
        store,
        &stop.token,
        |attempt| {
            table::attempt(&attempt, attempts.len() + 1, all, arms.len() > 1);
            attempts.push(attempt);
        },
    )
    .await?;
    // The order must not depend on which attempt ended first.
    let place = |name: &str| arms.iter().position(|arm| arm.name == name);
    let at = |id: &str| set.tasks.iter().position(|task| task.id == id);
    attempts.sort_by_key(|own| (at(&own.task), own.number, place(&own.configuration)));
    let stopped = (attempts.len() < all).then(|| stop.reason());
    let report = Report::new(&set, &arms, &attempts, all, stopped);
    if args.json {
        output::json(&report)?;
    } else {
        table::report(&report);
    }
    Ok(exit(&report, &stop, args.min_success))
}

fn exit(report: &Report<'_>, stop: &EarlyEnd, min_success: Option<f64>) -> Exit {
    if report.stopped.is_some() {
        return if stop.by_time() {
            Exit::Limit
        } else {
            Exit::Interrupted
        };
    }
    let total = report.configurations.first().map(|first| first.total);
    match (min_success, total) {
        (Some(least), Some(total)) if total.rate < least => {
            let (rate, least) = (total.rate * 100.0, least * 100.0);
            let text = format!("{rate:.1} % is less than {least:.1} %");
            output::note(NoteMark::Bad("failed:"), &text);
            Exit::Failed
        }
        _ => Exit::Ok,
    }
}

fn set(args: &EvalArgs) -> Result<Set> {
    let set = match &args.file {
        Some(path) => Set::read(path).map_err(|reason| anyhow!("{}: {reason}", path.display())),
        None => Set::parse(SHIPPED).map_err(|reason| anyhow!("the shipped tasks: {reason}")),
    };
    let mut set = set?;
    set.only(&args.tasks, &args.levels)
        .map_err(|reason| anyhow!(reason))?;
    Ok(set)
}

/// Compiles every module before anything is timed, with a progress line if `tells`.
async fn compile(config: &Configuration, set: &Set, tells: bool) -> Result<Registry> {
    let loading = Loading::default();
    let registry = host::registry(config)?;
    let modules = set.modules();
    host::load(&registry, config, Some(&modules), &|event| {
        if tells {
            loading.on_event(event);
        }
    })
    .await?;
    for failed in registry.failures().iter().filter(|_| tells) {
        output::left_out(&format!("{}: {}", failed.origin, failed.error));
    }
    Ok(registry)
}

/// The configurations; the others are compared with the first.
async fn arms(file: Option<&Path>, flags: &Flags, args: &EvalArgs) -> Result<Vec<Arm>> {
    let (mut made, spared) = (Vec::new(), SharedProtection::default());
    for (name, flags) in variants(flags, args)? {
        if made.iter().any(|arm: &Arm| arm.name == name) {
            bail!("two configurations would be called {name:?}");
        }
        let loaded =
            config::load(file, &flags, Needs::All).with_context(|| format!("for {name:?}"))?;
        loaded.protected()?;
        if made.is_empty() {
            trust::note(&loaded);
        }
        let settings = loaded.settings.iter();
        let settings = settings.map(|set| (set.key.as_str(), &set.value));
        let settings = serde_json::to_value(settings.collect::<BTreeMap<_, _>>())?;
        // A task is done as `toolhold run` does it.
        let agent = loaded.run_agent();
        let agent = agent.with_context(|| format!("for {name:?}"))?;
        let config = Configuration::clone(&agent.configuration);
        made.push(Arm::new(name, config, &settings, &spared).await?);
    }
    Ok(made)
}

fn variants(flags: &Flags, args: &EvalArgs) -> Result<Vec<(String, Flags)>> {
    let mut variants: Vec<(String, Flags)> = vec![(String::new(), flags.clone())];
    for vary in &args.vary {
        let (key, values) = vary
            .split_once('=')
            .with_context(|| format!("--vary {vary}: expected KEY=VALUE,VALUE"))?;
        let short = SHORT.iter().find(|(short, _)| *short == key);
        let key = short.map_or(key, |(_, key)| *key);
        let mut next = Vec::new();
        for (name, flags) in &variants {
            for value in values.split(',').map(str::trim) {
                let mut flags = flags.clone();
                flags.set_text("--vary", key, value);
                let name = [name.as_str(), value].join(if name.is_empty() { "" } else { "," });
                next.push((name, flags));
            }
        }
        if next.len() > MAX_ARMS {
            bail!(
                "--vary makes {} configurations; at most {MAX_ARMS} are compared",
                next.len()
            );
        }
        variants = next;
    }
    if let [(name, _)] = variants.as_mut_slice()
        && name.is_empty()
    {
        "configured".clone_into(name);
    }
    for path in &args.against {
        let mut flags = flags.clone();
        let before = flags.len();
        flags.set_file("--against", path)?;
        // The tasks decide which tools they use, the same for all configurations.
        let is_shared = |key: &&str| {
            ["module.", "mcp.", "paths."]
                .iter()
                .any(|p| key.starts_with(p))
        };
        if let Some(key) = flags.since(before).find(is_shared) {
            bail!(
                "--against {}: {key} is the same for all that are compared",
                path.display()
            );
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        variants.push((name.into_owned(), flags));
    }
    if args.plain {
        let mut flags = flags.clone();
        for (key, value) in PLAIN {
            flags.set_text("--plain", key, value);
        }
        variants.push(("plain".into(), flags));
    }
    if variants.len() > MAX_ARMS {
        bail!(
            "{} configurations are too many; at most {MAX_ARMS} are compared",
            variants.len()
        );
    }
    Ok(variants)
}

/// Ends an evaluation early, after Ctrl-C or the time limit.
#[derive(Debug)]
struct EarlyEnd {
    token: CancellationToken,
    by_time: Arc<AtomicBool>,
}

impl EarlyEnd {
    fn watch(limit: Option<f64>) -> Self {
        let stop = Self {
            token: CancellationToken::new(),
            by_time: Arc::default(),
        };
        run::cancel_on_ctrl_c(stop.token.clone());
        if let Some(limit) = limit.and_then(|s| Duration::try_from_secs_f64(s).ok()) {
            let (token, by_time) = (stop.token.clone(), stop.by_time.clone());
            tokio::spawn(async move {
                tokio::time::sleep(limit).await;
                if !token.is_cancelled() {
                    by_time.store(true, Ordering::Relaxed);
                    token.cancel();
                }
            });
        }
        stop
    }

    fn by_time(&self) -> bool {
        self.by_time.load(Ordering::Relaxed)
    }

    fn reason(&self) -> String {
        let reason = if self.by_time() {
            "its time was over"
        } else {
            "it was interrupted"
        };
        reason.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct EvalCommand {
        #[command(flatten)]
        args: EvalArgs,
    }

    fn names(arguments: &[&str]) -> Result<Vec<String>> {
        let line = EvalCommand::try_parse_from([&["eval"], arguments].concat())?;
        let variants = variants(&Flags::default(), &line.args)?;
        Ok(variants.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn every_compared_variant_has_a_name() {
        for (arguments, expected) in [
            (&[][..], vec!["configured"]),
            (&["--plain"], vec!["configured", "plain"]),
            (
                &["--vary", "contract=schema, tools"],
                vec!["schema", "tools"],
            ),
            (
                &[
                    "--vary",
                    "contract=schema,tools",
                    "--vary",
                    "run.examples=0,2",
                ],
                vec!["schema,0", "schema,2", "tools,0", "tools,2"],
            ),
        ] {
            assert_eq!(names(arguments).unwrap(), expected, "{arguments:?}");
        }
        for (arguments, why) in [
            (&["--vary", "contract"][..], "expected KEY=VALUE"),
            (&["--vary", "run.seed=1,2,3,4,5,6,7"], "at most 6"),
            (&["--against", "no-such.toml"], "no-such.toml"),
            (&["--min-success", "120%"], "0.8 or 80%"),
            (&["--times", "0"], "1..=1000"),
        ] {
            let error = format!("{:#}", names(arguments).unwrap_err());
            assert!(error.contains(why), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn shares_are_written_in_two_ways() {
        assert_eq!(
            (share("0.8"), share("80%"), share("80 %")),
            (Ok(0.8), Ok(0.8), Ok(0.8))
        );
        assert!(share("-1").is_err() && share("2").is_err() && share("x").is_err());
    }
}
