//! `toolhold plan check`.

use super::PlanArgs;
use super::examine::{PlanReport, examine};
use crate::exit::Exit;
use crate::terminal::output;
use crate::terminal::style::{bad, good, line, plural, warn};
use anyhow::Result;
use serde_json::{Value, json};
use toolhold_runtime::config::AgentConfiguration;

/// Most faults that are printed: more of them usually have one cause.
pub const MAX_SHOWN_FAULTS: usize = 40;

pub async fn check(agent: &AgentConfiguration, args: &PlanArgs, json: bool) -> Result<Exit> {
    let examined = examine(agent, args, false).await?;
    if json {
        let whole = json!({
            "steps": examined.steps,
            "mode": examined.mode,
            "faults": examined.faults,
            "warnings": said(&examined.warnings),
            "needs": said(&examined.needs),
        });
        output::json(&whole)?;
    } else {
        show(&examined);
        if examined.faults.is_empty() {
            let steps = plural(examined.steps as u64, "step");
            println!("{} {steps}", good("in order:"));
        }
    }
    Ok(exit_of(&examined))
}

/// Prints faults and warnings.
pub fn show(examined: &PlanReport) {
    for fault in examined.faults.iter().take(MAX_SHOWN_FAULTS) {
        // Names in a plan may contain line breaks.
        let message = fault.message.replace(['\n', '\r'], " ");
        output::tell(&format!("{} {}", bad("fault:"), line(&message)));
    }
    if examined.faults.len() > MAX_SHOWN_FAULTS {
        let more = examined.faults.len() - MAX_SHOWN_FAULTS;
        println!("{} {more} more; --json lists all", bad("fault:"));
    }
    for warning in &examined.warnings {
        output::tell(&format!(
            "{} {}",
            warn("warning:"),
            line(&warning.to_string())
        ));
    }
    for need in &examined.needs {
        let paths: Vec<_> = need.paths.iter().map(ToString::to_string).collect();
        let need = format!("{} at {}", paths.join(" or "), need.place);
        output::tell(&format!("needs: {}", line(&need)));
    }
}

/// `items` as JSON, each with its text.
pub fn said<T: serde::Serialize + ToString>(items: &[T]) -> Vec<Value> {
    let said = |item: &T| {
        let mut value = json!(item);
        value["message"] = item.to_string().into();
        value
    };
    items.iter().map(said).collect()
}

pub fn exit_of(examined: &PlanReport) -> Exit {
    Exit::of(examined.faults.is_empty())
}
