//! Adding and finding, on SQLite, with an embedder whose vectors are counted words.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say so")]

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use toolhold_knowledge::{
    AddError, Added, By, EmbedError, Embedder, Embedding, Knowledge, SearchError, SearchQuery,
    Settings, Structure, TextDocument, WithoutVectors, digest,
};
use toolhold_storage::{
    Collection, Location, PassageWords, PublishError, Quota, Quotas, Store, Vectors,
};

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
            .create_collection("k", name, vectors.as_ref(), None)
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
        extractor: None,
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
        .search("k", std::slice::from_ref(within), question)
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
            .search(
                "k",
                std::slice::from_ref(&tales),
                &ask("card costs five", by),
            )
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
    let found = knowledge.search("k", &[notes], &all).await.unwrap();
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
        .search("k", std::slice::from_ref(&tales), &ask("delta", By::Both))
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
        .search("k", &[tales], &ask("delta", By::Both))
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

/// More passages than a list is long do not hide the one whose document has the label.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_is_found_among_many_better_passages() {
    let ground = Ground::new().await;
    let knowledge = ground.knowledge(None);
    let notes = ground.collection("notes", None).await;
    let book: Vec<String> = (0..12_000)
        .map(|n| format!("Alpha stands here, {n}. "))
        .collect();
    let book = book.concat();
    let Added::New { passages } = add(&knowledge, &notes, "book", &book).await else {
        panic!("it was there already");
    };
    assert!(passages > 200, "{passages}");
    let labels = BTreeMap::from([("team\"".to_owned(), "a\\b".to_owned())]);
    let mut long = document("long", &format!("Alpha. {}", "Another word. ".repeat(40)));
    long.labels = labels.clone();
    knowledge.add("k", &notes, &long, &|_, _| ()).await.unwrap();
    let mut question = SearchQuery {
        labels,
        ..ask("alpha", By::Words)
    };
    assert_eq!(found(&knowledge, &notes, &question).await, ["long"]);
    question.labels.insert("other".into(), "b".into());
    assert!(found(&knowledge, &notes, &question).await.is_empty());
    question.labels = BTreeMap::from([("team".to_owned(), "\0".to_owned())]);
    assert!(found(&knowledge, &notes, &question).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_labels_are_changed_and_nothing_is_made_anew() {
    let ground = Ground::new().await;
    let embedder = CountedWords::new("m", 1_000);
    let knowledge = ground.knowledge(Some(embedder.clone()));
    let notes = ground.collection("notes", Some("m")).await;
    let mut note = document("note", "Alpha stands here.");
    knowledge.add("k", &notes, &note, &|_, _| ()).await.unwrap();
    let left = embedder.left.load(Ordering::SeqCst);
    note.labels = BTreeMap::from([("team".into(), "a".into())]);
    let added = knowledge.add("k", &notes, &note, &|_, _| ()).await.unwrap();
    assert!(matches!(added, Added::Labelled(_)), "{added:?}");
    let added = knowledge.add("k", &notes, &note, &|_, _| ()).await.unwrap();
    assert!(matches!(added, Added::Unchanged(_)), "{added:?}");
    assert_eq!(embedder.left.load(Ordering::SeqCst), left);
    let question = SearchQuery {
        labels: note.labels.clone(),
        ..ask("alpha", By::Words)
    };
    assert_eq!(found(&knowledge, &notes, &question).await, ["note"]);
}

/// What has no room is not written first, and leaves nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_collection_is_not_staged_for() {
    let ground = Ground::new().await;
    let text: Vec<String> = (0..40)
        .map(|n| format!("## Part {n}\n\nGamma {n}. {}", "word ".repeat(200)))
        .collect();
    let text = text.join("\n\n");
    let quotas = Settings::default().quotas;
    let room = quotas.collection;
    for (collection, full) in [
        (
            Quota {
                passages: 10,
                ..room
            },
            "passages",
        ),
        (Quota { bytes: 100, ..room }, "bytes"),
        (
            Quota {
                documents: 1,
                ..room
            },
            "documents",
        ),
    ] {
        let settings = Settings {
            quotas: Quotas {
                collection,
                ..quotas
            },
            ..Settings::default()
        };
        let knowledge = Knowledge::new(ground.store.clone(), settings, None);
        let notes = ground.collection(full, None).await;
        add(&knowledge, &notes, "small", "Gamma.").await;
        let staged = std::sync::atomic::AtomicU64::new(0);
        let progress = |passages: u64, _: u64| staged.store(passages, Ordering::SeqCst);
        let refused = knowledge
            .add("k", &notes, &document("book", &text), &progress)
            .await;
        let Err(AddError::Publish(PublishError::Quota { what, .. })) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((what, staged.load(Ordering::SeqCst)), (full, 0));
        // What takes the place of another needs its room alone, and what is there needs none.
        add(&knowledge, &notes, "small", "Delta.").await;
        let again = add(&knowledge, &notes, "small", "Delta.").await;
        assert!(matches!(again, Added::Unchanged(_)), "{again:?}");
        // The document is no more staged, and its passages would be removed now.
        let removed = ground.store.remove_gone_passages(0).await.unwrap();
        assert_eq!(removed.passages, 1, "those of what was replaced");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_within_its_bounds() {
    let ground = Ground::new().await;
    let knowledge = ground.knowledge(None);
    let notes = ground.collection("notes", None).await;
    add(&knowledge, &notes, "note", "Alpha stands here.").await;
    for (texts, is_refused) in [
        (vec!["alpha".to_owned(); 8], false),
        (vec!["alpha".to_owned(); 9], true),
        (vec!["alpha ".repeat(2_730)], false),
        (vec!["alpha ".repeat(2_731)], true),
        (vec!["alpha ".repeat(1_400); 2], true),
        // As many different words as it can have.
        (
            vec![(0..3_000).fold("alpha".to_owned(), |all, n| format!("{all} {n:x}"))],
            false,
        ),
    ] {
        let question = SearchQuery {
            texts,
            ..ask("", By::Words)
        };
        let found = knowledge
            .search("k", std::slice::from_ref(&notes), &question)
            .await;
        match found {
            Ok(found) => assert!(!is_refused && found.passages.len() == 1),
            Err(SearchError::Question { .. }) => assert!(is_refused),
            Err(error) => panic!("{error}"),
        }
    }
    // Whatever the database does: the time of a search passes.
    let settings = Settings {
        search_time: Duration::from_nanos(1),
        ..Settings::default()
    };
    let hurried = Knowledge::new(ground.store.clone(), settings, None);
    let question = ask("alpha", By::Words);
    let mut is_late = false;
    // The runtime counts in milliseconds, and a search may take less.
    for _ in 0..200 {
        let found = hurried
            .search("k", std::slice::from_ref(&notes), &question)
            .await;
        is_late |= matches!(found, Err(SearchError::Late { .. }));
    }
    assert!(is_late);
}

/// Whoever may not read a collection finds nothing in it, though it knows its id.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_finds_what_it_may_read() {
    let ground = Ground::new().await;
    let knowledge = ground.knowledge(Some(CountedWords::new("m", 1_000)));
    let notes = ground.collection("notes", Some("m")).await;
    add(&knowledge, &notes, "note", "Alpha stands here.").await;
    for by in [By::Words, By::Vectors, By::Both] {
        for (reader, count) in [("k", 1), ("other", 0), ("", 0), ("k", 1)] {
            let found = knowledge
                .search(reader, std::slice::from_ref(&notes), &ask("alpha", by))
                .await;
            assert_eq!(found.unwrap().passages.len(), count, "{reader:?} {by:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_is_read_in_pages() {
    let ground = Ground::new().await;
    let (knowledge, notes) = (
        ground.knowledge(None),
        ground.collection("notes", None).await,
    );
    let parts: Vec<String> = (0..450)
        .map(|n| format!("# Part {n}\n\n{}\n\n", "Some text. ".repeat(400)))
        .collect();
    add(&knowledge, &notes, "long.md", &parts.concat()).await;
    for n in 0..250 {
        add(&knowledge, &notes, &format!("{n}.md"), "Short.").await;
    }
    let mut export = knowledge.export("k", &notes);
    let mut pages = Vec::new();
    while let Some(lines) = export.next().await.unwrap() {
        pages.push(lines.lines().count());
    }
    // A line that describes each document, and its passages, 200 of them at a time.
    let passages = pages.iter().sum::<usize>() - 251;
    assert!(passages >= 700, "{passages}");
    assert_eq!((pages[0], pages[1], pages[2]), (1, 200, 200));
    assert!(pages.iter().all(|lines| *lines <= 200), "{pages:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn words_of_an_older_version_are_made_anew() {
    let ground = Ground::new().await;
    let knowledge = ground.knowledge(None);
    let notes = ground.collection("notes", None).await;
    let text = "# Карты\n\nЗамена утерянной карты.";
    add(&knowledge, &notes, "card", text).await;
    let store = &ground.store;
    let document = store.document_of(&notes, "card").await.unwrap().unwrap();
    let passages = store.passages_of("k", &document, 0, 10).await.unwrap();
    let older = passages.iter().map(|passage| PassageWords {
        passage: passage.id,
        words: "needle".into(),
    });
    let is_visible = store.reword_passages(&document, older.collect()).await;
    assert!(is_visible.unwrap());
    let recipe = document.recipe.replace(", words ", ", words 0");
    assert_ne!(recipe, document.recipe);
    store.change_recipe(&document, &recipe).await.unwrap();
    // The process has not looked at the collection yet.
    assert_eq!(
        found(&knowledge, &notes, &ask("карта", By::Words)).await,
        ["card"]
    );
    assert!(
        found(&knowledge, &notes, &ask("needle", By::Words))
            .await
            .is_empty()
    );
    let renewed = store.document_of(&notes, "card").await.unwrap().unwrap();
    assert_eq!(renewed.recipe, document.recipe);
    let again = add(&knowledge, &notes, "card", text).await;
    assert!(matches!(again, Added::Unchanged(_)), "{again:?}");
}
