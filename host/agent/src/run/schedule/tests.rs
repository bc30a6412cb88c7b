use super::*;
use serde_json::json;
use toolhold_protocol::data::{Method, Write};

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

/// Calls as `reads → writes`, in the instance before a colon.
fn schedule(calls: &[(&str, &str, &str)]) -> Schedule {
    let mut schedule = Schedule::default();
    for (name, reads, writes) in calls {
        let (instance, name) = name
            .split_once(':')
            .map_or((None, *name), |(instance, name)| {
                (Some(instance.to_owned()), name)
            });
        let reads = reads
            .split(", ")
            .filter(|read| !read.is_empty())
            .map(|read| read.parse().unwrap());
        let writes = writes
            .split(", ")
            .filter(|write| !write.is_empty())
            .map(path);
        schedule.add(
            name.into(),
            instance,
            reads.collect(),
            &[],
            writes.collect(),
            Appends::Nowhere,
        );
    }
    schedule
}

/// Adds a call that reads `read` and may append.
fn appending(schedule: &mut Schedule, name: &str, read: &str, appends: Appends) {
    let reads = (!read.is_empty()).then(|| read.parse().unwrap());
    let reads = reads.into_iter().collect();
    schedule.add(name.into(), None, reads, &[], Vec::new(), appends);
}

fn write(data: &mut Data, place: &str) {
    let write = Write {
        path: path(place),
        instance: None,
        method: Method::Set,
        value: json!(1),
    };
    data.write(write).unwrap();
}

/// A record of format 3 has calls that share a place at the same time, and is replayed as it was.
#[test]
fn under_the_rules_of_format_3_calls_wait_only_for_what_they_read() {
    let calls = |rules| {
        let mut schedule = Schedule::under(rules);
        for writes in ["†s.a", "†s.a", "†s"] {
            let writes = vec![path(writes)];
            schedule.add(
                "writes".into(),
                None,
                Vec::new(),
                &[],
                writes,
                Appends::Nowhere,
            );
        }
        schedule
    };
    let data = Data::default();
    assert_eq!(calls(LoopRules::Format3).unblock(&data), [0, 1, 2]);
    assert_eq!(calls(LoopRules::Current).unblock(&data), [0]);
}

/// By these rules the call that ends last counts, at any place in the reply.
#[test]
fn under_the_rules_of_format_3_a_later_failure_spoils_what_is_read() {
    for (rules, ready) in [
        (LoopRules::Format3, Vec::new()),
        (LoopRules::Current, vec![2]),
    ] {
        let (mut data, mut schedule) = (Data::default(), Schedule::under(rules));
        for (instance, read, write) in [
            (None, "", "†s.a"),
            (Some("i"), "", "†s.a"),
            (Some("i"), "†s.a", ""),
        ] {
            let reads = (!read.is_empty()).then(|| read.parse().unwrap());
            let writes = (!write.is_empty()).then(|| path(write));
            schedule.add(
                "call".into(),
                instance.map(str::to_owned),
                reads.into_iter().collect(),
                &[],
                writes.into_iter().collect(),
                Appends::Nowhere,
            );
        }
        assert_eq!(schedule.unblock(&data), [0, 1]);
        write(&mut data, "†s.a");
        schedule.done(1, &[path("†s.a")]);
        schedule.done(0, &[]);
        assert_eq!(schedule.unblock(&data), ready, "{rules:?}");
    }
}

#[test]
fn calls_without_references_run_at_once() {
    let mut schedule = schedule(&[("a", "", "†s.a"), ("b", "", "†s.b"), ("c", "", "")]);
    assert_eq!(schedule.unblock(&Data::default()), [0, 1, 2]);
    assert!(schedule.unblock(&Data::default()).is_empty());
}

#[test]
fn a_writer_waits_for_the_writers_and_readers_before_it() {
    let mut data = Data::default();
    write(&mut data, "†s.a");
    write(&mut data, "†s.b");
    let mut schedule = schedule(&[
        ("slow", "", "†s.c"),
        ("reads old", "†s.a, †s.c", ""),
        ("writes new", "", "†s.a"),
        ("writes again", "", "†s.a.x, †s.d"),
        ("apart", "", "†s.b"),
        ("one:apart", "", "†s.a"),
        ("reads new", "†s.a", ""),
    ]);
    assert_eq!(schedule.unblock(&data), [0, 4, 5]);
    write(&mut data, "†s.c");
    schedule.done(0, &[path("†s.c")]);
    for (call, places) in [(1, vec![]), (2, vec!["†s.a"]), (3, vec!["†s.a.x", "†s.d"])] {
        assert_eq!(schedule.unblock(&data), [call]);
        for place in &places {
            write(&mut data, place);
        }
        let places: Vec<Path> = places.into_iter().map(path).collect();
        schedule.done(call, &places);
    }
    assert_eq!(schedule.unblock(&data), [6]);
}

#[test]
fn a_reader_without_a_value_reads_what_the_next_writer_leaves() {
    let mut data = Data::default();
    write(&mut data, "†s.b");
    let mut schedule = schedule(&[
        ("reader", "†s.a", ""),
        ("first", "", "†s.a"),
        ("second", "", "†s.a"),
    ]);
    assert_eq!(schedule.unblock(&data), [1]);
    write(&mut data, "†s.a");
    schedule.done(1, &[path("†s.a")]);
    assert_eq!(schedule.unblock(&data), [0]);
    schedule.done(0, &[]);
    assert_eq!(schedule.unblock(&data), [2]);
}

/// The first reader needs what the writer writes, so it stands behind the writer, and no circle comes of it.
#[test]
fn a_call_that_waits_for_a_later_one_lets_it_pass() {
    let mut data = Data::default();
    write(&mut data, "†s.a");
    let mut schedule = schedule(&[
        ("reader", "†s.a, †s.b", ""),
        ("writer", "", "†s.a, †s.b"),
        ("last", "", "†s.a"),
    ]);
    assert!(schedule.unblock(&data).is_empty());
    assert!(schedule.let_pass(&data));
    assert_eq!(schedule.unblock(&data), [1]);
    write(&mut data, "†s.b");
    schedule.done(1, &[path("†s.a"), path("†s.b")]);
    assert_eq!(
        schedule.unblock(&data),
        [0],
        "the last waits for the reader"
    );
    schedule.done(0, &[]);
    assert_eq!(schedule.unblock(&data), [2]);
}

/// The later call is not held up for ever by one that can never read.
#[test]
fn a_call_that_cannot_be_made_lets_the_writers_behind_it_go() {
    let mut data = Data::default();
    write(&mut data, "†s.a");
    let mut schedule = schedule(&[
        ("fails", "", "†s.b"),
        ("reader", "†s.a, †s.b", "†s.a"),
        ("writer", "", "†s.a"),
    ]);
    assert_eq!(schedule.unblock(&data), [0]);
    schedule.done(0, &[]);
    assert!(schedule.unblock(&data).is_empty());
    assert!(!schedule.let_pass(&data));
    let ended = schedule.give_up(&data);
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert!(ended[0].1.contains("fails should have written †s.b"));
    schedule.done(1, &[]);
    assert_eq!(schedule.unblock(&data), [2]);
}

#[test]
fn a_reader_waits_for_the_writers_before_it_even_if_there_is_an_older_value() {
    let mut data = Data::default();
    write(&mut data, "†s.a");
    let mut schedule = schedule(&[
        ("writer", "", "†s.a.x"),
        ("reader", "†s.a", ""),
        ("early", "†s.b", ""),
    ]);
    assert_eq!(schedule.unblock(&data), [0]);
    write(&mut data, "†s.a.x");
    schedule.done(0, &[path("†s.a.x")]);
    assert_eq!(schedule.unblock(&data), [1]);
    // A later call's write is awaited only if the path has no value yet.
    schedule.add(
        "late".into(),
        None,
        Vec::new(),
        &[],
        vec![path("†s.b")],
        Appends::Nowhere,
    );
    assert_eq!(schedule.unblock(&data), [3]);
    write(&mut data, "†s.b");
    schedule.done(3, &[path("†s.b")]);
    assert_eq!(schedule.unblock(&data), [2]);
}

#[test]
fn an_expression_waits_for_one_or_for_all() {
    let mut data = Data::default();
    let mut schedule = schedule(&[
        ("a", "", "†s.a"),
        ("b", "", "†s.b"),
        ("any", "†s.a || †s.b", ""),
        ("all", "†s.a, †s.b", ""),
    ]);
    assert_eq!(schedule.unblock(&data), [0, 1]);
    write(&mut data, "†s.b");
    schedule.done(1, &[path("†s.b")]);
    // The first of the alternatives is still to come.
    assert!(schedule.unblock(&data).is_empty());
    write(&mut data, "†s.a");
    schedule.done(0, &[path("†s.a")]);
    assert_eq!(schedule.unblock(&data), [2, 3]);
}

#[test]
fn failed_call_hides_older_values_at_its_output_path() {
    let mut data = Data::default();
    write(&mut data, "†s.a");
    let mut schedule = schedule(&[("writer", "", "†s.a"), ("reader", "†s.a", "")]);
    schedule.unblock(&data);
    schedule.done(0, &[]);
    schedule.add(
        "late".into(),
        None,
        vec!["†s.a".parse().unwrap()],
        &[],
        Vec::new(),
        Appends::Nowhere,
    );
    assert!(schedule.unblock(&data).is_empty());
    let reasons = schedule.give_up(&data);
    assert_eq!(reasons.len(), 2);
    assert!(
        reasons
            .iter()
            .all(|(_, reason)| reason.contains("writer should have written †s.a and did not")),
        "{reasons:?}"
    );
}

#[test]
fn a_place_without_a_writer_is_named() {
    let mut data = Data::default();
    write(&mut data, "†s.something");
    let mut schedule = schedule(&[("reader", "†s.nothing", "")]);
    assert!(schedule.unblock(&data).is_empty());
    let reasons = schedule.give_up(&data);
    assert!(reasons[0].1.contains("†s.nothing"), "{reasons:?}");
    assert!(schedule.give_up(&data).is_empty());
}

#[test]
fn a_circle_is_named_in_the_direction_of_the_data() {
    let mut schedule = schedule(&[("a", "†s.y", "†s.x"), ("b", "†s.x", "†s.y")]);
    assert!(schedule.unblock(&Data::default()).is_empty());
    let reasons = schedule.give_up(&Data::default());
    assert!(
        reasons[0].1.contains("a → †s.x → b → †s.y → a")
            || reasons[0].1.contains("b → †s.y → a → †s.x → b"),
        "{reasons:?}"
    );
}

#[test]
fn write_of_one_instance_does_not_repair_a_failure_in_another() {
    let mut data = Data::default();
    write(&mut data, "†s.a");
    let mut schedule = schedule(&[("one:writer", "", "†s.a"), ("two:writer", "", "†s.a")]);
    schedule.unblock(&data);
    schedule.done(0, &[]);
    schedule.done(1, &[path("†s.a")]);
    let read = || vec!["†s.a".parse().unwrap()];
    schedule.add(
        "of one".into(),
        Some("one".into()),
        read(),
        &[],
        Vec::new(),
        Appends::Nowhere,
    );
    schedule.add(
        "of two".into(),
        Some("two".into()),
        read(),
        &[],
        Vec::new(),
        Appends::Nowhere,
    );
    assert_eq!(schedule.unblock(&data), [3]);
}

#[test]
fn instances_do_not_wait_for_each_other() {
    let mut data = Data::default();
    write(&mut data, "†s.a");
    let mut schedule = schedule(&[
        ("one:writer", "", "†s.a"),
        ("two:reader", "†s.a", ""),
        ("one:reader", "†s.a", ""),
    ]);
    assert_eq!(schedule.unblock(&data), [0, 1]);
}

#[test]
fn an_appended_place_is_read_after_the_call_that_may_append_to_it() {
    let mut data = Data::default();
    write(&mut data, "†inbox.ada");
    write(&mut data, "†rules.a");
    let mut schedule = Schedule::default();
    appending(&mut schedule, "before", "†inbox.ada", Appends::Nowhere);
    let inbox = || Appends::InKind("inbox".into());
    appending(&mut schedule, "appends", "", inbox());
    for read in [
        "†inbox.ada",
        "†inbox",
        "†inbox.ada.text",
        "†rules.a || †inbox.ada",
    ] {
        appending(&mut schedule, read, read, Appends::Nowhere);
    }
    appending(&mut schedule, "another kind", "†rules.a", Appends::Nowhere);
    let sees = [path("†inbox.ada")];
    schedule.add(
        "sees".into(),
        None,
        Vec::new(),
        &sees,
        Vec::new(),
        Appends::Nowhere,
    );
    appending(&mut schedule, "reads nothing", "", Appends::Nowhere);
    assert_eq!(schedule.unblock(&data), [0, 6, 8]);
    assert!(!schedule.let_pass(&data), "they run");
    schedule.done(0, &[]);
    assert_eq!(schedule.unblock(&data), [1]);
    // Whatever comes of it: a call that may append need not.
    schedule.done(1, &[]);
    write(&mut data, "†inbox.ada.text");
    assert_eq!(schedule.unblock(&data), [2, 3, 4, 5, 7]);
}

#[test]
fn an_appending_call_of_one_instance_holds_up_no_other() {
    let mut data = Data::default();
    write(&mut data, "†s.a");
    let mut schedule = Schedule::default();
    let add = |schedule: &mut Schedule, instance: &str, read: &str, appends| {
        let reads = (!read.is_empty()).then(|| read.parse().unwrap());
        let instance = Some(instance.to_owned());
        let reads = reads.into_iter().collect();
        schedule.add("call".into(), instance, reads, &[], Vec::new(), appends);
    };
    add(&mut schedule, "one", "", Appends::Anywhere);
    add(&mut schedule, "one", "†s.a", Appends::Nowhere);
    add(&mut schedule, "two", "†s.a", Appends::Nowhere);
    assert_eq!(schedule.unblock(&data), [0, 2]);
}

#[test]
fn a_call_passes_one_that_may_append_and_waits_for_it() {
    let mut data = Data::default();
    write(&mut data, "†s.b");
    let mut schedule = Schedule::default();
    appending(&mut schedule, "appends", "†s.a", Appends::Anywhere);
    schedule.add(
        "writes".into(),
        None,
        vec!["†s.b".parse().unwrap()],
        &[],
        vec![path("†s.a")],
        Appends::Nowhere,
    );
    assert!(schedule.unblock(&data).is_empty());
    assert!(schedule.let_pass(&data));
    assert_eq!(schedule.unblock(&data), [1]);
    write(&mut data, "†s.a");
    schedule.done(1, &[path("†s.a")]);
    assert_eq!(schedule.unblock(&data), [0]);
    assert!(!schedule.let_pass(&data));
}
/// Adds a call that reads one place and writes another, and may append nowhere.
fn passing(schedule: &mut Schedule, name: &str, read: &str, write: &str) {
    let reads = vec![read.parse().unwrap()];
    let writes = vec![path(write)];
    schedule.add(name.into(), None, reads, &[], writes, Appends::Nowhere);
}

#[test]
fn a_reader_that_no_appending_call_waits_for_passes_none() {
    let mut data = Data::default();
    write(&mut data, "†inbox.ada");
    write(&mut data, "†inbox.next");
    let inbox = || Appends::InKind("inbox".into());
    let mut schedule = Schedule::default();
    appending(&mut schedule, "appends", "†s.last", inbox());
    appending(&mut schedule, "reader", "†inbox.ada", Appends::Nowhere);
    // What the first waits for, through another.
    passing(&mut schedule, "then", "†s.next", "†s.last");
    passing(&mut schedule, "next", "†inbox.next", "†s.next");
    assert!(schedule.unblock(&data).is_empty());
    assert!(schedule.let_pass(&data));
    assert_eq!(schedule.unblock(&data), [3]);
    assert!(!schedule.let_pass(&data), "it runs");
    write(&mut data, "†s.next");
    schedule.done(3, &[path("†s.next")]);
    assert_eq!(schedule.unblock(&data), [2]);
    write(&mut data, "†s.last");
    schedule.done(2, &[path("†s.last")]);
    assert_eq!(schedule.unblock(&data), [0]);
    schedule.done(0, &[path("†inbox.ada")]);
    assert_eq!(schedule.unblock(&data), [1]);
}

#[test]
fn a_call_passes_all_that_wait_for_it() {
    let mut data = Data::default();
    write(&mut data, "†inbox.next");
    let inbox = || Appends::InKind("inbox".into());
    let mut schedule = Schedule::default();
    appending(&mut schedule, "one", "†s.next", inbox());
    appending(&mut schedule, "two", "†s.next", inbox());
    appending(&mut schedule, "hopeless", "†s.nothing", inbox());
    passing(&mut schedule, "next", "†inbox.next", "†s.next");
    assert!(schedule.unblock(&data).is_empty());
    // It passes them in one go: the third comes behind the others.
    assert!(schedule.let_pass(&data));
    assert_eq!(schedule.unblock(&data), [3]);
    write(&mut data, "†s.next");
    schedule.done(3, &[path("†s.next")]);
    for call in [0, 1] {
        assert_eq!(schedule.unblock(&data), [call], "one after the other");
        schedule.done(call, &[]);
    }
    assert!(schedule.unblock(&data).is_empty());
    assert!(!schedule.let_pass(&data));
    let ended = schedule.give_up(&data);
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert!(ended[0].0 == 2 && ended[0].1.starts_with("it could not run"));
}

#[test]
fn a_call_that_may_append_and_cannot_be_made_is_ended_before_those_that_wait_for_it() {
    let mut data = Data::default();
    write(&mut data, "†inbox.ada");
    let mut schedule = Schedule::default();
    // What the last may append is still to come.
    appending(&mut schedule, "early", "†rules.late", Appends::Nowhere);
    let inbox = Appends::InKind("inbox".into());
    appending(&mut schedule, "hopeless", "†s.nothing", inbox);
    let rules = Appends::InKind("rules".into());
    appending(&mut schedule, "reader", "†inbox.ada", rules);
    assert!(schedule.unblock(&data).is_empty());
    assert!(!schedule.let_pass(&data), "nothing waits for another");
    let ended = schedule.give_up(&data);
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert!(ended[0].0 == 1 && ended[0].1.starts_with("it could not run"));
    schedule.done(1, &[]);
    assert_eq!(schedule.unblock(&data), [2]);
    write(&mut data, "†rules.late");
    schedule.done(2, &[path("†rules.late")]);
    assert_eq!(schedule.unblock(&data), [0]);
}

/// The place is missing, and each may be what the other lacks.
#[test]
fn a_circle_with_what_may_be_appended_is_named() {
    let mut schedule = Schedule::default();
    appending(&mut schedule, "appends", "†s.a", Appends::Anywhere);
    passing(&mut schedule, "writes", "†inbox.missing", "†s.a");
    let data = Data::default();
    assert!(schedule.unblock(&data).is_empty());
    assert!(!schedule.let_pass(&data));
    let ended = schedule.give_up(&data);
    assert_eq!(ended.len(), 2, "{ended:?}");
    assert!(
        ended[0].1.contains("appends → writes → †s.a → appends"),
        "{ended:?}"
    );
}

#[test]
fn many_calls_that_may_append_are_passed_in_time() {
    const MANY: usize = 100;
    let mut data = Data::default();
    write(&mut data, "†inbox.next");
    let mut schedule = Schedule::default();
    for n in 0..MANY {
        let read = format!("†s.p{n}");
        appending(&mut schedule, "appends", &read, Appends::Anywhere);
    }
    for n in 0..MANY {
        let place = format!("†s.p{n}");
        passing(&mut schedule, "writes", "†inbox.next", &place);
    }
    let started = std::time::Instant::now();
    let mut made = 0;
    loop {
        let ready = schedule.unblock(&data);
        if ready.is_empty() && !schedule.let_pass(&data) {
            break;
        }
        for index in ready {
            made += 1;
            let place = index.checked_sub(MANY).map(|n| format!("†s.p{n}"));
            if let Some(place) = &place {
                write(&mut data, place);
            }
            let written: Vec<_> = place.as_deref().map(path).into_iter().collect();
            schedule.done(index, &written);
        }
    }
    assert_eq!(made, 2 * MANY);
    assert!(
        started.elapsed() < std::time::Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
}
