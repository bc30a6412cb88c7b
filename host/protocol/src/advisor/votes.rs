//! An advisor's `calls`: a string that holds JSON, tool name → weight.

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::fmt::{self, Formatter};
use std::ops::RangeInclusive;
use toolhold_json::bounded;
use toolhold_text::cut;

/// The range of weights (docs/protocol.md, 10).
const WEIGHTS: RangeInclusive<f64> = 0.0..=100.0;
/// Maximum names in a fault's list of known tools.
const MAX_NAMES: usize = 20;
/// Characters shown of a name that a model made up.
pub(super) const MAX_NAME: usize = 64;

/// A tool and how much an advisor wants it called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vote {
    pub tool: String,
    /// From 0 to 100.
    pub weight: f64,
}

/// The votes that count, and why others do not.
pub(super) fn votes(calls: Option<&Value>, tools: &[&str]) -> (Vec<Vote>, Vec<String>) {
    let pairs = match pairs(calls) {
        Ok(pairs) => pairs,
        Err(reason) => return (Vec::new(), vec![reason]),
    };
    let (mut votes, mut reasons, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    let known: HashSet<&str> = tools.iter().copied().collect();
    let mut times: HashMap<&str, usize> = HashMap::new();
    for (tool, _) in &pairs {
        *times.entry(tool).or_default() += 1;
    }
    for (tool, weight) in &pairs {
        // One fault for a tool, however often it is named.
        let Some(times) = times.remove(tool.as_str()) else {
            continue;
        };
        if !known.contains(tool.as_str()) {
            unknown.push(cut(tool, MAX_NAME));
        } else if times > 1 {
            reasons.push(format!(
                "calls weighs {tool:?} {times} times; write it once"
            ));
        } else if let Some(weight) = weight.as_f64().filter(|weight| WEIGHTS.contains(weight)) {
            votes.push(Vote {
                tool: tool.clone(),
                // JSON knows -0, and no reader of the record should.
                weight: weight.abs(),
            });
        } else {
            let weight = cut(&weight.to_string(), MAX_NAME);
            reasons.push(format!(
                "calls gives {tool:?} the weight {weight}; write a number from 0 to 100"
            ));
        }
    }
    if !unknown.is_empty() {
        let there_is = match tools {
            [] => "there are no tools, so write {}".to_owned(),
            _ => format!("the tools are {}", names(tools.iter().copied())),
        };
        reasons.push(format!(
            "calls weighs tools that do not exist: {}; {there_is}",
            names(unknown.iter().map(String::as_str))
        ));
    }
    (votes, reasons)
}

/// `calls` as written: pairs, because an object would forget the first of two equal keys.
fn pairs(calls: Option<&Value>) -> Result<Vec<(String, Value)>, String> {
    const FORM: &str =
        r#"write a JSON object of tool names and weights, such as "{\"<tool>\": 80}", or "{}""#;
    match calls {
        None | Some(Value::Null) => Err(format!("lacks calls; {FORM}")),
        Some(Value::String(text)) => match bounded::from_str(text) {
            Ok(Pairs(pairs)) => Ok(pairs),
            Err(error) if error.is_data() => Err(format!("calls holds no JSON object; {FORM}")),
            Err(error) => Err(format!("calls is not JSON ({error}); {FORM}")),
        },
        // One layer of quotes is missing and nothing is unclear.
        Some(Value::Object(object)) => Ok(object.clone().into_iter().collect()),
        Some(_) => Err(format!("calls must be a string; {FORM}")),
    }
}

struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Pairs;

            fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// Each once, quoted, and how many more there are.
pub(super) fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    let mut seen = HashSet::new();
    let mut names: Vec<String> = all
        .filter(|name| seen.insert(*name))
        .map(|name| format!("{name:?}"))
        .collect();
    if names.len() > MAX_NAMES {
        let more = names.len() - MAX_NAMES;
        names.truncate(MAX_NAMES);
        names.push(format!("and {more} more"));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    const TOOLS: [&str; 2] = ["a.read", "a.write"];

    #[test]
    fn votes_that_count_and_faults_that_say_what_to_write() {
        // `calls` of one advisor, the weights that count, and the faults.
        for (calls, counted, faults) in [
            (json!("{}"), vec![], vec![]),
            (json!({"a.read": 5}), vec![("a.read", 5.0)], vec![]),
            (
                json!("{\"a.read\": 100, \"a.write\": -0}"),
                vec![("a.read", 100.0), ("a.write", 0.0)],
                vec![],
            ),
            (json!(null), vec![], vec!["lacks calls"]),
            (json!(7), vec![], vec!["calls must be a string"]),
            (json!(["a.read"]), vec![], vec!["calls must be a string"]),
            (json!(""), vec![], vec!["calls is not JSON"]),
            (json!("read: 7"), vec![], vec!["calls is not JSON"]),
            (
                json!("{\"a.read\": 5} yes"),
                vec![],
                vec!["calls is not JSON"],
            ),
            (
                json!("{\"a.read\": 1e999}"),
                vec![],
                vec!["calls is not JSON"],
            ),
            (json!("[\"a.read\"]"), vec![], vec!["holds no JSON object"]),
            (json!("5"), vec![], vec!["holds no JSON object"]),
            (
                json!("{\"a.read\": 101, \"a.write\": 3}"),
                vec![("a.write", 3.0)],
                vec!["\"a.read\" the weight 101; write a number from 0 to 100"],
            ),
            (json!("{\"a.read\": -1}"), vec![], vec!["the weight -1;"]),
            (
                json!("{\"a.read\": \"80\"}"),
                vec![],
                vec!["the weight \"80\";"],
            ),
            (
                json!("{\"a.read\": null}"),
                vec![],
                vec!["the weight null;"],
            ),
            (
                json!("{\"a.read\": 10, \"a.read\": 90, \"a.write\": 1}"),
                vec![("a.write", 1.0)],
                vec!["weighs \"a.read\" 2 times"],
            ),
            (
                json!("{\"rm\": 10, \"a.read\": 9, \"mv\": 1}"),
                vec![("a.read", 9.0)],
                vec!["do not exist: \"rm\", \"mv\"; the tools are \"a.read\", \"a.write\""],
            ),
            (
                json!("{\"rm\": 10, \"a.read\": 900}"),
                vec![],
                vec!["the weight 900", "do not exist: \"rm\""],
            ),
        ] {
            let (votes, reasons) = votes(Some(&calls), &TOOLS);
            let got: Vec<_> = votes
                .iter()
                .map(|vote| (vote.tool.as_str(), vote.weight))
                .collect();
            assert_eq!(got, counted, "{calls}");
            assert!(
                got.iter().all(|(_, weight)| weight.is_sign_positive()),
                "{calls}"
            );
            assert_eq!(reasons.len(), faults.len(), "{calls}: {reasons:?}");
            for (reason, expect) in reasons.iter().zip(faults) {
                assert!(reason.contains(expect), "{calls}: {reason}");
            }
        }
    }

    #[test]
    fn nothing_is_no_empty_vote() {
        let (_, reasons) = votes(None, &TOOLS);
        assert!(reasons[0].starts_with("lacks calls"), "{reasons:?}");
        let (_, reasons) = votes(Some(&json!("{\"x\": 1}")), &[]);
        assert!(
            reasons[0].contains("there are no tools, so write {}"),
            "{reasons:?}"
        );
    }

    #[test]
    fn a_list_of_names_is_cut_and_says_so() {
        let many: Vec<String> = (0..25).map(|n| format!("t{n}")).collect();
        let text = names(many.iter().map(String::as_str).chain(["t0"]));
        assert!(text.starts_with("\"t0\", \"t1\""), "{text}");
        assert!(text.ends_with("\"t19\", and 5 more"), "{text}");
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "\\PC{0,32}|[{]\"(a.read|x)\":[-0-9.e\"]{0,6}(,\"a.read\":[0-9]{1,3})?[}]") {
            let (votes, reasons) = votes(Some(&Value::from(text.clone())), &TOOLS);
            let empty = text.split_whitespace().collect::<String>() == "{}";
            prop_assert!(empty || !votes.is_empty() || !reasons.is_empty());
            for vote in votes {
                prop_assert!(WEIGHTS.contains(&vote.weight) && TOOLS.contains(&vote.tool.as_str()));
            }
        }
    }
}
