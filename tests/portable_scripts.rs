//! Components in Python and JavaScript that were written for any host: worlds of their own, typed
//! exports, nothing of Toolhold in them. They run unchanged, with what was granted and nothing else.

use serde_json::{Value, json};
use support::sandbox::{call, kind, registry, repository};
use toolhold_needs::is_built;
use toolhold_policy::{Access, DirectoryGrant, Grant, Output};
use toolhold_sandbox::{ModuleKind, ModulePolicy, Policy, Registry};

/// The component with a grant; nothing where it is not built.
async fn foreign(name: &str, grant: Grant) -> Option<Registry> {
    let folder = repository().join("tests/components");
    if !is_built(&repository(), &format!("tests/components/{name}")) {
        return None;
    }
    let mut policy = Policy::default();
    let module = ModulePolicy {
        grant,
        ..ModulePolicy::default()
    };
    policy.modules.insert(name.to_owned(), module);
    let registry = registry(policy);
    registry
        .load_folder(&folder, Some(&[name.to_owned()]), &|_| ())
        .await
        .expect("the folder is there");
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());
    let init = format!("{name}.init");
    assert!(
        registry.tool(&init).is_none(),
        "the runtime's own door is no tool"
    );
    assert_eq!(
        registry.module(name).expect("loaded").kind,
        ModuleKind::TypedExports
    );
    Some(registry)
}

async fn value(registry: &Registry, tool: &str, arguments: Value) -> Value {
    match call(registry, tool, arguments.clone()).await.result {
        Ok(Output::Value(value)) => value,
        other => panic!("{tool} {arguments} gave {other:?}"),
    }
}

#[tokio::test]
async fn a_walker_in_python_sees_the_granted_directory() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir_all(folder.path().join("a/b")).expect("folders");
    std::fs::write(folder.path().join("a/x.txt"), "12345").expect("a file");
    std::fs::write(folder.path().join("a/b/y.md"), "1").expect("a file");
    let directories = vec![DirectoryGrant {
        host: folder.path().to_owned(),
        guest: "/data".into(),
        access: Access::Read,
        quota_bytes: None,
    }];
    let grant = Grant {
        directories,
        ..Grant::default()
    };
    let Some(registry) = foreign("walker", grant).await else {
        return;
    };
    let options = |depth: u32, suffix: Value| json!({ "root": "/data", "options": { "max-depth": depth, "suffix": suffix } });
    let listed = value(&registry, "walker.walk", options(9, json!(null))).await;
    let kinds: Vec<_> = listed
        .as_array()
        .expect("a list")
        .iter()
        .map(|entry| {
            (
                entry["path"].as_str().expect("a path"),
                entry["kind"].clone(),
            )
        })
        .collect();
    assert_eq!(
        kinds,
        [
            ("/data/a", json!("directory")),
            ("/data/a/b", json!("directory")),
            ("/data/a/b/y.md", json!({ "file": 1 })),
            ("/data/a/x.txt", json!({ "file": 5 })),
        ]
    );
    let shallow = value(&registry, "walker.walk", options(1, json!(null))).await;
    assert_eq!(shallow.as_array().map(Vec::len), Some(1));
    let suffix = value(&registry, "walker.walk", options(9, json!(".md"))).await;
    assert_eq!(suffix[0]["path"], json!("/data/a/b/y.md"));
    let largest = json!({ "root": "/data", "order": "by-size", "count": 1 });
    assert_eq!(
        value(&registry, "walker.largest", largest).await,
        json!([["/data/a/x.txt", 5]])
    );
    for root in ["/", "/etc", "/data/../..", "/data/nothing"] {
        let report = call(
            &registry,
            "walker.walk",
            json!({ "root": root, "options": { "max-depth": 1, "suffix": null } }),
        )
        .await;
        assert_eq!(kind(&report), "tool", "{root}: {:?}", report.result);
    }
}

#[tokio::test]
async fn a_walker_without_a_grant_sees_nothing() {
    let Some(registry) = foreign("walker", Grant::default()).await else {
        return;
    };
    for root in ["/", ".", "/data", "/proc/self"] {
        let arguments = json!({ "root": root, "options": { "max-depth": 1, "suffix": null } });
        let report = call(&registry, "walker.walk", arguments).await;
        assert_eq!(kind(&report), "tool", "{root}: {:?}", report.result);
    }
}

#[tokio::test]
async fn a_ledger_in_javascript_takes_records_variants_and_flags() {
    let Some(registry) = foreign("ledger", Grant::default()).await else {
        return;
    };
    let income =
        |minor: i64, currency: &str| json!({ "income": { "minor": minor, "currency": currency } });
    let expense = json!({ "expense": [{ "minor": 120, "currency": "eur" }, "tea"] });
    let lines = json!([income(500, "eur"), { "note": "rent is late" }, expense]);
    let balance = |lines: Value, checks: Value| json!({ "lines": lines, "checks": checks });
    assert_eq!(
        value(
            &registry,
            "ledger.balance",
            balance(lines, json!(["positive"]))
        )
        .await,
        json!({ "minor": 380, "currency": "eur" })
    );
    assert_eq!(
        value(&registry, "ledger.balance", balance(json!([]), json!([]))).await,
        json!(null)
    );
    let mixed = balance(
        json!([income(1, "eur"), income(1, "usd")]),
        json!(["same-currency"]),
    );
    let report = call(&registry, "ledger.balance", mixed).await;
    assert_eq!(kind(&report), "tool");
    let text = report.result.expect_err("a problem").to_string();
    assert!(
        text.contains("another currency") && text.contains('1'),
        "{text}"
    );

    assert_eq!(
        value(&registry, "ledger.version", json!({})).await,
        json!("0.3.0")
    );
    assert_eq!(
        value(
            &registry,
            "ledger.checksum",
            json!({ "data": "V2lraXBlZGlh" })
        )
        .await,
        json!(0x11E6_0398)
    );
    let convert =
        json!({ "amount": { "minor": 100, "currency": "eur" }, "to": "usd", "rate": 1.1 });
    assert_eq!(
        value(&registry, "ledger.convert", convert).await,
        json!({ "minor": 110, "currency": "usd" })
    );
    let unknown = json!({ "amount": { "minor": 1, "currency": "gbp" }, "to": "usd", "rate": 1 });
    assert_eq!(
        kind(&call(&registry, "ledger.convert", unknown).await),
        "arguments"
    );
}

#[tokio::test]
async fn a_tariff_in_typescript_takes_options_and_tuples() {
    let Some(registry) = foreign("tariff", Grant::default()).await else {
        return;
    };
    let price = |parcel: Value, by: Value| json!({ "parcel": parcel, "by": by });
    assert_eq!(
        value(
            &registry,
            "tariff.price",
            price(
                json!({ "grams": 1200, "insured": 10_000 }),
                json!({ "express": 2 })
            )
        )
        .await,
        json!({ "cents": 2289, "parts": [["weight", 239], ["express", 2000], ["insurance", 50]] })
    );
    assert_eq!(
        value(
            &registry,
            "tariff.price",
            price(json!({ "grams": 250 }), json!("letter"))
        )
        .await,
        json!({ "cents": 131, "parts": [["weight", 131]] })
    );
    let heavy = price(json!({ "grams": 40_000 }), json!("letter"));
    let report = call(&registry, "tariff.price", heavy).await;
    let text = report.result.expect_err("too heavy").to_string();
    assert!(text.contains("31500 grams"), "{text}");
    let tool = registry.tool("tariff.price").expect("it is a tool");
    assert!(
        tool.description
            .raw()
            .starts_with("What it costs to send a parcel"),
        "the build kept the author's words: {}",
        tool.description
    );
}
