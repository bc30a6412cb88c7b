use super::*;
use secrecy::ExposeSecret as _;

#[test]
fn names_are_those_of_variables() {
    for (name, is_valid) in [
        ("OPENAI_API_KEY", true),
        ("_a1", true),
        ("", false),
        ("1A", false),
        ("A-B", false),
        ("A=B", false),
        (&"A".repeat(129), false),
    ] {
        assert_eq!(is_valid_name(name), is_valid, "{name}");
    }
}

/// What each choice makes of each entry, without any keyring being asked.
#[test]
fn a_secret_is_read_from_the_place_that_holds_and_from_no_other() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("secrets.toml");
    file::change(&path, "VALUE", Some(SecretEntry::Value("one".into()))).unwrap();
    file::change(&path, "MARKED", Some(SecretEntry::InKeyring)).unwrap();
    let read = |store, name: &str| {
        let stored = StoredSecrets::of(store, Needs::All, SecretsFile::read(&path).unwrap());
        let found = stored.get(name).map(|it| it.expose_secret().to_owned());
        let is_unasked = stored.keyring.get().is_none();
        assert!(is_unasked, "the keyring is asked: {store:?}, {name}");
        let unread = stored.outcome().unread().map(ToString::to_string);
        (found, unread)
    };
    for store in [StoreChoice::Auto, StoreChoice::File] {
        assert_eq!(read(store, "VALUE"), (Some("one".to_owned()), None));
        assert_eq!(read(store, "OTHER"), (None, None));
    }
    for (store, name, place) in [
        (StoreChoice::Keyring, "VALUE", "file"),
        (StoreChoice::File, "MARKED", "keyring"),
    ] {
        let (found, fault) = read(store, name);
        let fault = fault.unwrap();
        assert_eq!(found, None);
        assert!(
            fault.contains(&format!("is kept in the {place}"))
                && fault.contains(&format!("toolhold secrets set {name}")),
            "{fault}"
        );
    }
    // No name of a secret, so it is none.
    assert_eq!(read(StoreChoice::Keyring, "no-name"), (None, None));
}

/// Whoever needs no secret waits for no keyring, and sees grants as they are.
#[test]
fn without_need_the_keyring_is_not_asked() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("secrets.toml");
    file::change(&path, "VALUE", Some(SecretEntry::Value("one".into()))).unwrap();
    file::change(&path, "MARKED", Some(SecretEntry::InKeyring)).unwrap();
    for store in [StoreChoice::Auto, StoreChoice::Keyring] {
        let file = SecretsFile::read(&path).unwrap();
        let stored = StoredSecrets::of(store, Needs::None, file);
        let stored = stored.of_modules(["MODULES".to_owned(), "MARKED".to_owned()].into());
        assert!(stored.get("MARKED").is_some(), "the grant stays what it is");
        assert_eq!(
            stored.get("MODULES").is_some(),
            store == StoreChoice::Keyring
        );
        assert!(stored.get("OTHER").is_none());
        assert_eq!(stored.get("VALUE").is_some(), store == StoreChoice::Auto);
        assert!(stored.keyring.get().is_none());
        let read = stored.outcome();
        assert!(read.of_keyring.is_empty(), "no stand-in is taken for one");
        assert!(read.lacking(Needs::None, "MARKED").is_none());
        assert!(read.lacking(Needs::Database, "VALUE_OF_NONE").is_none());
        assert!(read.lacking(Needs::Database, "MARKED").is_some());
        assert!(read.lacking(Needs::All, "").is_some());
    }
}

/// A file that cannot be used is an error for who needs a secret, and prevents nothing else.
#[test]
fn without_need_a_damaged_file_is_told_and_the_grant_stays() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("secrets.toml");
    let read = |needs| {
        let stored =
            StoredSecrets::of_read(StoreChoice::Auto, needs, false, SecretsFile::read(&path))?;
        Ok::<_, ConfigError>(stored.of_modules(["MODULES".to_owned()].into()))
    };
    // Made as ours: what follows keeps its permissions.
    file::change(&path, "VALUE", Some(SecretEntry::Value("one".into()))).unwrap();
    for damage in [&b"not = toml = at all"[..], &[0xff]] {
        std::fs::write(&path, damage).unwrap();
        read(Needs::All).unwrap_err();
        for needs in [Needs::None, Needs::Database] {
            let stored = read(needs).unwrap();
            assert!(stored.get("MODULES").is_some(), "{needs:?}");
            assert!(stored.get("OTHER").is_none(), "{needs:?}");
            assert!(stored.get("no-name").is_none(), "{needs:?}");
            let read = stored.outcome();
            let told = read.unread().unwrap().to_string();
            assert!(told.contains("secrets.toml"), "{told}");
            assert!(read.lacking(needs, "NOT_ASKED").is_none());
        }
    }
}

#[test]
fn the_choice_is_one_of_three_words() {
    let read = |text: &str| toml::from_str::<SecretsTable>(text).map(|table| table.store);
    assert_eq!(read("store = \"auto\"").unwrap(), StoreChoice::Auto);
    assert_eq!(read("store = \"keyring\"").unwrap(), StoreChoice::Keyring);
    assert_eq!(read("store = \"file\"").unwrap(), StoreChoice::File);
    for wrong in ["store = \"Keyring\"", "store = 1", "", "stores = \"file\""] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}
