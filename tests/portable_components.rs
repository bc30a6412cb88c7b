//! Components built for other hosts (`tests/components`): a WIT of their own with typed exports, and
//! nothing in them that knows of Toolhold. They run unchanged.

use serde_json::{Value, json};
use support::sandbox::{call, kind, registry, repository};
use toolhold_needs::is_built;
use toolhold_policy::Output;
use toolhold_sandbox::{ModuleKind, Policy, Registry};

/// None, said aloud, if the component is one that is not committed and was not built.
async fn foreign(name: &str) -> Option<Registry> {
    let folder = repository().join("tests/components");
    if !is_built(&repository(), &format!("tests/components/{name}")) {
        return None;
    }
    let registry = registry(Policy::default());
    let only = [name.to_owned()];
    registry
        .load_folder(&folder, Some(&only), &|_| ())
        .await
        .expect("the folder is there");
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());
    let module = registry.module(name).expect("loaded");
    assert_eq!(module.kind, ModuleKind::TypedExports);
    assert!(module.refused.is_empty(), "{:?}", module.refused);
    Some(registry)
}

async fn answer(registry: &Registry, tool: &str, arguments: Value) -> Value {
    match call(registry, tool, arguments.clone()).await.result {
        Ok(Output::Value(value)) => value,
        other => panic!("{tool} {arguments} gave {other:?}"),
    }
}

#[tokio::test]
async fn a_unit_converter_in_c_with_records_enums_and_variants() {
    let Some(registry) = foreign("units").await else {
        return;
    };
    let converted = answer(
        &registry,
        "units.to",
        json!({"quantity": {"value": 1.5, "unit": "mile"}, "target": "metre"}),
    )
    .await;
    assert_eq!(converted, json!({"value": 2414.016, "unit": "metre"}));
    let sum = json!({"quantities": [{"value": 1.0, "unit": "kilogram"}, {"value": 500.0, "unit": "gram"}]});
    assert_eq!(
        answer(&registry, "units.sum", sum).await,
        json!({"value": 1.5, "unit": "kilogram"})
    );
    assert_eq!(
        answer(&registry, "units.sum", json!({"quantities": []})).await,
        Value::Null
    );
    let shown = json!({"quantity": {"value": 36.6, "unit": "celsius"}, "decimals": 1});
    assert_eq!(
        answer(&registry, "units.show", shown).await,
        json!("36.6 °C")
    );
    for (quantity, target, problem) in [
        (
            json!({"value": 1.0, "unit": "inch"}),
            "gram",
            "incompatible",
        ),
        (
            json!({"value": -1.0, "unit": "kelvin"}),
            "celsius",
            "impossible",
        ),
    ] {
        let report = call(
            &registry,
            "units.to",
            json!({"quantity": quantity, "target": target}),
        )
        .await;
        assert_eq!(kind(&report), "tool");
        let error = report.result.expect_err("a problem").to_string();
        assert!(error.contains(problem), "{error}");
    }
    let wrong = json!({"quantity": {"value": 1.0, "unit": "furlong"}, "target": "metre"});
    assert_eq!(kind(&call(&registry, "units.to", wrong).await), "arguments");
}

#[tokio::test]
async fn a_time_server_in_c_that_asks_the_hosts_clock() {
    let Some(registry) = foreign("clock").await else {
        return;
    };
    let before = unix_now();
    let now = answer(&registry, "clock.now", json!({})).await;
    let read = answer(&registry, "clock.to_unix", json!({"at": now})).await;
    let read = read.as_i64().or_else(|| read.as_str()?.parse().ok());
    let read = read.expect("seconds");
    assert!((before..=unix_now()).contains(&read), "{before} {read}");

    let leap_day =
        json!({"year": 2028, "month": 2, "day": 28, "hour": 23, "minute": 59, "second": 59});
    let next = answer(
        &registry,
        "clock.add_seconds",
        json!({"at": leap_day, "seconds": 1}),
    )
    .await;
    assert_eq!((&next["month"], &next["day"]), (&json!(2), &json!(29)));
    for (style, expected) in [
        ("iso8601", "2028-02-29T00:00:00Z"),
        ("rfc2822", "Tue, 29 Feb 2028 00:00:00 +0000"),
        ("date", "2028-02-29"),
    ] {
        let told = answer(
            &registry,
            "clock.format",
            json!({"at": next, "style": style}),
        )
        .await;
        assert_eq!(told, json!(expected));
    }
    let about = json!({"at": next, "parts": ["weekday", "leap-year"]});
    assert_eq!(
        answer(&registry, "clock.about", about).await,
        json!({"weekday": "Tuesday", "day-of-year": null, "leap-year": true})
    );
    let none =
        json!({"at": {"year": 2027, "month": 2, "day": 29, "hour": 0, "minute": 0, "second": 0}});
    let report = call(&registry, "clock.to_unix", none).await;
    let error = report.result.expect_err("no such day").to_string();
    assert!(error.contains("no such time"), "{error}");
}

fn unix_now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("after 1970")
        .as_secs()
        .try_into()
        .expect("small")
}
