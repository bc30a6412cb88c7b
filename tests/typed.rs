//! Components that were not written for this host: tools by their WIT types.

use proptest::prelude::*;
use serde_json::{Value, json};
use support::sandbox::{call, kind, load, registry};
use toolhold_policy::Output;
use toolhold_sandbox::{Policy, Registry};

/// An identity function for every type there is JSON for: what goes in must come out.
const ECHO: &str = r#"(component
  (core module $m
    (memory (export "memory") 2)
    (global $next (mut i32) (i32.const 4096))
    (func (export "realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
      (local $at i32)
      (local.set $at (i32.and
        (i32.add (global.get $next) (i32.sub (local.get $align) (i32.const 1)))
        (i32.sub (i32.const 0) (local.get $align))))
      (global.set $next (i32.add (local.get $at) (local.get $size)))
      (local.get $at))
    (func (export "one") (param i32) (result i32) (local.get 0))
    (func (export "long") (param i64) (result i64) (local.get 0))
    (func (export "double") (param f64) (result f64) (local.get 0))
    (func (export "two") (param i32 i32) (result i32)
      (i32.store (i32.const 16) (local.get 0)) (i32.store (i32.const 20) (local.get 1)) (i32.const 16))
    (func (export "three") (param i32 i32 i32) (result i32)
      (i32.store (i32.const 16) (local.get 0)) (i32.store (i32.const 20) (local.get 1))
      (i32.store (i32.const 24) (local.get 2)) (i32.const 16))
    (func (export "tagged") (param i32 i32) (result i32)
      (i32.store8 (i32.const 16) (local.get 0)) (i32.store (i32.const 20) (local.get 1)) (i32.const 16))
    (func (export "tagged-text") (param i32 i32 i32) (result i32)
      (i32.store8 (i32.const 16) (local.get 0)) (i32.store (i32.const 20) (local.get 1))
      (i32.store (i32.const 24) (local.get 2)) (i32.const 16)))
  (core instance $i (instantiate $m))
  (type $point (record (field "x-pos" s32) (field "name" string)))
  (export $point-type "point" (type $point))
  (type $shape (variant (case "none") (case "sized" u32)))
  (export $shape-type "shape" (type $shape))
  (type $colour (enum "red" "green" "blue"))
  (export $colour-type "colour" (type $colour))
  (type $marks (flags "bold" "wide"))
  (export $marks-type "marks" (type $marks))
  (func (export "echo-bool") (param "v" bool) (result bool) (canon lift (core func $i "one")))
  (func (export "echo-u8") (param "v" u8) (result u8) (canon lift (core func $i "one")))
  (func (export "echo-s32") (param "v" s32) (result s32) (canon lift (core func $i "one")))
  (func (export "echo-u64") (param "v" u64) (result u64) (canon lift (core func $i "long")))
  (func (export "echo-s64") (param "v" s64) (result s64) (canon lift (core func $i "long")))
  (func (export "echo-float") (param "v" f64) (result f64) (canon lift (core func $i "double")))
  (func (export "echo-char") (param "v" char) (result char) (canon lift (core func $i "one")))
  (func (export "echo-string") (param "v" string) (result string)
    (canon lift (core func $i "two") (memory $i "memory") (realloc (func $i "realloc"))))
  (func (export "echo-bytes") (param "v" (list u8)) (result (list u8))
    (canon lift (core func $i "two") (memory $i "memory") (realloc (func $i "realloc"))))
  (func (export "echo-list") (param "v" (list (list string))) (result (list (list string)))
    (canon lift (core func $i "two") (memory $i "memory") (realloc (func $i "realloc"))))
  (func (export "echo-record") (param "v" $point-type) (result $point-type)
    (canon lift (core func $i "three") (memory $i "memory") (realloc (func $i "realloc"))))
  (func (export "echo-tuple") (param "v" (tuple u32 string)) (result (tuple u32 string))
    (canon lift (core func $i "three") (memory $i "memory") (realloc (func $i "realloc"))))
  (func (export "echo-option") (param "v" (option u32)) (result (option u32))
    (canon lift (core func $i "tagged") (memory $i "memory")))
  (func (export "echo-variant") (param "v" $shape-type) (result $shape-type)
    (canon lift (core func $i "tagged") (memory $i "memory")))
  (func (export "echo-enum") (param "v" $colour-type) (result $colour-type) (canon lift (core func $i "one")))
  (func (export "echo-flags") (param "v" $marks-type) (result $marks-type) (canon lift (core func $i "one")))
  (func (export "check") (param "fail" bool) (param "text" string) (result (result string (error string)))
    (canon lift (core func $i "tagged-text") (memory $i "memory") (realloc (func $i "realloc")))))"#;

async fn echo() -> Registry {
    let registry = registry(Policy::default());
    load(&registry, "t", ECHO)
        .await
        .expect("the component loads");
    registry
}

async fn round(registry: &Registry, tool: &str, value: Value) -> Value {
    let report = call(registry, &format!("t.echo_{tool}"), json!({"v": value})).await;
    match report.result {
        Ok(Output::Value(value)) => value,
        other => panic!("{tool} of {value} gave {other:?}"),
    }
}

#[tokio::test]
async fn every_type_comes_back_as_it_went_in() {
    let registry = echo().await;
    for (tool, value) in [
        ("bool", json!(true)),
        ("u8", json!(255)),
        ("s32", json!(i32::MIN)),
        ("u64", json!(7)),
        ("u64", json!(u64::MAX.to_string())),
        ("s64", json!(i64::MIN.to_string())),
        ("float", json!(-0.5)),
        ("char", json!("é")),
        ("string", json!("a\u{0}b\"ü")),
        ("bytes", json!("AAEC/w==")),
        ("bytes", json!("")),
        ("list", json!([["a", ""], [], ["b"]])),
        ("record", json!({"x-pos": -3, "name": "n"})),
        ("tuple", json!([1, "x"])),
        ("option", json!(null)),
        ("option", json!(5)),
        ("variant", json!("none")),
        ("variant", json!({"sized": 9})),
        ("enum", json!("blue")),
        ("flags", json!(["bold", "wide"])),
        ("flags", json!([])),
    ] {
        assert_eq!(round(&registry, tool, value.clone()).await, value, "{tool}");
    }
    // A number is accepted where a string would be written back.
    assert_eq!(
        round(&registry, "u64", json!(u64::MAX)).await,
        json!(u64::MAX.to_string())
    );
}

#[tokio::test]
async fn wrong_arguments_name_the_path_and_the_expectation() {
    let registry = echo().await;
    for (tool, arguments, expect) in [
        (
            "echo_bool",
            json!({"v": 1}),
            "$.v: expected true or false, got 1",
        ),
        (
            "echo_u8",
            json!({"v": 256}),
            "$.v: expected an integer that fits u8, got 256",
        ),
        ("echo_u8", json!({"v": "7"}), "$.v: expected an integer"),
        (
            "echo_list",
            json!({"v": [["a"], ["b", 3]]}),
            "$.v[1][1]: expected a string, got 3",
        ),
        (
            "echo_record",
            json!({"v": {"x-pos": 1}}),
            "$.v: \"name\" is missing",
        ),
        (
            "echo_record",
            json!({"v": {"x-pos": 1, "name": "", "z": 0}}),
            "$.v: \"z\" is not known here; known: x-pos, name",
        ),
        ("echo_variant", json!({"v": "sized"}), "with a value"),
        ("echo_enum", json!({"v": "pink"}), "one of red, green, blue"),
        ("echo_bytes", json!({"v": "%%"}), "$.v: expected base64"),
        ("echo_char", json!({"v": "ab"}), "exactly one character"),
        ("echo_bool", json!([]), "expected an object, got a list"),
        ("echo_bool", json!({}), "\"v\" is missing"),
    ] {
        let report = call(&registry, &format!("t.{tool}"), arguments.clone()).await;
        let error = report.result.expect_err("must be refused").to_string();
        assert!(error.contains(expect), "{tool} {arguments}: {error}");
    }
}

#[tokio::test]
async fn a_result_is_an_output_or_a_tool_error() {
    let registry = echo().await;
    let ok = call(&registry, "t.check", json!({"fail": false, "text": "fine"})).await;
    assert_eq!(ok.result.expect("ok"), Output::Value(json!("fine")));
    let failed = call(
        &registry,
        "t.check",
        json!({"fail": true, "text": "no such city"}),
    )
    .await;
    assert_eq!(kind(&failed), "tool");
    assert_eq!(
        failed.result.expect_err("an error").to_string(),
        "no such city"
    );
}

#[tokio::test]
async fn schemas_say_what_is_accepted() {
    let registry = echo().await;
    let input = |tool: &str| {
        registry
            .tool(tool)
            .expect("a tool")
            .input_schema
            .pointer("/properties/v")
            .cloned()
    };
    assert_eq!(
        input("t.echo_u8"),
        Some(json!({"type": "integer", "minimum": 0, "maximum": 255}))
    );
    assert_eq!(
        input("t.echo_enum"),
        Some(json!({"type": "string", "enum": ["red", "green", "blue"]}))
    );
    assert_eq!(
        input("t.echo_record"),
        Some(json!({
            "type": "object",
            "properties": {"x-pos": {"type": "integer", "minimum": i32::MIN, "maximum": i32::MAX}, "name": {"type": "string"}},
            "required": ["x-pos", "name"],
            "additionalProperties": false,
        }))
    );
    // The error side of a result never reaches the model as output.
    assert_eq!(
        registry.tool("t.check").expect("a tool").output_schema,
        Some(json!({"type": "string"}))
    );
}

#[tokio::test]
async fn invalid_utf8_and_resources_are_refused_by_name() {
    let bad_text = r#"(component
      (core module $m (memory (export "memory") 1) (data (i32.const 0) "\ff\fe")
        (func (export "f") (result i32)
          (i32.store (i32.const 16) (i32.const 0)) (i32.store (i32.const 20) (i32.const 2)) (i32.const 16)))
      (core instance $i (instantiate $m))
      (type $r' (resource (rep i32)))
      (export $r "handle" (type $r'))
      (core func $make (canon resource.new $r'))
      (core module $n (import "h" "make" (func $make (param i32) (result i32)))
        (func (export "open") (result i32) (call $make (i32.const 1))))
      (core instance $j (instantiate $n (with "h" (instance (export "make" (func $make))))))
      (func (export "open") (result (own $r)) (canon lift (core func $j "open")))
      (func (export "text") (result string) (canon lift (core func $i "f") (memory $i "memory"))))"#;
    let registry = registry(Policy::default());
    load(&registry, "t", bad_text)
        .await
        .expect("one function can be a tool");
    assert_eq!(
        kind(&call(&registry, "t.text", json!({})).await),
        "encoding"
    );
    let refused = &registry.module("t").expect("loaded").refused;
    assert_eq!(refused.len(), 1);
    assert!(
        refused[0].0.raw() == "open" && refused[0].1.raw().contains("resource"),
        "{refused:?}"
    );
}

#[tokio::test]
async fn names_that_two_exports_could_mean_belong_to_neither() {
    let wat = |interfaces: &[&str]| {
        let exports: Vec<_> = interfaces
            .iter()
            .map(|name| format!(r#"(export "{name}" (instance $api))"#))
            .collect();
        format!(
            r#"(component
              (core module $m (func (export "f") (param i32) (result i32) (local.get 0)))
              (core instance $i (instantiate $m))
              (func $f (param "n" u8) (result u8) (canon lift (core func $i "f")))
              (instance $api (export "look-up" (func $f)))
              {})"#,
            exports.concat()
        )
    };
    for (interfaces, expect) in [
        (&["demo:a/book@1.0.0"][..], &["t.look_up"][..]),
        (
            &["demo:a/book@1.0.0", "demo:a/stock@1.0.0"],
            &["t.book_look_up", "t.stock_look_up"],
        ),
        (
            &["demo:a/book@1.0.0", "demo:b/book@1.0.0"],
            &["t.a_book_look_up", "t.b_book_look_up"],
        ),
    ] {
        let registry = registry(Policy::default());
        load(&registry, "t", &wat(interfaces)).await.expect("loads");
        let names: Vec<_> = registry.tools().into_iter().map(|tool| tool.name).collect();
        assert_eq!(names, expect);
        for name in expect {
            let report = call(&registry, name, json!({"n": 7})).await;
            assert_eq!(report.result.expect("a value"), Output::Value(json!(7)));
        }
    }
}

#[tokio::test]
async fn types_that_would_drown_a_model_are_refused() {
    // Each level doubles: 2^12 parts from a few lines. A second function is not affected.
    let levels: Vec<_> = (1..12)
        .map(|i| format!("(type $t{i} (tuple $t{p} $t{p}))", p = i - 1))
        .collect();
    let levels = format!("(type $t0 (tuple u8 u8)){}", levels.concat());
    let wat = format!(
        r#"(component
          (core module $m (memory (export "memory") 1)
            (func (export "f") (param i32) (result i32) (local.get 0))
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) (i32.const 0)))
          (core instance $i (instantiate $m))
          {levels}
          (func (export "many") (param "v" (list $t11)) (result u8)
            (canon lift (core func $i "g") (memory $i "memory") (realloc (func $i "realloc"))))
          (func (export "few") (param "v" u8) (result u8) (canon lift (core func $i "f"))))"#
    )
    .replace(
        r#"(func (export "realloc")"#,
        r#"(func (export "g") (param i32 i32) (result i32) (i32.const 0)) (func (export "realloc")"#,
    );
    let registry = registry(Policy::default());
    load(&registry, "t", &wat).await.expect("loads");
    let module = registry.module("t").expect("loaded");
    assert_eq!(module.tools.len(), 1);
    assert!(
        module.refused[0].0.raw() == "many"
            && module.refused[0].1.raw().contains("more than 2000 parts"),
        "{:?}",
        module.refused
    );
}

#[tokio::test]
async fn a_result_that_is_too_large_stops_at_its_limit() {
    let mut policy = Policy::default();
    policy.limits.output_bytes = 100;
    let registry = registry(policy);
    load(&registry, "t", ECHO).await.expect("loads");
    for (text, expect) in [
        ("x".repeat(98), "ok"),
        ("x".repeat(99), "output"),
        ("\"".repeat(60), "output"),
    ] {
        let report = call(&registry, "t.echo_string", json!({"v": text})).await;
        assert_eq!(kind(&report), expect);
    }
}

#[tokio::test]
async fn async_functions_are_refused_with_what_to_do() {
    let wat = r#"(component
      (core module $m (func (export "f")))
      (core instance $i (instantiate $m))
      (func (export "wait") async (canon lift (core func $i "f"))))"#;
    let registry = registry(Policy::default());
    let error = load(&registry, "t", wat).await.unwrap_err().to_string();
    assert!(error.contains("export it without async"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 4))]

    /// Whatever a model sends, the answer is a value or a typed error, and what was accepted comes
    /// back unchanged.
    #[test]
    fn anything_a_model_sends_is_accepted_whole_or_refused(value in any_json()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let registry = echo().await;
            for tool in ["list", "record", "variant", "u64", "option", "string", "flags"] {
                let report = call(&registry, &format!("t.echo_{tool}"), json!({"v": value})).await;
                match report.result {
                    Ok(Output::Value(back)) => assert!(back == value || back.as_str() == Some(&value.to_string()), "{tool}: {value} became {back}"),
                    Ok(other) => panic!("{tool}: {other:?}"),
                    Err(error) => assert_eq!(error.kind(), "arguments", "{tool}: {value}: {error}"),
                }
            }
        });
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9_f64).prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!("none")),
        Just(json!({"sized": 3})),
        Just(json!({"x-pos": 1, "name": "n"})),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,4}", inner, 0..3).prop_map(|m| json!(m)),
        ]
    })
}

/// A program that ends well has not crashed; it only returned nothing.
#[tokio::test]
async fn a_guest_that_exits_with_success_did_not_crash() {
    let registry = registry(Policy::default());
    let exits = |status: u32| {
        format!(
            r#"(component
              (import "wasi:cli/exit@0.2.0" (instance $exit
                (export "exit" (func (param "status" (result))))))
              (core func $exit (canon lower (func $exit "exit")))
              (core module $m
                (import "host" "exit" (func $exit (param i32)))
                (func (export "f") (result i32) (call $exit (i32.const {status})) (i32.const 1)))
              (core instance $i (instantiate $m
                (with "host" (instance (export "exit" (func $exit))))))
              (func (export "answer") (result u32) (canon lift (core func $i "f"))))"#
        )
    };
    load(&registry, "well", &exits(0)).await.unwrap();
    load(&registry, "badly", &exits(1)).await.unwrap();
    let ended = call(&registry, "well.answer", json!({})).await;
    let error = ended.result.unwrap_err().to_string();
    assert_eq!(
        error,
        "the tool ended itself, with exit code 0, before it returned a result"
    );
    let failed = call(&registry, "badly.answer", json!({})).await;
    assert_eq!(kind(&failed), "trap");
}
