//! Calls that wait for a person: the client's user decides in a form that shows the exact call.
//!
//! In a session the user is asked while the call waits. Without one, the result of the call is the question,
//! and the client calls again with the answer. Open questions are stored here, so that an answer is accepted
//! for its own question only, in time, and once.

use super::client_sender::ClientSender;
use super::mask::Mask;
use super::revision::{ProtocolEra, RequestMetadata};
use super::session::{ClientSession, ElicitationOutcome};
use crate::rpc::{INTERNAL_ERROR, MISSING_CAPABILITY, RpcError};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use toolhold_agent::calls::{CallDecider, NoDecision};
use toolhold_json::hex::hex;
use toolhold_policy::{text, visible};
use toolhold_protocol::decision::{Decision, Pending, Verdict};
use toolhold_protocol::failure::ToolFailure;

/// Most bytes of arguments that a form shows. Longer arguments cannot be approved in a form.
const MAX_SHOWN_BYTES: usize = 16 << 10;
const MAX_REASON_CHARS: usize = 500;
/// Key of the question in a result of revision 2026-07-28.
pub const QUESTION: &str = "approval";
/// Most open questions of calls with a session, and as many of calls without one. Of these, one source may have as many
/// as it leaves free for others; of those, one session has a limit of its own. The limit is below that of recorded
/// calls, so that unanswered questions do not keep other calls from running.
pub const MAX_OPEN_QUESTIONS: usize = 1_024;

/// A person's reply to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PersonReply {
    Approve,
    Refuse(String),
    /// The form was closed without a decision.
    Nothing,
}

/// Open questions whose answer comes with another request.
#[derive(Debug, Default)]
pub struct Questions(Mutex<HashMap<String, OpenQuestion>>);

#[derive(Debug)]
struct OpenQuestion {
    /// Of the client that is asked.
    source: IpAddr,
    /// Digest of the call that would run.
    digest: String,
    until: Instant,
}

/// The settings and state of asking.
#[derive(Debug)]
pub struct DecisionPrompts {
    /// Whether the client's user may decide.
    pub is_on: bool,
    /// How long a question waits for its answer.
    pub time: Duration,
    questions: Questions,
    /// Permits of calls that wait for a session's user.
    room: Semaphore,
}

impl DecisionPrompts {
    pub fn new(is_on: bool, time: Duration) -> Self {
        Self {
            is_on,
            time,
            questions: Questions::default(),
            room: Semaphore::new(MAX_OPEN_QUESTIONS),
        }
    }
}

/// Asks the client's user about one call and the calls nested in it.
#[derive(Debug, Clone)]
pub struct CallerDecider {
    asking: Arc<DecisionPrompts>,
    era: ProtocolEra,
    elicits: bool,
    source: IpAddr,
    session: Option<Arc<ClientSession>>,
    client_sender: ClientSender,
    /// Whether the waiting call is nested in another.
    is_nested: bool,
    /// Data that is hidden from the client; its own arguments are shown as it wrote them.
    mask: Arc<Mask>,
    /// The reply to an earlier question that the request holds.
    params: Arc<Map<String, Value>>,
    /// The question that the request is answered with instead of a result.
    handed_back: Arc<Mutex<Option<Result<Value, RpcError>>>>,
}

impl CallerDecider {
    pub fn new(
        asking: Arc<DecisionPrompts>,
        metadata: &RequestMetadata,
        session: Option<Arc<ClientSession>>,
        client_sender: ClientSender,
        params: Map<String, Value>,
        mask: Arc<Mask>,
    ) -> Self {
        Self {
            asking,
            era: metadata.era,
            elicits: metadata.elicits,
            source: metadata.source,
            session,
            client_sender,
            is_nested: false,
            mask,
            params: Arc::new(params),
            handed_back: Arc::default(),
        }
    }

    /// Takes the question that the client is to be sent instead of a result.
    pub fn handed_back(&self) -> Result<Value, RpcError> {
        let mut answer = self.handed_back.lock();
        let nothing = || Err(RpcError::new(INTERNAL_ERROR, "the question got lost"));
        answer.take().unwrap_or_else(nothing)
    }

    fn hand_back(&self, answer: Result<Value, RpcError>) -> NoDecision {
        *self.handed_back.lock() = Some(answer);
        NoDecision::HandedBack
    }

    async fn approved(&self, pending: &Pending) -> Result<(), NoDecision> {
        let tool = &pending.call.tool;
        let unasked = |why: &str| {
            NoDecision::Refused(ToolFailure::correctable(
                "not_approved",
                no_person(tool, why),
            ))
        };
        if !self.asking.is_on {
            return Err(unasked(
                "this server does not put it to the client's user (mcp_server.ask)",
            ));
        }
        if !self.elicits {
            let why = "the client offers no elicitation";
            return Err(match self.era {
                ProtocolEra::Modern if !self.is_nested => {
                    self.hand_back(Err(needs_elicitation(tool)))
                }
                _ => unasked(why),
            });
        }
        let asking = &self.asking;
        let time = asking.time;
        if let Some(session) = &self.session {
            let Ok(_room) = asking.room.try_acquire() else {
                return Err(NoDecision::Refused(too_many()));
            };
            let mask = if self.is_nested {
                &self.mask
            } else {
                &Mask::default()
            };
            let form = form(pending, mask).map_err(NoDecision::Refused)?;
            let put = ask_session_user(form, session, &self.client_sender, time);
            return put.await.map_err(NoDecision::Refused);
        }
        if self.is_nested {
            return Err(unasked(
                "without a session, a client can be asked only before its call begins",
            ));
        }
        match asking.questions.answered(pending, &self.params) {
            Ok(Some(said)) => decision_of(said).map_err(NoDecision::Refused),
            Ok(None) => {
                let form = form(pending, &Mask::default()).map_err(NoDecision::Refused)?;
                Err(
                    match asking.questions.ask(self.source, pending, form, time) {
                        Ok(Some(question)) => self.hand_back(Ok(question)),
                        Ok(None) => NoDecision::Refused(too_many()),
                        Err(error) => self.hand_back(Err(error)),
                    },
                )
            }
            Err(error) => Err(self.hand_back(Err(error))),
        }
    }
}

impl CallDecider for CallerDecider {
    fn decide<'a>(&'a self, pending: &'a Pending) -> BoxFuture<'a, Result<Decision, NoDecision>> {
        Box::pin(async move {
            self.approved(pending).await.map(|()| Decision {
                digest: pending.digest.clone(),
                verdict: Verdict::Approve,
                by: Some("the client's user".into()),
            })
        })
    }

    fn within(&self, _: &str) -> Arc<dyn CallDecider> {
        Arc::new(Self {
            is_nested: true,
            ..self.clone()
        })
    }
}

/// The parameters of `elicitation/create`. What `mask` hides is replaced by the name of its kind, `<api_key>`.
///
/// # Errors
/// The form is longer than a person would read.
pub fn form(pending: &Pending, mask: &Mask) -> Result<Value, ToolFailure> {
    let written = serde_json::to_string_pretty(&pending.arguments).unwrap_or_default();
    // The names of an object stand beside their values in this text, so a secret is found that only its name tells.
    let arguments = mask.text(&written);
    if arguments.len() > MAX_SHOWN_BYTES {
        return Err(refusal(&format!(
            "its arguments have {} bytes, and {MAX_SHOWN_BYTES} are the most that is shown to a person",
            arguments.len()
        )));
    }
    let claims = pending.annotations;
    let effect = match (claims.read_only, claims.destructive) {
        (true, _) => "says that it only reads",
        (false, true) => "says that it may destroy or overwrite",
        (false, false) => "may change something",
    };
    let reach = if claims.open_world {
        ", and reaches beyond this host"
    } else {
        ""
    };
    let caller = match pending.callers.last() {
        Some(caller) => format!(" The tool {} calls it.", text::line(caller)),
        None => String::new(),
    };
    let agent = match pending.agents.last() {
        Some(agent) => format!(" The sub-agent that answers {} asks.", text::line(agent)),
        None => String::new(),
    };
    let why = match &pending.why {
        Some(why) => format!(" It waits because {}.", text::line(&mask.text(why))),
        None => String::new(),
    };
    let shown = if *arguments == written {
        "Its arguments are exactly"
    } else {
        "Its arguments, with personal data and secrets replaced by <kind>, are"
    };
    Ok(json!({
        "mode": "form",
        "message": format!(
            "May the tool {} run?{caller}{agent}{why} It {effect}{reach}. {shown}:\n{}",
            text::line(&pending.call.tool),
            text::json(&arguments),
        ),
        "requestedSchema": {
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Decision",
                    "enum": ["approve", "refuse"],
                },
                "reason": {
                    "type": "string",
                    "title": "Reason, if refused",
                    "maxLength": MAX_REASON_CHARS,
                },
            },
            "required": ["decision"],
        },
    }))
}

/// Reads the result of `elicitation/create`. An unknown action counts as no decision.
pub fn parse_reply(answer: &Value) -> PersonReply {
    let content = |key: &str| answer.pointer(&format!("/content/{key}"))?.as_str();
    let reason = || match content("reason").map(|reason| visible(reason.trim(), MAX_REASON_CHARS)) {
        Some(reason) if !reason.is_empty() => reason,
        _ => "no reason given".into(),
    };
    match (
        answer.get("action").and_then(Value::as_str),
        content("decision"),
    ) {
        (Some("accept"), Some("approve")) => PersonReply::Approve,
        (Some("accept"), Some("refuse")) | (Some("decline"), _) => PersonReply::Refuse(reason()),
        _ => PersonReply::Nothing,
    }
}

/// Asks the session's user for a decision with a [`form`]. Dropping the future withdraws the question.
///
/// # Errors
/// Why the call is not made.
pub async fn ask_session_user(
    form: Value,
    session: &ClientSession,
    client_sender: &ClientSender,
    time: Duration,
) -> Result<(), ToolFailure> {
    match session.ask(form, client_sender, time).await {
        ElicitationOutcome::Given(answer) => decision_of(parse_reply(&answer)),
        ElicitationOutcome::Nothing => decision_of(PersonReply::Nothing),
        ElicitationOutcome::TooLate => Err(too_late(time)),
        ElicitationOutcome::TooMany => Err(refusal("too many calls of this client wait already")),
    }
}

/// # Errors
/// The reply does not approve the call.
pub fn decision_of(said: PersonReply) -> Result<(), ToolFailure> {
    match said {
        PersonReply::Approve => Ok(()),
        PersonReply::Refuse(reason) => Err(refusal(&format!("the user refused it: {reason}"))),
        PersonReply::Nothing => Err(refusal("the user did not decide")),
    }
}

pub fn too_late(time: Duration) -> ToolFailure {
    refusal(&format!("no decision within {} s", time.as_secs()))
}

pub fn too_many() -> ToolFailure {
    refusal("too many calls wait already")
}

/// Why the call is not made.
pub fn refusal(reason: &str) -> ToolFailure {
    ToolFailure::correctable(
        "not_approved",
        format!("this call waits for a person, and is not made: {reason}"),
    )
}

/// The failure of a call that needs a person where none can be asked, with advice for the operator.
pub fn no_person(tool: &str, why: &str) -> String {
    format!(
        "calls of {tool} wait for a person, and no person can be asked: {why}. The operator of this server can let them \
         run with never = [{tool:?}] under [decisions] in its toolhold.toml"
    )
}

/// The failure for a client of revision 2026-07-28 without elicitation.
pub fn needs_elicitation(tool: &str) -> RpcError {
    let message = no_person(tool, "the client offers no elicitation");
    RpcError::new(MISSING_CAPABILITY, message)
        .with(json!({"requiredCapabilities": {"elicitation": {"form": {}}}}))
}

impl Questions {
    /// The result that asks a client at `source` the question; `None` if too many questions are open.
    ///
    /// # Errors
    /// The system gives no random number for the question's id.
    pub fn ask(
        &self,
        source: IpAddr,
        pending: &Pending,
        form: Value,
        time: Duration,
    ) -> Result<Option<Value>, RpcError> {
        let state = random_token()?;
        let mut waiting = self.0.lock();
        let now = Instant::now();
        waiting.retain(|_, asked| asked.until > now);
        let own = waiting.values().filter(|asked| asked.source == source);
        if own.count() >= MAX_OPEN_QUESTIONS - waiting.len() {
            return Ok(None);
        }
        let asked = OpenQuestion {
            source,
            digest: pending.digest.clone(),
            until: now + time,
        };
        waiting.insert(state.clone(), asked);
        Ok(Some(json!({
            "resultType": "input_required",
            "inputRequests": {QUESTION: {"method": "elicitation/create", "params": form}},
            "requestState": state,
        })))
    }

    /// The reply to a question that the request holds, if any.
    ///
    /// # Errors
    /// The reply does not match an open question about this call.
    pub fn answered(
        &self,
        pending: &Pending,
        params: &Map<String, Value>,
    ) -> Result<Option<PersonReply>, RpcError> {
        let (state, answers) = match (params.get("requestState"), params.get("inputResponses")) {
            (None, None) => return Ok(None),
            (Some(Value::String(state)), answers) => (state, answers),
            _ => return Err(RpcError::params("inputResponses need their requestState")),
        };
        let mut waiting = self.0.lock();
        let is_ours = waiting
            .get(state)
            .is_some_and(|asked| asked.digest == pending.digest && asked.until > Instant::now());
        if !is_ours {
            return Err(RpcError::params(
                "requestState is of another call, too old, or used already; call again without it",
            ));
        }
        let Some(answer) = answers.and_then(|answers| answers.get(QUESTION)) else {
            return Ok(None);
        };
        waiting.remove(state);
        Ok(Some(parse_reply(answer)))
    }
}

/// 256 random bits, in hex.
///
/// # Errors
/// The system gives no random bytes.
pub fn random_token() -> Result<String, RpcError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|_| {
        let message = "there is no randomness to be had; try again";
        RpcError::new(INTERNAL_ERROR, message)
    })?;
    Ok(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::revision::HERE;
    use std::net::Ipv4Addr;
    use toolhold_policy::pii::Kind;
    use toolhold_protocol::privacy::Privacy;
    use toolhold_protocol::solution::Call;
    use toolhold_protocol::tool::Annotations;

    fn pending(arguments: Value) -> Pending {
        let call = Call {
            tool: "m.f".into(),
            ..Call::default()
        };
        let annotations = Annotations {
            destructive: true,
            ..Annotations::default()
        };
        Pending::new(call, arguments, annotations)
    }

    fn state(result: &Value) -> String {
        result["requestState"].as_str().unwrap().to_owned()
    }

    fn answer(state: &str, answer: Value) -> Map<String, Value> {
        let params = json!({"requestState": state, "inputResponses": {QUESTION: answer}});
        params.as_object().cloned().unwrap()
    }

    #[test]
    fn a_form_shows_exactly_what_would_run() {
        let open = Mask::default();
        let form = form(&pending(json!({"path": "a\u{202e}b", "n": 1})), &open).unwrap();
        let message = form["message"].as_str().unwrap();
        assert!(
            message.contains("m.f") && message.contains("may destroy"),
            "{message}"
        );
        assert!(message.contains("\"n\": 1") && !message.contains('\u{202e}'));
        assert!(!message.contains("sub-agent"), "{message}");
        let of_sub_agent = Pending {
            agents: vec!["trip".into(), "booking".into()],
            ..pending(json!({}))
        };
        let form = super::form(&of_sub_agent, &open).unwrap();
        let message = form["message"].as_str().unwrap();
        assert!(
            message.contains("The sub-agent that answers booking asks."),
            "{message}"
        );
        let long = pending(json!({"text": "x".repeat(MAX_SHOWN_BYTES)}));
        let failure = super::form(&long, &open).unwrap_err();
        assert!(failure.message.contains("16384"), "{}", failure.message);
    }

    #[test]
    fn a_form_hides_what_the_client_may_not_see() {
        let secret = "Basic dXNlcjpwYXNzd29yZA==";
        let asked = Pending {
            why: Some("ada@example.org is written to".into()),
            ..pending(json!({"headers": {"Authorization": secret}, "to": "ada@example.org"}))
        };
        let mask = Mask::of(&Privacy {
            hide: [Kind::Authorization, Kind::Email].into(),
            ..Privacy::default()
        });
        let form = form(&asked, &mask).unwrap();
        let message = form["message"].as_str().unwrap();
        assert!(
            !message.contains("dXNlcj") && !message.contains("ada@"),
            "{message}"
        );
        assert!(
            message.contains("secrets replaced by <kind>") && message.contains("<email>"),
            "{message}"
        );
    }

    #[test]
    fn only_a_clear_yes_is_one() {
        let refuse = |reason: &str| PersonReply::Refuse(reason.into());
        for (answer, expect) in [
            (
                json!({"action": "accept", "content": {"decision": "approve"}}),
                PersonReply::Approve,
            ),
            (
                json!({"action": "accept", "content": {"decision": "refuse", "reason": " no "}}),
                refuse("no"),
            ),
            (json!({"action": "decline"}), refuse("no reason given")),
            (json!({"action": "cancel"}), PersonReply::Nothing),
            (json!({"action": "accept"}), PersonReply::Nothing),
            (
                json!({"action": "accept", "content": {}}),
                PersonReply::Nothing,
            ),
            (
                json!({"action": "accept", "content": {"decision": true}}),
                PersonReply::Nothing,
            ),
            (
                json!({"action": "cancel", "content": {"decision": "approve"}}),
                PersonReply::Nothing,
            ),
            (json!("accept"), PersonReply::Nothing),
        ] {
            assert_eq!(parse_reply(&answer), expect, "{answer}");
        }
    }

    #[test]
    fn an_answer_is_to_one_question_about_one_call_and_counts_once() {
        let questions = Questions::default();
        let minute = Duration::from_mins(1);
        let yes = json!({"action": "accept", "content": {"decision": "approve"}});
        let ask = |arguments: Value, time| {
            let pending = pending(arguments);
            let form = form(&pending, &Mask::default()).unwrap();
            state(&questions.ask(HERE, &pending, form, time).unwrap().unwrap())
        };
        let one = pending(json!({"a": 1}));
        assert_eq!(questions.answered(&one, &Map::new()), Ok(None));

        let asked = ask(json!({"a": 1}), minute);
        let other = pending(json!({"a": 2}));
        assert!(
            questions
                .answered(&other, &answer(&asked, yes.clone()))
                .is_err()
        );
        let unanswered = json!({"requestState": asked}).as_object().cloned().unwrap();
        assert_eq!(questions.answered(&one, &unanswered), Ok(None));
        let answered = answer(&asked, yes.clone());
        assert_eq!(
            questions.answered(&one, &answered),
            Ok(Some(PersonReply::Approve))
        );
        assert!(questions.answered(&one, &answered).is_err());

        let late = ask(json!({"a": 1}), Duration::ZERO);
        assert!(
            questions
                .answered(&one, &answer(&late, yes.clone()))
                .is_err()
        );
        assert!(
            questions
                .answered(&one, &answer("guessed", yes.clone()))
                .is_err()
        );
        let without = json!({"inputResponses": {QUESTION: yes}});
        assert!(
            questions
                .answered(&one, without.as_object().unwrap())
                .is_err()
        );
    }

    #[test]
    fn unanswered_questions_expire_and_make_room() {
        let questions = Questions::default();
        let ask = |source: u32| {
            let source = Ipv4Addr::from_bits(source).into();
            let minute = Duration::from_mins(1);
            (questions.ask(source, &pending(json!({})), json!({}), minute)).unwrap()
        };
        for _ in 0..MAX_OPEN_QUESTIONS / 2 {
            assert!(ask(1).is_some());
        }
        assert!(ask(1).is_none(), "it leaves half of them to others");
        assert!(ask(2).is_some());
        let short = Questions::default();
        for _ in 0..2 * MAX_OPEN_QUESTIONS {
            assert!(
                short
                    .ask(HERE, &pending(json!({})), json!({}), Duration::ZERO)
                    .is_ok_and(|asked| asked.is_some())
            );
        }
    }
}
