//! The council: a reply's calls wait for its advisors' votes, and those that go against the votes are held
//! (docs/protocol.md, 10.4).

use super::fallbacks::Key;
use super::{Effects, Machine};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use toolhold_json::validate::cut;
use toolhold_protocol::advisor::{self, CONSULT_ADVISOR, Council, Dissent, DissentingChoice};
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::solution::{Call, Solution};
use toolhold_protocol::turn::Turn;

/// The kind of failure of a call that is held.
pub(super) const HELD: &str = "council";

/// Maximum characters of a tool's description where advisors vote for it in a Request of their own.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// Maximum instances of which a plan that is held says why.
const MAX_REASONS: usize = 8;

/// Maximum characters of one opinion that the model is shown again.
const MAX_OPINION_CHARS: usize = 2_000;

/// What is kept of councils from one reply to the next.
#[derive(Debug, Default)]
pub(super) struct CouncilState {
    /// What was held, since the last reply of which nothing was. It is made if the model chooses it again.
    held: BTreeSet<Key>,
    /// The votes that were cast in a Request of their own, until the model chose with them.
    counted: Option<Council>,
}

impl CouncilState {
    /// Whether the votes for the next reply were cast already.
    pub(super) fn is_counted(&self) -> bool {
        self.counted.is_some()
    }
}

/// What the votes of a reply hold.
pub(super) enum HeldDecision {
    Nothing,
    Calls,
    /// A plan, as a whole, with the reason.
    Plan(String),
}

/// The votes of a reply, and what of its calls they are against so far.
#[derive(Debug)]
pub(super) struct ReplyVotes {
    council: Council,
    /// Instances of which a call has the highest sum: no later call changes that.
    agreed: BTreeSet<Option<String>>,
    /// Instances of which every call has a lower sum than another tool.
    against: BTreeSet<Option<String>>,
}

impl ReplyVotes {
    fn weigh(&mut self, call: &Call) {
        let instance = &call.instance;
        if self.agreed.contains(instance) {
            return;
        }
        if self.council.is_against(&call.tool, instance.as_deref()) {
            self.against.insert(instance.clone());
        } else {
            self.against.remove(instance);
            self.agreed.insert(instance.clone());
        }
    }
}

impl Machine {
    /// Takes the next call of a reply in which advisors take part. It is opened when the votes are known and are
    /// against no call that waits.
    pub(super) fn await_votes(&mut self, call: Call, effects: &mut Effects) {
        if self.is_weighed(&call)
            && let Some(votes) = &mut self.step.votes
        {
            votes.weigh(&call);
        }
        self.step.awaiting.push(call);
        self.open_agreed(effects);
    }

    /// What the advisors say in this reply is complete.
    pub(super) fn advised(&mut self, said: &Value, effects: &mut Effects) {
        if self.step.advisors.is_some() && self.step.votes.is_none() && !self.step.is_vote {
            self.step.votes = Some(self.votes(Some(said)));
            self.open_agreed(effects);
        }
    }

    /// Counts what the advisors said; nothing, if the reply does not have it.
    fn votes(&self, said: Option<&Value>) -> ReplyVotes {
        let asked = advisor::taking_part(&self.context.advisors, self.step.moment);
        let seats = advisor::seats(&asked, &self.context.instances);
        let offered = self.tools.offered().iter();
        let tools: Vec<&str> = offered.map(|tool| tool.name.as_str()).collect();
        let instances = &self.context.instances;
        let said = said.map(|said| self.privacy.advised(said, instances));
        let mut votes = ReplyVotes {
            council: Council::read(&said.unwrap_or_default(), &seats, &tools),
            agreed: BTreeSet::new(),
            against: BTreeSet::new(),
        };
        let awaiting = self.step.awaiting.iter();
        for call in awaiting.filter(|call| self.is_weighed(call)) {
            votes.weigh(call);
        }
        votes
    }

    /// Opens the calls that wait, if the votes are known and are against none of them. More calls of an instance
    /// cannot make its decision worse, so what the model writes next does not change that.
    fn open_agreed(&mut self, effects: &mut Effects) {
        let votes = self.step.votes.as_ref();
        if votes.is_some_and(|votes| votes.against.is_empty()) {
            for call in std::mem::take(&mut self.step.awaiting) {
                self.open(call, effects);
            }
        }
    }

    /// Whether the votes can hold this call: it is a decision, and was not held before.
    fn is_weighed(&self, call: &Call) -> bool {
        self.is_decision(call) && !self.council.held.contains(&choice(call))
    }

    /// Whether votes are about such a call. One of the host's own tools only shows the model more, and one of a tool
    /// that does not exist is refused as what it is.
    fn is_decision(&self, call: &Call) -> bool {
        call.tool != CONSULT_ADVISOR
            && !self.tools.is_own(&call.tool)
            && self.tools.checks.of(&call.tool).is_some()
    }

    /// Where the calls of this reply go against the votes.
    fn dissent(&self, council: &Council) -> Option<Dissent> {
        let calls = self.step.calls.calls();
        let calls = calls.chain(&self.step.awaiting).chain(&self.step.planned);
        let decisions = calls.filter(|call| self.is_decision(call));
        let chosen: Vec<(&str, Option<&str>)> = decisions
            .map(|call| (call.tool.as_str(), call.instance.as_deref()))
            .collect();
        council.dissent(&chosen)
    }

    /// The reply is complete: records what its advisors said, holds the calls that go against it, and opens the
    /// others.
    pub(super) fn hear(&mut self, said: Option<&Value>, effects: &mut Effects) -> HeldDecision {
        if self.step.advisors.is_none() {
            self.choose_with_votes(effects);
            return HeldDecision::Nothing;
        }
        let votes = self.step.votes.take();
        let mut votes = votes.unwrap_or_else(|| self.votes(said));
        let planned = self.step.planned.iter();
        for call in planned.filter(|call| self.is_weighed(call)) {
            votes.weigh(call);
        }
        let dissent = self.dissent(&votes.council);
        let choices = dissent.iter().flat_map(|dissent| &dissent.against);
        let reasons: BTreeMap<Option<String>, String> = choices
            .filter(|choice| votes.against.contains(&choice.instance))
            .map(|choice| (choice.instance.clone(), reason(&votes.council, choice)))
            .collect();
        let awaiting = std::mem::take(&mut self.step.awaiting);
        let reason_of = |call: &Call| {
            let reason = reasons.get(&call.instance)?;
            self.is_weighed(call).then_some(reason)
        };
        let planned = self.step.planned.iter();
        let planned: Vec<Key> = planned
            .filter(|call| reason_of(call).is_some())
            .map(choice)
            .collect();
        let awaiting: Vec<(Call, Option<ToolFailure>)> = awaiting
            .into_iter()
            .map(|call| {
                let refusal = reason_of(&call).map(|reason| refusal(reason));
                (call, refusal)
            })
            .collect();
        let held = awaiting.iter().filter(|(_, refusal)| refusal.is_some());
        let held: Vec<Key> = held.map(|(call, _)| choice(call)).collect();
        let told = match (planned.is_empty(), held.is_empty()) {
            (false, _) => HeldDecision::Plan(some_of(reasons.into_values())),
            (true, false) => HeldDecision::Calls,
            (true, true) => HeldDecision::Nothing,
        };
        if matches!(told, HeldDecision::Nothing) {
            self.council.held.clear();
        }
        self.council.held.extend(held.into_iter().chain(planned));
        let is_held = !matches!(told, HeldDecision::Nothing);
        self.tell_council(votes.council, dissent, is_held, effects);
        for (call, refusal) in awaiting {
            self.open_or_refuse(call, refusal, effects);
        }
        told
    }

    fn tell_council(
        &mut self,
        council: Council,
        dissent: Option<Dissent>,
        held: bool,
        effects: &mut Effects,
    ) {
        if let Some(dissent) = &dissent {
            self.notice(dissent.sentence.clone(), effects);
        }
        for fault in &council.faults {
            self.step.notes.push(format!("Of the advisors: {fault}."));
        }
        effects.events.push(EventKind::Council {
            step: self.steps,
            tallies: council.tallies(),
            council: Box::new(council),
            dissent,
            held,
        });
    }

    /// The plan is held as a whole and goes back with the sums.
    pub(super) fn hold_plan(&mut self, reply: &str, reason: &str, effects: &mut Effects) {
        self.step.planned.clear();
        self.reply_used(effects);
        self.remember(Turn::Rejected {
            reply: reply.to_owned(),
            reason: format!(
                "the plan is held, and no call of it was made: {reason}. Plan what the advisors favour; or give this \
                 plan again if it is right all the same, and it is taken then"
            ),
        });
        self.remember_notes();
        self.next(effects);
    }

    /// In a Request in which advisors vote and nothing else: what they are told to do.
    pub(super) fn call_for_votes(&self) -> Option<Turn> {
        if !self.step.is_vote {
            return None;
        }
        let mut text = String::from(
            "Before the next calls, the advisors vote. Make no call and give no answer yet: your output is the list of \
             their opinions, one for each advisor, in its role. \"calls\" of an opinion is a string that holds a JSON \
             object: the name of a tool and its weight from 0 (against) to 100 (for), such as \"{\\\"<tool>\\\": \
             80}\", or \"{}\" for no preference. The votes are added up, and you choose then.\nThe tools:",
        );
        for tool in self.tools.shown() {
            let description = cut(&tool.description, MAX_DESCRIPTION_CHARS);
            let _ = write!(text, "\n- {}: {description}", tool.name);
        }
        Some(Turn::user(text))
    }

    /// The advisors voted in a Request of their own: the next one has their opinions and the sums.
    pub(super) fn voted(&mut self, reply: &str, solution: Solution, effects: &mut Effects) {
        let Some(said) = solution.output.or(solution.advisors) else {
            let reason = "the advisors vote first: give the list of their opinions as your output, and no calls yet";
            return self.reject(reply, reason.into(), effects);
        };
        if !solution.calls.is_empty() {
            let note = "The calls in that reply were not made, because the advisors vote first.";
            self.step.notes.push(note.into());
        }
        let ReplyVotes { council, .. } = self.votes(Some(&said));
        let mut text = String::from("The advisors have voted.");
        for opinion in &council.opinions {
            let fields = Value::from(opinion.fields.clone()).to_string();
            let max = self.privacy.clear(&fields, MAX_OPINION_CHARS);
            let of = opinion.instance.as_ref();
            let of = of.map_or(String::new(), |instance| format!(" ({instance})"));
            let _ = write!(text, "\n{}{of}: {}", opinion.advisor, cut(&fields, max));
        }
        for tally in council.tallies() {
            let of = tally.instance.as_ref();
            let of = of.map_or(String::new(), |instance| format!(" for {instance}"));
            let _ = write!(text, "\nThe sums of all votes{of}: {}", tally.sums());
        }
        text.push_str("\nNow choose in the light of this: make the calls that are due, or answer.");
        self.tell_council(council.clone(), None, false, effects);
        self.council.counted = Some(council);
        self.reply_used(effects);
        self.remember(Turn::user(text));
        self.remember_notes();
        self.next(effects);
    }

    /// The reply that the votes of the Request before it were for: a decision against them is the model's, and is
    /// recorded.
    fn choose_with_votes(&mut self, effects: &mut Effects) {
        if self.is_aside() {
            return;
        }
        self.council.held.clear();
        let Some(council) = self.council.counted.take() else {
            return;
        };
        if let Some(dissent) = self.dissent(&council) {
            self.notice(dissent.sentence, effects);
        }
    }
}

fn choice(call: &Call) -> Key {
    (call.tool.clone(), call.instance.clone())
}

fn reason(council: &Council, choice: &DissentingChoice) -> String {
    let sums = council.tally(choice.instance.as_deref()).sums();
    format!("{}. The sums of all votes: {sums}", choice.words())
}

/// Reasons of instances, as many as a message can hold.
fn some_of(reasons: impl ExactSizeIterator<Item = String>) -> String {
    let more = reasons.len().saturating_sub(MAX_REASONS);
    let reasons: Vec<String> = reasons.take(MAX_REASONS).collect();
    match more {
        0 => reasons.join("; "),
        more => format!("{}; and in {more} more instances", reasons.join("; ")),
    }
}

fn refusal(reason: &str) -> ToolFailure {
    let message = format!(
        "this call is held and was not made: {reason}. Make a call that the advisors favour; or make this one again if \
         it is right all the same, and it is made then"
    );
    ToolFailure::correctable(HELD, message)
}
