use toolhold_guest::{Value, check, json};

fn query(filter: &str, input: Value) -> Result<Value, String> {
    let arguments = json!({ "filter": filter, "input": input });
    check::call(&super::tools(), "query", &arguments).map_err(|error| error.message().to_owned())
}

fn outputs(filter: &str, input: Value) -> Value {
    query(filter, input).unwrap()["outputs"].clone()
}

#[test]
fn examples_return_what_they_claim() {
    assert_eq!(check::examples(&super::tools()), Vec::<String>::new());
}

#[test]
fn the_usual_filters_work() {
    let input = json!({ "items": [{ "n": 3, "tag": "a" }, { "n": 1, "tag": "b" }] });
    assert_eq!(outputs(".items | length", input.clone()), json!([2]));
    assert_eq!(
        outputs(
            ".items | sort_by(.n) | map(.tag) | join(\",\")",
            input.clone()
        ),
        json!(["b,a"])
    );
    assert_eq!(
        outputs(".items[0] | to_entries | .[0].key", input.clone()),
        json!(["n"])
    );
    assert_eq!(outputs("[.items[].n] | add / length", input), json!([2.0]));
    assert_eq!(outputs("test(\"^a.c$\")", json!("abc")), json!([true]));
    assert_eq!(
        outputs("1700000000 | todate", Value::Null),
        json!(["2023-11-14T22:13:20Z"])
    );
}

#[test]
fn a_text_that_is_json_is_read_as_json() {
    assert_eq!(outputs(".a", json!("{\"a\": [1]}")), json!([[1]]));
    assert_eq!(outputs("length", json!("plain text")), json!([10]));
}

#[test]
fn large_integers_stay_exact() {
    let input = json!("{\"id\": 9007199254740993}");
    assert_eq!(outputs(".id", input), json!([9_007_199_254_740_993_u64]));
}

#[test]
fn endless_outputs_are_cut() {
    let found = query("repeat(1)", json!(1)).unwrap();
    assert_eq!(found["truncated"], true);
    assert_eq!(found["outputs"].as_array().unwrap().len(), 1000);
    let error = query("\"x\" * 300000", json!(1)).unwrap_err();
    assert!(error.contains("pick less"), "{error}");
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    for (filter, expected) in [
        (".a[", "at its end"),
        (".a ||", "before `"),
        ("nope(1)", "no function `nope` with 1 arguments"),
        ("$x", "`$x` is not defined"),
        (".a.b.c", "failed after 0 outputs"),
        ("error(\"no\")", "no"),
        (
            "nan | [., infinite] | tojson | fromjson | error(\"y\")",
            "failed",
        ),
    ] {
        let error = query(filter, json!({ "a": [1] })).unwrap_err();
        assert!(error.contains(expected), "{filter}: {error}");
    }
}
