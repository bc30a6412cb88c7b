//! The council: a reply's calls wait for its advisors' votes, and those that go against the votes are held
//! (docs/protocol.md, 10.4).

use super::consulted::ConsultedVotes;
use super::fallbacks::CallTarget;
use super::{Effects, Machine};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use toolhold_policy::prompt::PromptText;
use toolhold_protocol::advisor::{
    self, CONSULT_ADVISOR, Council, CouncilMode, Dissent, OpinionFault,
};
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::solution::{Call, Solution};
use toolhold_protocol::turn::Turn;
use toolhold_text::cut;

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
    /// What was held of the last reply. It is made if the model chooses it again.
    held: BTreeSet<CallTarget>,
    /// A reply was sent back because none of its advisors voted, and none has voted since. Then calls are made without
    /// votes, so that a model that gives none can go on.
    was_silent: bool,
    /// The votes that were cast in a Request of their own, until the model chose with them.
    counted: Option<Council>,
    /// Votes of advisors that answered a call, until the model chose with them.
    pub(super) consulted: ConsultedVotes,
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
    /// Everything, because no advisor voted, with the reason.
    Votes(String),
}

/// The votes of a reply, and what of its calls they are against so far.
#[derive(Debug)]
pub(super) struct ReplyVotes {
    council: Council,
    /// Instances of which a call that can be made has the highest sum: no later call changes that.
    agreed: BTreeSet<Option<String>>,
    /// Instances of which a call has a lower sum than another tool, and none has agreed so far.
    against: BTreeSet<Option<String>>,
}

impl ReplyVotes {
    /// A call that cannot be made frees no other call: otherwise one broken call would switch the council off.
    fn weigh(&mut self, call: &Call, can_be_made: bool) {
        let instance = &call.instance;
        if self.agreed.contains(instance) {
            return;
        }
        if is_against(&self.council, call) {
            self.against.insert(instance.clone());
        } else if can_be_made {
            self.against.remove(instance);
            self.agreed.insert(instance.clone());
        }
    }
}

impl Machine {
    /// Takes the next call of a reply in which advisors take part. It is opened when the votes are known and are
    /// against no call that waits.
    pub(super) fn await_votes(&mut self, call: Call, effects: &mut Effects) {
        let can_be_made = self.is_weighed(&call).then(|| self.can_be_made(&call));
        if let (Some(can_be_made), Some(votes)) = (can_be_made, &mut self.step.votes) {
            votes.weigh(&call, can_be_made);
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

    /// Whether the calls of this reply are judged by votes.
    pub(super) fn has_council(&self) -> bool {
        self.step.advisors.is_some() || self.step.votes.is_some()
    }

    /// Begins the council of a reply in which no advisor takes part: of the advisors that were asked before it.
    pub(super) fn count_consulted(&mut self, effects: &mut Effects) {
        let mut council = Council::default();
        self.council.consulted.join(&mut council, self.steps);
        if council.opinions.is_empty() || self.council.is_counted() {
            return;
        }
        if self.request.settings.council == CouncilMode::TwoPhases {
            self.tell_council(council.clone(), None, false, effects);
            self.council.counted = Some(council);
            self.council.consulted.forget(self.steps);
        } else {
            self.step.votes = Some(ReplyVotes {
                council,
                agreed: BTreeSet::new(),
                against: BTreeSet::new(),
            });
        }
    }

    /// The council of the reply is recorded before the first call that it allows begins.
    pub(super) fn tell_council_before(&mut self, call: &Call, effects: &mut Effects) {
        let is_due = self.step.advisors.is_some() || self.is_decision(call);
        let is_due = is_due && self.rules.are_from_4();
        if self.step.is_council_told || !is_due {
            return;
        }
        if let Some(votes) = &self.step.votes {
            let council = votes.council.clone();
            self.record_council(council, None, false, effects);
        }
    }

    /// Counts what the advisors said and what consulted ones voted; nothing said, if the reply does not have it.
    fn votes(&self, said: Option<&Value>) -> ReplyVotes {
        let mut votes = ReplyVotes {
            council: self.read_council(said),
            agreed: BTreeSet::new(),
            against: BTreeSet::new(),
        };
        self.council.consulted.join(&mut votes.council, self.steps);
        let awaiting = self.step.awaiting.iter();
        for call in awaiting.filter(|call| self.is_weighed(call)) {
            votes.weigh(call, self.can_be_made(call));
        }
        votes
    }

    /// The opinions of the advisors that take part in the reply.
    fn read_council(&self, said: Option<&Value>) -> Council {
        let asked = advisor::taking_part(&self.context.advisors, self.step.moment);
        let seats = advisor::seats(&asked, &self.context.instances);
        let offered = self.tools.offered().iter();
        let tools: Vec<&str> = offered.map(|tool| tool.name.as_str()).collect();
        let instances = &self.context.instances;
        let said = said.map(|said| self.privacy.advised(said, instances));
        Council::read(&said.unwrap_or_default(), &seats, &tools)
    }

    /// Whether a call of the reply is a decision.
    fn decides(&self) -> bool {
        let calls = self.step.calls.calls();
        let mut calls = calls.chain(&self.step.awaiting).chain(&self.step.planned);
        calls.any(|call| self.is_decision(call))
    }

    /// Opens the calls that wait, if the votes are known and are against none of them. More calls of an instance
    /// cannot make its decision worse, so what the model writes next does not change that. All calls wait for all
    /// instances, because calls begin in the order in which they are written.
    fn open_agreed(&mut self, effects: &mut Effects) {
        let votes = self.step.votes.as_ref();
        if votes.is_some_and(|votes| votes.against.is_empty() && !self.lacks_votes(votes)) {
            for call in std::mem::take(&mut self.step.awaiting) {
                self.open(call, effects);
            }
        }
    }

    /// Whether the votes can hold this call: it is a decision, and was not held before.
    fn is_weighed(&self, call: &Call) -> bool {
        self.is_decision(call) && !self.council.held.contains(&choice(call))
    }

    /// Whether the calls of a reply wait because no advisor voted, and the model can be told so.
    fn lacks_votes(&self, votes: &ReplyVotes) -> bool {
        votes.council.is_silent() && !self.council.was_silent && self.exhausted().is_none()
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
        let awaiting = self.step.awaiting.iter();
        let awaiting = awaiting.filter(|call| is_against(council, call) || self.can_be_made(call));
        let calls = calls.chain(awaiting).chain(&self.step.planned);
        let decisions = calls.filter(|call| self.is_decision(call));
        let chosen: Vec<(&str, Option<&str>)> = decisions
            .map(|call| (call.tool.as_str(), call.instance.as_deref()))
            .collect();
        council.dissent(&chosen)
    }

    /// The reply is complete: records what its advisors said, holds the calls that go against it, and opens the
    /// others.
    pub(super) fn hear(&mut self, said: Option<&Value>, effects: &mut Effects) -> HeldDecision {
        if !self.has_council() {
            self.choose_with_votes(effects);
            return HeldDecision::Nothing;
        }
        let decides = self.decides();
        let votes = self.step.votes.take();
        let mut votes = votes.unwrap_or_else(|| self.votes(said));
        let planned = self.step.planned.iter();
        // What of a plan cannot be made is found when it is checked as a whole.
        for call in planned.filter(|call| self.is_weighed(call)) {
            votes.weigh(call, true);
        }
        let mut calls = self.step.awaiting.iter().chain(&self.step.planned);
        if self.lacks_votes(&votes) && calls.any(|call| self.is_decision(call)) {
            self.council.was_silent = true;
            return HeldDecision::Votes(unvoted(&votes.council));
        }
        self.council.was_silent &= votes.council.is_silent();
        let dissent = self.dissent(&votes.council);
        // In the last Request the model cannot choose again: its calls are made, and recorded as against the votes.
        let may_hold = self.exhausted().is_none();
        let awaiting = std::mem::take(&mut self.step.awaiting);
        let reason_of = |call: &Call| {
            let is_held =
                may_hold && votes.against.contains(&call.instance) && self.is_weighed(call);
            is_held.then(|| reason(&votes.council, call)).flatten()
        };
        let mut reasons = BTreeMap::new();
        let mut held = BTreeSet::new();
        for call in &self.step.planned {
            if let Some(reason) = reason_of(call) {
                reasons.entry(&call.instance).or_insert(reason);
                held.insert(choice(call));
            }
        }
        let awaiting: Vec<(Call, Option<ToolFailure>)> = awaiting
            .into_iter()
            .map(|call| {
                let refusal = reason_of(&call).map(|reason| refusal(&reason));
                (call, refusal)
            })
            .collect();
        let refused = awaiting.iter().filter(|(_, refusal)| refusal.is_some());
        held.extend(refused.map(|(call, _)| choice(call)));
        let told = match (reasons.is_empty(), held.is_empty()) {
            (false, _) => HeldDecision::Plan(some_of(reasons.into_values())),
            (true, false) => HeldDecision::Calls,
            (true, true) => HeldDecision::Nothing,
        };
        if decides || self.step.advisors.is_some() {
            self.tell_council(votes.council, dissent, !held.is_empty(), effects);
        }
        if decides && held.is_empty() {
            self.council.consulted.forget(self.steps);
        }
        self.council.held = held;
        for (call, refusal) in awaiting {
            self.open_or_refuse(call, refusal, effects);
        }
        told
    }

    /// Only the calls of the reply that have begun are made. The votes by which they began are recorded, and calls that
    /// still waited are not made.
    pub(super) fn hear_part(&mut self, effects: &mut Effects) {
        let waiting = std::mem::take(&mut self.step.awaiting).len();
        let decides = self.decides();
        if let Some(votes) = self.step.votes.take() {
            let dissent = self.dissent(&votes.council);
            if decides || self.step.advisors.is_some() {
                self.tell_council(votes.council, dissent, false, effects);
            }
            if decides {
                self.council.consulted.forget(self.steps);
            }
        } else if self.step.advisors.is_none() {
            self.choose_with_votes(effects);
        }
        if waiting > 0 {
            let mut note = PromptText::default();
            note.count(waiting).words(
                " more calls of that reply waited for the advisors' votes and were not made.",
            );
            self.step.notes.push(note);
        }
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
        self.note_faults(&council.faults);
        let is_news = dissent.is_some() || held;
        if is_news || !self.step.is_council_told {
            self.record_council(council, dissent, held, effects);
        }
    }

    pub(super) fn note_faults(&mut self, faults: &[OpinionFault]) {
        for fault in faults {
            let mut note = PromptText::from("Of the advisors: ");
            self.step
                .notes
                .push(note.line(&fault.to_string()).words(".").take());
        }
    }

    fn record_council(
        &mut self,
        council: Council,
        dissent: Option<Dissent>,
        held: bool,
        effects: &mut Effects,
    ) {
        self.step.is_council_told = true;
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
        let mut text = PromptText::from(
            "Before the next calls, the advisors vote. Make no call and give no answer yet: your output is the list of \
             their opinions, one for each advisor, in its role. \"calls\" of an opinion is a string that holds a JSON \
             object: the name of a tool and its weight from 0 (against) to 100 (for), such as \"{\\\"<tool>\\\": \
             80}\", or \"{}\" for no preference. The votes are added up, and you choose then.\nThe tools:",
        );
        for tool in self.tools.shown() {
            let description = cut(&tool.description, MAX_DESCRIPTION_CHARS);
            text.words("\n- ")
                .line(&tool.name)
                .words(": ")
                .line(&description);
        }
        Some(Turn::user(text))
    }

    /// The advisors voted in a Request of their own: the next one has their opinions and the sums.
    pub(super) fn voted(&mut self, reply: &str, solution: Solution, effects: &mut Effects) {
        let said = [solution.output, solution.advisors].into_iter().flatten();
        let mut read = said.map(|said| self.read_council(Some(&said)));
        let Some(mut council) = read.find(|council| !council.opinions.is_empty()) else {
            let reason = "the advisors vote first: give the list of their opinions as your output, and no calls yet";
            return self.reject(reply, reason.into(), effects);
        };
        self.council.consulted.join(&mut council, self.steps);
        self.council.consulted.forget(self.steps);
        if !solution.calls.is_empty() {
            let note = "The calls in that reply were not made, because the advisors vote first.";
            self.step.notes.push(note.into());
        }
        let mut text = PromptText::from("The advisors have voted.");
        for opinion in &council.opinions {
            let fields = Value::from(opinion.fields.clone()).to_string();
            let max = self.privacy.clear(&fields, MAX_OPINION_CHARS);
            text.words("\n- ").line(&opinion.advisor);
            if let Some(instance) = &opinion.instance {
                text.words(" (").line(instance).words(")");
            }
            text.words(": ").json_text(&cut(&fields, max));
        }
        for tally in council.tallies() {
            text.words("\nThe sums of all votes");
            if let Some(instance) = &tally.instance {
                text.words(" for ").line(instance);
            }
            text.words(": ").line(&tally.sums());
        }
        text.words("\nNow choose in the light of this: make the calls that are due, or answer.");
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
        // A candidate for the whole reply chooses as the run's own model would; one for a tool's call has no choice.
        if self.forced().is_some() {
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

fn choice(call: &Call) -> CallTarget {
    (call.tool.clone(), call.instance.clone())
}

fn is_against(council: &Council, call: &Call) -> bool {
    let against = council.against(&call.tool, call.instance.as_deref());
    against.is_some()
}

/// Why the votes are against this very call.
fn reason(council: &Council, call: &Call) -> Option<String> {
    let choice = council.against(&call.tool, call.instance.as_deref())?;
    let sums = council.sums(call.instance.as_deref());
    Some(format!("{}. The sums of all votes: {sums}", choice.words()))
}

fn unvoted(council: &Council) -> String {
    let faults: Vec<String> = council.faults.iter().map(ToString::to_string).collect();
    format!(
        "none of its calls was made, because no advisor voted ({}). Give the reply again with the opinions of the \
         advisors, each with its votes in \"calls\"",
        faults.join("; ")
    )
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
        "this call is held and was not made: {reason}. Make a call that the advisors favour; or, if a call of this tool \
         is right all the same, make it again, and it is made then"
    );
    ToolFailure::correctable(HELD, message)
}
