//! The guest that makes HTTP requests, its grants, and helpers to send requests.

use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::{Arena, Lab, kind};
use crate::web::Answers;
use serde_json::{Value, json};
use std::sync::Arc;
use toolhold_policy::{CallReport, Grant, HttpGrant, Limits, SecretGrant};
use toolhold_sandbox::ModulePolicy;

/// The grants of the fetcher.
#[derive(Debug, Default)]
pub struct FetcherGrants {
    pub http: Vec<HttpGrant>,
    pub secrets: Vec<SecretGrant>,
    /// The system's own, if there is none.
    pub resolver: Option<Arc<Answers>>,
}

impl FetcherGrants {
    pub fn http(grants: impl IntoIterator<Item = HttpGrant>) -> Self {
        Self {
            http: grants.into_iter().collect(),
            ..Self::default()
        }
    }

    pub fn resolved_by(self, answers: &Arc<Answers>) -> Self {
        Self {
            resolver: Some(answers.clone()),
            ..self
        }
    }

    /// An arena with the benign module, and `component`, named `bad`, that is given this.
    pub async fn arena(
        self,
        component: &[u8],
        lab: &Lab,
        change: impl FnOnce(&mut Limits),
    ) -> Result<Arena, AttackFailure> {
        let mut arena = lab.arena(|policy| {
            change(&mut policy.limits);
            if let Some(resolver) = self.resolver {
                policy.resolver = resolver;
            }
            let module = ModulePolicy {
                grant: Grant {
                    http: self.http,
                    secrets: self.secrets,
                    ..Grant::default()
                },
                ..ModulePolicy::default()
            };
            policy.modules.insert("bad".into(), module);
        })?;
        arena.benign().await?;
        arena.load("bad", component.to_vec()).await?;
        Ok(arena)
    }

    /// As [`Self::arena`], for the guest that fetches.
    pub async fn fetcher(
        self,
        lab: &Lab,
        change: impl FnOnce(&mut Limits),
    ) -> Result<Arena, AttackFailure> {
        self.arena(components::FETCHER, lab, change).await
    }
}

/// One request by the guest that fetches.
pub async fn request(arena: &Arena, method: &str, url: &str, headers: Value) -> CallReport {
    let arguments = json!({"method": method, "url": url, "headers": headers, "body": null});
    arena.call("bad.fetch", arguments).await
}

pub async fn get(arena: &Arena, url: &str) -> CallReport {
    request(arena, "GET", url, json!([])).await
}

/// The request was refused, and the guest was told with `code`, if one is given.
pub fn ensure_refused(report: &CallReport, what: &str, code: &str) -> Result<(), AttackFailure> {
    let said = match &report.result {
        Err(error) => error.to_string(),
        Ok(output) => format!("{output:?}"),
    };
    ensure(kind(report) == "tool" && said.contains(code), || {
        format!("{what:.200} was not refused with {code:?}: {said:.200}")
    })
}
