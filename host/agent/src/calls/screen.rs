//! Shields around a call: what it is given, and what it came to (PROTOCOL.md, 7).
//!
//! Every call passes here, whoever runs it. What is left of a result is what the run is told, so a run
//! that is replayed needs no shields.

use crate::event::EventKind;
use crate::guard::Validator;
use crate::guard::shield::{Place, Screened, Screening, Shields};
use crate::model::{Delta, Routing, SideRequest, Watch};
use crate::run::driver::Within;
use crate::run::machine::Work;
use crate::toolbox::{ToolFailure, ToolOutput};

/// What the shields say, each of them told, and what they took for it.
pub(super) async fn screen(shields: &Shields, screening: Screening, events: &Within) -> Screened {
    let mut heard = Heard::default();
    let (screened, judgements) = shields.screen(screening, &mut heard).await;
    let judgements = judgements.into_iter().map(EventKind::Shield);
    for event in heard.0.into_iter().chain(judgements) {
        // A run that is gone asks for nothing any more.
        events.tell(event).await;
    }
    screened
}

/// What happened between the shields and the models that they ask. Bounded by their time: each waits for
/// an endpoint between two of these.
#[derive(Default)]
struct Heard(Vec<EventKind>);

impl Watch for Heard {
    fn delta(&mut self, _: Delta) {}

    fn routing(&mut self, routing: Routing) {
        self.0.push(EventKind::Routing(routing));
    }

    fn side_request(&mut self, request: SideRequest) {
        self.0.push(EventKind::SideRequest(request));
    }
}

/// Screens what a call is given, and leaves in it what the shields leave.
pub(super) async fn admit(
    shields: &Shields,
    work: &mut Work,
    events: &Within,
) -> Result<(), ToolFailure> {
    if !shields.stand_at(Place::ToolInput, Some(&work.call.tool)) {
        return Ok(());
    }
    let context = work.call.context.iter();
    let screening = Screening {
        call: work.call.id.clone(),
        place: Place::ToolInput,
        tool: Some(work.call.tool.clone()),
        value: work.call.arguments.clone(),
        context: context
            .map(|(path, value)| (path.to_string(), value.clone()))
            .collect(),
    };
    match screen(shields, screening, events).await {
        Screened::Pass => Ok(()),
        Screened::Blocked { shield, reason } => Err(blocked(&shield, "this call", &reason)),
        Screened::Redacted { value } => {
            let fits = Validator::new(&work.parameters).and_then(|schema| schema.check(&value));
            if let Err(reason) = fits {
                let message = format!(
                    "a shield took something out of the arguments, and what is left does not fit: {reason}. Make the \
                     call without what must not be there"
                );
                return Err(ToolFailure::correctable("shield", message));
            }
            work.call.arguments = value;
            Ok(())
        }
    }
}

/// Screens what a call came to, with the data in it that it was given placeholders for.
pub(super) async fn released(
    shields: &Shields,
    work: &Work,
    outcome: Result<ToolOutput, ToolFailure>,
    events: &Within,
) -> Result<ToolOutput, ToolFailure> {
    let outcome = match outcome {
        Ok(output) => Ok(ToolOutput {
            value: work.masked.reveal_value(&output.value),
            ..output
        }),
        Err(failure) => Err(ToolFailure {
            message: work.masked.reveal(&failure.message),
            ..failure
        }),
    };
    if !shields.stand_at(Place::ToolOutput, Some(&work.call.tool)) {
        return outcome;
    }
    let screening = Screening {
        call: work.call.id.clone(),
        place: Place::ToolOutput,
        tool: Some(work.call.tool.clone()),
        value: match &outcome {
            Ok(output) => output.value.clone(),
            Err(failure) => failure.message.clone().into(),
        },
        context: Vec::new(),
    };
    match (screen(shields, screening, events).await, outcome) {
        (Screened::Pass, outcome) => outcome,
        (Screened::Blocked { shield, reason }, _) => {
            Err(blocked(&shield, "the result of this call", &reason))
        }
        (Screened::Redacted { value }, Ok(output)) => Ok(ToolOutput { value, ..output }),
        (Screened::Redacted { value }, Err(failure)) => Err(ToolFailure {
            message: value.as_str().unwrap_or_default().to_owned(),
            ..failure
        }),
    }
}

fn blocked(shield: &str, what: &str, reason: &str) -> ToolFailure {
    let message = format!(
        "the shield {shield} blocked {what}: {reason}. Do not try to get around it; change the call, or go on without it"
    );
    ToolFailure::correctable("shield", message)
}
