//! Durations and failures of tool calls, by tool.

use crate::stats::Histogram;
use std::collections::BTreeMap;
use toolhold_protocol::event::ToolOutcome;
use toolhold_protocol::result::ToolUsage;

/// Most tools counted separately: a record may name any number.
const MAX_TOOLS: usize = 2_000;
/// Most kinds of failure counted separately, for each tool.
const MAX_KINDS: usize = 100;
/// The name under which the others are counted.
const OTHERS: &str = "(others)";

/// Calls by tool.
#[derive(Debug, Clone, Default)]
pub struct Tools(BTreeMap<String, ToolStats>);

/// The calls of one tool.
#[derive(Debug, Clone, Default)]
pub struct ToolStats {
    /// Calls that were made.
    pub calls: u64,
    /// Calls that were not made: refused, answered by the model itself, or given an earlier result.
    pub by_host: u64,
    /// Failures by kind, those of refused calls included.
    pub errors: BTreeMap<String, u64>,
    /// Microseconds of each call that was made.
    pub duration_us: Histogram,
    /// Instructions of each call that counted them.
    pub fuel: Histogram,
}

impl Tools {
    pub fn add(&mut self, tool: &str, outcome: &ToolOutcome, usage: &ToolUsage, by_host: bool) {
        let stats = entry(&mut self.0, tool, MAX_TOOLS);
        if by_host {
            stats.by_host += 1;
        } else {
            stats.calls += 1;
            let is_unknown =
                matches!(outcome, ToolOutcome::Error(failure) if failure.is_of_unknown_end());
            if !is_unknown || usage.duration_us > 0 {
                stats.duration_us.add(usage.duration_us);
            }
            if usage.fuel > 0 {
                stats.fuel.add(usage.fuel);
            }
        }
        if let ToolOutcome::Error(failure) = outcome {
            *entry(&mut stats.errors, &failure.kind, MAX_KINDS) += 1;
        }
    }

    pub fn merge(&mut self, other: &Self) {
        for (tool, theirs) in &other.0 {
            let own = entry(&mut self.0, tool, MAX_TOOLS);
            own.calls += theirs.calls;
            own.by_host += theirs.by_host;
            for (kind, count) in &theirs.errors {
                *entry(&mut own.errors, kind, MAX_KINDS) += count;
            }
            own.duration_us.merge(&theirs.duration_us);
            own.fuel.merge(&theirs.fuel);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// By name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ToolStats)> {
        self.0.iter().map(|(name, stats)| (name.as_str(), stats))
    }
}

/// The entry of `name`, or that of all others where there are too many.
fn entry<'a, T: Default>(
    entries: &'a mut BTreeMap<String, T>,
    name: &str,
    most: usize,
) -> &'a mut T {
    let is_full = entries.len() >= most && !entries.contains_key(name);
    let name = if is_full { OTHERS } else { name };
    entries.entry(name.to_owned()).or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toolhold_protocol::failure::ToolFailure;

    #[test]
    fn a_record_with_endless_names_takes_bounded_memory() {
        let mut tools = Tools::default();
        for n in 0..MAX_TOOLS + 50 {
            let outcome = ToolOutcome::Output(json!(1));
            tools.add(&format!("tool{n}"), &outcome, &ToolUsage::default(), false);
        }
        for n in 0..MAX_KINDS + 50 {
            let failure = ToolFailure::correctable(&format!("kind{n}"), "no");
            tools.add(
                "tool0",
                &ToolOutcome::Error(failure),
                &ToolUsage::default(),
                true,
            );
        }
        let mut merged = tools.clone();
        merged.merge(&tools);
        assert_eq!(tools.iter().count(), MAX_TOOLS + 1);
        assert_eq!(merged.iter().count(), MAX_TOOLS + 1);
        let (_, others) = merged.iter().find(|(name, _)| *name == OTHERS).unwrap();
        assert_eq!(others.calls, 100);
        let (_, first) = merged.iter().find(|(name, _)| *name == "tool0").unwrap();
        assert_eq!(first.errors.len(), MAX_KINDS + 1);
        assert_eq!((first.errors[OTHERS], first.by_host), (100, 300));
    }
}
