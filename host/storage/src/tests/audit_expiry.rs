//! Entries that are deleted from the begin of the audit log, the same for both databases.

use super::audit::{all, faults};
use super::{OUTAGE_TIMEOUT, databases};
use crate::audit_rows::link;
use crate::*;
use serde_json::{Value, json};

/// A log of five entries, of which the third was written at 3,000, and so on.
async fn log(location: &Location) -> Store {
    let store = Store::open(location, OUTAGE_TIMEOUT).await.unwrap();
    for number in 1..=5 {
        let draft = written_at(number * 1_000, &format!("m{number}"));
        store.audit(draft).await.unwrap();
    }
    store
}

/// A row that was written at this time.
fn written_at(at_ms: i64, module: &str) -> Draft {
    let now = Draft::module_approved("ada", module, "ab");
    let mut draft = serde_json::to_value(now).unwrap();
    draft["at_ms"] = at_ms.into();
    serde_json::from_value(draft).unwrap()
}

async fn execute(store: &Store, statement: &'static str) {
    sqlx::query(statement).execute(&store.pool).await.unwrap();
}

#[tokio::test]
async fn a_log_without_its_old_entries_is_genuine() {
    for database in databases().await {
        let store = log(&database.location).await;
        let heads = [2, 3, 5].map(|number| hash(&store, number));
        let [second, third, fifth]: [String; 3] = futures_util::future::join_all(heads)
            .await
            .try_into()
            .unwrap();
        assert_eq!(store.audit_entries_before(3_500).await.unwrap(), 3);
        assert_eq!(
            store.expire_audit(3_500, PrunedBy::Person).await.unwrap(),
            3
        );
        assert_eq!(
            store.expire_audit(3_500, PrunedBy::Person).await.unwrap(),
            0
        );
        let left = all(&store).await;
        let numbers: Vec<i64> = left
            .iter()
            .map(|it| it["number"].as_i64().unwrap())
            .collect();
        assert_eq!(numbers, [4, 5, 6]);
        let told = left.last().unwrap();
        assert_eq!(told["action"], "audit_expired");
        assert_eq!((&told["from"], &told["until"]), (&json!(1), &json!(3)));
        assert_eq!(
            (&told["before_ms"], &told["by"]),
            (&json!(3_500), &json!("person"))
        );
        let verified = store.verify_audit(Some(&fifth)).await.unwrap();
        assert_eq!(verified.faults, []);
        assert_eq!((verified.entries, verified.expired_until), (3, 3));
        // The last one that is gone is known by its hash; one before it is not.
        assert_eq!(store.verify_audit(Some(&third)).await.unwrap().faults, []);
        let unknown = store.verify_audit(Some(&second)).await.unwrap();
        assert_eq!(unknown.faults, [AuditFault::NotExpected]);

        // Once more, and until nothing but the last row is left.
        store
            .audit(Draft::module_approved("ada", "new", "ab"))
            .await
            .unwrap();
        let by = PrunedBy::Retention { days: 30 };
        assert_eq!(store.expire_audit(4_500, by).await.unwrap(), 1);
        let expired = all(&store).await.pop().unwrap();
        assert_eq!(
            (&expired["by"], &expired["keep_days"]),
            (&json!("retention"), &json!(30))
        );
        assert_eq!(faults(&store).await, [] as [&str; 0]);
        let later = now_ms() + 60_000;
        assert_eq!(
            store.expire_audit(later, PrunedBy::Person).await.unwrap(),
            4
        );
        let verified = store.verify_audit(None).await.unwrap();
        assert_eq!(verified.faults, []);
        assert_eq!((verified.entries, verified.expired_until), (1, 8));
        store
            .audit(Draft::module_approved("ada", "newer", "ab"))
            .await
            .unwrap();
        assert_eq!(faults(&store).await, [] as [&str; 0]);
    }
}

async fn hash(store: &Store, number: i64) -> String {
    let statement = "SELECT hash FROM audit WHERE number = $1";
    let found = sqlx::query_scalar(statement).bind(number);
    found.fetch_one(&store.pool).await.unwrap()
}

/// An entry that was written with an earlier time, such as that of an interrupted call, keeps nothing.
#[tokio::test]
async fn entries_go_up_to_the_first_new_one() {
    for database in databases().await {
        let store = log(&database.location).await;
        store.audit(written_at(1_500, "early")).await.unwrap();
        assert_eq!(
            store.expire_audit(2_500, PrunedBy::Person).await.unwrap(),
            2
        );
        assert_eq!(faults(&store).await, [] as [&str; 0]);
        let left = all(&store).await;
        assert_eq!(left[0]["number"], 3);
        assert!(left.iter().any(|entry| entry["module"] == "early"));
    }
}

#[tokio::test]
async fn entries_that_go_without_a_row_that_tells_of_it_are_a_fault() {
    for (statement, expected) in [
        // The rest of the old entries was kept, and one more goes.
        (
            "DELETE FROM audit WHERE number = 4",
            &["entries 1 to 4 are missing"][..],
        ),
        (
            "UPDATE audit SET entry = REPLACE(entry, 'm4', 'm9') WHERE number = 4",
            &["entry 4 was changed: it is not what its hash was made of"],
        ),
        (
            "UPDATE audit SET owner = 'eve' WHERE number = 4",
            &["entry 4 was changed: it is not what its hash was made of"],
        ),
        (
            "DELETE FROM audit WHERE number = 5",
            &["entries 5 to 5 are missing"],
        ),
        (
            "UPDATE audit SET entry = REPLACE(entry, '\"until\":3', '\"until\":2') WHERE number = 6",
            &[
                "entries 1 to 3 are missing",
                "entry 6 was changed: it is not what its hash was made of",
            ],
        ),
    ] {
        for database in databases().await {
            let store = log(&database.location).await;
            store.expire_audit(3_500, PrunedBy::Person).await.unwrap();
            execute(&store, statement).await;
            let found = faults(&store).await;
            assert!(
                expected
                    .iter()
                    .all(|fault| found.iter().any(|it| it == fault)),
                "{statement}: {found:?}"
            );
            let later = now_ms() + 60_000;
            assert!(
                store.expire_audit(later, PrunedBy::Person).await.is_err(),
                "{statement}"
            );
        }
    }
}

/// Deleting would put the fault out of sight.
#[tokio::test]
async fn nothing_is_deleted_from_a_log_with_a_fault() {
    for database in databases().await {
        let store = log(&database.location).await;
        execute(&store, "UPDATE audit SET owner = 'eve' WHERE number = 2").await;
        let refused = store
            .expire_audit(3_500, PrunedBy::Person)
            .await
            .unwrap_err();
        let expected = AuditFault::Changed { number: 2 };
        assert!(
            matches!(&refused, ExpireError::NotGenuine { fault } if *fault == expected),
            "{refused}"
        );
        assert_eq!(all(&store).await.len(), 5);
    }
}

/// The row is sealed as every other: it follows from the entry before, and no hash of it can be kept.
#[tokio::test]
async fn the_row_that_tells_of_it_has_the_hash_of_the_last_one() {
    for database in databases().await {
        let store = log(&database.location).await;
        let third = hash(&store, 3).await;
        store.expire_audit(3_500, PrunedBy::Person).await.unwrap();
        let entries = store
            .audited(&AuditFilter::default(), AuditOrder::After(0), 10)
            .await
            .unwrap();
        assert_eq!(link(&third, &entries[0].text), entries[0].hash);
        let told: Value = serde_json::from_str(&entries[2].text).unwrap();
        assert_eq!(told["until_hash"], third.as_str());
    }
}
