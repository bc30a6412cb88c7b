//! The next Request: whether there may be one, and what is in it.

use super::budget::Composed;
use super::{Action, Effects, Machine, StepState};
use crate::contract::{self, ReplyReader, RequestView};
use crate::run::budget_tracker::Budgets;
use serde_json::Value;
use std::sync::Arc;
use toolhold_policy::ErrorClass;
use toolhold_protocol::advisor;
use toolhold_protocol::advisor::Moment;
use toolhold_protocol::bound::Bound;
use toolhold_protocol::compose::Composition;
use toolhold_protocol::event::{EventKind, SharedWithPrevious, StopReason};
use toolhold_protocol::meta;
use toolhold_protocol::plan::Mode;
use toolhold_protocol::settings::Wiring;
use toolhold_protocol::tool::Tool;
use toolhold_protocol::turn::Turn;

impl Machine {
    /// The next Request, if there may be one.
    pub(super) fn ask(&mut self, effects: &mut Effects) {
        if let Some((reason, message)) = self.exhausted() {
            return self.fail(reason, ErrorClass::Correctable, message, effects);
        }
        self.steps += 1;
        self.send(effects);
    }

    /// Which limit does not allow another Request.
    pub(super) fn exhausted(&self) -> Option<(StopReason, String)> {
        let settings = &self.request.settings;
        if self.own_steps() >= settings.max_steps {
            let message = format!(
                "no output after {} steps (run.max_steps)",
                settings.max_steps
            );
            return Some((StopReason::MaxSteps, message));
        }
        self.overdrawn()
    }

    /// The Requests to the run's own model.
    pub(super) fn own_steps(&self) -> u32 {
        self.steps.saturating_sub(self.fallbacks.requests)
    }

    /// Which of what a run and its sub-agents share is used up.
    pub(super) fn overdrawn(&self) -> Option<(StopReason, String)> {
        let settings = &self.request.settings;
        let budgets = Budgets::of(settings);
        let (budget, message) = budgets.overdrawn(&self.spent, &settings.currency)?;
        Some((budget.reason(), message))
    }

    pub(super) fn send(&mut self, effects: &mut Effects) {
        let moment = Moment {
            // A reply that could not be used was no iteration: who speaks first was not heard.
            first: self.solutions == 0,
            finishing: self.finishing,
        };
        let advisors = match self.forced() {
            Some(_) => Vec::new(),
            None => advisor::taking_part(&self.context.advisors, moment),
        };
        self.step = StepState {
            moment,
            reader: Some(ReplyReader::new(self.contract(), self.offered())),
            advisors: (!advisors.is_empty())
                .then(|| advisor::schema(&advisors, &self.context.instances)),
            ..StepState::default()
        };
        self.send_fitting(effects);
    }

    /// Sends what [`Self::send`] began, once it fits and its texts are counted.
    pub(super) fn send_fitting(&mut self, effects: &mut Effects) {
        let Some(request) = self.fit(effects) else {
            return;
        };
        let sent = request.body();
        let (same, body) = SharedWithPrevious::split(self.sent.as_ref(), &sent);
        effects.events.push(EventKind::Request {
            step: self.steps,
            same,
            body,
        });
        self.sent = Some(sent);
        effects.actions.push(Action::Ask {
            request: Box::new(request),
            task: {
                let task = self.task();
                self.vault.hide(&task)
            },
            candidate: self.addressee().map(str::to_owned),
        });
    }

    /// The next Request as it would be now.
    pub(super) fn compose(&mut self, effects: &mut Effects) -> Composed {
        let (turns, instructions) = self.shown(effects);
        let meta = self.needed_meta().map(meta::schema);
        let view = RequestView {
            instructions: &instructions,
            ..self.view(&turns, meta.as_ref())
        };
        let request = contract::request(self.contract(), &view);
        let request = self.hidden_request(request, effects);
        self.composed(request, &turns)
    }

    pub(super) fn view<'a>(
        &'a self,
        turns: &'a [Turn],
        meta: Option<&'a Value>,
    ) -> RequestView<'a> {
        let settings = &self.request.settings;
        let forced = self.forced();
        RequestView {
            model: self.model(),
            instructions: &self.request.instructions,
            turns,
            tools: self.offered(),
            output_schema: self.request.output_schema.as_ref(),
            settings,
            composition: Composition {
                shape: settings.shape,
                reasons: settings.reasons,
                max_calls: self.max_calls(),
                max_string: None,
                wiring: self.is_wired(),
                lazy: self.is_lazy(),
                instances: &self.context.instances,
                meta,
                advisors: self.step.advisors.as_ref(),
                forced: forced.is_some(),
                forcing: self.forcing(),
            },
        }
    }

    /// The tools that the reply may call.
    pub(super) fn offered(&self) -> &[Tool] {
        let forced = self.forced().and_then(|name| {
            let all = self.offered.as_slice();
            let at = all.iter().position(|tool| tool.name == name)?;
            all.get(at..=at)
        });
        forced.unwrap_or_else(|| self.toolset())
    }

    /// The `meta` that the reply must advance, if it needs one.
    pub(super) fn needed_meta(&self) -> Option<&meta::Meta> {
        self.context
            .meta
            .as_ref()
            .filter(|_| self.forced().is_none())
    }

    pub(super) fn is_wired(&self) -> bool {
        match self.request.settings.wiring {
            Wiring::Always => true,
            Wiring::Never => false,
            Wiring::Auto => {
                self.context.has_data()
                    || self.context.plan.is_some()
                    || self
                        .tools
                        .iter()
                        .any(|bound| bound.tool.output_path.is_some())
            }
        }
    }

    pub(super) fn is_lazy(&self) -> bool {
        let plan = self.context.plan.as_ref();
        self.forced().is_none() && plan.is_some_and(|plan| plan.mode == Mode::Lazy)
    }

    /// Each instance gets as many calls as a run without instances.
    pub(super) fn max_calls(&self) -> usize {
        if self.forced().is_some() {
            return 1;
        }
        let instances = self.context.instances.len().max(1);
        self.request.settings.max_calls.saturating_mul(instances)
    }

    pub(super) fn tool(&self, name: &str) -> Option<&Bound> {
        self.tools.iter().find(|bound| bound.tool.name == name)
    }

    /// A tool of the run as its calls are told of it.
    pub(super) fn schema(&self, name: &str) -> Arc<Value> {
        let mut schemas = self.offered.iter().zip(&self.schemas);
        let own = schemas.find(|(tool, _)| tool.name == name);
        own.map(|(_, schema)| schema.clone()).unwrap_or_default()
    }
}
