//! A set of documents and questions with gold documents, rankings of it, and what they are worth.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolhold_knowledge::{
    By, Embedder, Knowledge, SearchQuery, Settings, StaticModel, Structure, TextDocument, digest,
};
use toolhold_storage::{Location, Store, Vectors};

/// Documents of a ranking that count.
pub const RANKED: usize = 10;

#[derive(Debug, Deserialize)]
pub struct SetDocument {
    pub id: String,
    pub title: String,
    pub content: String,
}

#[derive(Debug)]
pub struct SetQuestion {
    pub text: String,
    /// Ids of the documents that are needed.
    pub gold: BTreeSet<String>,
}

/// Documents, and the questions that have gold documents among them.
#[derive(Debug)]
pub struct Set {
    pub documents: Vec<SetDocument>,
    pub questions: Vec<SetQuestion>,
}

/// A way to rank documents, and what it found for each question, best first.
#[derive(Debug)]
pub struct Arm {
    pub name: String,
    pub rankings: Vec<Vec<String>>,
    pub remark: String,
}

#[derive(Deserialize)]
struct Task {
    user_scenario: Scenario,
    #[serde(default)]
    required_documents: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Scenario {
    instructions: Value,
}

impl Set {
    pub fn read(folder: &Path) -> Result<Self> {
        let documents: Vec<SetDocument> = files(&folder.join("documents"))?;
        let ids: BTreeSet<&String> = documents.iter().map(|document| &document.id).collect();
        let tasks: Vec<Task> = files(&folder.join("tasks"))?;
        let mut questions = Vec::new();
        for task in tasks {
            let text = match task.user_scenario.instructions {
                Value::String(text) => text,
                other => other.to_string(),
            };
            let gold = task.required_documents;
            for id in &gold {
                ensure!(ids.contains(id), "a task needs {id}, which is not there");
            }
            if !gold.is_empty() {
                questions.push(SetQuestion { text, gold });
            }
        }
        ensure!(!questions.is_empty(), "no task has required documents");
        Ok(Self {
            documents,
            questions,
        })
    }
}

/// All JSON files of a folder, by name.
fn files<T: DeserializeOwned>(folder: &Path) -> Result<Vec<T>> {
    let listed = || format!("{} cannot be read", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(listed)? {
        let path = entry.with_context(listed)?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: &std::path::PathBuf| {
        let bytes = std::fs::read(path)?;
        serde_json::from_slice(&bytes).with_context(|| path.display().to_string())
    };
    paths.iter().map(read).collect()
}

/// As all arms read it.
pub fn text(document: &SetDocument) -> String {
    format!("# {}\n\n{}", document.title, document.content)
}

/// What our search finds: documents by their best passage. With a model, by vectors and by both, too.
pub async fn own(set: &Set, model: Option<StaticModel>) -> Result<Vec<Arm>> {
    let folder = tempfile::tempdir()?;
    let location = Location::File(folder.path().join("toolhold.db"));
    let store = Store::open(&location, Duration::from_secs(30)).await?;
    let vectors = match &model {
        Some(model) => Some(Vectors {
            model: model.model().to_owned(),
            dimensions: u32::try_from(model.dimensions())?,
        }),
        None => None,
    };
    store
        .create_collection("", "set", vectors.as_ref(), None)
        .await?;
    let found = store.collection("", "", "set").await?;
    let (collection, _) = found.context("it was just created")?;
    let embedder = model.map(|model| Arc::new(model) as Arc<dyn Embedder>);
    let has_vectors = embedder.is_some();
    let knowledge = Knowledge::new(store.clone(), Settings::default(), embedder);
    let started = Instant::now();
    for document in &set.documents {
        let text = text(document);
        let document = TextDocument {
            source: document.id.clone(),
            title: document.title.clone(),
            media_type: "text/markdown".into(),
            structure: Structure::Markdown,
            digest: digest(text.as_bytes()),
            extractor: None,
            text,
            labels: BTreeMap::new(),
        };
        knowledge
            .add("", &collection, &document, &|_, _| ())
            .await?;
    }
    let added = started.elapsed();
    let found = store.collection("", "", "set").await?;
    let passages = found.map_or(0, |(collection, _)| collection.passages);
    let per_second = passages as f64 / added.as_secs_f64();
    let mut arms = Vec::new();
    for (by, name) in [
        (By::Words, "full text"),
        (By::Vectors, "vectors"),
        (By::Both, "full text and vectors"),
    ] {
        if by != By::Words && !has_vectors {
            continue;
        }
        let (mut rankings, mut times) = (Vec::new(), Vec::new());
        for question in &set.questions {
            let question = SearchQuery {
                texts: vec![question.text.clone()],
                by,
                most: RANKED,
                most_of_document: Some(1),
                ..SearchQuery::default()
            };
            let started = Instant::now();
            let found = knowledge
                .search("", std::slice::from_ref(&collection), &question)
                .await?;
            times.push(started.elapsed());
            let sources = found.passages.iter().map(|it| it.document.source.clone());
            rankings.push(sources.collect());
        }
        times.sort();
        arms.push(Arm {
            name: name.into(),
            rankings,
            remark: format!(
                "{passages} passages, {per_second:.0} added a second; a search {:.1} ms (p50)",
                times[times.len() / 2].as_secs_f64() * 1e3
            ),
        });
    }
    Ok(arms)
}

/// The share of the gold documents that are among the first ten.
pub fn recall(ranking: &[String], gold: &BTreeSet<String>) -> f64 {
    let found = ranking.iter().take(RANKED).filter(|id| gold.contains(*id));
    found.count() as f64 / gold.len().max(1) as f64
}

/// Normalised discounted cumulative gain of the first ten; a gold document is worth 1.
pub fn ndcg(ranking: &[String], gold: &BTreeSet<String>) -> f64 {
    let worth = |place: usize| 1.0 / (place as f64 + 2.0).log2();
    let ranked = ranking.iter().take(RANKED).enumerate();
    let gain: f64 = ranked
        .filter(|(_, id)| gold.contains(*id))
        .map(|(place, _)| worth(place))
        .sum();
    let ideal: f64 = (0..gold.len().min(RANKED)).map(worth).sum();
    if ideal > 0.0 { gain / ideal } else { 0.0 }
}

/// Means over the questions, as a table of Markdown.
pub fn table(set: &Set, arms: &[Arm]) -> String {
    let mut table = format!(
        "{} documents, {} questions with gold documents\n\n| | recall@{RANKED} | nDCG@{RANKED} | |\n|---|---|---|---|\n",
        set.documents.len(),
        set.questions.len()
    );
    for arm in arms {
        let mean = |of: fn(&[String], &BTreeSet<String>) -> f64| {
            let pairs = arm.rankings.iter().zip(&set.questions);
            let sum: f64 = pairs.map(|(found, asked)| of(found, &asked.gold)).sum();
            sum / set.questions.len() as f64
        };
        let (recall, ndcg) = (mean(recall), mean(ndcg));
        let _ = writeln!(
            table,
            "| {} | {recall:.3} | {ndcg:.3} | {} |",
            arm.name, arm.remark
        );
    }
    table
}
