use super::*;
use toolhold_model::route::scripted::Act::{Break, Never, Overflow, Refuse, Say, Think};
use toolhold_model::route::scripted::{Act, Scripted, complete};

struct Set {
    router: Router,
    picker: Scripted,
    easy: Scripted,
    hard: Scripted,
}

fn class(name: &str, model: &Scripted, rules: Rules) -> Class {
    Class {
        name: name.into(),
        description: format!("{name} things"),
        to: format!("{name}-pool"),
        model: Arc::new(model.clone()),
        rules,
    }
}

fn router(says: impl IntoIterator<Item = Act>) -> Set {
    let picker = Scripted::new(says);
    let (easy, hard) = (
        Scripted::new([Say("easily")]),
        Scripted::new([Say("hardly")]),
    );
    let rules = Rules {
        keywords: vec!["translate".into()],
        max_chars: Some(100),
        ..Rules::default()
    };
    let classes = vec![
        class("easy", &easy, rules),
        class("hard", &hard, Rules::default()),
    ];
    let policy = RouterPolicy {
        picker: Some(("tiny".into(), Arc::new(picker.clone()))),
        timeout: Duration::from_secs(5),
        default: 1,
    };
    Set {
        router: Router::new("router", classes, policy).unwrap(),
        picker,
        easy,
        hard,
    }
}

fn of(task: &str) -> RunContext<'_> {
    RunContext { task, class: None }
}

#[tokio::test(start_paused = true)]
async fn the_model_decides_once_in_a_run() {
    let set = router([Say("{\"class\": \"easy\"}")]);
    let run = set.router.session(&of("add two and two")).unwrap();
    let (result, heard) = complete(run.as_ref()).await;
    assert_eq!(result.unwrap().content, "easily");
    assert_eq!(
        heard.text, "easily",
        "what the picker writes is not the run's"
    );
    assert_eq!(
        heard.routing,
        [Routing::Classified {
            class: "easy".into(),
            to: "easy-pool".into(),
            by: Classifier::Model {
                model: "tiny".into()
            },
            usage: Some(Usage {
                prompt_tokens: 10,
                completion_tokens: 5,
                ..Usage::default()
            }),
        }]
    );
    for _ in 0..3 {
        let (_, heard) = complete(run.as_ref()).await;
        assert!(heard.routing.is_empty());
    }
    assert_eq!(
        (set.picker.asked(), set.easy.asked(), set.hard.asked()),
        (1, 4, 0)
    );
    assert_eq!(set.easy.requests()[0].model, "");
    let asked = &set.picker.requests()[0];
    let classes = &asked.response_format.as_ref().unwrap()["json_schema"]["schema"];
    assert_eq!(
        classes["properties"]["class"]["enum"],
        json!(["easy", "hard"])
    );
    assert!(
        asked.messages[0]
            .text()
            .unwrap()
            .contains("- hard: hard things")
    );
    assert_eq!(asked.messages[1].text(), Some("add two and two"));
}

#[tokio::test(start_paused = true)]
async fn a_rule_decides_without_asking() {
    let set = router([Never]);
    for (task, is_easy) in [
        ("Translate this, please", true),
        ("please TRANSLATE", true),
        ("the translated text", false),
        (&format!("translate {}", "x".repeat(100)), false),
    ] {
        let run = set.router.session(&of(task)).unwrap();
        let (result, heard) = complete(run.as_ref()).await;
        let answer = if is_easy { "easily" } else { "hardly" };
        assert_eq!(result.unwrap().content, answer, "{task}");
        let Routing::Classified { by, .. } = &heard.routing[0] else {
            panic!("{heard:?}")
        };
        assert_eq!(*by == Classifier::Rule, is_easy, "{task}");
    }
    assert_eq!(set.picker.asked(), 2);
}

#[tokio::test(start_paused = true)]
async fn whatever_else_the_model_does_the_default_holds() {
    for (act, reason) in [
        (Never, "did not decide within 5.0s"),
        (Think(Duration::from_secs(6), "easy"), "did not decide"),
        (Refuse(500), "500"),
        (Break("{\"class\": \"ea"), "in the middle"),
        (Say("{\"class\": \"none\"}"), "is no class"),
        (Say("I think it is easy"), "is no class"),
        (Say("{\"class\": 1}"), "is no class"),
    ] {
        let set = router([act.clone()]);
        let run = set.router.session(&of("a task")).unwrap();
        let (result, heard) = complete(run.as_ref()).await;
        assert_eq!(result.unwrap().content, "hardly", "{act:?}");
        let said = heard.routing[0].to_string();
        assert!(said.contains(reason), "{act:?}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn replies_without_an_enforced_schema_are_understood() {
    for says in [
        " easy\n",
        "Easy",
        "```json\n{\"class\": \"easy\"}\n```",
        "{'class': 'EASY',}",
        "It is {\"class\": \"easy\"}.",
        "<think>\nNot {\"class\": \"hard\"}.\n</think>\n\n{\"class\": \"easy\"}",
        "Not hard.\n</think>\neasy",
        "analysisNot hard.assistantfinal{\"class\": \"easy\"}",
    ] {
        let set = router([Say(says)]);
        let run = set.router.session(&of("a task")).unwrap();
        let (result, heard) = complete(run.as_ref()).await;
        assert_eq!(result.unwrap().content, "easily", "{says}: {heard:?}");
    }
    for says in [
        "<think>\neasy",
        "<think>\neasy\n</think>",
        "{\"class\": \"easy\"} or {\"class\": \"hard\"}",
    ] {
        let set = router([Say(says)]);
        let run = set.router.session(&of("a task")).unwrap();
        let (result, heard) = complete(run.as_ref()).await;
        assert_eq!(result.unwrap().content, "hardly", "{says}: {heard:?}");
    }
}

/// Some endpoints refuse a schema, and would answer without it.
#[tokio::test(start_paused = true)]
async fn an_endpoint_that_refuses_the_format_is_asked_without_it() {
    for (acts, forms, answer) in [
        (
            vec![Refuse(400), Say("{\"class\": \"easy\"}")],
            vec![true, false],
            "easily",
        ),
        (vec![Refuse(422), Refuse(422)], vec![true, false], "hardly"),
        // Something else is wrong.
        (vec![Overflow, Say("easy")], vec![true], "hardly"),
        (vec![Refuse(401), Say("easy")], vec![true], "hardly"),
        (vec![Refuse(503), Say("easy")], vec![true], "hardly"),
    ] {
        let set = router(acts.clone());
        let run = set.router.session(&of("a task")).unwrap();
        let (result, _) = complete(run.as_ref()).await;
        assert_eq!(result.unwrap().content, answer, "{acts:?}");
        let asked = set.picker.requests();
        let asked: Vec<bool> = asked
            .iter()
            .map(|request| request.response_format.is_some())
            .collect();
        assert_eq!(asked, forms, "{acts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_resumed_run_keeps_its_class() {
    let set = router([Say("{\"class\": \"hard\"}")]);
    let session = RunContext {
        task: "a task",
        class: Some("easy"),
    };
    let run = set.router.session(&session).unwrap();
    let (result, heard) = complete(run.as_ref()).await;
    assert_eq!(result.unwrap().content, "easily");
    assert!(heard.routing.is_empty());
    // A class that is gone is decided anew.
    let session = RunContext {
        class: Some("gone"),
        ..session
    };
    let run = set.router.session(&session).unwrap();
    assert_eq!(complete(run.as_ref()).await.0.unwrap().content, "hardly");
    assert_eq!(set.picker.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_inside_of_a_run_is_decided_for_itself() {
    let set = router([Say("{\"class\": \"hard\"}"), Say("{\"class\": \"easy\"}")]);
    let outer = set.router.session(&of("outer")).unwrap();
    complete(outer.as_ref()).await.0.unwrap();
    let inner = outer.session(&of("inner")).unwrap();
    assert_eq!(complete(inner.as_ref()).await.0.unwrap().content, "easily");
    assert_eq!(complete(outer.as_ref()).await.0.unwrap().content, "hardly");
}

#[test]
fn long_tasks_are_shown_by_their_ends() {
    let task = format!("BEGIN{}END", "ü".repeat(10_000));
    let shown = shown(&task);
    assert!(shown.starts_with("BEGIN") && shown.ends_with("END"));
    assert!(shown.chars().count() < 2 * MAX_SHOWN_CHARS + 10);
}
