//! API keys, the same for both databases.

use super::{databases, opened};
use crate::*;
use std::time::Duration;

#[tokio::test]
async fn a_key_keeps_what_it_may_use() {
    for database in databases().await {
        let store = opened(&database).await;
        let permits = |grants: Option<&[&str]>| Permits {
            scopes: vec![Scope::Run],
            grants: grants.map(|texts| texts.iter().map(|text| text.parse().unwrap()).collect()),
            ..Permits::default()
        };
        for (name, grants) in [
            ("all", None),
            ("nothing", Some(&[][..])),
            ("some", Some(&["http", "probe:key_value", "probe:*"])),
        ] {
            let permits = permits(grants);
            let hash = format!("hash of {name}");
            assert!(store.add_key(name, &hash, &permits, None).await.unwrap());
            assert!(
                !store
                    .add_key(name, "other", &Permits::default(), None)
                    .await
                    .unwrap()
            );
            assert_eq!(store.key(&hash).await.unwrap().unwrap().permits, permits);
            assert!(store.revoke_key(name).await.unwrap());
            // Records of its runs say under which part they were made.
            assert_eq!(store.grants_of(name).await.unwrap(), permits.grants);
        }
        assert_eq!(store.grants_of("").await.unwrap(), None);
        let listed = store.keys().await.unwrap();
        assert_eq!(listed.len(), 3);
        assert_eq!(listed[1].permits, permits(Some(&[])));
    }
}

#[tokio::test]
async fn a_key_is_valid_until_it_is_revoked_or_expires() {
    for database in databases().await {
        let store = opened(&database).await;
        let names = ["valid", "old", "revoked", "unknown", "it's \"é\", \\"];
        assert!(store.key_standings(&names).await.unwrap().is_empty());
        assert!(!store.has_keys().await.unwrap());
        for (name, expires_ms) in [
            ("not asked for", None),
            ("valid", None),
            ("old", Some(1)),
            ("revoked", Some(u64::MAX)),
        ] {
            let permits = Permits::default();
            let added = store.add_key(name, name, &permits, expires_ms).await;
            assert!(added.unwrap());
        }
        assert!(store.revoke_key("revoked").await.unwrap());
        assert!(store.has_keys().await.unwrap());
        assert!(store.key_standings(&[]).await.unwrap().is_empty());
        let standings = store.key_standings(&names).await.unwrap();
        assert_eq!(standings.len(), 3, "{standings:?}");
        for (name, state) in [
            ("valid", Some(KeyState::Valid)),
            ("old", Some(KeyState::Expired)),
            ("revoked", Some(KeyState::Revoked)),
            ("unknown", None),
        ] {
            assert_eq!(store.key_state(name).await.unwrap(), state, "{name}");
            let standing = standings.get(name);
            assert_eq!(standing.map(|it| it.state), state, "{name}");
            let is_accepted = standing.is_some_and(|it| it.accepts(name) && !it.accepts("other"));
            assert_eq!(is_accepted, state == Some(KeyState::Valid), "{name}");
        }
    }
}

#[tokio::test]
async fn a_key_has_two_secrets_for_a_while() {
    const DAY_MS: u64 = 86_400_000;
    for database in databases().await {
        let store = opened(&database).await;
        let permits = Permits::default();
        let begun_ms = now_ms();
        let until_ms = begun_ms + 90 * DAY_MS;
        for (name, expires_ms) in [("ann", Some(until_ms)), ("bob", None), ("eve", None)] {
            assert!(
                store
                    .add_key(name, name, &permits, expires_ms)
                    .await
                    .unwrap()
            );
        }
        let accepted = async |hashes: [&str; 3]| {
            let mut all = store.digests_of_valid_keys().await.unwrap();
            all.sort();
            let mut names = Vec::new();
            for hash in hashes {
                let key = store.key(hash).await.unwrap();
                assert_eq!(
                    key.is_some(),
                    all.iter().any(|digest| digest == hash),
                    "{hash}"
                );
                names.extend(key.map(|key| key.name));
            }
            names
        };
        let secret = |hash, overlap, expires_ms| NewSecret {
            hash,
            overlap,
            expires_ms,
        };
        let (day, none) = (Duration::from_hours(24), Duration::ZERO);
        let rotated = store.rotate_key("ann", secret("second", day, None)).await;
        let rotated = rotated.unwrap();
        let RotationAnswer::Rotated {
            former_ends_ms,
            expires_ms: Some(expires_ms),
        } = rotated
        else {
            panic!("{rotated:?}")
        };
        // As long as the secret before was given when it was made, and no longer than that for the secret itself.
        assert!((until_ms..until_ms + DAY_MS).contains(&expires_ms));
        assert!((begun_ms + DAY_MS..begun_ms + 2 * DAY_MS).contains(&former_ends_ms));
        assert_eq!(accepted(["ann", "second", "third"]).await, ["ann", "ann"]);
        let again = store.rotate_key("ann", secret("third", day, None)).await;
        assert_eq!(again.unwrap(), RotationAnswer::InOverlap { former_ends_ms });
        // At once, also for the secret before the last.
        let at_once = store.rotate_key("ann", secret("third", none, None)).await;
        assert!(matches!(at_once.unwrap(), RotationAnswer::Rotated { .. }));
        assert_eq!(accepted(["ann", "second", "third"]).await, ["ann"]);
        let listed = store.keys().await.unwrap();
        let rotation = listed[0].rotation.as_ref().unwrap();
        assert_eq!(
            (listed[0].name.as_str(), rotation.former_ends_ms),
            ("ann", 0)
        );
        // A secret that would have ended sooner does.
        let short = store
            .rotate_key("bob", secret("bob 2", day, Some(begun_ms + 1)))
            .await;
        let ended = RotationAnswer::Rotated {
            former_ends_ms: begun_ms + 1,
            expires_ms: Some(begun_ms + 1),
        };
        assert_eq!(short.unwrap(), ended);
        assert!(accepted(["bob", "bob 2", ""]).await.is_empty());
        assert_eq!(
            store.key_state("bob").await.unwrap(),
            Some(KeyState::Expired)
        );
        // An expired key is renewed; a revoked one and one that there never was are not.
        let renewed = store
            .rotate_key("bob", secret("bob 3", day, Some(until_ms)))
            .await;
        assert!(matches!(renewed.unwrap(), RotationAnswer::Rotated { .. }));
        assert_eq!(accepted(["bob", "bob 2", "bob 3"]).await, ["bob"]);
        assert!(store.revoke_key("eve").await.unwrap());
        for (name, answer) in [
            ("eve", RotationAnswer::Revoked),
            ("nobody", RotationAnswer::Unknown),
        ] {
            let refused = store.rotate_key(name, secret("x", day, None)).await;
            assert_eq!(refused.unwrap(), answer, "{name}");
        }
        assert!(store.key("x").await.unwrap().is_none());
        // Revoking ends both secrets.
        let overlapping = store.rotate_key("bob", secret("bob 4", day, None)).await;
        assert!(matches!(
            overlapping.unwrap(),
            RotationAnswer::Rotated { .. }
        ));
        assert!(store.revoke_key("bob").await.unwrap());
        assert!(accepted(["bob", "bob 3", "bob 4"]).await.is_empty());
    }
}
