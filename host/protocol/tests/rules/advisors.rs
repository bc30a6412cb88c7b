//! Section 10: advisors, who takes part, and what comes of their votes.

use serde_json::{Map, Value, json};
use toolhold_protocol::advisor::{
    Advisor, Council, DueOpinion, Moment, Opinion, Vote, consult_tool, latest, schema, seats,
    taking_part,
};

fn advisor(value: Value) -> Advisor {
    serde_json::from_value(value).unwrap()
}

fn advisors(value: Value) -> Vec<Advisor> {
    serde_json::from_value(value).unwrap()
}

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
fn each_moment_has_its_advisors() {
    let all = advisors(json!([
        {"id": "s", "role": "r", "on": "start"},
        {"id": "f", "role": "r", "on": "finish"},
        {"id": "r", "role": "r", "on": "request"},
        {"id": "n", "role": "r", "on": null},
    ]));
    for (rule, first, finishing, expect) in [
        ("10.2", true, false, "s r"),
        ("10.2", false, false, "r"),
        ("10.2", false, true, "f r"),
        ("10.2", true, true, "s f r"),
    ] {
        let present = taking_part(&all, Moment { first, finishing });
        let ids: Vec<_> = present.iter().map(|a| a.id.as_str()).collect();
        assert_eq!(
            ids.join(" "),
            expect,
            "{rule}: first {first}, finishing {finishing}"
        );
    }
}

#[test]
fn of_two_definitions_the_last_one_holds() {
    let rule = "2.5";
    let all = advisors(json!([
        {"id": "a", "role": "old", "on": "request"},
        {"id": "b", "role": "r", "on": "request"},
        {"id": "a", "role": "new", "on": null},
    ]));
    let roles: Vec<_> = latest(&all).iter().map(|a| a.role.as_str()).collect();
    assert_eq!(roles, ["r", "new"], "{rule}");
    let present = taking_part(&all, Moment::default());
    assert_eq!(present, [&all[1]], "{rule}");
}

#[test]
fn an_instanced_advisor_speaks_once_for_each_instance() {
    let all = advisors(json!([
        {"id": "a", "role": "r", "isInstanced": true},
        {"id": "b", "role": "r"},
    ]));
    let all: Vec<_> = all.iter().collect();
    for (rule, instances, meant) in [
        ("10.3", vec!["x", "y"], vec!["a/x", "a/y", "b/-"]),
        ("10.3", vec![], vec!["a/-", "b/-"]),
    ] {
        let instances: Vec<_> = instances.into_iter().map(str::to_owned).collect();
        let seats = seats(&all, &instances);
        let named =
            |seat: &DueOpinion<'_>| format!("{}/{}", seat.advisor.id, seat.instance.unwrap_or("-"));
        let named: Vec<_> = seats.iter().map(named).collect();
        assert_eq!(named, meant, "{rule}");
        let asked = schema(&all, &instances);
        assert_eq!(asked["minItems"], json!(named.len()), "{rule}: {asked}");
    }
}

/// Votes are added up; what is no vote is told and does not count.
#[test]
fn votes_are_a_string_of_json_from_tool_to_weight() {
    let all = advisors(json!([{"id": "a", "role": "r"}]));
    let expected = [DueOpinion {
        advisor: &all[0],
        instance: None,
    }];
    for (rule, calls, sum, fault) in [
        ("10.3", json!("{\"add\": 80}"), 80.0, None),
        ("10.3", json!("{}"), 0.0, None),
        ("10.3", json!("{\"add\": 0.5}"), 0.5, None),
        ("10.3", json!("add"), 0.0, Some("calls is not JSON")),
        ("10.3", json!(["add"]), 0.0, Some("must be a string")),
        ("10.3", Value::Null, 0.0, Some("lacks calls")),
        (
            "10.4",
            json!("{\"add\": 10, \"sub\": 90}"),
            10.0,
            Some("tools that do not exist: \"sub\""),
        ),
        ("10.4", json!("{\"add\": 101}"), 0.0, Some("from 0 to 100")),
        ("10.4", json!("{\"add\": -1}"), 0.0, Some("from 0 to 100")),
        (
            "10.4",
            json!("{\"add\": 1, \"add\": 2}"),
            0.0,
            Some("2 times"),
        ),
    ] {
        let said = json!([{"id": "a", "opinion": "o", "calls": calls}]);
        let council = Council::read(&said, &expected, &["add"]);
        let got = council.tally(None).sum("add");
        assert!((got - sum).abs() < 1e-9, "{rule}: {calls}: {got}");
        let faults: Vec<_> = council.faults.iter().map(|fault| &fault.reason).collect();
        match fault {
            None => assert!(faults.is_empty(), "{rule}: {calls}: {faults:?}"),
            Some(part) => assert!(
                faults.len() == 1 && faults[0].contains(part),
                "{rule}: {calls}: {faults:?}"
            ),
        }
    }
}

#[test]
fn only_advisors_on_demand_can_be_consulted() {
    let all = advisors(json!([
        {"id": "plain", "role": "Speaks.", "on": "request"},
        {"id": "risk", "role": "Weighs risks.", "on": null},
    ]));
    assert_eq!(consult_tool(&all[..1]), None);
    let tool = consult_tool(&all).unwrap();
    assert_eq!(tool.name, "ConsultAdvisor");
    assert!(
        tool.description.ends_with("\n- risk: Weighs risks."),
        "{}",
        tool.description
    );
    let validator = jsonschema::validator_for(&tool.parameters).unwrap();
    for (rule, call, fits) in [
        ("10.2", json!({"id": "risk", "question": "?"}), true),
        ("10.2", json!({"id": "plain", "question": "?"}), false),
        ("10.2", json!({"id": "risk", "question": ""}), false),
        ("10.2", json!({"id": "risk"}), false),
    ] {
        assert_eq!(validator.is_valid(&call), fits, "{rule}: {call}");
    }
}

#[test]
fn usable_definitions_pass() {
    for (rule, id, schema) in [
        ("10.1", "a", Value::Null),
        ("10.1", "größe_2-x", Value::Null),
        (
            "10.1",
            "a",
            json!({"type": "object", "properties": {"risk": {"type": "integer"}}, "required": ["risk"]}),
        ),
        (
            "10.1",
            "a",
            json!({"properties": {"risk": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"type": "integer"}}}),
        ),
        // Votes alone.
        ("10.1", "a", json!({"type": "object", "properties": {}})),
    ] {
        let value = json!({"id": id, "role": "r", "schema": schema});
        assert_eq!(advisor(value.clone()).check(), Ok(()), "{rule}: {value}");
    }
}

#[test]
fn every_fault_names_the_place_and_the_remedy() {
    for (rule, value, expect) in [
        ("10.1", json!({"id": "", "role": "r"}), "id must be a name"),
        (
            "10.1",
            json!({"id": "a b", "role": "r"}),
            "id must be a name",
        ),
        (
            "10.1",
            json!({"id": "a.b", "role": "r"}),
            "id must be a name",
        ),
        ("10.1", json!({"id": "a", "role": " \n"}), "role is empty"),
        (
            "10.1",
            json!({"id": "a", "role": "r", "schema": true}),
            "type object",
        ),
        (
            "10.1",
            json!({"id": "a", "role": "r", "schema": {}}),
            "under properties",
        ),
        (
            "10.1",
            json!({"id": "a", "role": "r", "schema": {"type": "object"}}),
            "under properties",
        ),
        (
            "10.1",
            json!({"id": "a", "role": "r", "schema": {"type": "string", "properties": {}}}),
            "type object",
        ),
        (
            "10.1",
            json!({"id": "a", "role": "r", "schema": {"properties": {"x": {}, "calls": {}}}}),
            "schema/properties/calls",
        ),
        (
            "10.1",
            json!({"id": "a", "role": "r", "schema": {"properties": {"id": {}}}}),
            "schema/properties/id",
        ),
        (
            "10.1",
            json!({"id": "a", "role": "r", "schema": {"properties": {"_instance": {}}}}),
            "rename the field",
        ),
        (
            "10.1",
            json!({"id": "a", "role": "r", "schema": {"properties": {"x": {}}, "required": ["x", "y"]}}),
            "schema/required names \"y\"",
        ),
        (
            "10.1",
            json!({"id": "a", "role": "r", "schema": {"properties": {"x": {"type": "strnig"}}}}),
            "correct its schema: it is no JSON Schema",
        ),
        (
            "10.1",
            json!({"id": "a", "role": "r", "schema": {"properties": {"x": {"$ref": "http://127.0.0.1:9/x"}}}}),
            "nothing is fetched",
        ),
    ] {
        let error = advisor(value.clone()).check().unwrap_err().to_string();
        assert!(error.contains(expect), "{rule}: {value} gave {error}");
        assert!(error.starts_with("advisor \""), "{rule}: {error}");
    }
}

#[test]
fn a_decision_against_the_votes_is_flagged() {
    let plain = council(&[
        ("p", None, &[("a", 70.0), ("b", 40.0), ("c", 70.0)]),
        ("q", None, &[("b", 10.0)]),
    ]);
    let instanced = council(&[
        ("p", Some("x"), &[("a", 9.0)]),
        ("p", Some("y"), &[("b", 8.0), ("a", 1.5)]),
    ]);
    let silent = council(&[("p", None, &[])]);
    let (x, y) = (Some("x"), Some("y"));
    for (rule, council, calls, expect) in [
        ("10.4", &plain, vec![], None),
        ("10.4", &plain, vec![("a", None)], None),
        ("10.4", &plain, vec![("b", None), ("c", None)], None),
        (
            "10.4",
            &plain,
            vec![("b", None)],
            Some(
                "the call of \"b\" goes against the advisors: it got 50, and \"a\" and \"c\" got 70 each",
            ),
        ),
        (
            "10.4",
            &plain,
            vec![("d", None), ("b", None)],
            Some(
                "the call of \"b\" goes against the advisors: it got 50, and \"a\" and \"c\" got 70 each",
            ),
        ),
        (
            "10.4",
            &plain,
            vec![("d", None)],
            Some(
                "the call of \"d\" goes against the advisors: it got 0, and \"a\" and \"c\" got 70 each",
            ),
        ),
        ("10.4", &plain, vec![("ConsultAdvisor", None)], None),
        ("10.4", &silent, vec![("d", None)], None),
        ("10.4", &instanced, vec![("a", x), ("b", y)], None),
        // It works on the data of all instances.
        (
            "10.4",
            &instanced,
            vec![("b", None)],
            Some("the call of \"b\" goes against the advisors: it got 8, and \"a\" got 10.5"),
        ),
        (
            "10.4",
            &instanced,
            vec![("a", y), ("a", x)],
            Some(
                "in instance \"y\" the call of \"a\" goes against the advisors: it got 1.5, and \"b\" got 8",
            ),
        ),
        (
            "10.4",
            &instanced,
            vec![("a", y), ("b", x)],
            Some(
                "in instance \"y\" the call of \"a\" goes against the advisors: it got 1.5, and \"b\" got 8; \
                 in instance \"x\" the call of \"b\" goes against the advisors: it got 0, and \"a\" got 9",
            ),
        ),
    ] {
        let dissent = council.dissent(&calls);
        let sentence = dissent.as_ref().map(|dissent| dissent.sentence.as_str());
        assert_eq!(sentence, expect, "{rule}: {calls:?}");
    }
}

#[test]
fn a_single_call_is_held_against_the_sums_and_many_sums_are_cut() {
    let council = council(&[
        ("p", None, &[("a", 70.0), ("b", 40.0)]),
        ("q", Some("x"), &[("b", 50.5)]),
    ]);
    for (tool, instance, is_against) in [
        // Of all instances together, "b" got 90.5.
        ("a", None, true),
        ("b", None, false),
        ("none", None, true),
        ("a", Some("x"), true),
        ("b", Some("x"), false),
        ("b", Some("y"), true),
    ] {
        let found = council.against(tool, instance).is_some();
        assert_eq!(found, is_against, "10.4: {tool} {instance:?}");
    }
    assert_eq!(council.tally(Some("x")).sums(), "\"b\" 90.5, \"a\" 70");
    let names: Vec<String> = (0..30).map(|n| format!("t{n:02}")).collect();
    let votes: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
    let many = self::council(&[("p", None, &votes)]);
    let sums = many.tally(None).sums();
    assert!(sums.ends_with("\"t19\" 1 and 10 more"), "{sums}");
    assert_eq!(self::council(&[]).tally(None).sums(), "none");
    assert!(self::council(&[]).against("a", None).is_none());
}
