//! Applies the results of `toolhold doctor --probe` to runs.

use crate::candidate_scores::CandidateScores;
use crate::config::{Configuration, EndpointTable};
use crate::probed::Dialects;
use std::collections::BTreeMap;
use std::sync::Arc;
use toolhold_model::{Delivery, Dialect, Model as _, OpenAiModel, ProbeVerdict};
use toolhold_protocol::compose::Forcing;
use toolhold_protocol::contract::Contract;
use toolhold_protocol::settings::Settings;

/// The probe results of a run's endpoints, by name.
#[derive(Debug, Default)]
pub struct ProbedDialects {
    endpoints: BTreeMap<String, Dialect>,
    /// How the fallback's candidates are asked, by their names.
    candidates: BTreeMap<String, CandidateForm>,
    /// What the candidates did before, where their order depends on it.
    scores: Option<Arc<CandidateScores>>,
    /// The models that the run's own endpoint lists, where the fallback may ask them.
    own_models: Vec<String>,
}

/// The form in which a candidate of the fallback is asked.
#[derive(Debug, Clone, Copy)]
struct CandidateForm {
    contract: Contract,
    forcing: Forcing,
    has_grammar: bool,
}

/// Whether an endpoint keeps replies to a schema, or may do so.
fn has_grammar(dialect: &Dialect) -> bool {
    matches!(
        dialect.schema,
        ProbeVerdict::Works | ProbeVerdict::Unknown { .. }
    )
}

impl ProbedDialects {
    pub fn add(&mut self, endpoint: &str, dialect: Dialect) {
        self.endpoints.insert(endpoint.to_owned(), dialect);
    }

    pub fn add_candidate(&mut self, name: &str, dialect: &Dialect) {
        let how = CandidateForm {
            contract: dialect.contract(),
            forcing: dialect.forcing(),
            has_grammar: has_grammar(dialect),
        };
        self.candidates.insert(name.to_owned(), how);
    }

    pub(crate) fn measured(&mut self, scores: Option<Arc<CandidateScores>>) {
        self.scores = scores;
    }

    pub(crate) fn own_models(&mut self, models: Vec<String>) {
        self.own_models = models;
    }

    /// Whether the candidate is this endpoint.
    pub fn is_candidate(&mut self, name: &str, endpoint: &str) {
        if let Some(dialect) = self.endpoints.get(endpoint).cloned() {
            self.add_candidate(name, &dialect);
        }
    }

    /// Decides what the configuration leaves open: the contract that all answering endpoints support, how they are asked
    /// for a call that has to be made, the window, half of which a reply may use, and the order of the fallback's
    /// candidates. Warnings for the user go to stderr.
    pub fn adapt(&self, settings: &mut Settings, config: &Configuration) {
        if settings.fallback.is_on && !self.own_models.is_empty() {
            settings.fallback.candidates = config.fallback(&self.own_models).candidates;
        }
        self.adapt_candidates(settings, config);
        let endpoints = config.routes().endpoints_of(&config.endpoint);
        let known: Vec<(&str, Option<&Dialect>)> = endpoints
            .iter()
            .map(|(name, _)| (*name, self.endpoints.get(*name)))
            .collect();
        let answering = known.iter().filter_map(|(_, dialect)| *dialect);
        if let Some(most) = answering.filter_map(Dialect::max_reply_tokens).min() {
            settings.max_tokens = settings.max_tokens.min(most);
        }
        if config.routes().chosen_contract(&config.endpoint).is_none() {
            let agreed = AgreedContract::of(&known);
            settings.contract = agreed.contract;
            if let Some(difference) = agreed.difference(&config.endpoint) {
                tracing::warn!("{difference}. {ONE_KIND}");
            }
        }
        // What demands least of those that may answer: a request is written before it is known which one does.
        let forcing = known.iter().filter_map(|(_, dialect)| *dialect);
        settings.forcing = forcing.map(Dialect::forcing).max().unwrap_or_default();
        settings.authored_schemas = is_without_grammar(&known);
        let windows: Option<Vec<u64>> = known
            .iter()
            .map(|(_, dialect)| dialect.as_ref()?.server.context_length)
            .collect();
        let largest = windows.and_then(|windows| windows.into_iter().max());
        settings.window.tokens = settings.window.tokens.or(largest);
    }

    /// Of the answering endpoints, the one that the probe found worst under a contract, with its verdict:
    /// refusing the contract is worse than ignoring it.
    pub fn doubt<'a>(
        &'a self,
        contract: Contract,
        config: &'a Configuration,
    ) -> Option<(&'a str, &'a ProbeVerdict)> {
        let endpoints = config.routes().endpoints_of(&config.endpoint).into_iter();
        let mut found: Vec<_> = endpoints
            .filter_map(|(name, _)| Some((name, self.endpoints.get(name)?.verdict(contract)?)))
            .filter(|(_, verdict)| {
                matches!(
                    verdict,
                    ProbeVerdict::Refused { .. } | ProbeVerdict::Ignored { .. }
                )
            })
            .collect();
        found.sort_by_key(|(_, verdict)| matches!(verdict, ProbeVerdict::Ignored { .. }));
        found.into_iter().next()
    }

    fn adapt_candidates(&self, settings: &mut Settings, config: &Configuration) {
        for candidate in &mut settings.fallback.candidates {
            let named = config.candidate(&candidate.name);
            let is_chosen = named.is_some_and(|named| named.endpoint.contract.fixed().is_some());
            if let Some(form) = self.candidates.get(&candidate.name) {
                candidate.forcing = form.forcing;
                candidate.authored_schemas = !form.has_grammar;
                if !is_chosen {
                    candidate.contract = form.contract;
                }
            }
        }
        if let Some(scores) = &self.scores {
            scores.order(&mut settings.fallback.candidates);
        }
    }
}

/// Whether no endpoint of those that may answer has a grammar. One that was not probed may have one.
fn is_without_grammar(endpoints: &[(&str, Option<&Dialect>)]) -> bool {
    let mut each = endpoints.iter().map(|(_, dialect)| *dialect);
    !endpoints.is_empty() && each.all(|dialect| dialect.is_some_and(|own| !has_grammar(own)))
}

/// Advice about endpoints of different contracts.
pub const ONE_KIND: &str = "let endpoints of one kind answer for each other, or choose the contract yourself: \
                            contract = \"…\" of one of them";

/// One contract for all endpoints that may answer a run: a request is written in it before it is known which
/// one answers.
#[derive(Debug)]
pub struct AgreedContract {
    pub contract: Contract,
    /// The endpoints with the best contract of each, unless it is the same for all.
    different: Vec<(String, Option<Contract>)>,
}

impl AgreedContract {
    /// Based on probes; the schema contract is assumed for endpoints without one.
    pub fn of(endpoints: &[(&str, Option<&Dialect>)]) -> Self {
        let best = |dialect: Option<&Dialect>| dialect.map(Dialect::contract);
        let mut each = endpoints
            .iter()
            .map(|(_, dialect)| best(*dialect).unwrap_or_default());
        let first = each.next().unwrap_or_default();
        if each.all(|other| other == first) {
            return Self {
                contract: first,
                different: Vec::new(),
            };
        }
        let dialects = || endpoints.iter().map(|(_, dialect)| *dialect);
        let all_do = |contract| dialects().all(|own| own.is_some_and(|own| own.does(contract)));
        // A schema that a server ignores is still validated on our side; a schema that it refuses gets no
        // reply at all. Plain text works everywhere.
        let all_accept = || dialects().all(|own| own.is_none_or(Dialect::accepts_schema));
        let contract = if all_do(Contract::Tools) {
            Contract::Tools
        } else if all_accept() {
            Contract::Schema
        } else {
            Contract::Simple
        };
        let different = endpoints
            .iter()
            .map(|(name, dialect)| ((*name).to_owned(), best(*dialect)));
        Self {
            contract,
            different: different.collect(),
        }
    }

    /// The warning about answering endpoints of `name` with different contracts.
    pub fn difference(&self, name: &str) -> Option<String> {
        if self.different.is_empty() {
            return None;
        }
        let each = self.different.iter().map(|(name, best)| match best {
            Some(contract) => format!("{name} as {}", contract.name()),
            None => format!("{name} not at all"),
        });
        Some(format!(
            "those that may answer for {name} were probed as different contracts: {}; runs ask all of them in the {} \
             contract",
            each.collect::<Vec<_>>().join(", "),
            self.contract.name()
        ))
    }
}

/// The model with the dialect of its endpoint, and the probe's result, if any.
///
/// A server with another version than the probed one counts as not probed. The window is what the server
/// reports now.
pub async fn known(
    dialects: &Dialects,
    endpoint: &EndpointTable,
    model: OpenAiModel,
) -> (OpenAiModel, Option<Dialect>) {
    let Some(probed) = dialects.find(model.target(), model.name()) else {
        return (model, None);
    };
    let mut dialect = probed.dialect;
    // A server that does not answer this will fail the run with its own message.
    if let Ok(server) = model.server().await {
        if server.version != dialect.server.version {
            let (now, then) = (server.version, dialect.server.version);
            tracing::warn!(
                now = now.as_deref().unwrap_or("unknown"),
                probed = then.as_deref().unwrap_or("unknown"),
                "the endpoint's version is not the one that was probed; what was found is not used: \
                 toolhold doctor --probe"
            );
            return (model, None);
        }
        dialect.server = server;
    }
    let delivery = if endpoint.stream {
        dialect.delivery
    } else {
        Delivery::Whole
    };
    let model = model
        .with_delivery(delivery)
        .with_tokenizer(dialect.tokenizer);
    (model, Some(dialect))
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_model::ServerInfo;
    use toolhold_model::dialect::ToolCalling;

    fn dialect(schema: &ProbeVerdict, tools: &ProbeVerdict) -> Dialect {
        Dialect {
            server: ServerInfo::default(),
            delivery: Delivery::Stream,
            usage: true,
            reasoning: false,
            schema: schema.clone(),
            tools: ToolCalling {
                auto: tools.clone(),
                required: ProbeVerdict::Works,
                named: ProbeVerdict::Works,
                parallel: ProbeVerdict::Works,
            },
            tokenizer: None,
        }
    }

    #[test]
    fn authors_schemas_are_sent_where_no_endpoint_has_a_grammar() {
        let works = ProbeVerdict::Works;
        let ignored = ProbeVerdict::Ignored {
            answer: "hello".into(),
        };
        let refused = ProbeVerdict::Refused {
            reason: "no".into(),
        };
        let unknown = ProbeVerdict::Unknown {
            reason: "no answer".into(),
        };
        let [works, ignored, refused, unknown] =
            [works, ignored, refused, unknown].map(|schema| dialect(&schema, &ProbeVerdict::Works));
        for (endpoints, is_without) in [
            (vec![Some(&ignored)], true),
            (vec![Some(&refused), Some(&ignored)], true),
            (vec![Some(&works)], false),
            (vec![Some(&refused), Some(&works)], false),
            (vec![Some(&unknown)], false),
            (vec![Some(&refused), None], false),
            (vec![None], false),
            (vec![], false),
        ] {
            let named: Vec<_> = endpoints
                .into_iter()
                .map(|dialect| ("a", dialect))
                .collect();
            assert_eq!(is_without_grammar(&named), is_without, "{named:?}");
        }
    }

    #[test]
    fn members_of_different_kinds_are_asked_as_all_of_them_can_be() {
        use Contract::{Schema, Simple, Tools};
        let works = ProbeVerdict::Works;
        let ignored = ProbeVerdict::Ignored {
            answer: "hello".into(),
        };
        let refused = ProbeVerdict::Refused {
            reason: "no".into(),
        };
        let (all, schema) = (dialect(&works, &works), dialect(&works, &ignored));
        let (tools, strict) = (dialect(&ignored, &works), dialect(&refused, &works));
        let (simple, mute) = (dialect(&ignored, &ignored), dialect(&refused, &refused));
        for (a, b, contract, said) in [
            (Some(&all), Some(&schema), Schema, None),
            (Some(&tools), Some(&strict), Tools, None),
            (None, Some(&all), Schema, None),
            (None, None, Schema, None),
            (
                Some(&all),
                Some(&tools),
                Tools,
                Some("a as schema, b as tools"),
            ),
            (
                Some(&all),
                Some(&strict),
                Tools,
                Some("a as schema, b as tools"),
            ),
            (
                Some(&schema),
                Some(&tools),
                Schema,
                Some("a as schema, b as tools"),
            ),
            (
                Some(&schema),
                Some(&strict),
                Simple,
                Some("a as schema, b as tools"),
            ),
            (
                Some(&tools),
                Some(&simple),
                Schema,
                Some("a as tools, b as simple"),
            ),
            (
                Some(&tools),
                Some(&mute),
                Simple,
                Some("a as tools, b as simple"),
            ),
            (None, Some(&tools), Schema, Some("a not at all, b as tools")),
            (None, Some(&mute), Simple, Some("a not at all, b as simple")),
        ] {
            let agreed = AgreedContract::of(&[("a", a), ("b", b)]);
            let difference = agreed.difference("all");
            assert_eq!(agreed.contract, contract, "{difference:?}");
            assert_eq!(difference.is_some(), said.is_some(), "{difference:?}");
            if let (Some(difference), Some(said)) = (difference, said) {
                let runs = format!("in the {} contract", contract.name());
                assert!(
                    difference.contains(said) && difference.contains(&runs),
                    "{difference}"
                );
            }
        }
    }
}
