//! Section 8: plans and their graph.

use serde_json::{Value, json};
use toolhold_protocol::plan::{Graph, MAX_STEPS, Mode, Plan};
use toolhold_protocol::reference::Path;

#[test]
fn a_plan_has_three_forms() {
    let calls = json!([{"_tool": "a.b", "x": 1}, {"_tool": "c.d"}]);
    for (rule, value, mode) in [
        ("8.1", json!({"type": "plan", "plan": calls}), Mode::Eager),
        (
            "8.1",
            json!({"type": "plan", "plan": calls, "mode": "lazy"}),
            Mode::Lazy,
        ),
        (
            "8.1",
            json!({"type": "plan", "plan": calls, "mode": null}),
            Mode::Eager,
        ),
        ("8.1", calls.clone(), Mode::Eager),
        ("8.1", json!({"calls": calls, "output": null}), Mode::Eager),
    ] {
        let plan = Plan::parse(&value).unwrap();
        let tools: Vec<_> = plan.steps.iter().map(|step| step.tool.as_str()).collect();
        assert_eq!(
            (tools, plan.mode),
            (vec!["a.b", "c.d"], mode),
            "{rule}: {value}"
        );
    }
    assert_eq!(Plan::parse(&json!([])).unwrap().steps, []);
}

#[test]
fn an_invalid_plan_gets_the_expected_form() {
    for (rule, value, expect) in [
        ("8.1", json!("x"), "this is \"x\""),
        ("8.1", json!(null), "this is null"),
        ("8.1", json!({}), "neither \"plan\" nor \"calls\""),
        (
            "8.1",
            json!({"plan": [], "calls": []}),
            "both \"plan\" and \"calls\"",
        ),
        ("8.1", json!({"plan": {}}), "whose steps are an object"),
        (
            "8.1",
            json!({"type": "state", "plan": []}),
            "a message of type \"state\"",
        ),
        (
            "8.1",
            json!({"plan": [], "mode": "soon"}),
            "\"mode\" is \"soon\"",
        ),
        (
            "8.1",
            json!(vec![0; MAX_STEPS + 1]),
            "10001 steps; 10000 are the most",
        ),
    ] {
        let error = Plan::parse(&value).unwrap_err().to_string();
        assert!(error.contains(expect), "{rule}: {error}");
    }
}

/// Layers of steps that can run together, and edges as (from, to).
type Order = (Vec<Vec<usize>>, Vec<(usize, usize)>);

fn order(calls: &Value) -> Result<Order, String> {
    let plan = Plan::parse(calls).map_err(|error| error.to_string())?;
    let graph = Graph::new(plan.steps).map_err(|error| error.to_string())?;
    let edges = graph.edges().map(|edge| (edge.from, edge.to)).collect();
    Ok((graph.layers().to_vec(), edges))
}

#[test]
fn edges_are_output_paths_and_the_references_that_read_them() {
    let writes = |place: &str| json!({"_tool": "w", "_outputPath": place});
    let reads = |source: &str| json!({"_tool": "r", "x": source});
    let apart = || (vec![vec![0, 1]], vec![]);
    let after = || (vec![vec![0], vec![1]], vec![(0, 1)]);
    for (rule, calls, meant) in [
        ("8.1", json!([writes("†s.a"), reads("†s.a")]), after()),
        ("8.1", json!([writes("†s"), reads("†s.a.b")]), after()),
        ("8.1", json!([writes("†s.a[0]"), reads("†s")]), after()),
        ("8.1", json!([writes("†s.a"), reads("†s.b")]), apart()),
        ("8.1", json!([writes("†s.a"), reads("††s.a")]), apart()),
        (
            "8.1",
            json!([reads("†s.a"), writes("†s.a")]),
            (vec![vec![1], vec![0]], vec![(1, 0)]),
        ),
        (
            "8.1",
            json!([writes("†s.a"), writes("†s.a")]),
            (vec![vec![0], vec![1]], vec![]),
        ),
        (
            "8.1",
            json!([writes("†s.a"), reads("†s.a"), writes("†s")]),
            (vec![vec![0], vec![1], vec![2]], vec![(0, 1)]),
        ),
        (
            "9.2",
            json!([{"_tool": "w", "_outputPath": "†s.a", "_instance": "x"}, reads("†s.a")]),
            apart(),
        ),
    ] {
        assert_eq!(order(&calls), Ok(meant), "{rule}: {calls}");
    }
}

#[test]
fn a_plan_that_cannot_be_run_says_everything_that_is_wrong() {
    let add =
        |read: &str, written: &str| json!({"_tool": "add", "a": read, "_outputPath": written});
    for (rule, calls, parts) in [
        (
            "8.2",
            json!([add("†s.q", "†s.p"), add("†s.p", "†s.q")]),
            vec!["cycle", "add → †s.p → add → †s.q → add"],
        ),
        (
            "8.2",
            json!([add("†s.p", "†s.p")]),
            vec!["cycle", "plan[0]"],
        ),
        (
            "8.2",
            json!([{"no": "tool"}, add("†s.a", "†s.b"), add("†", "†s.c"), 7]),
            vec!["plan[0]", "plan[2]/a", "plan[3]"],
        ),
    ] {
        let error = order(&calls).unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{rule}: {error}");
        }
    }
}

#[test]
fn inputs_without_a_provider_are_named() {
    let calls = json!([
        {"_tool": "a", "x": "†input.n", "_outputPath": "†state.a"},
        {"_tool": "b", "x": "†state.a", "y": "†input.text || †input.title"},
    ]);
    let plan = Plan::parse(&calls).unwrap();
    let graph = Graph::new(plan.steps).unwrap();
    for (rule, there, missing) in [
        ("8.5", vec![], vec!["a", "b"]),
        ("8.5", vec!["†input.n"], vec!["b"]),
        ("8.5", vec!["†input.n", "†input.title"], vec![]),
    ] {
        let exists = |path: &Path, _: Option<&str>| there.contains(&path.to_string().as_str());
        let found = graph.missing(exists);
        let tools: Vec<_> = found.iter().map(|missing| missing.tool.as_str()).collect();
        assert_eq!(tools, missing, "{rule}: {there:?}");
    }
}
