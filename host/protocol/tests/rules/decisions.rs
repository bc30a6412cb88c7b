//! Which calls wait for a person, and what a decision is bound to.

use serde_json::{Value, json};
use toolhold_protocol::decision::{DecisionRules, Pending};
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::Annotations;

#[test]
fn which_calls_wait() {
    let reads = Annotations {
        read_only: true,
        ..Annotations::default()
    };
    let writes = Annotations::default();
    let policy: DecisionRules = serde_json::from_value(json!({
        "default": "on-write",
        "tools": {"files": "always", "files.list": "never"},
    }))
    .unwrap();
    for (rule, tool, annotations, waits) in [
        ("7.7", "text.count", reads, false),
        ("7.7", "text.count", writes, true),
        ("7.7", "files.read", reads, true),
        ("7.7", "files.list", writes, false),
    ] {
        assert_eq!(policy.apply_to(tool, annotations), waits, "{rule}: {tool}");
    }
    let unset = DecisionRules::default();
    assert!(!unset.apply_to("files.write", writes));
}

#[test]
fn no_other_name_takes_a_tool_out_of_a_rule() {
    let writes = Annotations::default();
    let policy: DecisionRules = serde_json::from_value(json!({
        "default": "never",
        "tools": {"files": "always", "files.list": "never", "note": "never"},
    }))
    .unwrap();
    for (rule, own, waits) in [
        ("3.5", "files.write", true),
        ("3.5", "files@1.2.write", true),
        ("3.5", "files@1.2.list", false),
        ("3.5", "text.count", false),
    ] {
        let names = ["note", own];
        assert_eq!(policy.apply_to_any(&names, writes), waits, "{rule}: {own}");
    }
}

#[test]
fn a_decision_is_bound_to_what_would_run() {
    let of = |id: &str, instance: Option<&str>, arguments: Value| {
        let call = Call {
            id: id.into(),
            tool: "t".into(),
            instance: instance.map(str::to_owned),
            ..Call::default()
        };
        Pending::new(call, arguments, Annotations::default()).digest
    };
    let shown = of("c", None, json!({"a": 1, "b": 2}));
    for (rule, other, is_same) in [
        ("7.7", of("c", None, json!({"b": 2, "a": 1})), true),
        ("7.7", of("c", None, json!({"a": 1, "b": 3})), false),
        ("7.7", of("c", Some("i"), json!({"a": 1, "b": 2})), false),
        ("7.7", of("d", None, json!({"a": 1, "b": 2})), false),
    ] {
        assert_eq!(other == shown, is_same, "{rule}");
    }
}
