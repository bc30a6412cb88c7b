//! `toolhold policy`: shields, hidden data, decision rules and grants, and the hash by which records name all of
//! it; for an agent or a key, what remains of it.

mod whose;

use crate::commands::loaded::warn_of_failures;
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bold, dim, line, warn};
use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use toolhold_agent::ToolSource as _;
use toolhold_agent::guard::shield::{OnFailure, ShieldBinding, Shields};
use toolhold_policy::pii::Kind;
use toolhold_protocol::decision::{DecisionMode, DecisionRules};
use toolhold_protocol::privacy::Privacy;
use toolhold_protocol::shield::ShieldPlace;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_runtime::models::Models;
use toolhold_runtime::shields::shields;
use toolhold_runtime::tools::SandboxTools;
use whose::{PolicySubject, is_meant};

#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// Show the policy of a run with only these tools, or all tools of these modules.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["agent", "key"])]
    tools: Option<Vec<String>>,
    /// Show the policy of the server's runs of this agent.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Show the policy of runs that this key starts; --agent selects the agent [default: default].
    #[arg(long, value_name = "NAME")]
    key: Option<String>,
    /// Print one JSON object with the hash and the hashed policy.
    #[arg(long)]
    json: bool,
}

/// Prints the policy of a run that would start now, with the hash that its record would hold.
pub async fn policy(config: &Configuration, args: &PolicyArgs) -> Result<Exit> {
    let (agent, key) = (args.agent.as_deref(), args.key.as_deref());
    let whose = PolicySubject::of(config, agent, key, args.tools.clone()).await?;
    let config = &whose.config;
    let mut tools = SandboxTools::new(host::registry(config)?).with_sources(host::sources(config));
    if let Some(allowed) = &whose.tools {
        tools = tools.allowing(allowed);
    }
    let settings = config.settings();
    let offered = match &whose.agent {
        Some(_) => Some(offered(&tools, config, &settings.decisions).await?),
        None => None,
    };
    let shields = Box::pin(ready(&whose, &tools, settings.timeout))
        .await
        .context(
            "no run can start under this policy: change or remove the shield in the configuration \
             (toolhold config says where each value comes from), or provide what it needs",
        )?;
    let instructions = Some(whose.instructions.as_str());
    let hash = shields.policy(&settings, instructions, 0).hash;
    if args.json {
        let mut all = shields.effective(&settings, instructions);
        all["hash"] = hash.into();
        if let Some(offered) = offered {
            all["whose"] = whose.json();
            let tool = |(name, waits)| json!({"name": name, "waits": waits});
            all["tools"] = offered.into_iter().map(tool).collect();
        }
        output::json(&all)?;
        return Ok(Exit::Ok);
    }
    println!("{} {hash}", bold("policy"));
    for (what, name) in [("agent", &whose.agent), ("key", &whose.key)] {
        if let Some(name) = name {
            output::tell(&format!("{} {}", bold(what), line(name)));
        }
    }
    screens(&shields, &whose.own_shields);
    hidden(&settings.privacy);
    waiting(&settings.decisions);
    match offered {
        Some(offered) => listed(&offered, &whose),
        None => named(whose.tools.as_deref()),
    }
    granted(&whose);
    Ok(Exit::Ok)
}

/// The shields of a run.
async fn ready(whose: &PolicySubject, tools: &SandboxTools, timeout: Duration) -> Result<Shields> {
    let config = &whose.config;
    let guards = Models::new(config, timeout, None)?.guards().await?;
    let allowed = whose.agents_tools.as_deref();
    let mut shields = shields(config, tools.components(), allowed, &guards).await?;
    if let Some(permits) = &whose.permits {
        // As in the record of a run of the key.
        shields.grants["key"] = json!(permits);
    }
    Ok(shields)
}

/// The modules' tools by name, and whether calls of them need a decision.
async fn offered(
    tools: &SandboxTools,
    config: &Configuration,
    rules: &DecisionRules,
) -> Result<Vec<(String, bool)>> {
    let registry = tools.components().registry();
    if config.has_modules() {
        host::load(registry, config, None, &|_| ()).await?;
        warn_of_failures(registry);
    }
    let tools = tools.tools().into_iter();
    let mut offered: Vec<_> = tools
        .map(|tool| {
            let waits = rules.apply_to(&tool.name, tool.annotations);
            (tool.name.clone(), waits)
        })
        .collect();
    offered.sort();
    Ok(offered)
}

/// The shields at each position, in screening order.
fn screens(shields: &Shields, own: &BTreeSet<String>) {
    for place in ShieldPlace::ALL {
        println!(
            "\n{}",
            bold(&format!("screened: {}", place.name().replace('_', " ")))
        );
        let stand = shields
            .posts
            .iter()
            .filter(|post| post.places.contains(&place));
        let lines: Vec<_> = stand
            .map(|post| {
                let is_own = own.contains(&post.name);
                (post.name.as_str(), post_words(post, place, is_own))
            })
            .collect();
        if lines.is_empty() {
            println!("  {}", dim("by nothing"));
        }
        for (name, words) in lines {
            output::tell(&format!("  {name}  {words}"));
        }
    }
}

fn post_words(post: &ShieldBinding, place: ShieldPlace, is_own: bool) -> String {
    let mut words = terms(&post.terms);
    if matches!(place, ShieldPlace::ToolInput | ShieldPlace::ToolOutput) && !post.tools.is_empty() {
        words.push_str("; only of ");
        words.push_str(&list(&post.tools));
    }
    if is_own {
        words.push_str("; this agent's own");
    }
    let otherwise = match post.on_failure {
        OnFailure::Block => "blocks",
        OnFailure::Pass => "lets pass",
    };
    let within = post.timeout.as_millis();
    format!(
        "{words}  {}",
        dim(&format!(
            "({otherwise} without a verdict within {within} ms)"
        ))
    )
}

/// The terms of a shield, by its kind.
fn terms(terms: &Value) -> String {
    let text = |key: &str| line(terms[key].as_str().unwrap_or_default());
    let names = |key: &str| -> Vec<String> {
        let items = terms[key].as_array().into_iter().flatten();
        items
            .filter_map(|item| item.as_str().or_else(|| item["code"].as_str()))
            .map(line)
            .collect()
    };
    match terms["kind"].as_str() {
        Some("pii") => format!("blocks {}", list(names("block"))),
        Some("domains") => format!("lets URLs name {}", list(names("allow"))),
        Some("wasm") => {
            let settings = match &terms["settings"] {
                Value::Object(settings) if settings.is_empty() => String::new(),
                settings => format!(", settings {}", line(&settings.to_string())),
            };
            format!(
                "component {} (sha256:{:.12}…){settings}",
                text("module"),
                text("digest").trim_start_matches("sha256:")
            )
        }
        Some("model") => {
            let (model, endpoint) = (text("model"), text("endpoint"));
            format!(
                "model {model} at {endpoint}, categories {}",
                list(names("categories"))
            )
        }
        _ => line(&terms.to_string()),
    }
}

fn hidden(privacy: &Privacy) {
    println!("\n{}", bold("hidden from the model"));
    if privacy.is_off() {
        println!("  {}", dim("nothing"));
        return;
    }
    let (secrets, personal): (Vec<Kind>, Vec<Kind>) =
        privacy.hide.iter().partition(|kind| kind.is_secret());
    for (what, kinds, revealed) in [
        ("personal data", personal, &privacy.reveal),
        ("secrets", secrets, &privacy.reveal_secrets),
    ] {
        if !kinds.is_empty() {
            let kinds = kinds.iter().map(|kind| kind.name());
            output::tell(&format!(
                "  {what}: {}; given to {}",
                list(kinds),
                list(revealed)
            ));
        }
    }
}

fn waiting(rules: &DecisionRules) {
    println!("\n{}", bold("calls that wait for a person"));
    let mut by_rule: BTreeMap<DecisionMode, Vec<&str>> = BTreeMap::new();
    for (tool, when) in &rules.tools {
        by_rule.entry(*when).or_default().push(tool);
    }
    let words = |when| match when {
        DecisionMode::Never => "none",
        DecisionMode::OnWrite => "those of tools that do not say that they only read",
        DecisionMode::Always => "all",
    };
    for (when, tools) in by_rule {
        output::tell(&format!("  of {}: {}", list(tools), words(when)));
    }
    let others = if rules.tools.is_empty() {
        "all"
    } else {
        "other"
    };
    println!("  of {others} tools: {}", words(rules.default));
    let plans = if rules.plans {
        "wait as a whole"
    } else {
        "do not wait as a whole"
    };
    println!("  lazy plans {plans}");
    if rules.calls_in_prose {
        println!(
            "  calls in prose that may come from text of others: none (decisions.calls_in_prose)"
        );
    }
}

fn named(tools: Option<&[String]>) {
    println!("\n{}", bold("tools"));
    match tools {
        Some(tools) => output::tell(&format!("  only {}", list(tools))),
        None => println!(
            "  all of the modules folder {}",
            dim("(--tools names some)")
        ),
    }
}

/// All present tools, those of MCP servers as configured; and configured names that match no tool.
fn listed(tools: &[(String, bool)], whose: &PolicySubject) {
    println!("\n{}", bold("tools"));
    for (name, waits) in tools {
        let words = if *waits { "  waits for a person" } else { "" };
        output::tell(&format!("  {}{words}", line(name)));
    }
    let foreign = whose.offered_by_servers();
    for name in &foreign {
        output::tell(&format!("  {}  {}", line(name), dim("of an MCP server")));
    }
    let names = tools.iter().map(|(name, _)| name);
    let names: Vec<&String> = names.chain(&foreign).collect();
    for wanted in whose.tools.iter().flatten() {
        if !names.iter().any(|name| is_meant(wanted, name)) {
            output::tell(&format!(
                "  {}  {}",
                line(wanted),
                dim("is not there, or may not run")
            ));
        }
    }
    if names.is_empty() && whose.tools.as_ref().is_none_or(Vec::is_empty) {
        println!("  {}", dim("none"));
    }
}

fn granted(whose: &PolicySubject) {
    println!("\n{}", bold("granted"));
    let config = &whose.config;
    let policy = config.policy();
    let reserved = policy.reserved_in_grants();
    let decided = &policy.modules;
    let mut is_nothing = true;
    for (name, left) in whose.granted() {
        let fault = decided.get(&name).and_then(|own| own.fault.as_deref());
        let sentences = left.grant.sentences();
        if sentences.is_empty() && left.withheld.is_empty() && fault.is_none() {
            continue;
        }
        is_nothing = false;
        output::tell(&format!("  {} may", line(&name)));
        if sentences.is_empty() && fault.is_none() {
            println!("    {}", dim("nothing"));
        }
        for sentence in sentences {
            output::tell(&format!("    {}", line(&sentence)));
        }
        for inside in reserved.iter().filter(|it| it.module == name) {
            output::tell(&format!(
                "    {} {}",
                warn("not:"),
                line(&inside.to_string())
            ));
        }
        for withheld in &left.withheld {
            output::tell(&format!("    {}", dim(&line(withheld))));
        }
        if let Some(fault) = fault {
            output::tell(&format!("    {} {}", warn("not be loaded:"), line(fault)));
        }
    }
    for (module, share) in config.shares() {
        let grant = decided.get(module).map(|own| own.grant.clone());
        for kind in share.in_vain(
            &grant.unwrap_or_default(),
            &toolhold_sandbox::same_directory,
        ) {
            is_nothing = false;
            let kind = kind.name();
            let vain = format!("the agent leaves {kind}, which {module} was not granted");
            output::tell(&format!("  {} {}", warn("in vain:"), line(&vain)));
        }
    }
    for server in config.servers() {
        is_nothing = false;
        output::tell(&format!(
            "  mcp:{}  {}",
            line(&server.name),
            list(&server.tools)
        ));
    }
    if is_nothing {
        println!("  {}", dim("nothing"));
    }
}

fn list<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| line(item.as_ref())).collect();
    match items.as_slice() {
        [] => "none".into(),
        items => items.join(", "),
    }
}
