//! Shields around a call: what it is given, and what it came to (docs/protocol.md). Every call passes here.

use crate::calls::{ToolCheck, checked};
use crate::guard::shield::{Screening, Shields};
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_model::CompletionObserver;
use toolhold_protocol::completion::Delta;
use toolhold_protocol::event::EventKind;
use toolhold_protocol::failure::ToolFailure;
use toolhold_protocol::knowledge::{Retrieved, RetrievedPassage};
use toolhold_protocol::result::ToolOutput;
use toolhold_protocol::routing::Routing;
use toolhold_protocol::shield::{ScreeningResult, ShieldPlace};
use toolhold_protocol::side_request::SideRequest;

/// Asks the shields. Returns what came of it, and what each of them said and took, for the record.
pub async fn screen(shields: &Shields, screening: Screening) -> (ScreeningResult, Vec<EventKind>) {
    let mut heard = ScreeningEvents::default();
    let (screened, judgements) = shields.screen(screening, &mut heard).await;
    let ScreeningEvents(mut events) = heard;
    events.extend(judgements.into_iter().map(EventKind::Shield));
    (screened, events)
}

/// What happens between the shields and the models that they ask. The number is bounded by the shields'
/// timeout: each waits for an endpoint between two events.
#[derive(Default)]
struct ScreeningEvents(Vec<EventKind>);

impl CompletionObserver for ScreeningEvents {
    fn delta(&mut self, _: Delta) {}

    fn routing(&mut self, routing: Routing) {
        self.0.push(EventKind::Routing(routing));
    }

    fn side_request(&mut self, request: SideRequest) {
        self.0.push(EventKind::SideRequest(request));
    }
}

/// The arguments after the shields, and whether they changed. They must still fit the tool's parameters.
///
/// # Errors
/// Why the call is not made.
pub fn screened_arguments(
    screened: ScreeningResult,
    arguments: Value,
    check: Option<&ToolCheck>,
) -> Result<(Value, bool), ToolFailure> {
    match screened {
        ScreeningResult::Pass => Ok((arguments, false)),
        ScreeningResult::Blocked { shield, reason } => Err(blocked(&shield, "this call", &reason)),
        ScreeningResult::Redacted { value } => {
            match check.map_or(Ok(()), |check| check.fits(&value)) {
                Ok(()) => Ok((value, true)),
                Err(reason) => Err(ToolFailure::correctable(
                    "shield",
                    format!(
                        "a shield took something out of the arguments, and what is left does not fit: {reason}. Make \
                         the call without what must not be there"
                    ),
                )),
            }
        }
    }
}

/// The result of a call of `tool`, for which `depth` calls wait, after the shields, and their events. A result that does
/// not fit the output schema is shown to no shield.
pub async fn screen_result(
    shields: &Shields,
    call: &str,
    depth: u8,
    tool: &str,
    outcome: Result<ToolOutput, ToolFailure>,
    check: Option<&Arc<ToolCheck>>,
) -> (Result<ToolOutput, ToolFailure>, Vec<EventKind>) {
    let outcome = match (outcome, check.cloned()) {
        (Ok(output), Some(check)) => {
            let fits = move |value: &Value| check.result(value);
            let fits = checked(tool, &output.value, fits).await;
            fits.map(|()| output)
        }
        (outcome, _) => outcome,
    };
    let place = ShieldPlace::ToolOutput;
    if !shields.applies_to(place, Some(tool)) {
        return (outcome, Vec::new());
    }
    let screening = Screening {
        call: call.to_owned(),
        depth,
        place,
        tool: Some(tool.to_owned()),
        value: match &outcome {
            Ok(output) => output.value.clone(),
            Err(failure) => failure.message.clone().into(),
        },
        context: Vec::new(),
    };
    let (screened, events) = screen(shields, screening).await;
    let outcome = match (screened, outcome) {
        (ScreeningResult::Pass, outcome) => outcome,
        (ScreeningResult::Blocked { shield, reason }, _) => {
            Err(blocked(&shield, "the result of this call", &reason))
        }
        (ScreeningResult::Redacted { value }, Ok(output)) => {
            let left = match check.cloned() {
                Some(check) => {
                    let fits = move |value: &Value| check.result_fits(value);
                    checked(tool, &value, fits).await
                }
                None => Ok(()),
            };
            left.map(|()| ToolOutput { value, ..output }).map_err(|reason| {
                let message = format!(
                    "a shield took something out of the result, and what is left does not fit the tool's output \
                     schema: {reason}. Ask for something else"
                );
                ToolFailure::correctable("shield", message)
            })
        }
        (ScreeningResult::Redacted { value }, Err(failure)) => Err(ToolFailure {
            message: value.as_str().unwrap_or_default().to_owned(),
            ..failure
        }),
    };
    (outcome, events)
}

/// The name under which shields are shown passages that were found before a run's model was asked.
const RETRIEVAL: &str = "knowledge.retrieval";

/// Passages after the shields, which see their texts as they see what a tool returns; those of the documents that came with
/// the task, in the collection `attached`, are input as well. One that a shield blocks is left out, and the others stay.
pub async fn screen_passages(
    shields: &Shields,
    found: Retrieved,
    attached: Option<&str>,
) -> (Retrieved, Vec<EventKind>) {
    let of_tool = shields.applies_to(ShieldPlace::ToolOutput, Some(RETRIEVAL));
    let of_input = attached.is_some() && shields.applies_to(ShieldPlace::Input, None);
    if found.passages.is_empty() || !(of_tool || of_input) {
        return (found, Vec::new());
    }
    let mut events = Vec::new();
    let (mut passages, mut notes) = (Vec::new(), found.notes);
    for mut passage in found.passages {
        let mut places = Vec::new();
        if of_tool {
            places.push((ShieldPlace::ToolOutput, Some(RETRIEVAL.to_owned())));
        }
        if of_input && Some(passage.collection.as_str()) == attached {
            places.push((ShieldPlace::Input, None));
        }
        let mut blocked = None;
        for (place, tool) in places {
            let RetrievedPassage {
                title,
                heading,
                text,
                source,
                ..
            } = &passage;
            let screening = Screening {
                call: String::new(),
                depth: 0,
                place,
                tool,
                value: json!([title, heading, text, source]),
                context: Vec::new(),
            };
            let (screened, said) = screen(shields, screening).await;
            events.extend(said);
            match screened {
                ScreeningResult::Pass => {}
                ScreeningResult::Blocked { shield, reason } => {
                    blocked = Some((shield, reason));
                    break;
                }
                ScreeningResult::Redacted { value } => {
                    let left = |at: usize| value[at].as_str().unwrap_or_default().to_owned();
                    passage = RetrievedPassage {
                        title: left(0),
                        heading: left(1),
                        text: left(2),
                        source: left(3),
                        ..passage
                    };
                }
            }
        }
        match blocked {
            None => passages.push(passage),
            Some((shield, reason)) => notes.push(format!(
                "the shield {shield} blocked a passage of {}: {reason}",
                passage.source
            )),
        }
    }
    let found = Retrieved {
        passages,
        notes,
        ..found
    };
    (found, events)
}

/// The failure of a call whose arguments or result a shield blocked. `what` names the one or the other.
pub fn blocked(shield: &str, what: &str, reason: &str) -> ToolFailure {
    let message = format!(
        "the shield {shield} blocked {what}: {reason}. Do not try to get around it; change the call, or go on without it"
    );
    ToolFailure::correctable("shield", message)
}
