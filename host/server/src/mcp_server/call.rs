//! One `tools/call`: known, valid, decided about, screened, run.

use super::approval::{self, nobody};
use super::catalog::Offered;
use super::client_sender::{ClientSender, ear, telling};
use super::elicitation;
use super::request::{Request, note_run};
use super::result;
use super::revision::{Era, Terms};
use super::rpc::{Error, INTERNAL_ERROR};
use super::run::Asked;
use super::service::{Rules, Service, cut};
use super::session::Session;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use toolhold_agent::ToolFailure;
use toolhold_agent::guard::shield::{Place, Screened, Screening};
use toolhold_agent::model::Delta;
use toolhold_runtime::recorded::{Begun, Ended, Recording};
use toolhold_runtime::tools;
use toolhold_sandbox::{CallReport, Caller, Invocation};
use uuid::Uuid;

/// A call, and what holds for it from its beginning to its end.
#[derive(Clone, Copy)]
struct Call<'a> {
    id: &'a str,
    /// The same, for the run that a saved Request is.
    run: Uuid,
    offered: &'a Offered,
    rules: &'a Rules,
    terms: &'a Terms,
}

/// What a person's part in a call came to.
enum Decided {
    Run {
        /// A person let it be made.
        was_asked: bool,
    },
    /// It is not made.
    Not(ToolFailure),
    /// This is asked first.
    Ask(Value),
}

impl Service {
    pub(super) async fn call(
        &self,
        mut params: Map<String, Value>,
        terms: &Terms,
        session: Option<&Session>,
        client_sender: &ClientSender,
    ) -> Result<Value, Error> {
        let Some(name) = params.get("name").and_then(Value::as_str) else {
            return Err(Error::params("tools/call needs the \"name\" of a tool"));
        };
        let catalog = self.catalog();
        let Some(offered) = catalog.find(name) else {
            return Err(Error::params(self.unknown(name)));
        };
        let arguments = match params.remove("arguments") {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(arguments @ Value::Object(_)) => arguments,
            Some(_) => return Err(Error::params("\"arguments\" must be an object")),
        };
        let (rules, run) = (self.rules(), Uuid::now_v7());
        let id = run.to_string();
        let call = Call {
            id: &id,
            run,
            offered,
            rules: &rules,
            terms,
        };
        self.recordable()?;
        let mut recording = self.recording(&call, &arguments).await;
        // For the model to correct, and so no error of the protocol.
        let unfit = offered.input.check(&arguments).err().map(|reason| {
            let message = format!("the arguments do not fit the tool's parameters: {reason}");
            ToolFailure::correctable("arguments", message)
        });
        let decided = match unfit {
            Some(failure) => Ok(Decided::Not(failure)),
            None => {
                self.decided(&call, &arguments, &params, session, client_sender)
                    .await
            }
        };
        let is_made = matches!(decided, Ok(Decided::Run { .. }));
        let ended = match decided {
            Ok(Decided::Run { was_asked }) => {
                if was_asked {
                    recording.approved_by("the client's user");
                }
                // A person may have taken long.
                if let Err(error) = self.recordable() {
                    recording.forget();
                    return Err(error);
                }
                let Ok(_place) = self.calls.try_acquire() else {
                    recording.forget();
                    let message = format!(
                        "{} calls are running, which is all that this server takes (mcp_server.calls); try again later",
                        self.settings.calls
                    );
                    return Err(Error::new(INTERNAL_ERROR, message));
                };
                self.perform(&call, arguments, session, client_sender).await
            }
            // In the words of a schema or a shield, which may quote what is hidden.
            Ok(Decided::Not(failure)) => Ended::refused(rules.mask.failure(failure)),
            Ok(Decided::Ask(question)) => {
                recording.forget();
                return Ok(question);
            }
            Err(error) => {
                recording.forget();
                return Err(error);
            }
        };
        if recording.end(&ended).await.is_err() {
            let message = if is_made {
                "the call was made, but it could not be written into the audit log, so its result is not given out; \
                 whoever runs this server finds the reason in its log"
            } else {
                "nothing was called, and that could not be written into the audit log; whoever runs this server finds \
                 the reason in its log"
            };
            return Err(Error::new(INTERNAL_ERROR, message));
        }
        let mut result = match ended.outcome {
            Ok(value) => {
                tracing::info!(tool = offered.name, "called");
                result::complete(terms.era, offered, value)
            }
            Err(failure) => {
                tracing::info!(
                    tool = offered.name,
                    kind = failure.kind,
                    "called, and failed"
                );
                result::failed(&failure)
            }
        };
        if offered.request.is_some() {
            note_run(&mut result, &id);
        }
        Ok(result)
    }

    /// # Errors
    /// What is called now would be in no log, and so nothing is.
    fn recordable(&self) -> Result<(), Error> {
        self.recorder.writable().map_err(|error| {
            let message = format!(
                "nothing was called: the audit log cannot be written just now ({error}); try again later"
            );
            Error::new(INTERNAL_ERROR, message)
        })
    }

    async fn recording(&self, call: &Call<'_>, arguments: &Value) -> Recording {
        let terms = call.terms;
        let mut way = Map::from_iter([
            ("via".to_owned(), "mcp".into()),
            ("session".to_owned(), Value::from(&*terms.session)),
        ]);
        if let Some(client) = &terms.client {
            way.insert("client".into(), client.clone());
        }
        let begun = Begun {
            id: call.id,
            tool: &call.offered.name,
            arguments,
            policy: &call.rules.policy,
            owner: terms.owner,
            way,
            trace: &terms.trace,
        };
        self.recorder.begin(begun).await
    }

    fn unknown(&self, name: &str) -> String {
        let shown = cut(name);
        let module = name
            .rsplit_once('.')
            .and_then(|(module, _)| self.registry.module(module));
        match module {
            Some(module) if !module.standing().may_run() => format!(
                "Unknown tool: {shown}; its module is disabled until a person approves it: {} (toolhold modules \
                 approve {})",
                module.standing().reason(),
                module.slot
            ),
            _ => format!("Unknown tool: {shown}; tools/list says which there are"),
        }
    }

    /// Whether a call may be made, asking the client's user where the rules want a person.
    async fn decided(
        &self,
        call: &Call<'_>,
        arguments: &Value,
        params: &Map<String, Value>,
        session: Option<&Session>,
        client_sender: &ClientSender,
    ) -> Result<Decided, Error> {
        let Call { offered, terms, .. } = call;
        let approvals = &call.rules.approvals;
        if !approvals.apply_to(&offered.name, offered.annotations) {
            return Ok(Decided::Run { was_asked: false });
        }
        let no = |failure: ToolFailure| Ok(Decided::Not(failure));
        let unasked =
            |why: &str| ToolFailure::correctable("not_approved", nobody(&offered.name, why));
        if !self.settings.ask {
            return no(unasked(
                "this server does not put it to the client's user (mcp_server.ask)",
            ));
        }
        if !terms.elicits {
            return match terms.era {
                Era::Legacy => no(unasked("the client offers no elicitation")),
                Era::Modern => Err(approval::incapable(&offered.name)),
            };
        }
        let pending = approval::pending(offered, arguments);
        let time = self.settings.answer_timeout;
        let judged = match session {
            Some(session) => match self.asking.try_acquire() {
                Ok(_place) => approval::put(&pending, session, client_sender, time).await,
                Err(_) => Err(approval::too_many()),
            },
            None => match self.questions.answered(&pending, params)? {
                Some(said) => approval::judged(said),
                None => {
                    let form = match approval::form(&pending) {
                        Ok(form) => form,
                        Err(failure) => return no(failure),
                    };
                    return match self.questions.ask(&pending, form, time)? {
                        Some(question) => Ok(Decided::Ask(question)),
                        None => no(approval::too_many()),
                    };
                }
            },
        };
        Ok(match judged {
            Ok(()) => Decided::Run { was_asked: true },
            Err(failure) => Decided::Not(failure),
        })
    }

    async fn perform(
        &self,
        call: &Call<'_>,
        arguments: Value,
        session: Option<&Session>,
        client_sender: &ClientSender,
    ) -> Ended {
        let arguments = match call.admitted(arguments).await {
            Ok(arguments) => arguments,
            Err(failure) => return Ended::refused(call.rules.mask.failure(failure)),
        };
        let ended = match &call.offered.request {
            Some(request) => {
                let ended = self.request(*call, request, arguments, session, client_sender);
                ended.await
            }
            None => Ended::from(tools::result(
                self.run(call, &arguments, client_sender).await,
            )),
        };
        let outcome = ended.outcome.and_then(|value| {
            call.fits(&value)
                .map(|()| value)
                .map_err(|reason| {
                    format!("the tool returned something that does not fit its own output schema: {reason}")
                })
                .map_err(|message| ToolFailure::correctable("output_schema", message))
        });
        let outcome = call.released(outcome).await;
        Ended {
            outcome: call.masked(outcome),
            ..ended
        }
    }

    async fn run(
        &self,
        call: &Call<'_>,
        arguments: &Value,
        client_sender: &ClientSender,
    ) -> CallReport {
        let Call {
            id,
            offered,
            rules,
            terms,
            ..
        } = call;
        let (listener, heard) = ear(terms).unzip();
        let invocation = Invocation {
            timeout: Some(rules.call_timeout),
            caller: Caller {
                tenant: "",
                session: &terms.session,
            },
            listener,
            ..Invocation::new(id, &offered.name, arguments)
        };
        let call = self.registry.call(&invocation);
        match heard {
            Some(heard) => {
                telling(
                    call,
                    heard,
                    &offered.name,
                    terms,
                    &rules.mask,
                    client_sender,
                )
                .await
            }
            None => call.await,
        }
    }
}

/// A saved Request, which is a run with questions of its own.
impl Service {
    fn request<'a>(
        &'a self,
        call: Call<'a>,
        request: &'a Request,
        arguments: Value,
        session: Option<&'a Session>,
        client_sender: &'a ClientSender,
    ) -> BoxFuture<'a, Ended> {
        Box::pin(async move {
            let Call { rules, terms, .. } = call;
            let (listener, heard) = ear(terms).unzip();
            let (questions, asked) = mpsc::channel(1);
            let time = self.settings.answer_timeout;
            let run = rules.runs.run(Asked {
                id: call.run,
                request,
                input: request.input(arguments),
                terms,
                listener,
                questions,
                answer_timeout: time,
            });
            let session = session.filter(|_| terms.elicits && self.settings.ask);
            let run = elicitation::asking(run, asked, session, client_sender, time);
            let name = &call.offered.name;
            match heard {
                Some(heard) => telling(run, heard, name, terms, &rules.mask, client_sender).await,
                None => run.await,
            }
        })
    }
}

impl Call<'_> {
    /// What the shields leave of the arguments.
    async fn admitted(&self, arguments: Value) -> Result<Value, ToolFailure> {
        let place = Place::ToolInput;
        let Self { offered, rules, .. } = self;
        if !rules.shields.stand_at(place, Some(&offered.name)) {
            return Ok(arguments);
        }
        match self.screen(place, arguments.clone()).await {
            Screened::Pass => Ok(arguments),
            Screened::Blocked { shield, reason } => Err(blocked(&shield, "this call", &reason)),
            Screened::Redacted { value } => match offered.input.check(&value) {
                Ok(()) => Ok(value),
                Err(reason) => Err(ToolFailure::correctable(
                    "shield",
                    format!(
                        "a shield took something out of the arguments, and what is left does not fit: {reason}. Make \
                         the call without what must not be there"
                    ),
                )),
            },
        }
    }

    /// What the shields leave of what a call came to.
    async fn released(&self, outcome: Result<Value, ToolFailure>) -> Result<Value, ToolFailure> {
        let place = Place::ToolOutput;
        if !self.rules.shields.stand_at(place, Some(&self.offered.name)) {
            return outcome;
        }
        let value = match &outcome {
            Ok(value) => value.clone(),
            Err(failure) => failure.message.clone().into(),
        };
        match (self.screen(place, value).await, outcome) {
            (Screened::Pass, outcome) => outcome,
            (Screened::Blocked { shield, reason }, _) => {
                Err(blocked(&shield, "the result of this call", &reason))
            }
            (Screened::Redacted { value }, Ok(_)) => Ok(value),
            (Screened::Redacted { value }, Err(failure)) => Err(ToolFailure {
                message: value.as_str().unwrap_or_default().to_owned(),
                ..failure
            }),
        }
    }

    async fn screen(&self, place: Place, value: Value) -> Screened {
        let screening = Screening {
            call: self.id.to_owned(),
            place,
            tool: Some(self.offered.name.clone()),
            value,
            context: Vec::new(),
        };
        // What a guard model costs is nobody's budget here.
        let mut unheard = |_: Delta| {};
        let (screened, judgements) = self.rules.shields.screen(screening, &mut unheard).await;
        for judgement in judgements {
            tracing::debug!(?judgement, "a shield judged");
        }
        screened
    }

    /// The outcome as the client is told of it.
    fn masked(&self, outcome: Result<Value, ToolFailure>) -> Result<Value, ToolFailure> {
        let mask = &self.rules.mask;
        if mask.is_off() {
            return outcome;
        }
        match outcome {
            Ok(value) => {
                let masked = mask.value(value);
                self.fits(&masked).map(|()| masked).map_err(|_| {
                    ToolFailure::correctable(
                        "shield",
                        "the result holds what is hidden from models here, and without that it does not fit the tool's \
                         output schema; ask for something else",
                    )
                })
            }
            Err(failure) => Err(mask.failure(failure)),
        }
    }

    /// Whether a result is what the tool promises.
    fn fits(&self, value: &Value) -> Result<(), String> {
        let output = self.offered.output.as_ref();
        output.map_or(Ok(()), |schema| schema.check(value))
    }
}

fn blocked(shield: &str, what: &str, reason: &str) -> ToolFailure {
    let message = format!(
        "the shield {shield} blocked {what}: {reason}. Do not try to get around it; change the call, or go on without it"
    );
    ToolFailure::correctable("shield", message)
}
