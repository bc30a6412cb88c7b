//! The real behaviour of an endpoint, as data. Servers accept more than they do: some ignore a schema with
//! 200 and no word. So a dialect is never derived from a server's name or version, only from what it answered
//! ([`crate::probe`]).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::chat::Delivery;
use crate::server::ServerInfo;
use crate::tokenizer::Tokenizer;
use toolhold_protocol::compose::Forcing;
use toolhold_protocol::contract::Contract;

/// How one model behind one endpoint is spoken to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialect {
    pub server: ServerInfo,
    /// The best way to have an answer delivered.
    pub delivery: Delivery,
    /// Whether answers say how many tokens they took.
    pub usage: bool,
    /// Whether thinking came in a field of its own.
    pub reasoning: bool,
    /// `response_format` with a JSON Schema.
    pub schema: ProbeVerdict,
    pub tools: ToolCalling,
    /// How tokens are counted, where they are.
    pub tokenizer: Option<Tokenizer>,
}

/// What became of native tool calling, by how the call was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCalling {
    /// `tool_choice: "auto"`, with a task that needs the tool.
    pub auto: ProbeVerdict,
    /// `tool_choice: "required"`, with a task that needs none.
    pub required: ProbeVerdict,
    /// One tool named, with a task for the other.
    pub named: ProbeVerdict,
    /// Two calls in one reply.
    pub parallel: ProbeVerdict,
}

/// The result of probing one feature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum ProbeVerdict {
    /// It did what was asked.
    Works,
    /// It accepted the request and did something else.
    Ignored {
        /// The beginning of what it answered.
        answer: String,
    },
    /// It said no.
    Refused { reason: String },
    /// Nothing could be learnt this time.
    Unknown { reason: String },
}

impl ProbeVerdict {
    pub fn works(&self) -> bool {
        *self == Self::Works
    }
}

impl fmt::Display for ProbeVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Works => f.write_str("works"),
            Self::Ignored { answer } => {
                write!(f, "is accepted and ignored; the answer began: {answer}")
            }
            Self::Refused { reason } => write!(f, "is refused: {reason}"),
            Self::Unknown { reason } => write!(f, "could not be found out: {reason}"),
        }
    }
}

impl Dialect {
    /// The best contract that works here (docs/protocol.md, 4): a schema that is enforced leaves a model
    /// nothing to get wrong. What could not be found out is tried rather than given up, for the host
    /// validates every reply anyway.
    pub fn contract(&self) -> Contract {
        match &self.schema {
            ProbeVerdict::Works => Contract::Schema,
            _ if self.tools.auto.works() => Contract::Tools,
            ProbeVerdict::Unknown { .. } => Contract::Schema,
            ProbeVerdict::Ignored { .. } | ProbeVerdict::Refused { .. } => Contract::Simple,
        }
    }

    /// How a call of the only tool is asked for: by what works here, and else by what is not refused.
    pub fn forcing(&self) -> Forcing {
        let ToolCalling {
            named, required, ..
        } = &self.tools;
        let is_refused = |verdict: &ProbeVerdict| matches!(verdict, ProbeVerdict::Refused { .. });
        match (named, required) {
            (ProbeVerdict::Works | ProbeVerdict::Unknown { .. }, _) => Forcing::Named,
            (_, ProbeVerdict::Works) => Forcing::Required,
            (ProbeVerdict::Ignored { .. }, _) => Forcing::Named,
            (_, required) if !is_refused(required) => Forcing::Required,
            _ => Forcing::Auto,
        }
    }

    /// Whether the endpoint keeps the contract by itself, so that little is left to our side.
    pub fn does(&self, contract: Contract) -> bool {
        self.verdict(contract).is_none_or(ProbeVerdict::works)
    }

    /// What became of this contract; nothing of plain text, which is understood everywhere.
    pub fn verdict(&self, contract: Contract) -> Option<&ProbeVerdict> {
        match contract {
            Contract::Schema => Some(&self.schema),
            Contract::Tools => Some(&self.tools.auto),
            Contract::Simple => None,
        }
    }

    /// Whether a request with a schema is answered, whatever is made of it.
    pub fn accepts_schema(&self) -> bool {
        !matches!(self.schema, ProbeVerdict::Refused { .. })
    }

    /// The most tokens to ask for in one reply: half of the window, so that the prompt has the other.
    /// Servers refuse a request that could not fit even if its answer would.
    pub fn max_reply_tokens(&self) -> Option<u32> {
        let half = self.server.context_length? / 2;
        Some(u32::try_from(half.max(1)).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts() -> [ProbeVerdict; 4] {
        let why = String::from("why");
        [
            ProbeVerdict::Works,
            ProbeVerdict::Ignored {
                answer: why.clone(),
            },
            ProbeVerdict::Refused {
                reason: why.clone(),
            },
            ProbeVerdict::Unknown { reason: why },
        ]
    }

    fn dialect(schema: &ProbeVerdict, auto: &ProbeVerdict) -> Dialect {
        Dialect {
            server: ServerInfo::default(),
            delivery: Delivery::Stream,
            usage: true,
            reasoning: false,
            schema: schema.clone(),
            tools: ToolCalling {
                auto: auto.clone(),
                required: ProbeVerdict::Works,
                named: ProbeVerdict::Works,
                parallel: ProbeVerdict::Works,
            },
            tokenizer: None,
        }
    }

    #[test]
    fn a_call_is_forced_in_a_way_that_is_not_refused() {
        let [works, ignored, refused, unknown] = verdicts();
        for (named, required, forcing) in [
            (&works, &works, Forcing::Named),
            (&unknown, &works, Forcing::Named),
            (&ignored, &works, Forcing::Required),
            (&ignored, &refused, Forcing::Named),
            (&refused, &works, Forcing::Required),
            (&refused, &unknown, Forcing::Required),
            (&refused, &refused, Forcing::Auto),
        ] {
            let mut dialect = dialect(&works, &works);
            dialect.tools.named = named.clone();
            dialect.tools.required = required.clone();
            assert_eq!(dialect.forcing(), forcing, "{named} {required}");
        }
    }

    #[test]
    fn the_best_contract_that_works_is_chosen() {
        use Contract::{Schema, Simple, Tools};
        let [works, ignored, refused, unknown] = verdicts();
        for (schema, auto, contract) in [
            (&works, &works, Schema),
            (&works, &refused, Schema),
            (&ignored, &works, Tools),
            (&refused, &works, Tools),
            (&unknown, &works, Tools),
            (&ignored, &ignored, Simple),
            (&refused, &unknown, Simple),
            (&unknown, &refused, Schema),
        ] {
            let dialect = dialect(schema, auto);
            assert_eq!(dialect.contract(), contract, "{schema:?} {auto:?}");
        }
    }

    #[test]
    fn a_reply_never_asks_for_the_whole_window() {
        let mut dialect = dialect(&ProbeVerdict::Works, &ProbeVerdict::Works);
        assert_eq!(dialect.max_reply_tokens(), None);
        for (window, most) in [(4096, 2048), (1, 1), (u64::MAX, u32::MAX)] {
            dialect.server.context_length = Some(window);
            assert_eq!(dialect.max_reply_tokens(), Some(most));
        }
    }

    #[test]
    fn a_dialect_survives_its_file() {
        for verdict in verdicts() {
            let dialect = dialect(&verdict, &verdict);
            let text = serde_json::to_string(&dialect).unwrap();
            assert_eq!(serde_json::from_str::<Dialect>(&text).unwrap(), dialect);
        }
    }
}
