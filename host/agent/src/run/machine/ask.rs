//! The next Request: whether there may be one, and what is in it.

use super::composed::Composed;
use super::context_turns::ContextView;
use super::privacy::RunData;
use super::{Action, Effects, Machine, StepState};
use crate::contract::{self, ReplyReader, RequestView};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use toolhold_policy::ErrorClass;
use toolhold_policy::pii::Kind;
use toolhold_protocol::advisor;
use toolhold_protocol::advisor::{CouncilMode, Moment};
use toolhold_protocol::compose::Composition;
use toolhold_protocol::event::{EventKind, SharedWithPrevious, StopReason};
use toolhold_protocol::function_names::ToolNames;
use toolhold_protocol::meta;
use toolhold_protocol::plan::Mode;
use toolhold_protocol::settings::Wiring;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::Tool;
use toolhold_protocol::turn::{Role, Turn};

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
        self.usage.overdrawn()
    }

    /// The Requests to the run's own model.
    pub(super) fn own_steps(&self) -> u32 {
        self.steps.saturating_sub(self.fallbacks.requests)
    }

    pub(super) fn send(&mut self, effects: &mut Effects) {
        let moment = Moment {
            // A reply that could not be used was no iteration: who speaks first was not heard.
            first: self.replies.is_first(),
            finishing: self.finishing,
        };
        let advisors = match self.forced() {
            // Their votes are counted, or they are not asked about a candidate's call.
            _ if self.council.is_counted() => Vec::new(),
            Some(_) => Vec::new(),
            None => advisor::taking_part(&self.context.advisors, moment),
        };
        let has_advisors = !advisors.is_empty();
        self.step = StepState {
            moment,
            advisors: has_advisors.then(|| advisor::schema(&advisors, &self.context.instances)),
            // The last Request has to bring the choice, too.
            is_vote: has_advisors
                && self.request.settings.council == CouncilMode::TwoPhases
                && self.own_steps() < self.request.settings.max_steps,
            ..StepState::under(self.rules)
        };
        if !has_advisors && self.forced().is_none() {
            self.count_consulted(effects);
        }
        self.tools.choose();
        // What happened since the last input is not noted yet.
        self.note_demanded_call(effects);
        self.step.demanded = self.demanded();
        let reader = ReplyReader::new(self.contract(), self.offered())
            .under(self.rules.reading())
            .with_names(self.names());
        self.step.reader = Some(Box::new(reader));
        self.send_fitting(effects);
    }

    /// Sends what [`Self::send`] began, once it fits and its texts are counted.
    pub(super) fn send_fitting(&mut self, effects: &mut Effects) {
        let Some(request) = self.fit(effects) else {
            return;
        };
        let sent = request.recorded();
        let before = self.sent.as_ref().filter(|_| !self.records_whole_bodies);
        let (same, body) = SharedWithPrevious::split(before, &sent);
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
                self.privacy.hide(&task)
            },
            candidate: self.addressee().map(str::to_owned),
        });
    }

    /// The next Request as it would be now.
    pub(super) fn compose(&mut self, effects: &mut Effects) -> Composed {
        let before = self.privacy.counts();
        let turns = self.turns();
        self.note_owners();
        let candidate = self.addressee().map(str::to_owned);
        let turns = turns
            .into_iter()
            .map(|turn| self.hidden(turn.told_to(candidate.as_deref())));
        let turns: Vec<Turn> = turns.collect();
        let instructions = self.privacy.hide(&self.instructions);
        self.tell_hidden(&before, effects);
        let meta = self.needed_meta().map(meta::schema);
        let view = RequestView {
            instructions: &instructions,
            ..self.view(&turns, meta.as_ref())
        };
        let request = contract::request(self.contract(), &view, self.tools.catalogue());
        let before = self.privacy.counts();
        let request = self.privacy.hide_request(request);
        self.tell_hidden(&before, effects);
        self.note_shown(&instructions);
        self.measured(request, &turns)
    }

    fn tell_hidden(&self, before: &BTreeMap<Kind, usize>, effects: &mut Effects) {
        let counts = self.privacy.counts();
        if counts != *before {
            effects.events.push(EventKind::Hidden {
                step: self.steps,
                counts,
            });
        }
    }

    /// The turns that every Request of the run begins with.
    pub(super) fn opening_turns(&self) -> Vec<Turn> {
        self.context_view().opening(self.is_wired(), self.is_lazy())
    }

    /// Everything for the next Request.
    fn turns(&self) -> Vec<Turn> {
        let mut turns = self.opening.clone();
        // A history that begins with what the assistant said keeps its own turns.
        turns.extend(self.history.shown(&self.privacy));
        let now = self.context_view().now(&self.progress);
        if !now.is_empty() {
            Turn::add(&mut turns, Role::User, now);
        }
        turns.extend(self.fallbacks.aside());
        turns.extend(self.call_for_votes());
        turns
    }

    pub(super) fn context_view(&self) -> ContextView<'_> {
        ContextView {
            context: &self.context,
            privacy: &self.privacy,
            max: self.request.settings.result_chars,
            fence: &self.fence,
        }
    }

    fn note_owners(&mut self) {
        self.privacy.note_owners(RunData {
            request: &self.request,
            tools: self.tools.offered(),
            context: &self.context,
            history: self.history.turns(),
        });
    }

    /// A turn as the model is shown it.
    pub(super) fn hidden(&mut self, turn: Turn) -> Turn {
        self.note_owners();
        let reads = self.tools.can_read_results();
        self.privacy.hide_turn(turn, reads)
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
            instructions: &self.instructions,
            turns,
            tools: self.offered(),
            output_schema: if self.step.is_vote {
                self.step.advisors.as_ref()
            } else {
                self.request.output_schema.as_ref()
            },
            settings,
            composition: Composition {
                shape: settings.shape,
                reasons: settings.reasons,
                max_calls: self.max_calls(),
                max_string: None,
                wiring: self.is_wired(),
                lazy: self.is_lazy(),
                answers: self.progress.has_failed(|tool| {
                    self.tools
                        .find(tool)
                        .is_some_and(|bound| bound.tool.is_latent())
                }),
                instances: &self.context.instances,
                meta,
                advisors: self.step.advisors.as_ref().filter(|_| !self.step.is_vote),
                forced: forced.is_some() || !self.step.demanded.is_empty(),
                demanded: &self.step.demanded,
                forcing: self.forcing(),
                names: self.names(),
                authored: self.has_authored_schemas(),
                reading: self.rules.reading(),
            },
        }
    }

    /// The names under which tools go out and come in; absent under rules that know none.
    pub(super) fn names(&self) -> Option<&Arc<ToolNames>> {
        let names = self.tools.catalogue().names();
        self.rules.are_from_4().then_some(names)
    }

    /// A call under Toolhold's own names.
    pub(super) fn own_call(&self, call: Call) -> Call {
        match self.names() {
            Some(names) => names.own_call(call),
            None => call,
        }
    }

    /// The tools that the reply may call.
    pub(super) fn offered(&self) -> &[Arc<Tool>] {
        if self.step.is_vote {
            return &[];
        }
        let forced = self.forced().and_then(|name| self.tools.only(name));
        forced.unwrap_or_else(|| self.tools.shown())
    }

    /// The `meta` that the reply must advance, if it needs one.
    pub(super) fn needed_meta(&self) -> Option<&meta::Meta> {
        self.context
            .meta
            .as_ref()
            .filter(|_| self.forced().is_none() && !self.step.is_vote)
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
                        .offered()
                        .iter()
                        .any(|tool| tool.output_path.is_some())
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
}
