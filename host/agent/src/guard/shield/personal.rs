//! A shield that blocks values which hold personal data or secrets.

use super::{Screening, Shield, ShieldVerdict};
use futures_util::future::BoxFuture;
use serde_json::Value;
use std::collections::BTreeSet;
use toolhold_admission::WorkKind;
use toolhold_model::CompletionObserver;
use toolhold_policy::pii::Kind;
use toolhold_policy::pii::find;

/// Values that built-in shields judge, of which each call and each reply has some.
const JUDGEMENTS: WorkKind = WorkKind::new("judgements of shields", 16);

/// Built in: data of these kinds does not pass.
#[derive(Debug, Clone)]
pub struct PersonalData {
    pub block: BTreeSet<Kind>,
}

impl Shield for PersonalData {
    fn screen<'a>(
        &'a self,
        screening: &'a Screening,
        _: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<ShieldVerdict, String>> {
        let shield = self.clone();
        aside(screening, move |screening| shield.judge(screening))
    }
}

impl PersonalData {
    fn judge(&self, screening: &Screening) -> ShieldVerdict {
        let mut found = BTreeSet::new();
        let context = screening.context.iter().map(|(_, value)| value);
        for value in std::iter::once(&screening.value).chain(context) {
            every_text(value, &mut |text| {
                let kinds = find(text, |kind| self.block.contains(&kind));
                found.extend(kinds.into_iter().map(|finding| finding.kind.name()));
            });
        }
        let names: Vec<_> = found.into_iter().collect();
        if names.is_empty() {
            return ShieldVerdict::Pass;
        }
        ShieldVerdict::Block {
            reason: format!("it holds {}, which may not be there", names.join(", ")),
        }
    }
}

/// Judges on a blocking thread, so that a large value does not hold up other tasks.
pub(super) fn aside(
    screening: &Screening,
    judge: impl FnOnce(&Screening) -> ShieldVerdict + Send + 'static,
) -> BoxFuture<'static, Result<ShieldVerdict, String>> {
    let screening = screening.clone();
    let mut judged = JUDGEMENTS.start(None, move |_| judge(&screening));
    Box::pin(async move { judged.done().await.map_err(|failure| failure.to_string()) })
}

/// Every text in a value: strings, keys, and numbers as they are written. Recursion goes as deep as
/// JSON text can be read.
pub(super) fn every_text(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(number) => visit(&number.to_string()),
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| every_text(item, visit)),
        Value::Object(members) => {
            for (key, member) in members {
                visit(key);
                every_text(member, visit);
            }
        }
    }
}
