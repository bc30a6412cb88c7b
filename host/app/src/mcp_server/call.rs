//! One `tools/call`: known, valid, decided about, screened, run.

use super::approval::{self, Said, nobody, refused};
use super::catalog::Offered;
use super::outlet::{Outlet, ear, telling};
use super::result;
use super::revision::{Era, Terms};
use super::rpc::{Error, INTERNAL_ERROR};
use super::service::{Service, cut};
use super::session::{Answer, Session};
use crate::tools;
use serde_json::{Map, Value};
use toolhold_agent::ToolFailure;
use toolhold_agent::guard::shield::{Place, Screened, Screening};
use toolhold_agent::model::Delta;
use toolhold_sandbox::{CallReport, Caller, Invocation};
use uuid::Uuid;

/// What a person's part in a call came to.
enum Decided {
    Run,
    /// This is the result instead.
    Result(Value),
}

impl Service {
    pub(super) async fn call(
        &self,
        mut params: Map<String, Value>,
        terms: &Terms,
        session: Option<&Session>,
        outlet: &Outlet,
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
        // For the model to correct, and so no error of the protocol.
        if let Err(reason) = offered.input.check(&arguments) {
            let message = format!("the arguments do not fit the tool's parameters: {reason}");
            return Ok(result::failed(&ToolFailure::correctable(
                "arguments",
                message,
            )));
        }
        match self
            .decided(offered, &arguments, &params, terms, session, outlet)
            .await?
        {
            Decided::Run => {}
            Decided::Result(result) => return Ok(result),
        }
        let Ok(_place) = self.calls.try_acquire() else {
            let message = format!(
                "{} calls are running, which is all that this server takes (mcp_server.calls); try again later",
                self.settings.calls
            );
            return Err(Error::new(INTERNAL_ERROR, message));
        };
        let outcome = self.perform(offered, arguments, terms, outlet).await;
        Ok(match outcome {
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
        })
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
        offered: &Offered,
        arguments: &Value,
        params: &Map<String, Value>,
        terms: &Terms,
        session: Option<&Session>,
        outlet: &Outlet,
    ) -> Result<Decided, Error> {
        let rules = &self.settings.approvals;
        if !rules.apply_to(&offered.name, offered.annotations) {
            return Ok(Decided::Run);
        }
        let no = |failure: ToolFailure| Ok(Decided::Result(result::failed(&failure)));
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
        let form = match approval::form(&pending) {
            Ok(form) => form,
            Err(failure) => return no(failure),
        };
        let time = self.settings.answer_timeout;
        let said = match session {
            Some(session) => match session.ask(form, outlet, time).await {
                Answer::Given(answer) => approval::said(&answer),
                Answer::Nothing => Said::Nothing,
                Answer::TooLate => {
                    let seconds = time.as_secs();
                    return no(refused(&format!("nobody decided within {seconds} s")));
                }
                Answer::TooMany => {
                    return no(refused("too many calls of this client wait already"));
                }
            },
            None => match self.questions.answered(&pending, params)? {
                Some(said) => said,
                None => {
                    return match self.questions.ask(&pending, form, time) {
                        Some(question) => Ok(Decided::Result(question)),
                        None => no(refused("too many calls wait already")),
                    };
                }
            },
        };
        match said {
            Said::Approve => Ok(Decided::Run),
            Said::Refuse(reason) => no(refused(&format!("the user refused it: {reason}"))),
            Said::Nothing => no(refused("the user did not decide")),
        }
    }

    async fn perform(
        &self,
        offered: &Offered,
        arguments: Value,
        terms: &Terms,
        outlet: &Outlet,
    ) -> Result<Value, ToolFailure> {
        let id = Uuid::now_v7().to_string();
        let arguments = self.admitted(&id, offered, arguments).await?;
        let report = self.run(&id, offered, &arguments, terms, outlet).await;
        let outcome = tools::result(report).outcome.map(|output| output.value);
        let outcome = outcome.and_then(|value| match &offered.output {
            Some(schema) => match schema.check(&value) {
                Ok(()) => Ok(value),
                Err(reason) => Err(ToolFailure::correctable(
                    "output_schema",
                    format!("the tool returned something that does not fit its own output schema: {reason}"),
                )),
            },
            None => Ok(value),
        });
        self.released(&id, offered, outcome).await
    }

    async fn run(
        &self,
        id: &str,
        offered: &Offered,
        arguments: &Value,
        terms: &Terms,
        outlet: &Outlet,
    ) -> CallReport {
        let (listener, heard) = ear(terms).unzip();
        let invocation = Invocation {
            timeout: Some(self.settings.call_timeout),
            caller: Caller {
                tenant: "",
                session: &terms.session,
            },
            listener,
            ..Invocation::new(id, &offered.name, arguments)
        };
        let call = self.registry.call(&invocation);
        match heard {
            Some(heard) => telling(call, heard, &offered.name, terms, outlet).await,
            None => call.await,
        }
    }

    /// What the shields leave of the arguments.
    async fn admitted(
        &self,
        id: &str,
        offered: &Offered,
        arguments: Value,
    ) -> Result<Value, ToolFailure> {
        let place = Place::ToolInput;
        if !self.shields.stand_at(place, Some(&offered.name)) {
            return Ok(arguments);
        }
        match self.screen(id, place, offered, arguments.clone()).await {
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
    async fn released(
        &self,
        id: &str,
        offered: &Offered,
        outcome: Result<Value, ToolFailure>,
    ) -> Result<Value, ToolFailure> {
        let place = Place::ToolOutput;
        if !self.shields.stand_at(place, Some(&offered.name)) {
            return outcome;
        }
        let value = match &outcome {
            Ok(value) => value.clone(),
            Err(failure) => failure.message.clone().into(),
        };
        match (self.screen(id, place, offered, value).await, outcome) {
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

    async fn screen(&self, id: &str, place: Place, offered: &Offered, value: Value) -> Screened {
        let screening = Screening {
            call: id.to_owned(),
            place,
            tool: Some(offered.name.clone()),
            value,
            context: Vec::new(),
        };
        // What a guard model costs is nobody's budget here.
        let mut unheard = |_: Delta| {};
        let (screened, judgements) = self.shields.screen(screening, &mut unheard).await;
        for judgement in judgements {
            tracing::debug!(?judgement, "a shield judged");
        }
        screened
    }
}

fn blocked(shield: &str, what: &str, reason: &str) -> ToolFailure {
    let message = format!(
        "the shield {shield} blocked {what}: {reason}. Do not try to get around it; change the call, or go on without it"
    );
    ToolFailure::correctable("shield", message)
}
