use super::*;
use crate::reference::Path;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn steps(calls: &Value) -> Vec<Step> {
    Plan::parse(calls).unwrap().steps
}

pub(super) fn graph(calls: &Value) -> Graph {
    Graph::new(steps(calls)).unwrap()
}

fn fails(calls: &Value) -> GraphError {
    Graph::new(steps(calls)).unwrap_err()
}

/// `from → path → to pointer`, with `?` for an alternative and `!` for one that is late.
fn edges(graph: &Graph) -> Vec<String> {
    let edge = |edge: Edge<'_>| {
        let marks = format!(
            "{}{}",
            if edge.is_alternative { "?" } else { "" },
            if edge.is_late { "!" } else { "" }
        );
        format!(
            "{} {}{marks} {}{}",
            edge.from, edge.path, edge.to, edge.pointer
        )
    };
    graph.edges().map(edge).collect()
}

pub(super) fn shop() -> Value {
    json!([
        {"_tool": "mail.send", "to": "†user.mail", "text": "†state.receipt", "note": "†state.gift || †input.note"},
        {"_tool": "shop.charge", "card": "†input.card", "sum": "†state.quote.total", "_outputPath": "†state.receipt || †state.failure"},
        {"_tool": "shop.quote", "item": "†input.item", "_outputPath": "†state.quote"},
        {"_tool": "shop.stock", "_instance": "berlin", "item": "†input.item", "_outputPath": "†state.log", "_outputMethod": "push"},
    ])
}

#[test]
fn steps_that_wait_for_nothing_run_together_and_first() {
    let graph = graph(&shop());
    assert_eq!(graph.layers(), [vec![2, 3], vec![1], vec![0]]);
    assert_eq!(graph.order().collect::<Vec<_>>(), [2, 3, 1, 0]);
    assert_eq!((graph.depth(), graph.width()), (3, 2));
    assert_eq!(
        edges(&graph),
        ["1 †state.receipt 0/text", "2 †state.quote.total 1/sum"]
    );
    assert_eq!(graph.warnings(), []);
}

#[test]
fn a_plan_without_steps_is_in_order() {
    let graph = graph(&json!([]));
    assert_eq!((graph.depth(), graph.width()), (0, 0));
    assert_eq!(graph.missing(|_, _| false), []);
    assert_eq!(graph.mermaid(), "flowchart TD\n");
}

#[test]
fn an_edge_is_an_overlap_that_the_reader_can_see() {
    for (write, writer, read, reader, expect) in [
        ("†s.a", None, "†s.a", None, Some("†s.a")),
        ("†s", None, "†s.a.b", None, Some("†s.a.b")),
        ("†s.a[0]", None, "†s", None, Some("†s.a[0]")),
        ("†s.a", None, "†s.ab", None, None),
        ("†s.a", None, "†t.a", None, None),
        ("†s[1]", None, "†s[0]", None, None),
        ("†s.a", Some("x"), "†s.a", Some("x"), Some("†s.a")),
        ("†s.a", None, "†s.a", Some("x"), Some("†s.a")),
        ("†s.a", Some("x"), "†s.a", None, None),
        ("†s.a", Some("x"), "†s.a", Some("y"), None),
        ("†q && †s.a && †s", None, "†s.a.b", None, Some("†s.a.b")),
        ("†q || †s.a", None, "†s", None, Some("†s.a")),
    ] {
        let graph = graph(&json!([
            {"_tool": "w", "_instance": writer, "_outputPath": write},
            {"_tool": "r", "_instance": reader, "x": read},
        ]));
        let found: Vec<_> = graph.edges().map(|edge| edge.path.to_string()).collect();
        let expect: Vec<_> = expect.into_iter().collect();
        assert_eq!(found, expect, "{write} {writer:?} {read} {reader:?}");
    }
}

#[test]
fn every_writer_of_a_place_comes_before_its_reader() {
    let graph = graph(&json!([
        {"_tool": "r", "_instance": "x", "x": "†s.all"},
        {"_tool": "a", "_outputPath": "†s.all", "_outputMethod": "push"},
        {"_tool": "b", "_instance": "x", "_outputPath": "†s.all.deep", "_outputMethod": "push"},
        {"_tool": "c", "_outputPath": "†s", "_outputMethod": "merge"},
    ]));
    // Of the two writers for everybody the last one overwrites what the first one wrote.
    assert_eq!(graph.layers(), [vec![1, 2], vec![3], vec![0]]);
}

#[test]
fn a_writer_comes_after_the_steps_before_it_that_read_or_write_its_place() {
    let writes = |place: &str, method: &str| json!({"_tool": "w", "_outputPath": place, "_outputMethod": method});
    let reads = |place: &str| json!({"_tool": "r", "x": place});
    let of = |instance: &str, mut step: Value| {
        step["_instance"] = instance.into();
        step
    };
    let (set, push) = (|place| writes(place, "set"), |place| writes(place, "push"));
    for (calls, layers) in [
        (
            json!([push("†s.a"), push("†s.a"), push("†s.b")]),
            vec![vec![0, 2], vec![1]],
        ),
        (
            json!([set("†s.a.x"), set("†s.b"), set("†s")]),
            vec![vec![0, 1], vec![2]],
        ),
        (
            json!([set("†s.a"), reads("†s.a"), set("†s.a")]),
            vec![vec![0], vec![1], vec![2]],
        ),
        // Instances have values of their own. What is written for all, all read.
        (
            json!([of("i", set("†s.a")), of("j", set("†s.a")), set("†s.a")]),
            vec![vec![0, 1, 2]],
        ),
        (
            json!([
                set("†s.a"),
                of("i", reads("†s.a")),
                of("j", set("†s.a")),
                set("†s.a")
            ]),
            vec![vec![0, 2], vec![1], vec![3]],
        ),
        // The writer needs the reader first, and that one needs it.
        (
            json!([
                set("†s.a"),
                {"_tool": "r", "x": "†s.a", "y": "†s.b", "_outputPath": "†s.c"},
                {"_tool": "w", "_outputPath": "†s.a && †s.b"},
            ]),
            vec![vec![0], vec![2], vec![1]],
        ),
    ] {
        assert_eq!(graph(&calls).layers(), layers, "{calls}");
    }
}

/// A place that has a value is read as it is: a step that reads and writes it is no cycle.
#[test]
fn data_of_the_context_comes_before_writes_of_later_steps() {
    let calls = json!([
        {"_tool": "next", "x": "†s.n", "_outputPath": "†s.n"},
        {"_tool": "again", "x": "†s.n || †s.m", "_outputPath": "†s.n"},
        {"_tool": "last", "x": "†s.m", "_outputPath": "†s.m"},
    ]);
    let exists = |path: &Path, _: Option<&str>| path.kind == "s";
    let graph = Graph::over(steps(&calls), exists).unwrap();
    assert_eq!(graph.layers(), [vec![0], vec![1], vec![2]]);
    assert_eq!(edges(&graph), ["0 †s.n? 1/x"]);
    assert_eq!(graph.missing(exists), []);
    let error = fails(&calls).to_string();
    assert!(error.contains("next → †s.n → next"), "{error}");
}

/// The first step that is left is in no cycle itself: it only comes after one.
#[test]
fn a_cycle_is_named_also_where_steps_come_after_it() {
    let error = fails(&json!([
        {"_tool": "behind", "x": "†s.b || †input.x", "_outputPath": "†s.c"},
        {"_tool": "a", "x": "†s.b", "_outputPath": "†s.a"},
        {"_tool": "b", "x": "†s.a", "_outputPath": "†s.b"},
    ]))
    .to_string();
    assert!(
        error.contains("a → †s.a → b → †s.b → a (plan[1], plan[2])"),
        "{error}"
    );
}

#[test]
fn a_cycle_is_named_step_by_step() {
    let error = fails(&json!([
        {"_tool": "first", "_outputPath": "†state.start"},
        {"_tool": "charge", "begin": "†state.start", "after": ["†state.done.ok"], "_outputPath": "†state.receipt"},
        {"_tool": "behind", "x": "†state.receipt"},
        {"_tool": "notify", "text": "†state.receipt", "_outputPath": "†state.done"},
    ]));
    insta::assert_snapshot!(error, @"the plan has a cycle, so none of its steps can be the first: charge → †state.receipt → notify → †state.done.ok → charge (plan[1], plan[3]); let one of them read something that is there already, or write to another place");
    let GraphError::Cycle(cycle) = error else {
        panic!("{error}");
    };
    assert_eq!(
        json!(cycle.hops[0]),
        json!({"place": "plan[1]", "tool": "charge", "path": "†state.receipt", "read_at": "plan[3]/text"})
    );
}

#[test]
fn calls_that_can_never_begin_are_a_cycle() {
    for (calls, expect) in [
        // A step that reads what it writes.
        (
            json!([{"_tool": "a", "x": "†s", "_outputPath": "†s.n"}]),
            "a → †s.n → a (plan[0])",
        ),
        // Both of what `&&` names are needed.
        (
            json!([{"_tool": "a", "x": "†given && †s", "_outputPath": "†t"}, {"_tool": "b", "x": "†t", "_outputPath": "†s"}]),
            "a → †t → b → †s → a (plan[0], plan[1])",
        ),
        // No alternative can be there.
        (
            json!([
                {"_tool": "a", "x": "†s || †t", "_outputPath": "†u"},
                {"_tool": "b", "x": "†u", "_outputPath": "†s"},
                {"_tool": "c", "x": "†u", "_outputPath": "†t"},
            ]),
            "a → †u → b → †s → a (plan[0], plan[1])",
        ),
        // Through an instance and back by what is everybody's: the instance cannot write there.
        (
            json!([
                {"_tool": "a", "x": "†s", "_instance": "i", "_outputPath": "†t"},
                {"_tool": "b", "x": "†t", "_instance": "i", "_outputPath": "†s"},
            ]),
            "a → †t → b → †s → a (plan[0], plan[1])",
        ),
    ] {
        let error = fails(&calls).to_string();
        assert!(error.contains(expect), "{error}");
    }
    let apart = json!([
        {"_tool": "a", "x": "†s", "_instance": "i", "_outputPath": "†t"},
        {"_tool": "b", "x": "†t", "_instance": "j", "_outputPath": "†s"},
    ]);
    assert_eq!(graph(&apart).layers(), [vec![0, 1]]);
}

#[test]
fn a_long_cycle_is_named_in_part() {
    let ring: Vec<_> = (0..500)
        .map(|n| json!({"_tool": format!("t{n}"), "x": format!("†s.v{n}"), "_outputPath": format!("†s.v{}", (n + 1) % 500)}))
        .collect();
    let error = fails(&json!(ring)).to_string();
    assert!(error.contains("t0 → †s.v1 → t1 → "), "{error}");
    assert!(
        error.contains("→ 488 more steps → t0 (plan[0], plan[1]"),
        "{error}"
    );
    assert!(error.len() < 1_000, "{error}");
}

#[test]
fn a_reader_waits_for_all_its_alternatives() {
    let graph = graph(&json!([
        {"_tool": "r", "x": "†input.a || †s.b || †s.c"},
        {"_tool": "b", "_outputPath": "†s.b"},
        {"_tool": "c", "x": "†s.b", "_outputPath": "†s.c"},
    ]));
    assert_eq!(graph.layers(), [vec![1], vec![2], vec![0]]);
    assert_eq!(edges(&graph), ["1 †s.b? 0/x", "2 †s.c? 0/x", "1 †s.b 2/x"]);
}

#[test]
fn an_alternative_that_needs_its_reader_is_not_waited_for() {
    let calls = json!([
        {"_tool": "behind", "x": "†s.next || †input.other"},
        {"_tool": "step", "x": "†s.next || †input.seed", "_outputPath": "†s.now"},
        {"_tool": "advance", "x": "†s.now", "_outputPath": "†s.next"},
    ]);
    let graph = graph(&calls);
    // What is only behind the cycle waits for it to be over.
    assert_eq!(graph.layers(), [vec![1], vec![2], vec![0]]);
    assert_eq!(
        edges(&graph),
        ["2 †s.next? 0/x", "2 †s.next?! 1/x", "1 †s.now 2/x"]
    );
    let warnings: Vec<_> = graph.warnings().iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "plan[1]/x does not wait for †s.next: plan[2] writes it only later, because it needs this step first"
        ]
    );
    // So without the seed there is nothing to begin with.
    let missing = graph.missing(|_, _| false);
    assert_eq!(missing.len(), 1, "{missing:?}");
    insta::assert_snapshot!(missing[0], @"plan[1]/x: nothing provides †s.next nor †input.seed; give it as input, or add a step that writes it");
}

#[test]
fn inputs_without_a_provider_are_missing() {
    let graph = graph(&json!([
        {"_tool": "a", "one": "†input.x", "two": ["†state.y && †state.q"], "_outputPath": "†state.z"},
        {"_tool": "b", "_instance": "i", "one": "†state.z.deep || †state.w", "two": "†state.v || †state.w"},
        {"_tool": "c", "_instance": "j", "one": "†state.w"},
    ]));
    let missing: Vec<_> = graph
        .missing(|path, instance| {
            path.to_string() == "†state.q"
                || (path.to_string() == "†state.w" && instance == Some("j"))
        })
        .iter()
        .map(ToString::to_string)
        .collect();
    insta::assert_snapshot!(missing.join("\n"), @r#"
    plan[0]/one: nothing provides †input.x; give it as input, or add a step that writes it
    plan[0]/two/0: nothing provides †state.y; add a step that writes it, or read something that is there
    plan[1]/two: nothing provides †state.v nor †state.w for instance i; add a step that writes it, or read something that is there
    "#);
}

#[test]
fn missing_inputs_are_found_despite_a_cycle() {
    let calls = json!([{"_tool": "a", "x": "†s", "y": "†input.z", "_outputPath": "†s"}]);
    let missing = missing(&steps(&calls), |_, _| false).unwrap();
    assert_eq!(
        json!(missing),
        json!([{"place": "plan[0]/y", "tool": "a", "instance": null, "paths": ["†input.z"]}])
    );
}

#[test]
fn the_largest_plan_is_in_order_soon() {
    // A chain is as deep as a plan can be, and a comb as wide.
    let chain: Vec<_> = (0..MAX_STEPS)
        .map(|n| json!({"_tool": "t", "x": format!("†s.v{}", n + 1), "_outputPath": format!("†s.v{n}")}))
        .collect();
    let begin = std::time::Instant::now();
    let plan = graph(&json!(chain));
    assert_eq!((plan.depth(), plan.width()), (MAX_STEPS, 1));
    let comb: Vec<_> = (0..MAX_STEPS)
        .map(|n| json!({"_tool": "t", "x": "†s.root.a", "_outputPath": if n == 0 { "†s.root".to_owned() } else { format!("†s.v{n}") }}))
        .collect();
    let mut calls = comb;
    calls[0]["x"] = json!(1);
    let plan = graph(&json!(calls));
    assert_eq!((plan.depth(), plan.width()), (2, MAX_STEPS - 1));
    assert_eq!(plan.warnings(), []);
    let log: Vec<_> = (0..MAX_STEPS)
        .map(|_| json!({"_tool": "t", "_outputPath": "†s.log", "_outputMethod": "push"}))
        .collect();
    assert_eq!(graph(&json!(log)).depth(), MAX_STEPS);
    let drawn = plan.outline().len() + plan.dot().len() + plan.mermaid().len();
    assert!(drawn < 10_000_000, "{drawn}");
    // Seconds in a debug build on a busy machine; a quadratic one takes minutes.
    assert!(begin.elapsed().as_secs() < 30, "{:?}", begin.elapsed());
}

#[test]
fn bounds_are_errors_that_say_what_to_do() {
    let step = &steps(&json!([{"_tool": "t"}]))[0];
    let error = Graph::new(vec![step.clone(); MAX_STEPS + 1]).unwrap_err();
    assert_eq!(
        error,
        GraphError::TooManySteps {
            count: MAX_STEPS + 1
        }
    );
    // Everybody writes what everybody else reads: pairs without end.
    let writers = (0..1_000).map(|n| json!({"_tool": "w", "_outputPath": format!("†s.all.w{n}")}));
    let readers = (0..1_000).map(|_| json!({"_tool": "r", "x": {"y": "†s.all"}}));
    let error = fails(&writers.chain(readers).collect()).to_string();
    assert_eq!(
        error,
        "plan[1200]/x/y: too many steps write to †s.all for all that read it; let one step gather what they write, or split the plan"
    );
}

/// Steps in an order in which each reads from earlier ones only, shuffled.
fn dag() -> impl Strategy<Value = (Vec<Step>, Vec<(usize, usize)>)> {
    (2..24_usize)
        .prop_flat_map(|count| {
            let pairs = proptest::collection::vec((0..count, 0..count), 0..count * 2);
            (Just((0..count).collect::<Vec<_>>()).prop_shuffle(), pairs)
        })
        .prop_map(|(rank, pairs)| {
            // An edge from the lower to the higher rank: no cycle is possible.
            let edges: BTreeSet<_> = pairs
                .into_iter()
                .filter(|(a, b)| a != b)
                .map(|(a, b)| if rank[a] < rank[b] { (a, b) } else { (b, a) })
                .collect();
            let edges: Vec<_> = edges.into_iter().collect();
            (steps_of(rank.len(), &edges), edges)
        })
}

/// Steps that pass `†e.vWRITER.rREADER` on.
fn steps_of(count: usize, edges: &[(usize, usize)]) -> Vec<Step> {
    let call = |step: usize| {
        let reads = edges.iter().filter(|(_, to)| *to == step);
        let reads: Vec<_> = reads
            .map(|(from, to)| format!("†e.v{from}.r{to}"))
            .collect();
        json!({"_tool": format!("t{step}"), "x": reads, "_outputPath": format!("†e.v{step}")})
    };
    steps(&(0..count).map(call).collect())
}

fn layer_of(graph: &Graph) -> Vec<usize> {
    let mut layer = vec![usize::MAX; graph.steps().len()];
    for (number, steps) in graph.layers().iter().enumerate() {
        for &step in steps {
            assert_eq!(layer[step], usize::MAX, "a step is in one layer");
            layer[step] = number;
        }
    }
    layer
}

proptest! {
    #[test]
    fn every_edge_leads_to_a_later_layer((steps, expect) in dag()) {
        let graph = Graph::new(steps).unwrap();
        let mut found: Vec<_> = graph.edges().map(|edge| (edge.from, edge.to)).collect();
        found.sort_unstable();
        prop_assert_eq!(&found, &expect);
        let layer = layer_of(&graph);
        for (step, layer_of_step) in layer.iter().enumerate() {
            let before = found.iter().filter(|(_, to)| *to == step);
            let earliest = before.map(|(from, _)| layer[*from] + 1).max().unwrap_or(0);
            // Not only later, but as soon as possible.
            prop_assert_eq!(*layer_of_step, earliest);
        }
    }

    #[test]
    fn an_edge_back_is_a_cycle_of_real_edges((steps, mut edges) in dag(), pick in any::<prop::sample::Index>()) {
        prop_assume!(!edges.is_empty());
        let (from, to) = edges[pick.index(edges.len())];
        edges.push((to, from));
        let GraphError::Cycle(cycle) = Graph::new(steps_of(steps.len(), &edges)).unwrap_err() else {
            panic!("a cycle");
        };
        let hops = &cycle.hops;
        let mut visited = BTreeSet::new();
        for (index, hop) in hops.iter().enumerate() {
            let next = hops[(index + 1) % hops.len()].place.step;
            prop_assert!(edges.contains(&(hop.place.step, next)));
            prop_assert_eq!(hop.read_at.step, next);
            let path: Path = format!("†e.v{}.r{next}", hop.place.step).parse().unwrap();
            prop_assert_eq!(&hop.path, &path);
            prop_assert!(visited.insert(next), "no step twice");
        }
        prop_assert!(visited.contains(&from) && visited.contains(&to));
    }

    /// Against the definition: a step can run once all its needs are met.
    #[test]
    fn there_is_an_order_exactly_if_the_steps_can_run(
        calls in proptest::collection::vec((0..6_usize, proptest::collection::vec((0..8_usize, 0..8_usize, any::<bool>()), 0..3)), 1..7)
    ) {
        let place = |n: usize| format!("†s.v{n}");
        let plan: Value = calls.iter().map(|(write, reads)| {
            let reads: Vec<_> = reads.iter().map(|(a, b, or)| {
                format!("{} {} {}", place(*a), if *or { "||" } else { "&&" }, place(*b))
            }).collect();
            json!({"_tool": "t", "x": reads, "_outputPath": place(*write)})
        }).collect();
        let mut done = vec![false; calls.len()];
        loop {
            let writes = |n: usize, i: usize| calls[i].0 == n;
            // What an earlier step writes is not what later ones write.
            let has_earlier = |step: usize, n: usize| (0..step).any(|i| writes(n, i));
            let is_there = |step: usize, n: usize, is_late: bool| {
                let mut writers = 0..if is_late { calls.len() } else { step };
                writers.all(|i| !writes(n, i) || done[i])
            };
            let next = calls.iter().enumerate().position(|(step, (_, reads))| {
                let is_late = |n: usize| !has_earlier(step, n);
                !done[step] && reads.iter().all(|(a, b, or)| if *or {
                    let is_late = is_late(*a) && is_late(*b);
                    is_there(step, *a, is_late) || is_there(step, *b, is_late)
                } else {
                    is_there(step, *a, is_late(*a)) && is_there(step, *b, is_late(*b))
                })
            });
            match next {
                Some(step) => done[step] = true,
                None => break,
            }
        }
        match Graph::new(steps(&plan)) {
            Ok(graph) => {
                prop_assert!(done.iter().all(|done| *done), "{plan}");
                let layer = layer_of(&graph);
                for edge in graph.edges() {
                    prop_assert_eq!(edge.is_late, layer[edge.from] >= layer[edge.to]);
                    prop_assert!(edge.is_alternative || !edge.is_late);
                }
                for warning in graph.warnings() {
                    prop_assert!(!warning.to_string().is_empty());
                }
            }
            Err(error) => prop_assert!(!done.iter().all(|done| *done), "{plan} {error}"),
        }
    }
}
