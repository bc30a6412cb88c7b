//! SQLite and PostgreSQL answer the same requests alike, for all texts in them.

use super::{OUTAGE_TIMEOUT, TestDatabase, databases, opened};
use crate::*;
use secrecy::ExposeSecret as _;
use sqlx::Connection as _;
use std::collections::BTreeMap;
use std::fmt::Debug;
use toolhold_protocol::decision::{Decision, Verdict};
use url::Url;
use uuid::Uuid;

/// Texts that databases treat apart: NUL, quotes, wildcards, letters of other scripts and cases, no text, many characters.
fn texts() -> Vec<String> {
    let texts = [
        "",
        "\0",
        "a\0b",
        "'",
        "\"",
        "\\",
        "%",
        "_",
        "!",
        "a_b",
        "ab",
        "Ann",
        "É",
        "é",
        "ß",
        "İ",
        "\u{1F980}",
        "\u{FEFF}",
        "{}",
        "null",
        "1e400",
        "$1",
        "--",
        "a OR b",
        "\"a\" NEAR b",
        "\u{202e}",
        "\u{e000}",
        "\n",
    ];
    let long = "long ".repeat(2_000);
    texts
        .iter()
        .map(|text| (*text).to_owned())
        .chain([long])
        .collect()
}

/// Answers of one database: what was asked, and the answer without ids and times.
#[derive(Debug, Default, PartialEq)]
struct Answers(Vec<(String, String)>);

impl Answers {
    fn note<T: Debug>(&mut self, request: &str, text: &str, answer: Result<T, impl Debug>) {
        let short: String = text.chars().take(20).collect();
        let answer = match answer {
            Ok(answer) => format!("{answer:?}"),
            // Failures have other words in each database, and must be there in neither or in both.
            Err(_) => "an error".to_owned(),
        };
        self.0.push((format!("{request} {short:?}"), answer));
    }
}

async fn answers(database: &TestDatabase) -> Answers {
    let store = opened(database).await;
    for name in ["a_b", "ab", "a1", "b"] {
        let created = store.create_collection("ann", name, None, Some(100)).await;
        assert_eq!(created.unwrap(), CollectionCreation::Created);
    }
    let mut answers = Answers::default();
    for text in texts() {
        let text = text.as_str();
        let number_of = |found: Result<Vec<AuditEntry>, StoreError>| {
            found.map(|entries| entries.iter().map(|it| it.number).collect::<Vec<_>>())
        };
        for (request, filter) in [
            (
                "audit by tool",
                AuditFilter {
                    tool: Some(text.to_owned()),
                    ..AuditFilter::default()
                },
            ),
            (
                "audit by owner",
                AuditFilter {
                    owner: Some(text.to_owned()),
                    ..AuditFilter::default()
                },
            ),
            (
                "audit by text",
                AuditFilter {
                    text: Some(text.to_owned()),
                    ..AuditFilter::default()
                },
            ),
        ] {
            let order = AuditOrder::Before(i64::MAX);
            let found = store.audited(&filter, order, 99).await;
            answers.note(request, text, number_of(found));
        }
        let found = store.waiting_as(text, None).await;
        answers.note("waiting", text, found.map(|it| it.len()));
        let decision = Decision {
            digest: "d".into(),
            verdict: Verdict::Approve,
            by: None,
        };
        let decided = store.decide(Uuid::nil(), text, &decision).await;
        answers.note("decide", text, decided);
        answers.note("decision", text, store.decision(Uuid::nil(), text).await);
        let found = store.collection(text, text, text).await;
        answers.note("collection", text, found.map(|it| it.is_some()));
        let ours = store
            .collection("ann", "ann", "ab")
            .await
            .unwrap()
            .unwrap()
            .0;
        let found = store.document_of(&ours, text).await;
        answers.note("document", text, found.map(|it| it.is_some()));
        let words = [QuestionWord {
            word: text.to_owned(),
            count: 1,
        }];
        for labels in [
            BTreeMap::new(),
            BTreeMap::from([(text.to_owned(), text.to_owned())]),
        ] {
            let question = WordQuestion {
                words: &words,
                labels: &labels,
                most: 9,
            };
            let found = store.find_words("ann", &[ours.id], question).await;
            answers.note("words", text, found);
        }
        let session = store.create_session("ann", "default", text).await;
        answers.note("session", text, session.map(|it| it.title));
        answers.note("find", text, store.find(text).await.map(drop));
    }
    let listed = store.collections("ann", 9).await.unwrap();
    let names: Vec<_> = listed.into_iter().map(|(it, _)| it.name).collect();
    answers.note("order of names", "", Ok::<_, StoreError>(names));
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn the_databases_answer_alike() {
    let mut first: Option<Answers> = None;
    for database in databases().await {
        let answers = answers(&database).await;
        let failed: Vec<_> = answers
            .0
            .iter()
            .filter(|(request, answer)| answer == "an error" && !request.starts_with("find"))
            .collect();
        assert!(failed.is_empty(), "{failed:?}");
        let Some(first) = &first else {
            first = Some(answers);
            continue;
        };
        for (ours, theirs) in first.0.iter().zip(&answers.0) {
            assert_eq!(ours, theirs);
        }
    }
}

#[tokio::test]
async fn a_database_that_cannot_hold_every_text_is_refused_by_its_encoding() {
    for database in databases().await {
        let Location::Postgres(url) = &database.location else {
            continue;
        };
        let url = url.expose_secret();
        sqlx::any::install_default_drivers();
        let mut connection = sqlx::AnyConnection::connect(url).await.unwrap();
        let name = format!("toolhold_latin_{}", Uuid::now_v7().simple());
        let make = format!(
            "CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        );
        sqlx::query(sqlx::AssertSqlSafe(make))
            .execute(&mut connection)
            .await
            .unwrap();
        let mut latin: Url = url.parse().unwrap();
        latin.set_path(&name);
        let location = Location::Postgres(latin.to_string().into());
        let refused = Store::open(&location, OUTAGE_TIMEOUT).await;
        let Err(StoreError::Encoding { encoding, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(encoding, "LATIN1");
    }
}
