//! Section 5: references and the expressions made of them.

use toolhold_protocol::reference::{Argument, MAX_INDEX, Path, Source, Target};

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

#[test]
fn a_reference_is_the_whole_string_and_two_daggers_begin_a_text() {
    let literal = |text: &str| Argument::Literal(text.into());
    for (rule, text, expect) in [
        ("5.1", "plain", literal("plain")),
        ("5.1", "††state.x", literal("†state.x")),
        ("5.1", "see †state.x", literal("see †state.x")),
        ("5.1", "†††", literal("††")),
        ("5.1", "5 †† 6", literal("5 †† 6")),
        ("5.1", "a ††b", literal("a ††b")),
        ("5.1", "", literal("")),
        (
            "5.1",
            "†a",
            Argument::Reference(Source::First(vec![path("†a")])),
        ),
    ] {
        assert_eq!(Argument::parse(text), Ok(expect), "{rule}: {text}");
    }
    for (rule, text) in [("5.1", "†"), ("5.1", "† is a dagger")] {
        assert!(Argument::parse(text).is_err(), "{rule}: {text}");
    }
}

#[test]
fn an_input_expression_is_the_first_that_exists_or_all() {
    let (a, b) = (path("†a"), path("†b.c"));
    for (rule, text, meant) in [
        ("5.1", "†a", Source::First(vec![a.clone()])),
        ("5.4", "†a||†b.c", Source::First(vec![a.clone(), b.clone()])),
        ("5.4", "†a && †b.c", Source::All(vec![a, b])),
    ] {
        assert_eq!(text.parse(), Ok(meant), "{rule}: {text}");
    }
}

#[test]
fn faults_name_the_place_and_the_expectation() {
    let wide = format!("†s[{}]", MAX_INDEX + 1);
    let deep = format!("†s{}", ".a".repeat(65));
    let many = vec!["†a"; 17].join(" || ");
    for (rule, text, at, expected) in [
        ("5.1", "state", 1, "a dagger"),
        ("5.1", "", 1, "a dagger"),
        ("5.1", "†", 2, "the kind of data"),
        ("5.1", "†.a", 2, "the kind of data"),
        ("5.1", "†state.", 8, "a name"),
        ("5.1", "†state..a", 8, "a name"),
        ("5.1", "†s[x]", 4, "an index"),
        ("5.1", "†s[-1]", 4, "an index"),
        ("5.9", &wide, 4, "an index"),
        ("5.1", "†s[1", 5, "a ]"),
        ("5.4", "†a b", 4, "&&, ||"),
        ("5.4", "†a & †b", 4, "&&, ||"),
        ("5.4", "†a || b", 7, "a dagger"),
        ("5.4", "†a || †b && †c", 10, "the same operator"),
        ("5.9", &deep, 131, "the end, because 64"),
        ("5.9", &many, 94, "the end, because 16"),
    ] {
        let error = text.parse::<Source>().unwrap_err();
        assert_eq!(error.at, at, "{rule}: {text}: {error}");
        assert!(
            error.expected.starts_with(expected),
            "{rule}: {text}: {error}"
        );
    }
}

#[test]
fn an_output_expression_is_every_place_or_the_one_that_the_outcome_picks() {
    for (rule, text, succeeded, places) in [
        ("5.5", "†a", true, "†a"),
        ("5.5", "†a", false, ""),
        ("5.5", "†a && †b", true, "†a †b"),
        ("5.5", "†a && †b", false, ""),
        ("5.5", "†a || †b", true, "†a"),
        ("5.5", "†a || †b", false, "†b"),
        ("5.5", "†a || †b || †c", false, "†c"),
    ] {
        let target: Target = text.parse().unwrap();
        let chosen = target.chosen(succeeded);
        let chosen: Vec<_> = chosen.iter().map(ToString::to_string).collect();
        assert_eq!(chosen.join(" "), places, "{rule}: {text} {succeeded}");
    }
}
