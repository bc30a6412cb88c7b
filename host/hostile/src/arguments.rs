//! Row 25: the arguments that a model, or a client in its place, passes.

use crate::attack::{Attack, Company};
use crate::components;
use crate::fault::{AttackFailure, ensure};
use crate::lab::Lab;
use crate::liar::{self, Claim, LiarReply};
use serde_json::{Value, json};
use toolhold_policy::{Grant, Limits};

pub const ATTACKS: &[Attack] = &[
    Attack {
        row: 25,
        name: "arguments_too_large",
        attack: "arguments of 50 MB, to both kinds of module",
        must: "arguments; nothing executed",
        company: Company::Others,
        tries: |lab| Box::pin(arguments_too_large(lab)),
    },
    Attack {
        row: 25,
        name: "arguments_of_wrong_shape",
        attack: "wrong types, missing, unknown, prototype-like keys",
        must: "arguments; nothing executed",
        company: Company::Others,
        tries: |lab| Box::pin(arguments_of_wrong_shape(lab)),
    },
    Attack {
        row: 25,
        name: "arguments_as_text",
        attack: "duplicate keys, lone surrogates, 10 000 levels",
        must: "refused, or one meaning",
        company: Company::Others,
        tries: |lab| Box::pin(arguments_as_text(lab)),
    },
];

/// Valid arguments of the guest's `take`.
fn profile() -> Value {
    json!({"name": "Ada", "age": 36, "score": -5, "tags": ["a"], "grade": "x"})
}

async fn arguments_too_large(lab: &Lab) -> Result<String, AttackFailure> {
    // Time is not under test here: an unoptimised host takes seconds to count and to drop them.
    let patient = |l: &mut Limits| l.timeout_ms = lab.times(60_000, 20_000);
    let guest = lab.against_guest(Grant::default(), patient).await?;
    let mut liar = lab.against(components::COMPUTE, patient).await?;
    let bytes = liar::component(&[Claim::named("tell")], &LiarReply::Value("1".into()))?;
    liar.load("liar", bytes).await?;
    let large = "x".repeat(50_000_000);
    let mut named = profile();
    named["name"] = json!(large);
    let mut tagged = profile();
    tagged["tags"] = json!(vec!["x"; 5_000_000]);
    for profile in [named, tagged] {
        let arguments = json!({"profile": profile});
        let report = guest.ends("bad.take", arguments, "arguments").await?;
        ensure(report.usage.fuel == 0, || "the guest was run".into())?;
    }
    let report = liar
        .ends("liar.tell", json!({"text": large}), "arguments")
        .await?;
    ensure(report.usage.fuel == 0, || "the guest was run".into())?;
    Ok("arguments, three times; no guest was run".into())
}

async fn arguments_of_wrong_shape(lab: &Lab) -> Result<String, AttackFailure> {
    let guest = lab.against_guest(Grant::default(), |_| ()).await?;
    let taken = guest
        .value("bad.take", json!({"profile": profile()}))
        .await?;
    ensure(taken == json!(1), || {
        format!("an instance saw {taken} calls")
    })?;

    let with = |key: &str, value: Value| {
        let mut profile = profile();
        profile[key] = value;
        json!({"profile": profile})
    };
    let without = |key: &str| {
        let mut profile = profile();
        profile.as_object_mut().map(|fields| fields.remove(key));
        json!({"profile": profile})
    };
    let mut wrong = vec![
        json!(null),
        json!([]),
        json!("profile"),
        json!({}),
        json!({"profile": null}),
        json!({"profile": []}),
        json!({"profile": profile(), "extra": 1}),
        without("name"),
        without("tags"),
        with("name", json!(7)),
        with("name", json!(null)),
        with("age", json!(-1)),
        with("age", json!(256)),
        with("age", json!(1.5)),
        with("age", json!("36")),
        with("age", json!(true)),
        with("score", json!("9223372036854775808")),
        with("score", json!(1e300)),
        with("score", json!("0x10")),
        with("tags", json!({"0": "a", "length": 1})),
        with("tags", json!([["a"]])),
        with("grade", json!("ab")),
        with("grade", json!("")),
    ];
    for key in ["__proto__", "constructor", "prototype", "toString", ""] {
        wrong.push(with(key, json!({"admin": true})));
    }
    for arguments in &wrong {
        let report = guest
            .ends("bad.take", arguments.clone(), "arguments")
            .await
            .map_err(|fault| AttackFailure::Broke(format!("{arguments}: {fault}")))?;
        ensure(report.usage.fuel == 0, || {
            format!("the guest was run with {arguments}")
        })?;
    }
    Ok(format!(
        "arguments, {} times; no guest was run",
        wrong.len()
    ))
}

/// The text is parsed by the same parser that every interface of the host uses.
async fn arguments_as_text(lab: &Lab) -> Result<String, AttackFailure> {
    let guest = lab.against_guest(Grant::default(), |_| ()).await?;
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    let at_the_limit = "[".repeat(120) + &"]".repeat(120);
    let refused = [
        deep.as_str(),
        r#"{"profile": "\ud800"}"#,
        r#"{"profile": "\udc00\ud800"}"#,
        r#"{"profile": 1e999}"#,
        "{\"profile\": \"\u{1}\"}",
        "{'profile': 1}",
    ];
    for text in refused {
        let parsed: Result<Value, _> = serde_json::from_str(text);
        ensure(parsed.is_err(), || format!("{text:.40} was taken for JSON"))?;
    }
    // As deep as the parser goes: no guest is run, and nothing overflows on the way.
    let nested: Value = serde_json::from_str(&at_the_limit).unwrap_or_default();
    ensure(nested.is_array(), || "120 levels were refused".into())?;
    guest
        .ends("bad.take", json!({"profile": nested}), "arguments")
        .await?;
    // Of two keys the last one counts, for validation and for the guest alike.
    let doubled = r#"{"profile": {"name":"Ada","age":36,"age":999,"score":1,"tags":[]}}"#;
    let doubled: Value = serde_json::from_str(doubled).unwrap_or_default();
    guest.ends("bad.take", doubled, "arguments").await?;
    Ok(format!(
        "{} texts refused; the last of two keys counts",
        refused.len()
    ))
}
