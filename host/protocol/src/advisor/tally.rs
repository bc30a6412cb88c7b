//! The votes added up, and whether a decision follows them.

use crate::advisor::{CONSULT_ADVISOR, Council};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Weights are added in millionths, as integers: the order of the votes can then neither make nor
/// break a tie.
const WEIGHT_UNITS: f64 = 1e6;
/// Maximum tools whose sums a message names.
const MAX_SHOWN_SUMS: usize = 20;

/// The votes for each tool, for one instance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Absent: the votes of advisors that spoke for all instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The tools that got votes, the highest sum first, equal ones by name.
    pub standings: Vec<ToolTally>,
    pub outcome: VoteOutcome,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolTally {
    pub tool: String,
    pub sum: f64,
    /// Number of votes, those with a weight of 0 included.
    pub count: usize,
    pub mean: f64,
    /// The highest weight minus the lowest.
    pub spread: f64,
    /// In the order of the seats.
    pub ballots: Vec<Ballot>,
}

/// One advisor's vote.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ballot {
    pub advisor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    pub weight: f64,
}

/// The result of the votes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum VoteOutcome {
    Winner {
        tool: String,
        sum: f64,
    },
    /// Two or more with the highest sum, by name.
    Tie {
        tools: Vec<String>,
        sum: f64,
    },
    /// No votes, or none above 0.
    #[default]
    Undecided,
}

/// A decision that goes against the aggregate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Dissent {
    /// In the order of the calls' instances; never empty.
    pub against: Vec<DissentingChoice>,
    /// The same in words.
    pub sentence: String,
}

/// One instance's decision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DissentingChoice {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The chosen tool with the highest sum of votes.
    pub chosen: String,
    /// 0 if it has no votes.
    pub sum: f64,
    pub favoured: VoteOutcome,
}

impl Council {
    /// The votes for `instance`: those of the advisors that spoke for it, and of those that spoke
    /// for all, because what is said of all holds for each.
    pub fn tally(&self, instance: Option<&str>) -> Tally {
        self.tally_of(instance, |own| own.is_none() || own == instance)
    }

    /// The votes that a call for `instance` is judged by. A call without an instance works on the data of all, so all
    /// votes count.
    fn call_tally(&self, instance: Option<&str>) -> Tally {
        match instance {
            Some(_) => self.tally(instance),
            None => self.tally_of(None, |_| true),
        }
    }

    fn tally_of(&self, instance: Option<&str>, counts: impl Fn(Option<&str>) -> bool) -> Tally {
        let mut ballots: BTreeMap<&str, Vec<Ballot>> = BTreeMap::new();
        let opinions = self.opinions.iter();
        for opinion in opinions.filter(|opinion| counts(opinion.instance.as_deref())) {
            for vote in &opinion.votes {
                ballots.entry(&vote.tool).or_default().push(Ballot {
                    advisor: opinion.advisor.clone(),
                    instance: opinion.instance.clone(),
                    weight: vote.weight,
                });
            }
        }
        let mut standings: Vec<_> = ballots
            .into_iter()
            .map(|(tool, ballots)| ToolTally::new(tool, ballots))
            .collect();
        // Stable: equal sums stay in the order of names.
        standings.sort_by(|a, b| b.sum.total_cmp(&a.sum));
        Tally {
            instance: instance.map(str::to_owned),
            outcome: VoteOutcome::of(&standings),
            standings,
        }
    }

    /// All tallies for the record: the one of the advisors that spoke for all, if there are any,
    /// and each instance's in the order of the seats.
    pub fn tallies(&self) -> Vec<Tally> {
        let mut instances: Vec<Option<&str>> = Vec::new();
        for opinion in &self.opinions {
            let instance = opinion.instance.as_deref();
            if !instances.contains(&instance) {
                instances.push(instance);
            }
        }
        instances.sort_by_key(Option::is_some);
        instances.into_iter().map(|one| self.tally(one)).collect()
    }

    /// The decision to call `tool`, if another tool has a higher sum, for `instance`.
    pub fn against(&self, tool: &str, instance: Option<&str>) -> Option<DissentingChoice> {
        self.call_tally(instance).against(&[tool])
    }

    /// The sums by which a call for `instance` is judged, in words.
    pub fn sums(&self, instance: Option<&str>) -> String {
        self.call_tally(instance).sums()
    }

    /// Whether no vote counts although the advisors should have voted, and did not say that they have no preference.
    pub fn is_silent(&self) -> bool {
        let mut opinions = self.opinions.iter();
        !self.faults.is_empty() && opinions.all(|opinion| opinion.votes.is_empty())
    }

    /// Whether `calls`, each a tool and its instance, go against the votes: in some instance the
    /// best of the chosen tools has a lower sum than the winner. A tool without votes has the sum
    /// 0. An instance without votes or without calls decides nothing, and to consult an advisor is
    /// no decision.
    pub fn dissent(&self, calls: &[(&str, Option<&str>)]) -> Option<Dissent> {
        let mut chosen: Vec<(Option<&str>, Vec<&str>)> = Vec::new();
        for (tool, instance) in calls.iter().filter(|(tool, _)| *tool != CONSULT_ADVISOR) {
            match chosen.iter_mut().find(|(known, _)| known == instance) {
                Some((_, tools)) => tools.push(tool),
                None => chosen.push((*instance, vec![tool])),
            }
        }
        let against: Vec<_> = chosen
            .iter()
            .filter_map(|(instance, tools)| self.call_tally(*instance).against(tools))
            .collect();
        let sentence = match against.as_slice() {
            [] => return None,
            some => some
                .iter()
                .map(DissentingChoice::words)
                .collect::<Vec<_>>()
                .join("; "),
        };
        Some(Dissent { against, sentence })
    }
}

impl ToolTally {
    fn new(tool: &str, ballots: Vec<Ballot>) -> Self {
        let millionths = |ballot: &Ballot| (ballot.weight * WEIGHT_UNITS).round() as i64;
        let weights = || ballots.iter().map(millionths);
        let of = |millionths: i64| millionths as f64 / WEIGHT_UNITS;
        let sum = weights().fold(0, i64::saturating_add);
        let spread = weights().max().unwrap_or(0) - weights().min().unwrap_or(0);
        Self {
            tool: tool.to_owned(),
            sum: of(sum),
            count: ballots.len(),
            // In whole millionths, too: JSON readers are not at one about the 17th digit.
            mean: (sum as f64 / ballots.len().max(1) as f64).round() / WEIGHT_UNITS,
            spread: of(spread),
            ballots,
        }
    }
}

impl VoteOutcome {
    fn of(standings: &[ToolTally]) -> Self {
        let Some(best) = standings.first().filter(|best| best.sum > 0.0) else {
            return Self::Undecided;
        };
        let sum = best.sum;
        let mut tools: Vec<_> = standings
            .iter()
            .take_while(|standing| standing.sum.total_cmp(&sum).is_eq())
            .map(|standing| standing.tool.clone())
            .collect();
        match tools.len() {
            1 => Self::Winner {
                tool: tools.remove(0),
                sum,
            },
            _ => Self::Tie { tools, sum },
        }
    }

    /// The highest sum.
    pub fn sum(&self) -> Option<f64> {
        match self {
            Self::Winner { sum, .. } | Self::Tie { sum, .. } => Some(*sum),
            Self::Undecided => None,
        }
    }
}

impl Tally {
    /// How the tool stands with the advisors.
    pub fn sum(&self, tool: &str) -> f64 {
        let standing = self.standings.iter().find(|s| s.tool == tool);
        standing.map_or(0.0, |standing| standing.sum)
    }

    /// The sum of each tool, the highest first, in words: of many, those with the highest.
    pub fn sums(&self) -> String {
        let shown = self.standings.iter().take(MAX_SHOWN_SUMS);
        let shown: Vec<String> = shown
            .map(|standing| format!("{:?} {}", standing.tool, standing.sum))
            .collect();
        let more = self.standings.len().saturating_sub(MAX_SHOWN_SUMS);
        match (shown.is_empty(), more) {
            (true, _) => "none".to_owned(),
            (false, 0) => shown.join(", "),
            (false, more) => format!("{} and {more} more", shown.join(", ")),
        }
    }

    fn against(self, tools: &[&str]) -> Option<DissentingChoice> {
        let favoured = self.outcome.sum()?;
        // The first of equals: the model's own order.
        let (chosen, sum) = tools
            .iter()
            .map(|tool| (*tool, self.sum(tool)))
            .reduce(|best, next| if next.1 > best.1 { next } else { best })?;
        (sum < favoured).then(|| DissentingChoice {
            instance: self.instance,
            chosen: chosen.to_owned(),
            sum,
            favoured: self.outcome,
        })
    }
}

impl DissentingChoice {
    /// What goes against what, with the sums of both.
    pub fn words(&self) -> String {
        let place = match &self.instance {
            Some(instance) => format!("in instance {instance:?} "),
            None => String::new(),
        };
        let favoured = match &self.favoured {
            VoteOutcome::Winner { tool, sum } => format!("{tool:?} got {sum}"),
            VoteOutcome::Tie { tools, sum } => {
                let tools: Vec<_> = tools.iter().map(|tool| format!("{tool:?}")).collect();
                format!("{} got {sum} each", tools.join(" and "))
            }
            VoteOutcome::Undecided => "no tool got a vote".to_owned(),
        };
        format!(
            "{place}the call of {:?} goes against the advisors: it got {}, and {favoured}",
            self.chosen, self.sum
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advisor::{Opinion, Vote};
    use proptest::prelude::*;
    use serde_json::{Map, json};

    /// Advisor, instance and votes.
    type AdvisorVotes<'a> = (&'a str, Option<&'a str>, &'a [(&'a str, f64)]);

    fn council(opinions: &[AdvisorVotes<'_>]) -> Council {
        let opinion = |(advisor, instance, votes): &AdvisorVotes<'_>| Opinion {
            advisor: (*advisor).into(),
            instance: instance.map(str::to_owned),
            fields: Map::new(),
            votes: votes
                .iter()
                .map(|(tool, weight)| Vote {
                    tool: (*tool).into(),
                    weight: *weight,
                })
                .collect(),
        };
        Council {
            opinions: opinions.iter().map(opinion).collect(),
            faults: Vec::new(),
        }
    }

    #[test]
    fn the_record_says_who_voted_what() {
        let council = council(&[
            ("p", None, &[("read", 80.0), ("write", 20.0)]),
            ("q", None, &[("write", 50.0)]),
        ]);
        assert_eq!(
            serde_json::to_value(council.tallies()).unwrap(),
            json!([{
                "standings": [
                    {
                        "tool": "read", "sum": 80.0, "count": 1, "mean": 80.0, "spread": 0.0,
                        "ballots": [{"advisor": "p", "weight": 80.0}],
                    },
                    {
                        "tool": "write", "sum": 70.0, "count": 2, "mean": 35.0, "spread": 30.0,
                        "ballots": [{"advisor": "p", "weight": 20.0}, {"advisor": "q", "weight": 50.0}],
                    },
                ],
                "outcome": {"result": "winner", "tool": "read", "sum": 80.0},
            }])
        );
    }

    #[test]
    fn outcomes() {
        let winner = |tool: &str, sum| VoteOutcome::Winner {
            tool: tool.into(),
            sum,
        };
        let one: &[(&str, f64)] = &[("b", 10.0), ("a", 10.0), ("c", 5.0)];
        for (council, expect) in [
            (council(&[]), VoteOutcome::Undecided),
            (council(&[("p", None, &[])]), VoteOutcome::Undecided),
            (
                council(&[("p", None, &[("a", 0.0)])]),
                VoteOutcome::Undecided,
            ),
            (
                council(&[("p", None, &[("a", 1.0), ("b", 2.0)])]),
                winner("b", 2.0),
            ),
            (
                council(&[("p", None, one)]),
                VoteOutcome::Tie {
                    tools: vec!["a".into(), "b".into()],
                    sum: 10.0,
                },
            ),
            // 0.1 + 0.2 is 0.3 here.
            (
                council(&[
                    ("p", None, &[("a", 0.1), ("b", 0.3)]),
                    ("q", None, &[("a", 0.2)]),
                ]),
                VoteOutcome::Tie {
                    tools: vec!["a".into(), "b".into()],
                    sum: 0.3,
                },
            ),
        ] {
            assert_eq!(council.tally(None).outcome, expect, "{council:?}");
        }
    }

    #[test]
    fn votes_for_all_count_for_each_instance() {
        let council = council(&[
            ("i", Some("y"), &[("a", 5.0)]),
            ("i", Some("x"), &[("b", 7.0)]),
            ("g", None, &[("a", 6.0)]),
        ]);
        let sums: Vec<_> = council
            .tallies()
            .into_iter()
            .map(|tally| (tally.instance.clone(), tally.sum("a"), tally.sum("b")))
            .collect();
        assert_eq!(
            sums,
            [
                (None, 6.0, 0.0),
                (Some("y".into()), 11.0, 0.0),
                (Some("x".into()), 6.0, 7.0)
            ]
        );
        // An instance that no advisor spoke for.
        assert_eq!(
            council.tally(Some("z")).outcome,
            council.tally(None).outcome
        );
    }

    #[test]
    fn a_call_for_all_instances_is_judged_by_all_votes() {
        let council = council(&[
            ("i", Some("x"), &[("a", 5.0), ("b", 1.0)]),
            ("i", Some("y"), &[("a", 4.0)]),
        ]);
        let against = council.against("b", None).unwrap();
        assert_eq!((against.sum, against.favoured.sum()), (1.0, Some(9.0)));
        assert_eq!(council.against("a", None), None);
        assert_eq!(council.dissent(&[("b", None)]).unwrap().against, [against]);
        assert_eq!(council.sums(None), "\"a\" 9, \"b\" 1");
        // The record has the sums of those who spoke for all on their own.
        assert!(
            council
                .tallies()
                .iter()
                .all(|tally| tally.instance.is_some())
        );
    }

    #[test]
    fn a_dissent_is_kept_in_the_record() {
        let council = council(&[("p", None, &[("a", 2.0)])]);
        let dissent = council.dissent(&[("b", None)]).unwrap();
        let value = serde_json::to_value(&dissent).unwrap();
        assert_eq!(
            value["against"],
            json!([{"chosen": "b", "sum": 0.0, "favoured": {"result": "winner", "tool": "a", "sum": 2.0}}])
        );
        assert_eq!(serde_json::from_value::<Dissent>(value).unwrap(), dissent);
    }

    proptest! {
        #[test]
        fn sums_are_those_of_a_naive_count(
            votes in prop::collection::vec((0usize..4, 0usize..3, 0u8..=100), 0..40),
            asked in 0usize..3,
        ) {
            const TOOLS: [&str; 4] = ["a", "b", "c", "d"];
            const INSTANCES: [Option<&str>; 3] = [None, Some("x"), Some("y")];
            let council = Council {
                opinions: votes
                    .iter()
                    .map(|(tool, instance, weight)| Opinion {
                        advisor: "p".into(),
                        instance: INSTANCES[*instance].map(str::to_owned),
                        fields: Map::new(),
                        votes: vec![Vote { tool: TOOLS[*tool].into(), weight: f64::from(*weight) }],
                    })
                    .collect(),
                faults: Vec::new(),
            };
            let tally = council.tally(INSTANCES[asked]);
            let mut best = 0;
            for (at, tool) in TOOLS.iter().enumerate() {
                let own: Vec<u32> = votes
                    .iter()
                    .filter(|(tool, instance, _)| *tool == at && (*instance == 0 || *instance == asked))
                    .map(|(_, _, weight)| u32::from(*weight))
                    .collect();
                let sum: u32 = own.iter().sum();
                best = best.max(sum);
                prop_assert!((tally.sum(tool) - f64::from(sum)).abs() < 1e-9);
                let standing = tally.standings.iter().find(|s| s.tool == *tool);
                prop_assert_eq!(standing.map_or(0, |s| s.count), own.len());
                if let Some(standing) = standing {
                    prop_assert!((standing.mean - f64::from(sum) / own.len() as f64).abs() < 1e-6);
                    let spread = own.iter().max().unwrap() - own.iter().min().unwrap();
                    prop_assert!((standing.spread - f64::from(spread)).abs() < 1e-9);
                }
                // Flagged exactly if another tool has more; without an instance all votes count.
                let dissent = council.dissent(&[(tool, INSTANCES[asked])]);
                let counted = |of: usize| -> u32 {
                    let counts = |instance: usize| asked == 0 || instance == 0 || instance == asked;
                    let own = votes.iter().filter(|(tool, instance, _)| *tool == of && counts(*instance));
                    own.map(|(_, _, weight)| u32::from(*weight)).sum()
                };
                let most = (0..TOOLS.len()).map(counted).max().unwrap_or(0);
                prop_assert_eq!(dissent.is_some(), counted(at) < most);
            }
            prop_assert!((tally.outcome.sum().unwrap_or(0.0) - f64::from(best)).abs() < 1e-9);
            let order: Vec<_> = tally.standings.iter().map(|s| (-s.sum, s.tool.clone())).collect();
            prop_assert!(order.is_sorted_by(|a, b| a.partial_cmp(b).is_some_and(std::cmp::Ordering::is_le)));
        }
    }
}
