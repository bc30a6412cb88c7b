//! Statistics of one run, followed event by event.

use crate::stats::{Histogram, SideModelStats, Tools};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use toolhold_protocol::cost::Amount;
use toolhold_protocol::event::{Event, EventKind, StopReason};
use toolhold_protocol::fallback::Stage;
use toolhold_protocol::routing::Routing;
use toolhold_protocol::settings::RunRequest;
use uuid::Uuid;

/// The statistics of a run, step by step.
#[derive(Debug, Clone, Default)]
pub struct RunStats {
    pub run: Uuid,
    pub task: String,
    pub model: String,
    pub contract: &'static str,
    pub currency: String,
    /// Milliseconds since 1970 (UTC).
    pub began_ms: u64,
    /// Reason and duration; absent if the run has not ended.
    pub end: Option<(StopReason, Duration)>,
    /// One for each Request, in the order in which they were sent, those of sub-agents and of fallbacks
    /// included.
    pub steps: Vec<StepStats>,
    pub tools: Tools,
    /// Requests besides those of the steps.
    pub sides: SideModelStats,
    /// The run, and its sub-agents by the call that each answers.
    lanes: BTreeMap<Vec<String>, RouteProgress>,
    /// Calls that sub-agents answer: their time is that of the sub-agents' steps.
    delegated: BTreeSet<String>,
}

/// The statistics of a Request, its reply and its calls.
#[derive(Debug, Clone, Default)]
pub struct StepStats {
    pub step: u32,
    /// The tool whose call a sub-agent answers by this step; empty for the run's own steps.
    pub within: String,
    pub model: String,
    pub contract: &'static str,
    pub took: ModelUsage,
    /// From sending the Request to the first piece of the reply.
    pub first_token: Option<Duration>,
    /// From sending the Request to the end of the reply.
    pub last_token: Option<Duration>,
    /// Time between two pieces, of 95 in 100, as the reply has it. A piece may be several tokens.
    between_pieces: Option<Duration>,
    /// Milliseconds between two pieces, in records of older versions, which have each piece.
    gaps_ms: Histogram,
}

/// The sums of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelUsage {
    /// Complete replies.
    pub replies: u64,
    /// Replies without token counts of the endpoint.
    pub uncounted: u64,
    /// Incomplete or missing replies: their cost is unknown.
    pub failed: u64,
    pub prompt: u64,
    /// Of the prompt tokens, those from the endpoint's cache.
    pub cached: u64,
    pub completion: u64,
    /// Cost of the replies whose cost is known.
    pub cost: Amount,
    pub unpriced: u64,
    pub calls: u64,
    /// Sum over all tool calls, some of which ran at the same time.
    pub in_tools: Duration,
    /// Repaired faults of replies and arguments.
    pub repairs: u64,
    /// Retries of requests.
    pub retries: u64,
    /// Calls made by a fallback model.
    pub fallbacks: u64,
    /// Hedged requests that lost to the other request.
    pub hedges: u64,
    /// Of these, those of unknown cost.
    pub unheard: u64,
}

#[derive(Debug, Clone, Default)]
struct RouteProgress {
    model: String,
    contract: &'static str,
    /// The contracts of the fallback's candidates, by name.
    candidates: Vec<(String, &'static str)>,
    /// The candidate that the next Request goes to.
    asked: Option<String>,
    within: String,
    /// Index of its last step.
    step: Option<usize>,
    last_delta_ms: Option<u64>,
    /// The tools of begun calls.
    begun: BTreeMap<String, String>,
}

impl StepStats {
    /// Time between two pieces, of 95 in 100.
    pub fn between_pieces_p95(&self) -> Option<Duration> {
        let recorded = || self.gaps_ms.percentile(95).map(Duration::from_millis);
        self.between_pieces.or_else(recorded)
    }

    /// Mean time between two tokens: from the first to the last, divided by their number less one.
    pub fn between_tokens(&self) -> Option<Duration> {
        let spaces = u32::try_from(self.took.completion.checked_sub(1)?).ok()?;
        let generating = self.last_token?.checked_sub(self.first_token?)?;
        generating.checked_div(spaces)
    }
}

impl ModelUsage {
    pub fn add(&mut self, other: &Self) {
        self.replies += other.replies;
        self.uncounted += other.uncounted;
        self.failed += other.failed;
        self.prompt = self.prompt.saturating_add(other.prompt);
        self.cached = self.cached.saturating_add(other.cached);
        self.completion = self.completion.saturating_add(other.completion);
        self.cost = self.cost.plus(other.cost);
        self.unpriced += other.unpriced;
        self.calls += other.calls;
        self.in_tools = self.in_tools.saturating_add(other.in_tools);
        self.repairs += other.repairs;
        self.retries += other.retries;
        self.fallbacks += other.fallbacks;
        self.hedges += other.hedges;
        self.unheard += other.unheard;
    }
}

impl RunStats {
    /// Takes the run's next event.
    pub fn take(&mut self, event: &Event) {
        if let EventKind::Run {
            task,
            model,
            request,
            ..
        } = &event.kind
        {
            self.run = event.run;
            self.task.clone_from(task);
            self.model.clone_from(model);
            self.contract = request.settings.contract.name();
            self.currency.clone_from(&request.settings.currency);
            self.began_ms = event.at_ms;
        }
        if let EventKind::Done {
            reason,
            duration_ms,
            ..
        } = event.kind
        {
            self.end = Some((reason, Duration::from_millis(duration_ms)));
        }
        let mut calls = Vec::new();
        let mut kind = &event.kind;
        while let EventKind::Sub { call, what } = kind {
            calls.push(call.clone());
            kind = what;
        }
        let begins = matches!(kind, EventKind::Run { .. } | EventKind::Request { .. });
        if !calls.is_empty() && !begins && !self.lanes.contains_key(&calls) {
            // Not a sub-agent's event, but one of a nested call.
            return self.take_nested(&calls, kind);
        }
        self.delegated.extend(calls.iter().cloned());
        self.take_kind(&calls, kind, event.at_ms);
    }

    /// A nested call counts as a call of the step. Its time is part of the outer call's.
    fn take_nested(&mut self, calls: &[String], kind: &EventKind) {
        match kind {
            EventKind::SideRequest(request) => self.sides.add(request),
            EventKind::ToolResult {
                tool,
                outcome,
                usage,
                by_host,
                cached,
                ..
            } => {
                self.tools
                    .add(tool, outcome, usage, *by_host || cached.is_some());
                let runs = (0..calls.len()).rev().filter_map(|end| calls.get(..end));
                let run = runs.into_iter().find(|run| self.lanes.contains_key(*run));
                if let Some(step) = run.and_then(|run| self.step(run)).filter(|_| !by_host) {
                    step.took.calls += 1;
                }
            }
            _ => {}
        }
    }

    /// Sum of all steps, and of the requests besides them.
    pub fn took(&self) -> ModelUsage {
        let mut all = self.sides.took();
        for step in &self.steps {
            all.add(&step.took);
        }
        all
    }

    fn take_kind(&mut self, calls: &[String], kind: &EventKind, at_ms: u64) {
        match kind {
            EventKind::Run { model, request, .. } => {
                let within = self.tool_of(calls);
                self.lanes
                    .insert(calls.to_vec(), RouteProgress::new(model, request, within));
            }
            EventKind::Request { step, .. } => self.asked(calls, *step),
            EventKind::SideRequest(request) => self.sides.add(request),
            EventKind::Delta { .. } => {
                let before = self
                    .lanes
                    .get_mut(calls)
                    .and_then(|lane| lane.last_delta_ms.replace(at_ms));
                if let (Some(before), Some(step)) = (before, self.step(calls)) {
                    step.gaps_ms.add(at_ms.saturating_sub(before));
                }
            }
            EventKind::Fallback { stage, .. } => self.fell_back(calls, stage),
            EventKind::ToolStart { call, .. } => {
                if let Some(lane) = self.lanes.get_mut(calls) {
                    lane.begun.insert(call.id.clone(), call.tool.clone());
                }
            }
            EventKind::ToolResult {
                id,
                tool,
                outcome,
                usage,
                by_host,
                cached,
                ..
            } => {
                self.tools
                    .add(tool, outcome, usage, *by_host || cached.is_some());
                let is_delegated = self.delegated.contains(id);
                if let Some(lane) = self.lanes.get_mut(calls) {
                    lane.begun.remove(id);
                }
                if let Some(step) = self.step(calls).filter(|_| !by_host) {
                    step.took.calls += 1;
                    if !is_delegated {
                        let took = Duration::from_micros(usage.duration_us);
                        step.took.in_tools = step.took.in_tools.saturating_add(took);
                    }
                }
            }
            _ => {
                if let Some(step) = self.step(calls) {
                    step.take(kind);
                }
            }
        }
    }

    fn asked(&mut self, calls: &[String], number: u32) {
        let at = self.steps.len();
        let lane = self.lanes.entry(calls.to_vec()).or_default();
        lane.step = Some(at);
        lane.last_delta_ms = None;
        let candidate = lane.asked.take();
        let contract = match &candidate {
            None => lane.contract,
            Some(name) => {
                let known = lane.candidates.iter().find(|(own, _)| own == name);
                known.map_or("", |(_, contract)| contract)
            }
        };
        self.steps.push(StepStats {
            step: number,
            within: lane.within.clone(),
            model: candidate.unwrap_or_else(|| lane.model.clone()),
            contract,
            ..StepStats::default()
        });
    }

    fn fell_back(&mut self, calls: &[String], stage: &Stage) {
        match stage {
            Stage::Begun { .. } => {
                if let Some(step) = self.step(calls) {
                    step.took.fallbacks += 1;
                }
            }
            Stage::Asked { candidate, .. } => {
                if let Some(lane) = self.lanes.get_mut(calls) {
                    lane.asked = Some(candidate.clone());
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, calls: &[String]) -> Option<&mut StepStats> {
        let at = self.lanes.get(calls)?.step?;
        self.steps.get_mut(at)
    }

    /// The tool of the call that the sub-agent answers.
    fn tool_of(&self, calls: &[String]) -> String {
        let Some((call, parents)) = calls.split_last() else {
            return String::new();
        };
        let lane = self.lanes.get(parents);
        let tool = lane.and_then(|lane| lane.begun.get(call));
        tool.unwrap_or(call).clone()
    }
}

impl RouteProgress {
    fn new(model: &str, request: &RunRequest, within: String) -> Self {
        let settings = &request.settings;
        let candidates = settings.fallback.candidates.iter();
        Self {
            model: model.to_owned(),
            contract: settings.contract.name(),
            candidates: candidates
                .map(|candidate| (candidate.name.clone(), candidate.contract.name()))
                .collect(),
            within,
            ..Self::default()
        }
    }
}

impl StepStats {
    fn take(&mut self, kind: &EventKind) {
        let took = &mut self.took;
        match kind {
            EventKind::Reply { completion, .. } => {
                took.replies += 1;
                let usage = completion.usage.unwrap_or_default();
                took.uncounted += u64::from(completion.usage.is_none());
                took.prompt = took.prompt.saturating_add(usage.prompt_tokens);
                let cached = usage.cached_prompt_tokens.unwrap_or(0);
                took.cached = took.cached.saturating_add(cached);
                took.completion = took.completion.saturating_add(usage.completion_tokens);
                self.first_token = completion.time_to_first_token;
                self.last_token = Some(completion.duration);
                self.between_pieces = completion.between_pieces_p95;
            }
            EventKind::Tokens { cost_nano, .. } => match cost_nano {
                Some(cost) => took.cost = took.cost.plus(*cost),
                None => took.unpriced += 1,
            },
            EventKind::ModelFailed { .. } => took.failed += 1,
            EventKind::Repaired { repairs, .. } => took.repairs += repairs.len() as u64,
            EventKind::Routing(Routing::Retry { .. }) => took.retries += 1,
            _ => {}
        }
    }
}
