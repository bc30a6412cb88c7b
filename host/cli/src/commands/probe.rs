//! `toolhold doctor --probe`: tests which contracts an endpoint supports, prints the result, and stores it
//! for runs.

use crate::commands::doctor::Finding;
use crate::commands::endpoint::EndpointArgs;
use crate::config::Flags;
use crate::exit::Exit;
use crate::terminal::style::{bad, bold, good, line, warn};
use crate::terminal::{output, style};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::json;
use std::time::Duration;
use toolhold_model::probe;
use toolhold_model::probe::ProbeQuestion;
use toolhold_model::{Delivery, Dialect, Model as _, OpenAiModel, ProbeVerdict};
use toolhold_runtime::config::{Configuration, EndpointTable};
use toolhold_runtime::host;
use toolhold_runtime::probed::{Dialects, Probed};
use uuid::Uuid;

/// Timeout of one reply. A small model on a busy CPU needs minutes for a reply that reaches its limit.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(5);

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Instead, send the endpoint small test requests, find out which contract works, and store it for runs.
    #[arg(long)]
    pub probe: bool,
    /// Print the result as one JSON object.
    #[arg(long, requires = "probe")]
    pub json: bool,
    #[command(flatten)]
    endpoint: EndpointArgs,
}

impl DoctorArgs {
    /// The flags that are settings of the configuration.
    pub fn put(&self, flags: &mut Flags) {
        self.endpoint.put(flags);
    }
}

/// Probes the selected endpoint.
pub async fn probe(config: &Configuration, json: bool) -> Result<Exit> {
    let Some(endpoint) = config.selected() else {
        bail!(
            "{:?} is no single endpoint; name each of its own with --endpoint",
            config.endpoint
        );
    };
    let model = model(config, endpoint).await?;
    if !json {
        println!("{} at {}", bold(&line(model.name())), line(model.target()));
    }
    // The end of a version 7 UUID is random, so no model has seen it.
    let nonce = Uuid::now_v7().simple().to_string()[20..].to_owned();
    let dialect = probe::probe(&model, &nonce, &mut |question: ProbeQuestion| {
        if !json {
            output::remark(&format!("… {}", question.subject()));
        }
    })
    .await?;
    let probed = Probed::now(model.target(), model.name(), dialect);
    let kept = Dialects::new(config.state_folder())
        .keep(&probed)
        .context("what was found cannot be kept for runs; set paths.state")?;
    if json {
        let mut found = serde_json::to_value(&probed)?;
        found["contract"] = json!(probed.dialect.contract());
        output::json_line(&found)?;
    } else {
        show(&probed.dialect);
        let chosen = endpoint.contract.fixed();
        println!(
            "\nkept in {}; {}",
            kept.display(),
            match chosen {
                None => "runs at this endpoint use it".to_owned(),
                Some(contract) => format!(
                    "runs use the {} contract all the same, because the configuration says so",
                    contract.name()
                ),
            }
        );
    }
    Ok(Exit::Ok)
}

/// The stored result of an earlier probe; `None` if the endpoint cannot be asked for its model now.
pub(super) async fn remembered(
    config: &Configuration,
    endpoint: &EndpointTable,
) -> Option<Finding> {
    let model = model(config, endpoint).await.ok()?;
    let found = kept(config, &model);
    let Some(probed) = found else {
        return Some(Finding::Lacking(
            match endpoint.contract.fixed() {
                None => format!(
                    "{} was not probed, so runs assume the schema contract",
                    model.name()
                ),
                Some(_) => format!("{} was not probed", model.name()),
            },
            "find out what works: toolhold doctor --probe".into(),
        ));
    };
    let now = model.server().await.ok()?;
    let then = &probed.dialect.server;
    if now.version != then.version {
        let version = |version: &Option<String>| version.clone().unwrap_or("unknown".into());
        return Some(Finding::Lacking(
            format!(
                "the server's version is {}, and {} was probed",
                version(&now.version),
                version(&then.version)
            ),
            "probe it again: toolhold doctor --probe".into(),
        ));
    }
    let contract = probed.dialect.contract().name();
    Some(Finding::Fine(format!(
        "the {contract} contract works, as found on {}",
        probed.date()
    )))
}

/// The stored result of an endpoint; `None` without a probe, or if it cannot be asked for its model now.
pub(super) async fn found(config: &Configuration, endpoint: &EndpointTable) -> Option<Probed> {
    kept(config, &model(config, endpoint).await.ok()?)
}

fn kept(config: &Configuration, model: &OpenAiModel) -> Option<Probed> {
    Dialects::new(config.state_folder()).find(model.target(), model.name())
}

async fn model(config: &Configuration, endpoint: &EndpointTable) -> Result<OpenAiModel> {
    host::model(
        endpoint,
        host::transport(endpoint, config.api_key(endpoint))?,
        ANSWER_TIMEOUT,
    )
    .await
}

fn show(dialect: &Dialect) {
    let server = &dialect.server;
    let line = |what: &str, text: &str| println!("  {what:<16} {}", style::line(text));
    let name = server.name.as_deref().unwrap_or("unknown");
    line(
        "server",
        format!("{name} {}", server.version.as_deref().unwrap_or_default()).trim_end(),
    );
    line(
        "context",
        &server
            .context_length
            .map_or("not told".into(), |tokens| format!("{tokens} tokens")),
    );
    let delivery = match dialect.delivery {
        Delivery::Stream => "streamed",
        Delivery::UncountedStream => "streamed; stream_options is refused",
        Delivery::Whole => "whole; it does not stream",
    };
    line("answers", delivery);
    let yes_no = |is: bool, yes: &'static str, no: &'static str| if is { yes } else { no };
    line(
        "token counts",
        yes_no(dialect.usage, "with every answer", "none"),
    );
    line(
        "reasoning",
        yes_no(dialect.reasoning, "in a field of its own", "not seen"),
    );
    line(
        "tokenizer",
        yes_no(dialect.tokenizer.is_some(), "counts tokens", "none"),
    );
    for (what, verdict) in [
        ("JSON Schema", &dialect.schema),
        ("tools", &dialect.tools.auto),
        ("  required", &dialect.tools.required),
        ("  named", &dialect.tools.named),
        ("  two at once", &dialect.tools.parallel),
    ] {
        let mark = match verdict {
            ProbeVerdict::Works => good("✓"),
            ProbeVerdict::Unknown { .. } => warn("?"),
            ProbeVerdict::Ignored { .. } | ProbeVerdict::Refused { .. } => bad("✗"),
        };
        output::tell(&format!(
            "{mark} {what:<16} {}",
            style::line(&verdict.to_string())
        ));
    }
    println!(
        "→ {}",
        bold(&format!("the {} contract", dialect.contract().name()))
    );
}
