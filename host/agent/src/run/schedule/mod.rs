//! Which calls of a step may run: data flows from the calls that write a place to those that read it
//! (docs/protocol.md, 5 and 7.3).
//!
//! A call waits for every earlier call of its step that writes what it reads, even if there is an
//! older value at that place: the model wrote them in this order. What no earlier call writes must
//! exist, or come into being by a later one.
//!
//! Where a tool may append a message, its call says no place, and only its result tells whether it wrote and where.
//! Such a call goes before every later one that may read what it appends, but for those that it waits for itself.

mod stuck;

use std::collections::HashMap;
use toolhold_protocol::data::Data;
use toolhold_protocol::reference::{Path, Source};

/// The calls of one step, by their index.
#[derive(Debug, Default)]
pub struct Schedule {
    nodes: Vec<Node>,
    /// Unfinished writers by kind of data.
    writers: HashMap<String, Vec<usize>>,
    /// Unfinished calls that may append.
    appending: Vec<usize>,
    /// Places that finished calls should have written and did not.
    failed: Vec<(usize, Path)>,
}

#[derive(Debug)]
struct Node {
    /// How people and models know it.
    name: String,
    instance: Option<String>,
    reads: Vec<PendingRead>,
    /// Earlier calls that are to be over, whatever comes of them.
    after: Vec<usize>,
    /// The same, of those that may append where this one reads.
    after_appending: Vec<usize>,
    writes: Vec<Path>,
    appends: Appends,
    state: CallProgress,
    /// The blocked call that it was last found to wait for: looking for it takes as long as there are
    /// writers.
    held_by: Option<usize>,
}

/// Where a call may write besides the places that it says, as its result tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Appends {
    #[default]
    Nowhere,
    /// Somewhere in this kind of data.
    InKind(String),
    Anywhere,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallProgress {
    Blocked,
    Running,
    Done,
}

#[derive(Debug)]
struct PendingRead {
    source: Source,
    /// For each path of the source: earlier calls that have yet to write it.
    waits: Vec<Vec<usize>>,
    /// For each path of the source: an earlier call that should have written it and did not.
    spoiled: Vec<Option<usize>>,
}

impl Schedule {
    /// Adds the next call: what it reads, what it is shown of the context, where its result goes, and where it may
    /// append.
    pub fn add(
        &mut self,
        name: String,
        instance: Option<String>,
        reads: Vec<Source>,
        sees: &[Path],
        writes: Vec<Path>,
        appends: Appends,
    ) {
        let index = self.nodes.len();
        let after_appending = self.appending_before(&reads, sees, instance.as_deref());
        let after = sees
            .iter()
            .flat_map(|path| self.writers(path, instance.as_deref()))
            .collect();
        let reads = reads
            .into_iter()
            .map(|source| PendingRead {
                waits: source
                    .paths()
                    .iter()
                    .map(|path| self.writers(path, instance.as_deref()).collect())
                    .collect(),
                spoiled: source
                    .paths()
                    .iter()
                    .map(|path| self.failure_at(path, instance.as_deref()))
                    .collect(),
                source,
            })
            .collect();
        for path in &writes {
            let writers = self.writers.entry(path.kind.clone()).or_default();
            if writers.last() != Some(&index) {
                writers.push(index);
            }
        }
        if appends != Appends::Nowhere {
            self.appending.push(index);
        }
        self.nodes.push(Node {
            name,
            instance,
            reads,
            after,
            after_appending,
            writes,
            appends,
            state: CallProgress::Blocked,
            held_by: None,
        });
    }

    /// The calls that can run now and could not before; they count as running.
    pub fn unblock(&mut self, data: &Data) -> Vec<usize> {
        let nodes = self.nodes.iter_mut().enumerate();
        nodes
            .filter(|(_, node)| node.state == CallProgress::Blocked && node.is_ready(data))
            .map(|(index, node)| {
                node.state = CallProgress::Running;
                index
            })
            .collect()
    }

    pub fn is_blocked(&self, index: usize) -> bool {
        self.nodes
            .get(index)
            .is_some_and(|node| node.state == CallProgress::Blocked)
    }

    /// A call is over, and wrote these places.
    pub fn done(&mut self, index: usize, written: &[Path]) {
        let Some(node) = self.nodes.get_mut(index) else {
            return;
        };
        node.state = CallProgress::Done;
        self.appending.retain(|appending| *appending != index);
        let unwritten = node
            .writes
            .iter()
            .filter(|path| !written.contains(path))
            .cloned();
        let failed: Vec<_> = unwritten.map(|path| (index, path)).collect();
        for path in &node.writes {
            if let Some(writers) = self.writers.get_mut(&path.kind) {
                writers.retain(|writer| *writer != index);
            }
        }
        // A value written by one instance does not replace a value that another should have
        // written.
        let (writer, nodes) = (node.instance.clone(), &self.nodes);
        self.failed.retain(|(failed, path)| {
            let instance = nodes.get(*failed).and_then(|node| node.instance.as_ref());
            let is_replaced = writer.is_none() || writer.as_ref() == instance;
            !is_replaced || !written.iter().any(|place| place.overlaps(path))
        });
        self.failed.extend(failed);
        let blocked = self
            .nodes
            .iter_mut()
            .filter(|node| node.state == CallProgress::Blocked);
        for node in blocked {
            node.after.retain(|writer| *writer != index);
            node.after_appending.retain(|appending| *appending != index);
            for read in &mut node.reads {
                read.done(index, written);
            }
        }
    }

    /// Whether a call runs, so that something may still be written.
    pub fn is_running(&self) -> bool {
        self.nodes
            .iter()
            .any(|node| node.state == CallProgress::Running)
    }

    /// Unfinished calls that may append where a call reads or is shown the context.
    fn appending_before(
        &self,
        reads: &[Source],
        sees: &[Path],
        reader: Option<&str>,
    ) -> Vec<usize> {
        let read = || reads.iter().flat_map(Source::paths).chain(sees);
        let appending = self.appending.iter().copied();
        let goes_before = |index: &usize| {
            self.nodes.get(*index).is_some_and(|node| {
                node.is_seen_by(reader) && read().any(|path| node.appends.may_be_at(path))
            })
        };
        appending.filter(goes_before).collect()
    }

    /// Unfinished calls that write at `path`, above or below it.
    fn writers<'a>(
        &'a self,
        path: &'a Path,
        reader: Option<&'a str>,
    ) -> impl Iterator<Item = usize> + 'a {
        let writers = self.writers.get(&path.kind).into_iter().flatten();
        writers.copied().filter(move |writer| {
            self.nodes.get(*writer).is_some_and(|node| {
                node.is_seen_by(reader) && node.writes.iter().any(|place| place.overlaps(path))
            })
        })
    }

    fn failure_at(&self, path: &Path, reader: Option<&str>) -> Option<usize> {
        let mut failed = self.failed.iter().rev();
        let (writer, _) = failed.find(|(writer, place)| {
            place.overlaps(path)
                && self
                    .nodes
                    .get(*writer)
                    .is_some_and(|node| node.is_seen_by(reader))
        })?;
        Some(*writer)
    }
}

impl Node {
    fn is_ready(&self, data: &Data) -> bool {
        self.after_appending.is_empty() && self.is_ready_but_for_appending(data)
    }

    fn is_ready_but_for_appending(&self, data: &Data) -> bool {
        let mut reads = self.reads.iter();
        self.after.is_empty() && reads.all(|read| read.is_ready(data, self.instance.as_deref()))
    }

    /// Whether a reader in an instance sees what this call writes.
    fn is_seen_by(&self, reader: Option<&str>) -> bool {
        self.instance.is_none() || self.instance.as_deref() == reader
    }
}

impl Appends {
    /// Whether what is appended may be at `path`, above or below it.
    fn may_be_at(&self, path: &Path) -> bool {
        match self {
            Self::Nowhere => false,
            Self::InKind(kind) => *kind == path.kind,
            Self::Anywhere => true,
        }
    }
}

impl PendingRead {
    fn is_ready(&self, data: &Data, instance: Option<&str>) -> bool {
        let mut paths = self
            .source
            .paths()
            .iter()
            .zip(&self.waits)
            .zip(&self.spoiled);
        let exists = |path: &Path| data.contains(path, instance);
        let is_settled =
            |waits: &[usize], spoiled: &Option<usize>| waits.is_empty() && spoiled.is_none();
        match self.source {
            // The first that exists is what will be read: it must not be about to be replaced.
            Source::First(_) => paths
                .find(|((path, _), _)| exists(path))
                .is_some_and(|((_, waits), spoiled)| is_settled(waits, spoiled)),
            Source::All(_) => {
                paths.all(|((path, waits), spoiled)| is_settled(waits, spoiled) && exists(path))
            }
        }
    }

    /// A call that may have been waited for is over, and wrote these places.
    fn done(&mut self, writer: usize, written: &[Path]) {
        let paths = self.source.paths().iter();
        for ((path, waits), spoiled) in paths.zip(&mut self.waits).zip(&mut self.spoiled) {
            let before = waits.len();
            waits.retain(|waited| *waited != writer);
            if waits.len() < before {
                let is_written = written.iter().any(|place| place.overlaps(path));
                *spoiled = (!is_written).then_some(writer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn calls_without_references_run_at_once() {
        let mut schedule = schedule(&[("a", "", "†s.a"), ("b", "", "†s.a"), ("c", "", "")]);
        assert_eq!(schedule.unblock(&Data::default()), [0, 1, 2]);
        assert!(schedule.unblock(&Data::default()).is_empty());
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
            ("all", "†s.a && †s.b", ""),
        ]);
        assert_eq!(schedule.unblock(&data), [0, 1]);
        write(&mut data, "†s.b");
        schedule.done(1, &[path("†s.b")]);
        assert_eq!(schedule.unblock(&data), [2]);
        write(&mut data, "†s.a");
        schedule.done(0, &[path("†s.a")]);
        assert_eq!(schedule.unblock(&data), [3]);
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
    fn what_may_be_appended_is_read_after_the_call_that_may_append_it() {
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
        assert_eq!(schedule.unblock(&data), [0, 1, 6, 8]);
        assert!(!schedule.pass_appending(&data), "it runs");
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
        assert!(schedule.pass_appending(&data));
        assert_eq!(schedule.unblock(&data), [1]);
        write(&mut data, "†s.a");
        schedule.done(1, &[path("†s.a")]);
        assert_eq!(schedule.unblock(&data), [0]);
        assert!(!schedule.pass_appending(&data));
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
        assert!(schedule.pass_appending(&data));
        assert_eq!(schedule.unblock(&data), [3]);
        assert!(!schedule.pass_appending(&data), "it runs");
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
    fn a_call_passes_all_that_wait_for_it_and_no_other() {
        let mut data = Data::default();
        write(&mut data, "†inbox.next");
        let inbox = || Appends::InKind("inbox".into());
        let mut schedule = Schedule::default();
        appending(&mut schedule, "one", "†s.next", inbox());
        appending(&mut schedule, "two", "†s.next", inbox());
        appending(&mut schedule, "hopeless", "†s.nothing", inbox());
        passing(&mut schedule, "next", "†inbox.next", "†s.next");
        assert!(schedule.unblock(&data).is_empty());
        // It passes two of them in one go. The third waits for nobody, and is refused first.
        assert!(schedule.pass_appending(&data));
        assert!(schedule.unblock(&data).is_empty());
        assert!(!schedule.pass_appending(&data));
        let ended = schedule.give_up(&data);
        assert_eq!(ended.len(), 1, "{ended:?}");
        assert!(ended[0].0 == 2 && ended[0].1.starts_with("it could not run"));
        schedule.done(2, &[]);
        assert_eq!(schedule.unblock(&data), [3]);
        write(&mut data, "†s.next");
        schedule.done(3, &[path("†s.next")]);
        assert_eq!(schedule.unblock(&data), [0, 1]);
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
        assert!(!schedule.pass_appending(&data), "nothing waits for another");
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
        assert!(!schedule.pass_appending(&data));
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
            if ready.is_empty() && !schedule.pass_appending(&data) {
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
}
