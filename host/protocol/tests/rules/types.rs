//! Section 2.13: types of messages that a context registers.

use crate::messages::{context, own};
use serde_json::{Value, json};
use toolhold_protocol::context::Message;

const TYPES: &str = include_str!("../../../../tests/fixtures/protocol/types.json");

#[test]
fn a_context_registers_types_of_messages() {
    let fixture: Value = serde_json::from_str(TYPES).unwrap();
    let given = context(&fixture["context"]).unwrap();
    for (rule, instance) in [
        ("2.13", None),
        ("2.13", Some("north")),
        ("2.13", Some("south")),
    ] {
        let meant = &fixture["data"][instance.unwrap_or_default()];
        assert_eq!(
            own(&given, "parcel", instance),
            *meant,
            "{rule}: {instance:?}"
        );
    }
    let Message::Type(registered) = &given.messages[0] else {
        panic!("{:?}", given.messages[0]);
    };
    assert_eq!(registered.schema, fixture["context"][0]["schema"]);
    let described = Some("Parcel\nWeights are in kilograms.");
    assert_eq!(registered.description.as_deref(), described);
    // What is kept needs no registry to be read, message by message, and means the same.
    let kept = json!(given.saved());
    let alone: Vec<Message> = serde_json::from_value(kept.clone()).unwrap();
    assert_eq!(alone, given.messages);
    let again = context(&kept).unwrap();
    for instance in [None, Some("north"), Some("south")] {
        assert_eq!(
            own(&again, "parcel", instance),
            own(&given, "parcel", instance)
        );
    }

    for refused in fixture["refused"].as_array().unwrap() {
        let mut messages = fixture["context"].clone();
        let at = messages.as_array().unwrap().len() + 1;
        messages
            .as_array_mut()
            .unwrap()
            .push(refused["message"].clone());
        let [why, place, remedy] =
            ["why", "place", "remedy"].map(|key| refused[key].as_str().unwrap());
        let error = context(&messages)
            .err()
            .unwrap_or_else(|| panic!("{why}: it is taken"));
        let whose = format!("message {at} of the context{place}: ");
        assert!(
            error.starts_with(&whose) && error.contains(remedy),
            "{why}: {error}"
        );
    }
}

#[test]
fn a_type_holds_for_what_follows_it() {
    let of = |schema: Value| json!({"type": "type", "name": "parcel", "schema": schema});
    let parcel = |data: Value| json!({"type": "parcel", "data": data});
    let (text, number) = (json!({"type": "string"}), json!({"type": "number"}));
    for (rule, messages, fault) in [
        (
            "2.13",
            json!([parcel(json!(1)), of(number.clone())]),
            Some(1),
        ),
        (
            "2.13",
            json!([
                of(number.clone()),
                parcel(json!(1)),
                of(text.clone()),
                parcel(json!("a"))
            ]),
            None,
        ),
        (
            "2.13",
            json!([of(number), parcel(json!("a")), of(text), parcel(json!("a"))]),
            Some(2),
        ),
    ] {
        let read = context(&messages).map(drop);
        let meant = fault.map(|at| format!("message {at} of the context"));
        let is_meant = match (&read, &meant) {
            (Ok(()), None) => true,
            (Err(error), Some(meant)) => error.starts_with(meant.as_str()),
            _ => false,
        };
        assert!(is_meant, "{rule}: {messages}: {read:?}");
    }
}

/// What a client's types may take is bounded, and so is the work of all messages of a type together.
#[test]
fn registered_types_are_bounded() {
    let of = |name: String, schema: Value| json!({"type": "type", "name": name, "schema": schema});
    let types = |count: usize| {
        (0..count)
            .map(|n| of(format!("t{n}"), json!(true)))
            .collect()
    };
    assert!(context(&types(16)).is_ok());
    let error = context(&types(17)).err().unwrap();
    assert!(error.contains("may register 16 types"), "{error}");

    let long = |bytes: usize| json!({"description": "x".repeat(bytes)});
    assert!(context(&json!([of("a".into(), long(60 << 10))])).is_ok());
    let together = json!([
        of("a".into(), long(40 << 10)),
        of("b".into(), long(40 << 10))
    ]);
    let error = context(&together).err().unwrap();
    assert!(
        error.contains("take more than 65536 bytes together"),
        "{error}"
    );

    // To say again what holds is no registration: the turns of a session do so.
    let same = vec![of("a".into(), long(40 << 10)); 20];
    assert!(context(&same.into()).is_ok());

    // One check of such a value takes about a tenth of the steps of a check; many take no more than one.
    let choices: Vec<Value> = (0..400).map(|n| json!({"const": format!("{n}")})).collect();
    let dear = of("a".into(), json!({"items": {"anyOf": choices}}));
    let value = json!({"type": "a", "data": vec!["399"; 1_000]});
    let many = |count: usize| -> Value {
        std::iter::once(dear.clone())
            .chain(vec![value.clone(); count])
            .collect()
    };
    assert!(context(&many(1)).is_ok());
    let error = context(&many(200)).err().unwrap();
    assert!(error.contains("could not be checked"), "{error}");
    // Those of many types neither: five values of each of twelve are sixty.
    let many_types: Value = (0..12)
        .flat_map(|n| {
            let kind = format!("t{n}");
            let choices: Vec<Value> = (0..300).map(|n| json!({"const": format!("{n}")})).collect();
            let dear = of(kind.clone(), json!({"items": {"anyOf": choices}}));
            let value = json!({"type": kind, "data": vec!["299"; 1_000]});
            std::iter::once(dear).chain(vec![value; 5])
        })
        .collect();
    let error = context(&many_types).err().unwrap();
    assert!(error.contains("could not be checked"), "{error}");
}
