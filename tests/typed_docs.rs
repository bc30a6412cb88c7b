//! What is said of the tools of foreign components: where it comes from, and that it never hurts.

use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use support::sandbox::{call, component, kind, registry, repository};
use toolhold_policy::{DocsSource, Output, UntrustedText};
use toolhold_sandbox::docs::{Docs, FunctionDocs, section};
use toolhold_sandbox::{Policy, Registry};
use toolhold_schema::Validator;

const INTERFACE: &str = "demo:calc/api@0.1.0";
const WIT: &str = "package demo:calc@0.1.0;\n/// Sums.\ninterface api {\n  /// From WIT.\n  twice: func(n: u8) -> u8;\n}\nworld calc { export api; }";
const TOML: &str =
    "[tools.twice]\ntitle = \"Twice\"\ndescription = \"From module.toml.\"\nread_only = true";
const PACKAGE: &str =
    r#"{\"interfaces\":{\"api\":{\"funcs\":{\"twice\":{\"docs\":\"From package-docs.\"}}}}}"#;

/// A component with one function, `twice`, and perhaps a `package-docs` section.
fn calc(package_docs: bool) -> Vec<u8> {
    let docs = if package_docs {
        format!("(@custom \"package-docs\" \"\\01{PACKAGE}\")")
    } else {
        String::new()
    };
    component(&format!(
        r#"(component {docs}
          (core module $m (func (export "f") (param i32) (result i32) (i32.mul (local.get 0) (i32.const 2))))
          (core instance $i (instantiate $m))
          (func $f (param "n" u8) (result u8) (canon lift (core func $i "f")))
          (instance $api (export "twice" (func $f)))
          (export "{INTERFACE}" (instance $api)))"#
    ))
}

fn docs(function: FunctionDocs) -> Docs {
    let mut docs = Docs::default();
    let functions = docs.exports.entry(INTERFACE.into()).or_default();
    functions.insert("twice".into(), function);
    docs
}

fn described(text: &str) -> Docs {
    docs(FunctionDocs {
        description: Some(text.into()),
        ..FunctionDocs::default()
    })
}

fn module(folder: &Path, component: &[u8], files: &[(&str, &str)]) {
    let module = folder.join("calc");
    fs::create_dir_all(module.join("wit")).unwrap();
    fs::write(module.join("calc.wasm"), component).unwrap();
    for (name, text) in files {
        fs::write(module.join(name), text).unwrap();
    }
}

async fn loaded(folder: &Path) -> Registry {
    let registry = registry(Policy::default());
    registry.load_folder(folder, None, &|_| ()).await.unwrap();
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());
    registry
}

#[tokio::test]
async fn each_source_of_a_description_comes_before_the_next() {
    let plain = calc(false);
    let package = calc(true);
    let ours = section::replace(&package, &described("From the section.")).unwrap();
    let toml = ("module.toml", TOML);
    for (component, files, description, source) in [
        (
            &ours,
            &[("wit/a.wit", WIT), toml][..],
            "From the section.",
            DocsSource::Section,
        ),
        (
            &package,
            &[("wit/a.wit", WIT), toml],
            "From WIT.",
            DocsSource::Wit,
        ),
        (
            &package,
            &[("beside.wit", WIT), toml],
            "From WIT.",
            DocsSource::Wit,
        ),
        (&package, &[toml], "From module.toml.", DocsSource::Manifest),
        (&package, &[], "From package-docs.", DocsSource::PackageDocs),
        (
            &plain,
            &[],
            "twice(n: u8) -> u8, of demo:calc/api@0.1.0",
            DocsSource::Signature,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        module(folder.path(), component, files);
        let registry = loaded(folder.path()).await;
        let tool = registry.tool("calc.twice").unwrap();
        assert_eq!(
            (tool.description.raw(), tool.docs_source),
            (description, source)
        );
        // What a better source is silent about, the next one says.
        let from_toml = files.contains(&toml);
        assert_eq!(tool.title.is_some(), from_toml);
        assert_eq!(tool.annotations.read_only, from_toml);
        let notes = &registry.module("calc").unwrap().notes;
        assert!(notes.is_empty(), "{notes:?}");
    }
}

#[tokio::test]
async fn a_component_alone_in_its_file_has_its_wit_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("calc.wasm"), calc(false)).unwrap();
    fs::write(folder.path().join("calc.wit"), WIT).unwrap();
    fs::write(folder.path().join("other.wit"), "not WIT").unwrap();
    let registry = loaded(folder.path()).await;
    assert_eq!(
        registry.tool("calc.twice").unwrap().description.raw(),
        "From WIT."
    );
    assert!(registry.module("calc").unwrap().notes.is_empty());
}

#[tokio::test]
async fn broken_docs_are_noted_and_nothing_more() {
    let deep = format!("{{\"version\":1,\"types\":{}", "[".repeat(200_000));
    let chain: Vec<_> = (1..12_000)
        .map(|i| format!("type a{i}=a{};", i - 1))
        .collect();
    let chain = format!("package a:b;interface i {{type a0=u8;{}}}", chain.concat());
    let nested = format!(
        "package a:b;interface i {{type t={}u8",
        "list<".repeat(40_000)
    );
    let custom = |name: &str, content: &[u8]| {
        let mut out = calc(false);
        let mut body = vec![name.len() as u8];
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(content);
        out.push(0);
        let mut size = body.len();
        while size > 0x7f {
            out.push((size & 0x7f) as u8 | 0x80);
            size >>= 7;
        }
        out.push(size as u8);
        out.extend_from_slice(&body);
        out
    };
    let large = vec![b' '; 10 << 20];
    let far = "x".repeat(300 << 10);
    for (component, file, note) in [
        (
            custom(section::NAME, b"\xff\xfe"),
            None,
            Some("toolhold:docs is not read"),
        ),
        (
            custom(section::NAME, &large),
            None,
            Some("toolhold:docs is not read: it has"),
        ),
        (
            custom(section::NAME, deep.as_bytes()),
            None,
            Some("toolhold:docs is not read"),
        ),
        (
            custom(section::NAME, br#"{"version":9}"#),
            None,
            Some("version 9"),
        ),
        (
            custom("package-docs", b"\x07{}"),
            None,
            Some("package-docs is not read"),
        ),
        (
            custom("package-docs", &large),
            None,
            Some("package-docs is not read"),
        ),
        (
            calc(false),
            Some(("wit/a.wit", "interface {")),
            Some("wit/a.wit"),
        ),
        (
            calc(false),
            Some(("wit/a.wit", nested.as_str())),
            Some("too deep"),
        ),
        (
            calc(false),
            Some(("wit/a.wit", far.as_str())),
            Some("at most 262144 bytes"),
        ),
        // Fits, and makes the parser recurse twelve thousand times: no note, and no crash.
        (calc(false), Some(("wit/a.wit", chain.as_str())), None),
        (
            calc(false),
            Some(("module.toml", "[tools.thrice]\ntitle = \"x\"")),
            Some("\"thrice\""),
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        module(folder.path(), &component, file.as_slice());
        let registry = loaded(folder.path()).await;
        let tool = registry.tool("calc.twice").unwrap();
        assert_eq!(tool.docs_source, DocsSource::Signature);
        let module = registry.module("calc").unwrap();
        let notes: Vec<_> = module.notes.iter().map(UntrustedText::raw).collect();
        let notes = notes.join("\n");
        match note {
            Some(note) => assert!(notes.contains(note), "{note}: {notes}"),
            None => assert_eq!(notes, ""),
        }
        let report = call(&registry, "calc.twice", json!({"n": 4})).await;
        assert_eq!(report.result.unwrap(), Output::Value(json!(8)));
    }
}

#[tokio::test]
async fn texts_are_shown_without_what_hides_in_them() {
    let long = format!("a\u{202E}b\u{200B}c {}", "x".repeat(10_000));
    let bytes = section::replace(&calc(false), &described(&long)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    module(folder.path(), &bytes, &[]);
    let registry = loaded(folder.path()).await;
    let description = &registry.tool("calc.twice").unwrap().description;
    assert!(description.raw().starts_with("abc x"));
    assert_eq!(description.raw().chars().count(), 4_001);
}

/// A component of `toolhold build`, written for no host in particular.
async fn orders() -> Registry {
    let folder = repository().join("tests/components");
    loaded(&folder).await
}

#[tokio::test]
async fn a_foreign_component_is_offered_with_all_that_its_author_wrote() {
    let registry = orders().await;
    let module = registry.module("orders").unwrap();
    let tools: Vec<_> = module.tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        tools,
        [
            "orders.hours",
            "orders.orders_price",
            "orders.echo",
            "orders.stock_price"
        ]
    );
    for (export, reason) in [
        (
            "demo:shop/stock@0.1.0#[constructor]count",
            "belongs to the resource count",
        ),
        (
            "demo:shop/stock@0.1.0#[method]count.add",
            "belongs to the resource count",
        ),
        (
            "demo:shop/stock@0.1.0#finish",
            "parameter count: the resource count lives only",
        ),
    ] {
        let refused = module.refused.iter().find(|(name, _)| name.raw() == export);
        assert!(
            refused.is_some_and(|(_, why)| why.raw().contains(reason)),
            "{:?}",
            module.refused
        );
    }

    let price = registry.tool("orders.orders_price").unwrap();
    assert_eq!(price.docs_source, DocsSource::Section);
    assert!(
        price
            .description
            .raw()
            .starts_with("Prices every line of an order.\n\nLines keep")
    );
    let at = |path: &str| price.input_schema.pointer(path).unwrap_or(&Value::Null);
    let line = "/properties/lines/items";
    assert_eq!(at(&format!("{line}/title")), "line");
    assert_eq!(
        at(&format!("{line}/properties/sku/description")),
        "The article's number on its label."
    );
    assert_eq!(
        at(&format!("{line}/properties/price/description")),
        "For one piece.\nAn amount in hundredths of a cent, so that no price is rounded."
    );
    assert_eq!(
        at(&format!("{line}/required")),
        &json!(["sku", "quantity", "price", "packing"])
    );
    assert_eq!(
        at("/properties/customer/description"),
        "Who a price is for.\nwalk-in: Pays the list price.\nmember: Pays ten percent less.\nstaff: Pays nothing."
    );
    assert_eq!(
        at("/properties/delivery/anyOf/1/properties/post/properties/postcode/description"),
        "Five digits."
    );
    assert_eq!(
        price
            .output_schema
            .as_ref()
            .unwrap()
            .pointer("/items/title"),
        Some(&json!("priced"))
    );
}

#[tokio::test]
async fn a_foreign_component_runs_unchanged() {
    let registry = orders().await;
    let line = |sku: &str| json!({"sku": sku, "quantity": 3, "price": 1_000, "discount": 50, "packing": ["fragile"]});
    let order = |lines: Value| json!({"lines": lines, "customer": "member", "delivery": {"post": {"street": "x", "postcode": "12345"}}});

    let arguments = order(json!([line("a-1")]));
    let tool = registry.tool("orders.orders_price").unwrap();
    Validator::new(&tool.input_schema)
        .unwrap()
        .check(&arguments)
        .unwrap();
    let Output::Value(output) = call(&registry, &tool.name, arguments).await.result.unwrap() else {
        panic!("a value");
    };
    assert_eq!(
        output,
        json!([{"sku": "a-1", "total": 1_350, "notes": ["50 percent off", "packed in foam", "by post to 12345"]}])
    );
    Validator::new(tool.output_schema.as_ref().unwrap())
        .unwrap()
        .check(&output)
        .unwrap();

    for (lines, message, data) in [
        (json!([]), "empty", json!("empty")),
        (json!([line("")]), "not-found: ", json!({"not-found": ""})),
    ] {
        let report = call(&registry, "orders.orders_price", order(lines)).await;
        assert_eq!(kind(&report), "tool");
        let error = report.result.unwrap_err();
        assert_eq!(error.to_string(), message);
        assert!(
            matches!(error, toolhold_policy::CallError::Tool { data: Some(found), .. } if found == data)
        );
    }
    let mut wrong = order(json!([line("a")]));
    wrong["lines"][0]["price"] = json!("ten");
    let error = call(&registry, "orders.orders_price", wrong)
        .await
        .result
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("$.lines[0].price: expected an integer that fits s64"),
        "{error}"
    );
}

#[tokio::test]
async fn every_kind_of_value_passes_through_a_real_guest() {
    let registry = orders().await;
    let tool = registry.tool("orders.echo").unwrap();
    for (maybe, outcome) in [
        (json!(null), json!({"ok": 7})),
        (json!({"some": null}), json!({"err": "ü\u{0}"})),
        (json!({"some": "x"}), json!({"err": ""})),
    ] {
        let everything = json!({
            "numbers": [255, -128, 65_535, -32_768, u32::MAX, i32::MIN, u64::MAX.to_string(), i64::MIN.to_string()],
            "floats": [0.1, 1e300],
            "letter": "🦀",
            "truth": true,
            "bytes": "AAEC/w==",
            "maybe": maybe,
            "outcome": outcome,
            "quiet": {"ok": null},
            "nested": [[], ["pick-up", {"locker": 9}], [{"post": {"street": "s", "postcode": "p"}}]],
            "who": ["staff", "walk-in"],
            "packing": ["gift", "fragile"],
        });
        let arguments = json!({"everything": everything});
        Validator::new(&tool.input_schema)
            .unwrap()
            .check(&arguments)
            .unwrap();
        let report = call(&registry, "orders.echo", arguments).await;
        assert_eq!(report.result.unwrap(), Output::Value(everything));
    }
}
