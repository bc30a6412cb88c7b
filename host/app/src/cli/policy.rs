//! `toolhold policy`: what screens runs, what is hidden from whom, which calls wait for a person, what was
//! granted, and the hash by which records name all of it.

use crate::cli::Exit;
use crate::cli::style::{bold, dim, line, warn};
use crate::config::Config;
use crate::host;
use crate::models::Models;
use crate::shields::shields;
use crate::tools::SandboxTools;
use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use toolhold_agent::guard::pii::{Kind, Privacy};
use toolhold_agent::guard::shield::{OnFailure, Place, Post, Shields};
use toolhold_agent::run::approval::{Approvals, When};

#[derive(Debug, Args)]
pub struct PolicyArgs {
    /// As for a run: only these tools, or all tools of these modules.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tools: Option<Vec<String>>,
    /// One JSON object: the hash, and what it is the hash of.
    #[arg(long)]
    json: bool,
}

/// Prints the policy of a run that would be started now, with the hash that its record would carry.
pub async fn policy(config: &Config, args: &PolicyArgs) -> Result<Exit> {
    let tools = SandboxTools::new(host::registry(config)?).with_sources(host::sources(config));
    let settings = config.settings();
    let shields = Box::pin(ready(config, &tools, args, settings.timeout))
        .await
        .context(
            "no run can start under this policy: change or remove the shield in the configuration \
             (toolhold config says where each value comes from), or provide what it needs",
        )?;
    let hash = shields.policy(&settings, 0).hash;
    if args.json {
        let mut all = shields.effective(&settings);
        all["hash"] = hash.into();
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(Exit::Ok);
    }
    println!("{} {hash}", bold("policy"));
    screens(&shields);
    hidden(&settings.privacy);
    waiting(&settings.approval);
    offered(args.tools.as_deref());
    granted(config);
    Ok(Exit::Ok)
}

/// The shields as a run would have them.
async fn ready(
    config: &Config,
    tools: &SandboxTools,
    args: &PolicyArgs,
    timeout: Duration,
) -> Result<Shields> {
    let guards = Models::new(config, timeout, None)?.guards().await?;
    shields(config, tools.components(), args.tools.as_deref(), &guards).await
}

/// Who stands where, in the order in which they are asked.
fn screens(shields: &Shields) {
    for place in Place::ALL {
        println!(
            "\n{}",
            bold(&format!("screened: {}", place.name().replace('_', " ")))
        );
        let stand = shields
            .posts
            .iter()
            .filter(|post| post.places.contains(&place));
        let lines: Vec<_> = stand
            .map(|post| (post.name.as_str(), post_words(post, place)))
            .collect();
        if lines.is_empty() {
            println!("  {}", dim("by nothing"));
        }
        for (name, words) in lines {
            println!("  {name}  {words}");
        }
    }
}

fn post_words(post: &Post, place: Place) -> String {
    let mut words = terms(&post.terms);
    if matches!(place, Place::ToolInput | Place::ToolOutput) && !post.tools.is_empty() {
        words.push_str("; only of ");
        words.push_str(&list(&post.tools));
    }
    let otherwise = match post.on_failure {
        OnFailure::Block => "blocks",
        OnFailure::Pass => "lets pass",
    };
    let within = post.timeout.as_millis();
    format!(
        "{words}  {}",
        dim(&format!("{otherwise} without a verdict within {within} ms"))
    )
}

/// What a shield's terms say, by its kind.
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
                text("digest")
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
            println!("  {what}: {}; given to {}", list(kinds), list(revealed));
        }
    }
}

fn waiting(approval: &Approvals) {
    println!("\n{}", bold("calls that wait for a person"));
    let mut by_rule: BTreeMap<When, Vec<&str>> = BTreeMap::new();
    for (tool, when) in &approval.tools {
        by_rule.entry(*when).or_default().push(tool);
    }
    let words = |when| match when {
        When::Never => "none",
        When::OnWrite => "those of tools that do not say that they only read",
        When::Always => "all",
    };
    for (when, tools) in by_rule {
        println!("  of {}: {}", list(tools), words(when));
    }
    println!("  of other tools: {}", words(approval.default));
    let plans = if approval.plans {
        "wait as a whole"
    } else {
        "do not wait as a whole"
    };
    println!("  lazy plans {plans}");
}

fn offered(tools: Option<&[String]>) {
    println!("\n{}", bold("tools"));
    match tools {
        Some(tools) => println!("  only {}", list(tools.iter().map(|tool| line(tool)))),
        None => println!(
            "  all of the modules folder {}",
            dim("(--tools names some)")
        ),
    }
}

fn granted(config: &Config) {
    println!("\n{}", bold("granted"));
    let decided: BTreeMap<_, _> = config.policy().modules.into_iter().collect();
    let mut is_nothing = true;
    for (name, module) in &decided {
        let sentences = module.grant.sentences();
        if sentences.is_empty() && module.fault.is_none() {
            continue;
        }
        is_nothing = false;
        println!("  {name} may");
        for sentence in sentences {
            println!("    {}", line(&sentence));
        }
        if let Some(fault) = &module.fault {
            println!("    {} {}", warn("not be loaded:"), line(fault));
        }
    }
    for server in config.servers() {
        is_nothing = false;
        println!("  mcp:{}  {}", server.name, list(&server.tools));
    }
    if is_nothing {
        println!("  {}", dim("nothing"));
    }
}

fn list<T: AsRef<str>>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| line(item.as_ref())).collect();
    match items.as_slice() {
        [] => "nobody".into(),
        items => items.join(", "),
    }
}
