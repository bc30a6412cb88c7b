//! The advisors' opinions with their votes, and every fault with its remedy.
//!
//! Reading is tolerant but never guesses: an unclear vote is an [`OpinionFault`] and does not count; all
//! others do.

use crate::advisor::DueOpinion;
use crate::advisor::votes::{MAX_NAME, Vote, names, votes};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt::{self, Formatter};
use toolhold_schema::{SchemaFault, Validator};
use toolhold_text::cut;

/// Maximum faults reported: a model fixes the first ones it is shown.
const MAX_FAULTS: usize = 32;

/// What becomes of a decision against the votes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CouncilMode {
    /// Advisors vote in the reply that makes the calls. Those that go against the votes are held, and the sums go
    /// back with the next Request.
    #[default]
    Hold,
    /// Advisors vote in a Request of their own. The next one has the sums, and the model's calls.
    TwoPhases,
}

impl CouncilMode {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The opinions of one solution.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Council {
    /// In the order of the seats.
    pub opinions: Vec<Opinion>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<OpinionFault>,
}

/// One advisor's opinion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Opinion {
    pub advisor: String,
    /// The instance that it spoke for; absent: all instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// All fields besides its identity, `calls` included, as written.
    pub fields: Map<String, Value>,
    /// The votes that count, in its order; each tool once.
    pub votes: Vec<Vote>,
}

/// A part of an opinion that does not count, in words that the model can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpinionFault {
    /// Absent: it is not clear which advisor spoke.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advisor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    pub reason: String,
}

impl Council {
    /// Reads the solution's `advisors`. `expected` are the seats of this iteration, `tools` the
    /// names that may be voted for. An opinion whose fields or some of whose votes are faulty counts
    /// for the rest; of two opinions for one seat neither does.
    pub fn read(value: &Value, expected: &[DueOpinion<'_>], tools: &[&str]) -> Self {
        let mut faults = Vec::new();
        let entries = entries(value, expected, &mut faults);
        let mut validators = HashMap::new();
        let mut opinions = Vec::new();
        for (seat, written) in expected.iter().zip(entries) {
            let mut fault = |reason| faults.push(OpinionFault::of(seat, reason));
            match written.as_slice() {
                [] => fault("gave no opinion; write one object for it into advisors".to_owned()),
                [fields] => {
                    let validator = validators
                        .entry(seat.advisor.id.as_str())
                        .or_insert_with(|| Validator::new(&seat.advisor.fields()));
                    if let Err(reason) = check(fields, validator) {
                        fault(reason);
                    }
                    let (votes, reasons) = votes(fields.get("calls"), tools);
                    reasons.into_iter().for_each(fault);
                    opinions.push(Opinion {
                        advisor: seat.advisor.id.clone(),
                        instance: seat.instance.map(str::to_owned),
                        fields: (*fields).clone(),
                        votes,
                    });
                }
                many => fault(format!(
                    "gave {} opinions, so none of them counts; write exactly one",
                    many.len()
                )),
            }
        }
        Self {
            opinions,
            faults: shown(faults),
        }
    }
}

impl OpinionFault {
    fn of(seat: &DueOpinion<'_>, reason: String) -> Self {
        Self {
            advisor: Some(seat.advisor.id.clone()),
            instance: seat.instance.map(str::to_owned),
            reason,
        }
    }

    fn unclear(advisor: Option<&str>, reason: String) -> Self {
        Self {
            advisor: advisor.map(|id| cut(id, MAX_NAME)),
            instance: None,
            reason,
        }
    }
}

impl fmt::Display for OpinionFault {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (&self.advisor, &self.instance) {
            (Some(advisor), Some(instance)) => {
                write!(f, "advisor {advisor:?} for instance {instance:?}: ")?;
            }
            (Some(advisor), None) => write!(f, "advisor {advisor:?}: ")?,
            (None, _) => f.write_str("advisors: ")?,
        }
        f.write_str(&self.reason)
    }
}

/// The entry for each seat, without `id` and `_instance`.
fn entries(
    value: &Value,
    expected: &[DueOpinion<'_>],
    faults: &mut Vec<OpinionFault>,
) -> Vec<Vec<Map<String, Value>>> {
    let mut by_seat = vec![Vec::new(); expected.len()];
    let entries = match value {
        Value::Null => [].as_slice(),
        Value::Array(entries) => entries,
        _ => {
            let reason = "must be a list with one object for each advisor";
            faults.push(OpinionFault::unclear(None, reason.to_owned()));
            &[]
        }
    };
    let index: HashMap<(&str, Option<&str>), usize> = expected
        .iter()
        .enumerate()
        .map(|(at, seat)| ((seat.advisor.id.as_str(), seat.instance), at))
        .collect();
    for (at, entry) in entries.iter().enumerate() {
        match seat(at, entry, expected, &index) {
            Ok((place, fields)) => {
                if let Some(written) = by_seat.get_mut(place) {
                    written.push(fields);
                }
            }
            Err(fault) => faults.push(fault),
        }
    }
    by_seat
}

/// Which seat `entry` is for.
fn seat(
    at: usize,
    entry: &Value,
    expected: &[DueOpinion<'_>],
    index: &HashMap<(&str, Option<&str>), usize>,
) -> Result<(usize, Map<String, Value>), OpinionFault> {
    let ids = || match expected {
        [] => "no advisor is asked, so write an empty list".to_owned(),
        _ => {
            let ids = names(expected.iter().map(|seat| seat.advisor.id.as_str()));
            format!("the advisors are {ids}")
        }
    };
    let unclear = |what: &str| {
        let reason = format!("entry {at} {what}; {}", ids());
        OpinionFault::unclear(None, reason)
    };
    let Value::Object(fields) = entry else {
        return Err(unclear("must be an object with id and calls"));
    };
    let Some(Value::String(id)) = fields.get("id") else {
        return Err(unclear("lacks the id of its advisor, a string"));
    };
    let own = || expected.iter().filter(|seat| seat.advisor.id == *id);
    if own().next().is_none() {
        let reason = format!("is not asked now; {}", ids());
        return Err(OpinionFault::unclear(Some(id), reason));
    }
    let instance = match fields.get("_instance") {
        None | Some(Value::Null) => None,
        Some(Value::String(instance)) => Some(instance.as_str()),
        Some(_) => {
            let reason = format!("_instance of entry {at} must be a string");
            return Err(OpinionFault::unclear(Some(id), reason));
        }
    };
    if let Some(&place) = index.get(&(id.as_str(), instance)) {
        let mut fields = fields.clone();
        fields.shift_remove("id");
        fields.shift_remove("_instance");
        return Ok((place, fields));
    }
    let known = names(own().filter_map(|seat| seat.instance));
    let reason = match (instance, known.is_empty()) {
        (_, true) => "speaks for all instances at once; leave _instance out".to_owned(),
        (None, false) => format!("entry {at} lacks _instance; the instances are {known}"),
        (Some(instance), false) => format!(
            "there is no instance {:?}; the instances are {known}",
            cut(instance, MAX_NAME)
        ),
    };
    Err(OpinionFault::unclear(Some(id), reason))
}

/// Whether the fields fit their schema; votes are not among them.
fn check(
    fields: &Map<String, Value>,
    validator: &Result<Validator, SchemaFault>,
) -> Result<(), String> {
    let validator = validator
        .as_ref()
        .map_err(|reason| format!("its schema cannot be used: {reason}"))?;
    let mut own = fields.clone();
    own.shift_remove("calls");
    validator
        .check(&own.into())
        .map_err(|reason| format!("its fields do not fit its schema, write them anew: {reason}"))
}

fn shown(mut faults: Vec<OpinionFault>) -> Vec<OpinionFault> {
    if faults.len() > MAX_FAULTS {
        let more = faults.len() - MAX_FAULTS;
        faults.truncate(MAX_FAULTS);
        faults.push(OpinionFault::unclear(
            None,
            format!("and {more} more faults"),
        ));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::{Advisor, seats};
    use proptest::prelude::*;
    use serde_json::json;
    use std::collections::HashSet;

    const TOOLS: [&str; 2] = ["a.read", "a.write"];

    fn advisors() -> Vec<Advisor> {
        serde_json::from_value(json!([
            {"id": "plain", "role": "r"},
            {"id": "risk", "role": "r", "isInstanced": true, "schema": {
                "type": "object", "properties": {"level": {"type": "integer"}}, "required": ["level"],
                "additionalProperties": false,
            }},
        ]))
        .unwrap()
    }

    fn read(value: &Value) -> Council {
        let all = advisors();
        let instances = ["x".to_owned(), "y".to_owned()];
        Council::read(
            value,
            &seats(&all.iter().collect::<Vec<_>>(), &instances),
            &TOOLS,
        )
    }

    fn plain(calls: Value) -> Value {
        json!({"id": "plain", "opinion": "o", "calls": calls})
    }

    fn risk(instance: &str) -> Value {
        json!({"id": "risk", "_instance": instance, "level": 1, "calls": "{\"a.write\": 10}"})
    }

    fn with_plain(entry: Value) -> Value {
        json!([entry, risk("x"), risk("y")])
    }

    fn weights(council: &Council) -> Vec<(String, String, f64)> {
        let each = |opinion: &Opinion| {
            let who = format!(
                "{}/{}",
                opinion.advisor,
                opinion.instance.as_deref().unwrap_or("-")
            );
            opinion
                .votes
                .iter()
                .map(|vote| (who.clone(), vote.tool.clone(), vote.weight))
                .collect::<Vec<_>>()
        };
        council.opinions.iter().flat_map(each).collect()
    }

    #[test]
    fn opinions_come_in_the_order_of_seats_with_all_their_fields() {
        let mut entry = plain(json!(" {\"a.write\": 0, \"a.read\": 72.5}\n"));
        entry["aside"] = json!([1]);
        let council = read(&json!([risk("y"), entry, risk("x")]));
        assert_eq!(council.faults, []);
        assert_eq!(
            serde_json::to_value(&council).unwrap(),
            json!({"opinions": [
                {
                    "advisor": "plain",
                    "fields": {
                        "opinion": "o", "calls": " {\"a.write\": 0, \"a.read\": 72.5}\n", "aside": [1],
                    },
                    "votes": [{"tool": "a.write", "weight": 0.0}, {"tool": "a.read", "weight": 72.5}],
                },
                {
                    "advisor": "risk", "instance": "x", "fields": {"level": 1, "calls": "{\"a.write\": 10}"},
                    "votes": [{"tool": "a.write", "weight": 10.0}],
                },
                {
                    "advisor": "risk", "instance": "y", "fields": {"level": 1, "calls": "{\"a.write\": 10}"},
                    "votes": [{"tool": "a.write", "weight": 10.0}],
                },
            ]})
        );
        let again: Council =
            serde_json::from_value(serde_json::to_value(&council).unwrap()).unwrap();
        assert_eq!(again, council);
    }

    #[test]
    fn opinions_that_are_not_clear_do_not_count_and_the_rest_does() {
        let fine = || plain(json!("{\"a.read\": 5}"));
        // The list, who is heard, and the faults.
        for (value, heard, faults) in [
            (
                json!([fine(), risk("x"), risk("y")]),
                "plain/- risk/x risk/y",
                vec![],
            ),
            (
                json!([fine(), risk("y")]),
                "plain/- risk/y",
                vec!["advisor \"risk\" for instance \"x\": gave no opinion"],
            ),
            (
                json!([fine(), risk("x"), fine(), risk("y")]),
                "risk/x risk/y",
                vec!["advisor \"plain\": gave 2 opinions, so none of them counts"],
            ),
            (
                json!([fine(), risk("x"), risk("y"), {"id": "judge", "calls": "{}"}]),
                "plain/- risk/x risk/y",
                vec!["advisor \"judge\": is not asked now; the advisors are \"plain\", \"risk\""],
            ),
            (
                json!([fine(), risk("x"), risk("y"), 5, {"calls": "{}"}]),
                "plain/- risk/x risk/y",
                vec![
                    "advisors: entry 3 must be an object",
                    "advisors: entry 4 lacks the id",
                ],
            ),
            (
                json!([fine(), risk("x"), risk("z")]),
                "plain/- risk/x",
                vec![
                    "there is no instance \"z\"; the instances are \"x\", \"y\"",
                    "gave no opinion",
                ],
            ),
            (
                json!([fine(), risk("x"), {"id": "risk", "level": 1, "calls": "{}"}]),
                "plain/- risk/x",
                vec!["entry 2 lacks _instance", "gave no opinion"],
            ),
            (
                json!([fine(), risk("x"), risk("y"), {"id": "risk", "_instance": 1}]),
                "plain/- risk/x risk/y",
                vec!["_instance of entry 3 must be a string"],
            ),
            (
                json!([{"id": "plain", "_instance": "x", "opinion": "o", "calls": "{}"}, risk("x"), risk("y")]),
                "risk/x risk/y",
                vec!["leave _instance out", "gave no opinion"],
            ),
            (
                json!([{"id": "plain", "_instance": null, "opinion": "o", "calls": "{}"}, risk("x"), risk("y")]),
                "plain/- risk/x risk/y",
                vec![],
            ),
            (Value::Null, "", vec!["gave no opinion"; 3]),
            (
                json!({"plain": {}}),
                "",
                vec![
                    "must be a list",
                    "gave no opinion",
                    "gave no opinion",
                    "gave no opinion",
                ],
            ),
        ] {
            let council = read(&value);
            let who: Vec<_> = council
                .opinions
                .iter()
                .map(|o| format!("{}/{}", o.advisor, o.instance.as_deref().unwrap_or("-")))
                .collect();
            assert_eq!(who.join(" "), heard, "{value}");
            let got: Vec<_> = council.faults.iter().map(ToString::to_string).collect();
            assert_eq!(got.len(), faults.len(), "{value}: {got:?}");
            for (fault, expect) in got.iter().zip(faults) {
                assert!(fault.contains(expect), "{value}: {fault}");
            }
        }
    }

    #[test]
    fn fields_that_do_not_fit_leave_the_votes() {
        let mut entry = risk("x");
        entry["level"] = json!("high");
        let council = read(&json!([plain(json!("{}")), entry, risk("y")]));
        assert_eq!(
            weights(&council),
            [
                ("risk/x".into(), "a.write".into(), 10.0),
                ("risk/y".into(), "a.write".into(), 10.0)
            ]
        );
        let [fault] = council.faults.as_slice() else {
            panic!("{:?}", council.faults);
        };
        assert_eq!(fault.instance.as_deref(), Some("x"));
        assert!(
            fault
                .reason
                .contains("/level: \"high\" is not of type \"integer\""),
            "{fault}"
        );

        let council = read(&with_plain(json!({"id": "plain", "calls": "{}"})));
        assert!(
            council.faults[0]
                .reason
                .contains("\"opinion\" is a required property")
        );
    }

    #[test]
    fn without_seats_there_are_no_opinions() {
        let council = Council::read(&json!([plain(json!("{}"))]), &[], &TOOLS);
        assert_eq!(council.opinions, []);
        assert_eq!(
            council.faults[0].to_string(),
            "advisor \"plain\": is not asked now; no advisor is asked, so write an empty list"
        );
    }

    #[test]
    fn a_flood_of_faults_is_cut_and_says_so() {
        let council = read(&Value::Array(vec![json!(0); 1_000]));
        assert_eq!(council.faults.len(), MAX_FAULTS + 1);
        // 1000 entries and 3 empty seats.
        let last = council.faults.last().map(ToString::to_string);
        assert_eq!(last.as_deref(), Some("advisors: and 971 more faults"));
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::vec(
                    (
                        prop_oneof!["id|_instance|calls|opinion|level", "\\PC{0,6}"],
                        inner
                    ),
                    0..6
                )
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    /// Near enough to the form to reach every branch.
    fn near() -> impl Strategy<Value = Value> {
        let calls = prop_oneof![
            3 => "[{](\"(a.read|a.write|rm)\":(-?[0-9]{1,3}|\"5\"|0.5))?(,\"(a.read|a.write)\":[0-9]{1,2})?[}]".prop_map(Value::from),
            1 => any_json(),
        ];
        let instance = prop_oneof![
            Just(json!("x")),
            Just(json!("y")),
            Just(json!("z")),
            Just(Value::Null)
        ];
        let entry = ("plain|risk|judge", instance, any_json(), calls).prop_map(|(id, instance, level, calls)| {
            json!({"id": id, "_instance": instance, "level": level, "opinion": "o", "calls": calls})
        });
        prop::collection::vec(prop_oneof![9 => entry, 1 => any_json()], 0..6).prop_map(Value::from)
    }

    proptest! {
        #[test]
        fn any_json_is_read_and_what_counts_is_sound(value in prop_oneof![any_json(), near()]) {
            let council = read(&value);
            let mut heard = HashSet::new();
            for opinion in &council.opinions {
                prop_assert!(heard.insert((&opinion.advisor, &opinion.instance)));
                let mut voted = HashSet::new();
                for vote in &opinion.votes {
                    prop_assert!((0.0..=100.0).contains(&vote.weight));
                    prop_assert!(TOOLS.contains(&vote.tool.as_str()));
                    prop_assert!(voted.insert(&vote.tool));
                }
            }
            // Every due opinion is counted, or a fault is reported.
            prop_assert!(council.opinions.len() == 3 || !council.faults.is_empty());
            prop_assert_eq!(read(&value), council);
        }
    }
}
