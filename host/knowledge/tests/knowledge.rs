//! Adding and finding, on SQLite, with an embedder whose vectors are counted words.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use toolhold_knowledge::{
    AddError, Added, By, EmbedError, Embedder, Embedding, Knowledge, SearchQuery, Settings,
    Structure, TextDocument, WithoutVectors, digest,
};
use toolhold_storage::{Collection, Location, Store, Vectors};

const DIMENSIONS: u32 = 64;

/// Texts with the same words have the same vector. Fails after as many texts as it may embed.
struct CountedWords {
    model: &'static str,
    left: AtomicUsize,
}

impl CountedWords {
    fn new(model: &'static str, most: usize) -> Arc<Self> {
        Arc::new(Self {
            model,
            left: AtomicUsize::new(most),
        })
    }
}

impl Embedder for CountedWords {
    fn model(&self) -> &str {
        self.model
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> Embedding<'a> {
        Box::pin(async move {
            let take = |left: usize| left.checked_sub(texts.len());
            if self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, take)
                .is_err()
            {
                return Err(EmbedError {
                    model: self.model.into(),
                    is_retryable: true,
                    source: Arc::new(std::io::Error::other("down")),
                });
            }
            Ok(texts.iter().map(|text| vector(text)).collect())
        })
    }
}

fn vector(text: &str) -> Vec<f32> {
    let mut vector = vec![0.0; DIMENSIONS as usize];
    for word in text.split_whitespace() {
        let mut hasher = DefaultHasher::new();
        word.to_lowercase().hash(&mut hasher);
        vector[(hasher.finish() % u64::from(DIMENSIONS)) as usize] += 1.0;
    }
    vector
}

struct Ground {
    store: Store,
    _folder: tempfile::TempDir,
}

impl Ground {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::File(folder.path().join("toolhold.db"));
        let store = Store::open(&location, Duration::from_secs(5))
            .await
            .unwrap();
        Self {
            store,
            _folder: folder,
        }
    }

    fn knowledge(&self, embedder: Option<Arc<CountedWords>>) -> Knowledge {
        let embedder = embedder.map(|it| it as Arc<dyn Embedder>);
        Knowledge::new(self.store.clone(), Settings::default(), embedder)
    }

    async fn collection(&self, name: &str, model: Option<&str>) -> Collection {
        let vectors = model.map(|model| Vectors {
            model: model.into(),
            dimensions: DIMENSIONS,
        });
        let store = &self.store;
        store
            .create_collection("k", name, vectors.as_ref())
            .await
            .unwrap();
        store.collection("k", "k", name).await.unwrap().unwrap().0
    }
}

fn document(source: &str, text: &str) -> TextDocument {
    TextDocument {
        source: source.into(),
        title: source.into(),
        media_type: "text/markdown".into(),
        structure: Structure::Markdown,
        digest: digest(text.as_bytes()),
        text: text.into(),
        labels: BTreeMap::new(),
    }
}

async fn add(knowledge: &Knowledge, to: &Collection, source: &str, text: &str) -> Added {
    let added = knowledge
        .add("k", to, &document(source, text), &|_, _| ())
        .await;
    added.unwrap()
}

async fn found(knowledge: &Knowledge, within: &Collection, question: &SearchQuery) -> Vec<String> {
    let found = knowledge
        .search(std::slice::from_ref(within), question)
        .await
        .unwrap();
    let sources = found.passages.iter().map(|it| it.document.source.clone());
    sources.collect()
}

fn ask(text: &str, by: By) -> SearchQuery {
    SearchQuery {
        texts: vec![text.into()],
        by,
        most: 5,
        ..SearchQuery::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn passages_are_found_by_words_by_vectors_and_by_both() {
    let ground = Ground::new().await;
    let knowledge = ground.knowledge(Some(CountedWords::new("m", 1_000)));
    let tales = ground.collection("tales", Some("m")).await;
    add(
        &knowledge,
        &tales,
        "fox",
        "# Foxes\n\nThe quick fox jumps over dogs.",
    )
    .await;
    add(&knowledge, &tales, "cat", "# Cats\n\nA cat sleeps all day.").await;
    add(
        &knowledge,
        &tales,
        "card",
        "# Fees\n\nA new card costs five euro.",
    )
    .await;
    for by in [By::Words, By::Vectors, By::Both] {
        let hits = found(&knowledge, &tales, &ask("card costs", by)).await;
        assert_eq!(hits[0], "card", "{by:?}");
    }
    // Endings do not matter to words, and nothing is near to what shares none.
    assert_eq!(
        found(&knowledge, &tales, &ask("jumping", By::Words)).await,
        ["fox"]
    );
    assert!(
        found(&knowledge, &tales, &ask("zebra", By::Words))
            .await
            .is_empty()
    );

    // What is replaced is found no more, by vectors neither.
    add(&knowledge, &tales, "card", "# Fees\n\nNothing is free.").await;
    for by in [By::Words, By::Vectors] {
        let found = knowledge
            .search(std::slice::from_ref(&tales), &ask("card costs five", by))
            .await;
        for hit in found.unwrap().passages {
            assert!(!hit.passage.text.contains("five euro"), "{by:?}");
        }
    }
    // A second process hears of what the first one adds.
    let other = ground.knowledge(Some(CountedWords::new("m", 1_000)));
    assert_eq!(
        found(&other, &tales, &ask("Nothing free", By::Vectors)).await[0],
        "card"
    );
    add(&knowledge, &tales, "owl", "An owl hunts mice at night").await;
    assert_eq!(
        found(&other, &tales, &ask("owl hunts mice", By::Vectors)).await[0],
        "owl"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_put_in_several_ways_and_answered_within_its_bounds() {
    let ground = Ground::new().await;
    let knowledge = ground.knowledge(None);
    let notes = ground.collection("notes", None).await;
    for number in 0..6 {
        let mut new = document(
            &format!("note {number}"),
            &format!("Alpha stands in note number {number}, and so does beta{number}."),
        );
        new.labels = BTreeMap::from([("parity".into(), (number % 2).to_string())]);
        knowledge.add("k", &notes, &new, &|_, _| ()).await.unwrap();
    }
    // The same text under another name says nothing more.
    add(
        &knowledge,
        &notes,
        "copy",
        "Alpha stands in note number 0, and so does beta0.",
    )
    .await;
    let all = SearchQuery {
        most: 20,
        ..ask("alpha", By::Both)
    };
    assert_eq!(found(&knowledge, &notes, &all).await.len(), 6);
    let two = SearchQuery {
        most: 2,
        ..all.clone()
    };
    assert_eq!(found(&knowledge, &notes, &two).await.len(), 2);
    let odd = SearchQuery {
        labels: BTreeMap::from([("parity".into(), "1".into())]),
        ..all.clone()
    };
    let mut odd = found(&knowledge, &notes, &odd).await;
    odd.sort();
    assert_eq!(odd, ["note 1", "note 3", "note 5"]);
    let short = SearchQuery {
        most_characters: Some(120),
        ..all.clone()
    };
    assert_eq!(found(&knowledge, &notes, &short).await.len(), 2);
    let several = SearchQuery {
        texts: vec!["beta4".into(), "beta5".into()],
        ..all.clone()
    };
    let mut several = found(&knowledge, &notes, &several).await;
    several.sort();
    assert_eq!(several, ["note 4", "note 5"]);
    // Without vectors, and that is said.
    let found = knowledge.search(&[notes], &all).await.unwrap();
    assert!(matches!(found.without_vectors, Some(WithoutVectors::None)));

    let long = ground.collection("long", None).await;
    let paragraphs: Vec<String> = (0..40)
        .map(|n| format!("## Part {n}\n\nGamma {n}. {}", "word ".repeat(150)))
        .collect();
    add(&knowledge, &long, "book", &paragraphs.join("\n\n")).await;
    add(&knowledge, &long, "leaf", "Gamma once.").await;
    let spread = SearchQuery {
        most: 10,
        most_of_document: Some(3),
        ..ask("gamma", By::Words)
    };
    let spread = self::found(&knowledge, &long, &spread).await;
    assert_eq!(spread.iter().filter(|it| *it == "book").count(), 3);
    assert!(spread.contains(&"leaf".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedder_that_fails_leaves_nothing_half_visible_and_is_gone_on_with() {
    let ground = Ground::new().await;
    let tales = ground.collection("tales", Some("m")).await;
    let text: Vec<String> = (0..200)
        .map(|n| format!("## Part {n}\n\nDelta {n}. {}", "word ".repeat(200)))
        .collect();
    let text = text.join("\n\n");
    let failing = ground.knowledge(Some(CountedWords::new("m", 100)));
    let failed = failing
        .add("k", &tales, &document("book", &text), &|_, _| ())
        .await;
    let Err(AddError::Embed(error)) = failed else {
        panic!("{failed:?}");
    };
    assert!(error.is_retryable);
    assert!(
        found(&failing, &tales, &ask("delta", By::Words))
            .await
            .is_empty()
    );

    // The rest is embedded, and no passage twice.
    let embedder = CountedWords::new("m", 10_000);
    let knowledge = ground.knowledge(Some(embedder.clone()));
    let Added::New { passages } = add(&knowledge, &tales, "book", &text).await else {
        panic!("it was not visible");
    };
    let embedded = 10_000 - embedder.left.load(Ordering::SeqCst);
    assert_eq!(embedded as u64, passages - 96);
    let again = add(&knowledge, &tales, "book", &text).await;
    assert!(matches!(again, Added::Unchanged(_)), "{again:?}");

    // The words are found while the embedder is down.
    let down = ground.knowledge(Some(CountedWords::new("m", 0)));
    let found = down
        .search(std::slice::from_ref(&tales), &ask("delta", By::Both))
        .await
        .unwrap();
    assert!(!found.passages.is_empty());
    assert!(matches!(
        found.without_vectors,
        Some(WithoutVectors::Failed(_))
    ));

    // Vectors of another model are never mixed in.
    let other = ground.knowledge(Some(CountedWords::new("other", 1_000)));
    let refused = other
        .add("k", &tales, &document("leaf", "A leaf."), &|_, _| ())
        .await;
    assert!(
        matches!(refused, Err(AddError::OtherModel { .. })),
        "{refused:?}"
    );
    let found = other
        .search(&[tales], &ask("delta", By::Both))
        .await
        .unwrap();
    assert!(matches!(found.without_vectors, Some(WithoutVectors::None)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_text_or_too_long_is_refused() {
    let ground = Ground::new().await;
    let settings = Settings {
        document_bytes: 1_000,
        ..Settings::default()
    };
    let knowledge = Knowledge::new(ground.store.clone(), settings, None);
    let notes = ground.collection("notes", None).await;
    for (text, is_too_long) in [
        ("x ".repeat(501), true),
        (" \n\n ".into(), false),
        (String::new(), false),
    ] {
        let refused = knowledge
            .add("k", &notes, &document("a", &text), &|_, _| ())
            .await;
        let is_expected = match &refused {
            Err(AddError::TooLong { .. }) => is_too_long,
            Err(AddError::Empty) => !is_too_long,
            _ => false,
        };
        assert!(is_expected, "{refused:?}");
    }
    assert!(
        ground
            .store
            .documents(&notes, None, 10)
            .await
            .unwrap()
            .is_empty()
    );
}
