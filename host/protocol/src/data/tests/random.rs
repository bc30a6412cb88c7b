//! Any writes: the index reads what the definition says.

use super::*;

// Few names and short lists, so that writes meet.
fn segments(most: usize) -> impl Strategy<Value = Vec<Segment>> {
    let segment = prop_oneof![
        2 => "[ab]".prop_map(Segment::Key),
        1 => (0_usize..3).prop_map(Segment::Index),
    ];
    prop::collection::vec(segment, 0..=most)
}

fn any_path(most: usize) -> impl Strategy<Value = Path> {
    let kind = prop_oneof![4 => Just("s"), 1 => Just("t")];
    (kind, segments(most)).prop_map(|(kind, segments)| Path {
        kind: kind.to_owned(),
        segments,
    })
}

fn any_value() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        (0..9).prop_map(Value::from),
        "[a-c]{0,2}".prop_map(Value::from),
    ];
    scalar.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            2 => prop::collection::hash_map("[ab]", inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn any_instance() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        2 => Just(None),
        2 => Just(Some("x".to_owned())),
        1 => Just(Some("y".to_owned())),
    ]
}

fn any_write() -> impl Strategy<Value = Write> {
    let method = prop::sample::select(vec![Set, Merge, Merge, Assign, Push, Push, Concat]);
    (any_path(3), any_instance(), method, any_value()).prop_map(
        |(path, instance, method, value)| Write {
            path,
            instance,
            method,
            value,
        },
    )
}

/// Every place in `value`, which stands at `path`.
fn places(value: &Value, path: Path, found: &mut Vec<Path>) {
    let below = |segment| {
        let mut path = path.clone();
        path.segments.push(segment);
        path
    };
    match value {
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(index, item)| places(item, below(Segment::Index(index)), found)),
        Value::Object(fields) => fields
            .iter()
            .for_each(|(key, field)| places(field, below(Segment::Key(key.clone())), found)),
        _ => {}
    }
    found.push(path);
}

fn any_writes() -> impl Strategy<Value = Vec<Write>> {
    prop::collection::vec(any_write(), 0..40)
}

proptest! {
    #[test]
    fn the_index_reads_what_the_definition_says(
        writes in any_writes(),
        paths in prop::collection::vec(any_path(5), 1..24),
    ) {
        let mut data = Data::default();
        for write in writes {
            let _ = data.write(write);
        }
        for reader in [None, Some("x"), Some("y")] {
            let mut paths = paths.clone();
            for (kind, value) in data.kinds(reader) {
                places(&value, Path::root(kind), &mut paths);
            }
            for path in &paths {
                let index = data.read(path, reader).ok().map(Cow::into_owned);
                prop_assert_eq!(data.contains(path, reader), index.is_some());
                let definition = naive::read(data.log(), path, reader);
                prop_assert_eq!(index, definition, "{} in {:?} of {:?}", path, reader, data.log());
            }
        }
    }

    #[test]
    fn a_refused_write_changes_nothing(writes in any_writes()) {
        let mut data = Data::default();
        for write in writes {
            let before = data.clone();
            match data.write(write.clone()) {
                Ok(()) => prop_assert_eq!(data.log().last(), Some(&write)),
                Err(error) => {
                    prop_assert_eq!(error.path, write.path);
                    prop_assert_eq!(&data, &before);
                }
            }
        }
    }

    #[test]
    fn nothing_of_another_instance_is_visible(
        writes in any_writes(),
        paths in prop::collection::vec(any_path(5), 1..24),
    ) {
        let mut all = Data::default();
        let mut alone = Data::default();
        for write in writes {
            let accepted = all.write(write.clone());
            if write.instance.as_deref() != Some("y") {
                prop_assert_eq!(accepted, alone.write(write));
            }
        }
        for path in &paths {
            // The errors too: they list what is there.
            prop_assert_eq!(all.read(path, Some("x")), alone.read(path, Some("x")));
            prop_assert_eq!(all.read(path, None), alone.read(path, None));
        }
        prop_assert_eq!(all.kinds(Some("x")), alone.kinds(Some("x")));
        prop_assert_eq!(all.scoped(&paths, Some("x")), alone.scoped(&paths, Some("x")));
    }
}
