//! Finds passages by their words.
//!
//! Neither database's own rank will do: SQLite's counts what other collections hold, PostgreSQL's knows nothing of how
//! rare a word is, and neither counts what a question repeats. So both only count the passages that hold each word, and
//! gather candidates that hold rare ones, the first by their own rank where there are too many; `bm25` ranks those.

use super::access::READABLE;
use super::bm25::{QuestionWord, WordWeights};
use crate::column::{id, is_storable, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use sqlx::Row as _;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use toolhold_admission::WorkKind;
use uuid::Uuid;

/// Candidates of searches that are ranked.
const RANKINGS: WorkKind = WorkKind::new("rankings of searches", 16);

/// What is looked for by its words.
#[derive(Debug, Clone, Copy)]
pub struct WordQuestion<'a> {
    /// Each once.
    pub words: &'a [QuestionWord],
    /// Labels that a document must have.
    pub labels: &'a BTreeMap<String, String>,
    /// Passages at most.
    pub most: u32,
}

/// A passage that a search found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FoundPassage {
    pub passage: i64,
    /// BM25, larger for a better match; comparable within one search alone.
    pub score: f64,
}

/// Words that one statement counts: a search whose time has passed ends between two.
const COUNTED_AT_ONCE: usize = 32;
/// Words by which candidates are gathered, rarest first. All others count for their rank, too.
const MAX_GATHERED_BY: usize = 256;
/// Passages that hold these words, added up, unless one word alone has more: the database ranks no more than that.
const MAX_GATHERED: u64 = 100_000;
/// Candidates that are ranked.
const MAX_CANDIDATES: u32 = 1_000;

/// The collections that are searched: those that the reader may read.
#[derive(Debug, Default)]
struct Searched {
    ids: Vec<Uuid>,
    /// Of visible documents.
    passages: u64,
    words: u64,
}

impl Store {
    /// The passages of visible documents that hold any of the words, best first, of those `collections` that `reader`
    /// may read. How rare a word is counts in these alone.
    pub async fn find_words(
        &self,
        reader: &str,
        collections: &[Uuid],
        question: WordQuestion<'_>,
    ) -> Result<Vec<FoundPassage>, StoreError> {
        let is_word =
            |it: &&QuestionWord| !it.word.is_empty() && it.word.chars().all(char::is_alphanumeric);
        let words: Vec<&QuestionWord> = question.words.iter().filter(is_word).collect();
        // No document has such a label, and PostgreSQL reads no JSON with NUL.
        let mut labels = question.labels.iter();
        let is_possible = labels.all(|(name, value)| is_storable(name) && is_storable(value));
        if words.is_empty() || collections.is_empty() || !is_possible {
            return Ok(Vec::new());
        }
        let searched = self.searched(reader, collections).await?;
        if searched.ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut counted = self.counted(&searched, &words).await?;
        counted.retain(|(_, holding)| *holding > 0);
        let ranking = WordWeights::new(&counted, searched.passages, searched.words);
        let gathered_by = rarest(counted);
        if gathered_by.is_empty() {
            return Ok(Vec::new());
        }
        let candidates = self.candidates(&searched, &gathered_by, question).await?;
        let most = usize::try_from(question.most).unwrap_or(usize::MAX);
        // A thousand texts are divided into their words: not on a thread that serves others.
        let ranked = RANKINGS.run(Some(reader), move || ranked(&candidates, &ranking, most));
        ranked.await.map_err(|error| StoreError::Failed {
            source: sqlx::Error::Io(io::Error::from(error)),
        })
    }

    async fn searched(&self, reader: &str, collections: &[Uuid]) -> Result<Searched, StoreError> {
        // UUIDs only.
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT id, passages, words FROM collections WHERE {READABLE} AND id IN ({})",
            quoted(collections.iter()),
        )))
        .bind(reader)
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let mut searched = Searched::default();
        for row in &rows {
            searched.ids.push(id(row, "id")?);
            searched.passages += unsigned(row, "passages")?;
            searched.words += unsigned(row, "words")?;
        }
        Ok(searched)
    }

    /// How many passages of visible documents hold each of `words`.
    async fn counted<'a>(
        &self,
        searched: &Searched,
        words: &[&'a QuestionWord],
    ) -> Result<Vec<(&'a QuestionWord, u64)>, StoreError> {
        let statement = if self.database.is_file() {
            // What is staged or gone is in the index, too.
            format!(
                "SELECT word.value AS word, (SELECT COUNT(*) FROM passage_words \
                 WHERE passage_words MATCH ('{} AND words : (\"' || word.value || '\")') \
                 AND passage_words.rowid NOT IN (SELECT passages.id FROM documents \
                 JOIN passages ON passages.document = documents.id \
                 WHERE documents.collection IN ({}) AND documents.state IN ('staged', 'gone'))) AS holding \
                 FROM json_each('[\"' || replace($1, ',', '\",\"') || '\"]') AS word",
                in_collections(&searched.ids),
                quoted(searched.ids.iter()),
            )
        } else {
            format!(
                "SELECT word, (SELECT COUNT(*) FROM passages WHERE index @@ to_tsquery('simple', word) \
                 AND collection IN ({}) \
                 AND document NOT IN (SELECT id FROM documents WHERE state <> 'visible')) AS holding \
                 FROM unnest(string_to_array($1, ',')) AS word",
                quoted(searched.ids.iter().map(Uuid::as_simple)),
            )
        };
        let mut counts = HashMap::new();
        for words in words.chunks(COUNTED_AT_ONCE) {
            let words: Vec<&str> = words.iter().map(|it| it.word.as_str()).collect();
            // UUIDs only.
            let rows = sqlx::query(sqlx::AssertSqlSafe(statement.clone()))
                .bind(words.join(","))
                .fetch_all(&self.pool)
                .in_time(&self.database)
                .await?;
            for row in &rows {
                counts.insert(row.try_get::<String, _>("word")?, unsigned(row, "holding")?);
            }
        }
        let mut seen = HashSet::new();
        let words = words.iter().filter(|it| seen.insert(it.word.as_str()));
        let counted = words.map(|it| (*it, counts.get(&it.word).copied().unwrap_or_default()));
        Ok(counted.collect())
    }

    /// The ids and the words of passages that hold any of `words`, and whose documents have the labels.
    async fn candidates(
        &self,
        searched: &Searched,
        words: &[&str],
        question: WordQuestion<'_>,
    ) -> Result<Vec<(i64, String)>, StoreError> {
        // UUIDs only, and words are given apart.
        let (statement, any) = if self.database.is_file() {
            let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
            let any = words.join(" OR ");
            // The index first, whatever the planner thinks.
            let statement = "SELECT found.id AS id, passages.words AS words FROM \
                 (SELECT passages.id AS id FROM passage_words CROSS JOIN passages CROSS JOIN documents \
                  WHERE passage_words MATCH $1 AND passages.id = passage_words.rowid \
                  AND documents.id = passages.document AND documents.state = 'visible' \
                  AND ($3 = '{}' OR NOT EXISTS (SELECT 1 FROM json_each($3) AS wanted WHERE NOT EXISTS \
                  (SELECT 1 FROM json_each(documents.labels) AS has \
                   WHERE has.key = wanted.key AND has.value = wanted.value))) \
                  ORDER BY bm25(passage_words, 0.0, 1.0), passages.id LIMIT $2) AS found \
                 JOIN passages ON passages.id = found.id";
            let any = format!("{} AND words : ({any})", in_collections(&searched.ids));
            (statement.to_owned(), any)
        } else {
            let statement = format!(
                "SELECT passages.id AS id, passages.words AS words FROM passages \
                 JOIN documents ON documents.id = passages.document AND documents.state = 'visible' \
                 AND CAST(documents.labels AS jsonb) @> CAST($3 AS jsonb) \
                 WHERE index @@ to_tsquery('simple', $1) AND passages.collection IN ({}) \
                 ORDER BY ts_rank(index, to_tsquery('simple', $1), 1) DESC, passages.id LIMIT $2",
                quoted(searched.ids.iter().map(Uuid::as_simple)),
            );
            (statement, words.join(" | "))
        };
        let labels = serde_json::to_string(question.labels)
            .map_err(|error| sqlx::Error::Encode(error.into()))?;
        let rows = sqlx::query(sqlx::AssertSqlSafe(statement))
            .bind(any)
            .bind(i64::from(question.most.max(MAX_CANDIDATES)))
            .bind(labels)
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
        let candidates = rows
            .iter()
            .map(|row| Ok((row.try_get("id")?, row.try_get("words")?)));
        let candidates: Result<_, sqlx::Error> = candidates.collect();
        Ok(candidates?)
    }
}

/// The rarest words, as many as are gathered by.
fn rarest(mut counted: Vec<(&QuestionWord, u64)>) -> Vec<&str> {
    counted.sort_by(|(a, left), (b, right)| left.cmp(right).then(a.word.cmp(&b.word)));
    let mut sum = 0_u64;
    let is_within = |(_, holding): &(&QuestionWord, u64)| {
        let is_first = sum == 0;
        sum = sum.saturating_add(*holding);
        is_first || sum <= MAX_GATHERED
    };
    let rarest = counted.into_iter().take(MAX_GATHERED_BY);
    let rarest = rarest.take_while(is_within);
    rarest.map(|(word, _)| word.word.as_str()).collect()
}

/// The best of `candidates`, best first.
fn ranked(candidates: &[(i64, String)], ranking: &WordWeights, most: usize) -> Vec<FoundPassage> {
    let scored = candidates.iter().map(|(passage, words)| FoundPassage {
        passage: *passage,
        score: ranking.score(words),
    });
    let mut found: Vec<FoundPassage> = scored.collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage)));
    found.truncate(most);
    found
}

/// The part of a question to SQLite's index that keeps it within collections.
fn in_collections(collections: &[Uuid]) -> String {
    let ids = collections
        .iter()
        .map(|id| format!("\"{}\"", id.simple()))
        .collect::<Vec<_>>();
    format!("collection : ({})", ids.join(" OR "))
}

fn quoted(texts: impl Iterator<Item = impl std::fmt::Display>) -> String {
    let quoted: Vec<String> = texts.map(|text| format!("'{text}'")).collect();
    quoted.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_gathered_by_the_rarest_words() {
        let word = |word: String| QuestionWord { word, count: 1 };
        let by = |held: &[u64]| {
            let words: Vec<QuestionWord> =
                (0..held.len()).map(|at| word(format!("w{at}"))).collect();
            let counted = words.iter().zip(held.iter().copied()).collect();
            rarest(counted)
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(by(&[30, 10, 20]), ["w1", "w2", "w0"]);
        // A word that is too common comes alone, or not at all.
        assert_eq!(by(&[10, MAX_GATHERED, MAX_GATHERED - 10]), ["w0", "w2"]);
        assert_eq!(by(&[MAX_GATHERED * 2, MAX_GATHERED * 3]), ["w0"]);
        assert_eq!(by(&[1; 300]).len(), MAX_GATHERED_BY);
        assert!(by(&[]).is_empty());
    }
}
