//! Requests besides the runs' own: of shields, of the router, and hedged ones.

use crate::stats::ModelUsage;
use std::collections::BTreeMap;
use toolhold_protocol::side_request::{SideRequest, SideRole};

/// Most models counted separately: a record may name any number.
const MAX_MODELS: usize = 500;
const OTHERS: &str = "(others)";

/// Statistics of models by role.
#[derive(Debug, Clone, Default)]
pub struct SideModelStats(BTreeMap<SideModelKey, ModelUsage>);

/// A model in its role.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SideModelKey {
    pub role: SideRole,
    pub endpoint: String,
    pub model: String,
}

impl SideModelStats {
    pub fn add(&mut self, request: &SideRequest) {
        let usage = request.usage.unwrap_or_default();
        let is_complete = request.role.is_complete();
        let is_unknown = u64::from(request.cost_nano.is_none());
        let took = ModelUsage {
            replies: u64::from(is_complete),
            uncounted: u64::from(is_complete && request.usage.is_none()),
            prompt: usage.prompt_tokens,
            cached: usage.cached_prompt_tokens.unwrap_or(0),
            completion: usage.completion_tokens,
            cost: request.cost_nano.unwrap_or_default(),
            unpriced: if is_complete { is_unknown } else { 0 },
            hedges: u64::from(!is_complete),
            unheard: if is_complete { 0 } else { is_unknown },
            ..ModelUsage::default()
        };
        let side = SideModelKey {
            role: request.role,
            endpoint: request.endpoint.clone(),
            model: request.model.clone(),
        };
        self.entry(side).add(&took);
    }

    pub fn merge(&mut self, other: &Self) {
        for (side, took) in &other.0 {
            self.entry(side.clone()).add(took);
        }
    }

    /// All of them together.
    pub fn took(&self) -> ModelUsage {
        let mut all = ModelUsage::default();
        for took in self.0.values() {
            all.add(took);
        }
        all
    }

    /// By role, then by name.
    pub fn iter(&self) -> impl Iterator<Item = (&SideModelKey, &ModelUsage)> {
        self.0.iter()
    }

    fn entry(&mut self, side: SideModelKey) -> &mut ModelUsage {
        let is_full = self.0.len() >= MAX_MODELS && !self.0.contains_key(&side);
        let side = if is_full {
            SideModelKey {
                endpoint: OTHERS.into(),
                model: OTHERS.into(),
                ..side
            }
        } else {
            side
        };
        self.0.entry(side).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_protocol::completion::Usage;

    fn request(role: SideRole, endpoint: &str, usage: Option<(u64, u64)>) -> SideRequest {
        SideRequest {
            role,
            endpoint: endpoint.into(),
            model: "m".into(),
            usage: usage.map(|(prompt_tokens, completion_tokens)| Usage {
                prompt_tokens,
                completion_tokens,
                ..Usage::default()
            }),
            duration_ms: 5,
            cost_nano: usage.and("0.01".parse().ok()),
        }
    }

    #[test]
    fn unknown_usage_is_told_apart_from_none() {
        let mut sides = SideModelStats::default();
        for request in [
            request(SideRole::Shield, "guard", Some((100, 5))),
            request(SideRole::Shield, "guard", Some((50, 2))),
            request(SideRole::Shield, "guard", None),
            request(SideRole::Router, "tiny", Some((10, 1))),
            request(SideRole::Hedge, "big", None),
        ] {
            sides.add(&request);
        }
        let mut twice = sides.clone();
        twice.merge(&sides);
        let took = sides.took();
        assert_eq!(
            (
                took.replies,
                took.uncounted,
                took.unpriced,
                took.hedges,
                took.unheard
            ),
            (4, 1, 1, 1, 1)
        );
        assert_eq!((took.prompt, took.completion), (160, 8));
        assert_eq!(took.cost.to_string(), "0.03");
        assert_eq!(twice.took().prompt, 320);
        let roles: Vec<_> = sides
            .iter()
            .map(|(side, took)| (side.role, took.replies))
            .collect();
        assert_eq!(
            roles,
            [
                (SideRole::Shield, 3),
                (SideRole::Router, 1),
                (SideRole::Hedge, 0)
            ]
        );
    }

    #[test]
    fn a_record_with_endless_names_takes_bounded_memory() {
        let mut sides = SideModelStats::default();
        for n in 0..MAX_MODELS + 50 {
            sides.add(&request(SideRole::Shield, &format!("e{n}"), Some((1, 1))));
        }
        assert_eq!(sides.iter().count(), MAX_MODELS + 1);
        assert_eq!(sides.took().replies, MAX_MODELS as u64 + 50);
    }
}
