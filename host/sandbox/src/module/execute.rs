//! Calls of a module: checked, executed in a fresh instance, redacted, counted.

use super::extractor::{self, Extract, ExtractedText, Extraction, ExtractionError};
use super::job::{self, AskJob, StartJob};
use super::shield::{self, Screen, Screening, ScreeningVerdict};
use super::typed::{self, CallFunction};
use super::world::{self, CallTool};
use super::{Code, Module};
use crate::call::{
    self, ArgumentText, CallContext, CurrentCall, GrantedKnowledge, GuestLogSink, OtherTools,
    Profiler,
};
use crate::denial_log::DenialLog;
use crate::hold::{ExclusivePlace, Holder};
use crate::policy::{CallPolicy, EffectivePolicy};
use crate::revocation::Revocation;
use bytes::Bytes;
use serde_json::Value;
use std::sync::Arc;
use tokio::time::Instant;
use toolhold_admission::Lane;
use toolhold_policy::{CallError, CallReport, Invocation, is_job_id};

/// What a call reaches through those who made it, and not through the sandbox.
#[derive(Debug, Default)]
pub(crate) struct ReachedOutside {
    pub other_tools: OtherTools,
    pub knowledge: GrantedKnowledge,
}

impl Module {
    /// Runs one of this module's tools in a fresh instance. `tool` is its name in the module.
    pub(crate) async fn call(
        self: &Arc<Self>,
        policy: CallPolicy<'_>,
        tool: &str,
        invocation: &Invocation<'_>,
        reached: ReachedOutside,
    ) -> CallReport {
        let effective = policy.effective;
        let revocation = effective.revocation();
        let (mut report, denials) = match self.admit(effective, invocation) {
            Ok(text) => {
                let context = self.context(policy, invocation, reached, revocation);
                let alone = policy
                    .granted()
                    .exclusive(&self.manifest.grants.directories);
                if alone.is_empty() {
                    self.perform(context, tool, invocation, text).await
                } else {
                    Box::pin(self.perform_alone(context, alone, tool, invocation, text)).await
                }
            }
            Err(error) => (CallReport::refused(error), DenialLog::default()),
        };
        let granted = &policy.granted().grant;
        report.denials = denials.ended(&self.name, &report.result, &self.manifest.grants, granted);
        if let Some(narrow) = policy.narrow {
            narrow.explain(&mut report);
        }
        report.redact(effective.granted.egress.redactor());
        // An id that held a secret means no job any more.
        if report.job.as_ref().is_some_and(|job| !is_job_id(&job.id)) {
            report.job = None;
            report.result = Err(CallError::Encoding {
                reason: "the id of its job holds a secret of the operator's".into(),
            });
        }
        self.tally.add(&report);
        report
    }

    /// Everything that is checked before a call waits for a permit. Nothing is made yet of arguments that are long.
    fn admit(
        &self,
        effective: &EffectivePolicy,
        invocation: &Invocation<'_>,
    ) -> Result<ArgumentText, CallError> {
        effective.check()?;
        if !effective.may_run() {
            return Err(CallError::NotApproved {
                module: self.slot.clone(),
                reason: effective.pin_state().reason(),
            });
        }
        for (rate, limit) in [
            (effective.rate.as_ref(), effective.limits.calls_per_minute),
            (
                self.engine.rate(),
                self.engine.config().calls_per_minute.into(),
            ),
        ] {
            rate.take(invocation.caller.tenant)
                .map_err(|retry_after| CallError::Rate { limit, retry_after })?;
        }
        let limit = effective.limits.argument_bytes;
        let wrong = |reason| CallError::Arguments { reason };
        let depth = effective.limits.json_depth;
        // First: serialising recurses.
        call::shallow(invocation.arguments, depth).map_err(wrong)?;
        let text = ArgumentText::of(invocation.arguments, limit)
            .map_err(|_| wrong(format!("they have more bytes than the limit of {limit}")))?;
        if let Some(reserved) = invocation.reserved {
            let theirs = |reason| wrong(format!("of the call's reserved properties, {reason}"));
            call::shallow_members(reserved, depth).map_err(theirs)?;
            if !call::fit(reserved, limit - text.bytes()) {
                return Err(wrong(format!(
                    "with the call's reserved properties they have more bytes than the limit of {limit}"
                )));
            }
        }
        Ok(text)
    }

    /// Has a shield screen something, in a fresh instance.
    pub(crate) async fn screen(
        self: &Arc<Self>,
        screening: &Screening<'_>,
    ) -> Result<ScreeningVerdict, CallError> {
        let Code::Shield(pre) = &self.code else {
            return Err(CallError::UnknownTool {
                tool: self.name.clone(),
                available: "the module exports no shield".into(),
            });
        };
        let invocation = Invocation {
            context: screening.context,
            timeout: screening.timeout,
            depth: screening.depth,
            ..Invocation::new("", "", screening.value)
        };
        let effective = self.policy();
        let revocation = effective.revocation();
        // The text is of no use here, and is not kept while the call waits.
        let (mut report, denials) = match self.admit(&effective, &invocation).map(drop) {
            Ok(()) => {
                let policy = CallPolicy {
                    effective: &effective,
                    narrow: None,
                };
                let none = ReachedOutside::default();
                let context = self.context(policy, &invocation, none, revocation);
                let ran = call::run(context, Screen { pre, screening }).await;
                let ran = ran.and_then(|returned| shield::output(returned, &effective.limits));
                ran.into_report()
            }
            Err(error) => (CallReport::refused(error), DenialLog::default()),
        };
        let granted = &effective.granted.grant;
        report.denials = denials.ended(&self.name, &report.result, &self.manifest.grants, granted);
        report.redact(effective.granted.egress.redactor());
        self.tally.add(&report);
        // A run tells that its shield failed; what the shield was denied is for the operator.
        if report.result.is_err() && !report.denials.is_empty() {
            let denied = report.denials.kept.iter().map(ToString::to_string);
            let denied: Vec<String> = denied.collect();
            tracing::warn!(shield = %self.name, denied = denied.join("; "), "a shield failed");
        }
        shield::verdict(report)
    }

    /// Has an extractor read a document, in a fresh instance.
    pub(crate) async fn extract(
        self: &Arc<Self>,
        extraction: &Extraction<'_>,
    ) -> Result<ExtractedText, ExtractionError> {
        let Code::Extractor(pre) = &self.code else {
            let error = CallError::UnknownTool {
                tool: self.name.clone(),
                available: "the module exports no extractor".into(),
            };
            return Err(error.into());
        };
        let invocation = Invocation {
            timeout: extraction.timeout,
            ..Invocation::new("", "", &Value::Null)
        };
        let effective = self.policy();
        let revocation = effective.revocation();
        let mut extracted = Err(ExtractionError::Empty);
        let (mut report, denials) = match self.admit(&effective, &invocation).map(drop) {
            Ok(()) => {
                let policy = CallPolicy {
                    effective: &effective,
                    narrow: None,
                };
                let none = ReachedOutside::default();
                let mut context = self.context(policy, &invocation, none, revocation);
                context.document = extraction.document.clone();
                let media_type = extraction.media_type;
                let ran = call::run(context, Extract { pre, media_type }).await;
                let limits = &effective.limits;
                // Text is kept beside the report, which is for JSON.
                ran.and_then(|returned| extractor::output(returned, limits, &mut extracted))
                    .into_report()
            }
            Err(error) => (CallReport::refused(error), DenialLog::default()),
        };
        let granted = &effective.granted.grant;
        report.denials = denials.ended(&self.name, &report.result, &self.manifest.grants, granted);
        report.redact(effective.granted.egress.redactor());
        self.tally.add(&report);
        match report.result {
            // The call's own words are those of the extractor, which has said more exactly what is wrong.
            Ok(_) | Err(CallError::Tool { .. }) => extracted,
            Err(error) => Err(error.into()),
        }
    }

    fn context<'a>(
        self: &'a Arc<Self>,
        policy: CallPolicy<'a>,
        invocation: &Invocation<'a>,
        reached: ReachedOutside,
        revocation: Arc<Revocation>,
    ) -> Box<CallContext<'a>> {
        let effective = policy.effective;
        let own = effective.limits.timeout();
        Box::new(CallContext {
            engine: &self.engine,
            limits: &effective.limits,
            granted: policy.granted(),
            descriptors: self.descriptors.clone(),
            module: (self.number, &self.name),
            is_listing: false,
            begin: invocation.begin.clone(),
            depth: invocation.depth,
            document: Bytes::new(),
            revocation,
            caller: invocation.caller,
            other_tools: reached.other_tools,
            knowledge: reached.knowledge,
            current: CurrentCall::new(self.clone(), invocation),
            reserved: invocation.reserved,
            log_sink: GuestLogSink::new(
                invocation.listener.clone(),
                effective.granted.egress.redactor(),
            ),
            profiler: invocation.profile.clone().and_then(|slot| {
                Profiler::start(self.engine.wasmtime(), &self.name, self.component(), slot)
            }),
            debug: self.debug.as_ref(),
            timeout: invocation.timeout.map_or(own, |timeout| timeout.min(own)),
        })
    }

    /// Runs [`Self::perform`] with these directories to itself. The wait for them is a part of the call's time, and comes
    /// before its permit: a call that waits for a directory keeps no other call from running.
    async fn perform_alone(
        &self,
        mut context: Box<CallContext<'_>>,
        places: Vec<ExclusivePlace>,
        tool: &str,
        invocation: &Invocation<'_>,
        mut text: ArgumentText,
    ) -> (CallReport, DenialLog) {
        // It may wait long, and in any number.
        text.forget();
        let (began, timeout) = (Instant::now(), context.timeout);
        let holder = Holder {
            lane: Lane {
                group: self.number,
                member: invocation.caller.tenant.into(),
                depth: 0,
            },
            tool: invocation.tool.to_owned(),
        };
        let held = self
            .engine
            .holds()
            .take(places, &holder, began + timeout)
            .await;
        let waited = began.elapsed();
        let (mut report, denials) = match held {
            Ok(held) => {
                context.timeout = timeout.saturating_sub(waited);
                let performed = self.perform(context, tool, invocation, text);
                held.scope(performed).await
            }
            Err(error) => (CallReport::refused(error), DenialLog::default()),
        };
        report.usage.queued += waited;
        report.usage.duration += waited;
        if let Err(CallError::Deadline { limit }) = &mut report.result {
            *limit = timeout;
        }
        (report, denials)
    }

    /// `text` are the arguments as JSON.
    async fn perform(
        &self,
        context: Box<CallContext<'_>>,
        tool: &str,
        invocation: &Invocation<'_>,
        text: ArgumentText,
    ) -> (CallReport, DenialLog) {
        let refused = |error| (CallReport::refused(error), DenialLog::default());
        let unknown = || {
            let names: Vec<_> = self.tools.iter().map(|t| t.name.as_str()).collect();
            let available = format!("module {} has {}", self.name, names.join(", "));
            refused(CallError::UnknownTool {
                tool: invocation.tool.to_owned(),
                available,
            })
        };
        if invocation.job.is_some() && self.jobs.is_none() {
            return refused(CallError::JobExchanged {
                tool: invocation.tool.to_owned(),
            });
        }
        let limits = context.limits;
        match &self.code {
            Code::World(pre) => {
                let call = CallTool {
                    pre,
                    tool,
                    invocation,
                    text,
                };
                if let Some(pre) = &self.jobs {
                    let mut job = None;
                    let ran = match invocation.job {
                        Some(question) => {
                            // It is asked without the call's arguments: their text is not kept while it waits.
                            drop(call);
                            call::run(context, AskJob { pre, question }).await
                        }
                        None => call::run(context, StartJob { pre, call }).await,
                    };
                    let (mut report, denials) = ran
                        .and_then(|answer| job::output(answer, limits, &mut job))
                        .into_report();
                    report.job = job;
                    return (report, denials);
                }
                let ran = call::run(context, call).await;
                ran.and_then(|returned| world::output(returned, limits))
                    .into_report()
            }
            Code::Shield(_) | Code::Extractor(_) => unknown(),
            Code::Typed { pre, functions } => {
                drop(text);
                let Some(function) = functions.get(tool) else {
                    return unknown();
                };
                let call = CallFunction {
                    pre,
                    function,
                    arguments: invocation.arguments,
                };
                let ran = call::run(context, call).await;
                ran.and_then(|returned| typed::output(returned, function, limits))
                    .into_report()
            }
        }
    }
}
