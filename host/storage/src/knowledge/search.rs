//! Finds passages by their words, and reads passages and vectors.

use super::documents::{self, CollectionDocument};
use crate::column::{id, signed, unsigned};
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// A passage that a search found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FoundPassage {
    pub passage: i64,
    /// BM25, larger for a better match; comparable within one search alone.
    pub score: f64,
}

/// A passage of a visible document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    pub id: i64,
    /// From 0 on within the document.
    pub number: u64,
    /// Headings that it stands under, outermost first, each on a line.
    pub heading: String,
    pub text: String,
    /// Where it begins and ends in the document's text, in bytes of UTF-8.
    pub starts: u64,
    pub ends: u64,
    pub document: Uuid,
}

/// The vector of a visible passage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorRow {
    pub passage: i64,
    /// The passage's number within its document.
    pub number: u64,
    /// Numbers of 16 bits (IEEE 754), little-endian.
    pub vector: Vec<u8>,
}

/// Passages whose ids stand in one statement.
const IDS: usize = 200;

/// BM25's parameters, those of SQLite's `bm25`.
const K1: f64 = 1.2;
const B: f64 = 0.75;
/// PostgreSQL's own rank knows nothing of how rare a word is: that many of its best are ranked anew.
const RANKED_ANEW: i64 = 500;

impl Store {
    /// The passages of visible documents that hold any of `words`, best first, at most `most`. Each word has letters
    /// and digits only, as [`NewPassage::words`](super::NewPassage::words) has them.
    ///
    /// How rare a word is counts in all collections of the database with SQLite, and in `collections` with PostgreSQL.
    pub async fn find_words(
        &self,
        collections: &[Uuid],
        words: &[String],
        most: u32,
    ) -> Result<Vec<FoundPassage>, StoreError> {
        let is_word = |word: &&String| !word.is_empty() && word.chars().all(char::is_alphanumeric);
        let words: Vec<&str> = words.iter().filter(is_word).map(String::as_str).collect();
        if words.is_empty() || collections.is_empty() {
            return Ok(Vec::new());
        }
        if !self.database.is_file() {
            return self.find_words_postgres(collections, &words, most).await;
        }
        // What is staged or gone is in the index, too, and is left out behind it: mostly little, so that a few more
        // are asked for, and twice as many again where that was not enough.
        let mut asked = i64::from(most) + 20;
        loop {
            let (found, matched) = self
                .find_words_sqlite(collections, &words, most, asked)
                .await?;
            if found.len() >= usize::try_from(most).unwrap_or(usize::MAX) || matched < asked {
                return Ok(found);
            }
            asked *= 4;
        }
    }

    /// The visible ones of the first `asked` matches, and how many matches there were.
    async fn find_words_sqlite(
        &self,
        collections: &[Uuid],
        words: &[&str],
        most: u32,
        asked: i64,
    ) -> Result<(Vec<FoundPassage>, i64), StoreError> {
        let any = |words: &mut dyn Iterator<Item = String>| {
            let quoted: Vec<String> = words.map(|word| format!("\"{word}\"")).collect();
            quoted.join(" OR ")
        };
        let query = format!(
            "collection : ({}) AND words : ({})",
            any(&mut collections.iter().map(|id| id.simple().to_string())),
            any(&mut words.iter().map(|&word| word.to_owned())),
        );
        let rows = sqlx::query(
            "SELECT found.id AS id, found.score AS score, \
             CASE WHEN documents.state = 'visible' THEN 1 ELSE 0 END AS visible FROM \
             (SELECT rowid AS id, -bm25(passage_words, 0.0, 1.0) AS score FROM passage_words \
              WHERE passage_words MATCH $1 ORDER BY bm25(passage_words, 0.0, 1.0) LIMIT $2) AS found \
             JOIN passages ON passages.id = found.id JOIN documents ON documents.id = passages.document \
             ORDER BY found.score DESC, found.id",
        )
        .bind(query)
        .bind(asked)
        .fetch_all(&self.pool)
        .await?;
        let mut found = Vec::new();
        for row in &rows {
            let score = row.try_get("score")?;
            if row.try_get::<i64, _>("visible")? == 1 && found.len() < most as usize {
                found.push(FoundPassage {
                    passage: row.try_get("id")?,
                    score,
                });
            }
        }
        Ok((found, i64::try_from(rows.len()).unwrap_or(i64::MAX)))
    }

    async fn find_words_postgres(
        &self,
        collections: &[Uuid],
        words: &[&str],
        most: u32,
    ) -> Result<Vec<FoundPassage>, StoreError> {
        let ids: Vec<String> = collections
            .iter()
            .map(|id| id.simple().to_string())
            .collect();
        let ids = ids.join(",");
        let sums = sqlx::query(
            "SELECT CAST(COALESCE(SUM(passages), 0) AS BIGINT) AS passages, \
             CAST(COALESCE(SUM(words), 0) AS BIGINT) AS words FROM collections \
             WHERE REPLACE(id, '-', '') IN (SELECT unnest(string_to_array($1, ',')))",
        )
        .bind(&ids)
        .fetch_one(&self.pool)
        .in_time(&self.database)
        .await?;
        let (passages, all_words) = (unsigned(&sums, "passages")?, unsigned(&sums, "words")?);
        let counted = sqlx::query(
            "SELECT word, (SELECT COUNT(*) FROM passages WHERE index @@ to_tsquery('simple', word) \
             AND collection IN (SELECT unnest(string_to_array($1, ',')))) AS passages \
             FROM unnest(string_to_array($2, ',')) AS word",
        )
        .bind(&ids)
        .bind(words.join(","))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let mut rarity = HashMap::new();
        for row in &counted {
            let holding = unsigned(row, "passages")?;
            rarity.insert(
                row.try_get::<String, _>("word")?,
                rarity_of(holding, passages),
            );
        }
        let rows = sqlx::query(
            "SELECT passages.id AS id, passages.words AS words FROM passages \
             JOIN documents ON documents.id = passages.document AND documents.state = 'visible' \
             WHERE index @@ to_tsquery('simple', $1) \
             AND passages.collection IN (SELECT unnest(string_to_array($2, ','))) \
             ORDER BY ts_rank(index, to_tsquery('simple', $1), 1) DESC, passages.id LIMIT $3",
        )
        .bind(words.join(" | "))
        .bind(&ids)
        .bind(RANKED_ANEW.max(i64::from(most)))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let average = as_f64(all_words) / as_f64(passages.max(1));
        let mut found = rows
            .iter()
            .map(|row| {
                let text: String = row.try_get("words")?;
                Ok(FoundPassage {
                    passage: row.try_get("id")?,
                    score: bm25(&text, &rarity, average),
                })
            })
            .collect::<Result<Vec<_>, sqlx::Error>>()?;
        found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.passage.cmp(&b.passage)));
        found.truncate(most as usize);
        Ok(found)
    }

    /// Passages of visible documents of `collections`, in the order of `ids`; those that are not found are left out.
    /// With them, their documents.
    pub async fn passages(
        &self,
        collections: &[Uuid],
        ids: &[i64],
    ) -> Result<(Vec<Passage>, BTreeMap<Uuid, CollectionDocument>), StoreError> {
        let mut found = HashMap::new();
        let mut of = BTreeMap::new();
        for ids in ids.chunks(IDS) {
            let list: Vec<String> = ids.iter().map(i64::to_string).collect();
            // Numbers only.
            let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
                "SELECT passages.id AS passage, number, heading, text, starts, ends, {} FROM passages \
                 JOIN documents ON documents.id = passages.document AND documents.state = 'visible' \
                 WHERE passages.id IN ({})",
                document_columns(),
                list.join(", "),
            )))
            .fetch_all(&self.pool)
            .in_time(&self.database)
            .await?;
            for row in &rows {
                let document = documents::document(row)?;
                if collections.contains(&document.collection) {
                    let passage = passage(row, document.id)?;
                    found.insert(passage.id, passage);
                    of.insert(document.id, document);
                }
            }
        }
        let passages = ids.iter().filter_map(|id| found.remove(id)).collect();
        Ok((passages, of))
    }

    /// Passages of a visible document from the number `first` on.
    pub async fn passages_of(
        &self,
        document: &CollectionDocument,
        first: u64,
        most: u32,
    ) -> Result<Vec<Passage>, StoreError> {
        let rows = sqlx::query(
            "SELECT passages.id AS passage, number, heading, text, starts, ends FROM passages \
             JOIN documents ON documents.id = passages.document AND documents.state = 'visible' \
             WHERE passages.document = $1 AND number >= $2 ORDER BY number LIMIT $3",
        )
        .bind(document.id.to_string())
        .bind(signed(first))
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let passages: Result<_, sqlx::Error> =
            rows.iter().map(|row| passage(row, document.id)).collect();
        Ok(passages?)
    }

    /// The ids of the visible documents of a collection, oldest first, after `after`.
    pub async fn visible_documents(
        &self,
        collection: Uuid,
        after: Uuid,
        most: u32,
    ) -> Result<Vec<Uuid>, StoreError> {
        let rows = sqlx::query(
            "SELECT id FROM documents WHERE collection = $1 AND state = 'visible' AND id > $2 ORDER BY id LIMIT $3",
        )
        .bind(collection.to_string())
        .bind(after.to_string())
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let documents: Result<_, sqlx::Error> = rows.iter().map(|row| id(row, "id")).collect();
        Ok(documents?)
    }

    /// Vectors of the passages of a visible document, from the number `first` on.
    pub async fn vectors(
        &self,
        document: Uuid,
        first: u64,
        most: u32,
    ) -> Result<Vec<VectorRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT passages.id AS passage, number, vector FROM passages \
             JOIN documents ON documents.id = passages.document AND documents.state = 'visible' \
             WHERE passages.document = $1 AND number >= $2 AND vector IS NOT NULL ORDER BY number LIMIT $3",
        )
        .bind(document.to_string())
        .bind(signed(first))
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let vectors = rows.iter().map(|row| {
            Ok(VectorRow {
                passage: row.try_get("passage")?,
                number: unsigned(row, "number")?,
                vector: row.try_get("vector")?,
            })
        });
        let vectors: Result<_, sqlx::Error> = vectors.collect();
        Ok(vectors?)
    }
}

fn document_columns() -> String {
    let columns = documents::COLUMNS.split(", ");
    let columns: Vec<String> = columns
        .map(|column| format!("documents.{column} AS {column}"))
        .collect();
    columns.join(", ")
}

fn passage(row: &AnyRow, document: Uuid) -> Result<Passage, sqlx::Error> {
    Ok(Passage {
        id: row.try_get("passage")?,
        number: unsigned(row, "number")?,
        heading: row.try_get("heading")?,
        text: row.try_get("text")?,
        starts: unsigned(row, "starts")?,
        ends: unsigned(row, "ends")?,
        document,
    })
}

/// BM25's weight of a word that `holding` of all `passages` hold; small and positive where more than half do, as
/// SQLite has it.
fn rarity_of(holding: u64, passages: u64) -> f64 {
    let (holding, passages) = (as_f64(holding), as_f64(passages));
    ((passages - holding + 0.5) / (holding + 0.5))
        .ln()
        .max(1e-6)
}

/// BM25 of a passage for the words whose weights are in `rarity`.
fn bm25(words: &str, rarity: &HashMap<String, f64>, average: f64) -> f64 {
    let mut counts: HashMap<&str, f64> = HashMap::new();
    let mut length = 0.0;
    for word in words.split(' ') {
        length += 1.0;
        if rarity.contains_key(word) {
            *counts.entry(word).or_default() += 1.0;
        }
    }
    let norm = K1 * (1.0 - B + B * length / average.max(1.0));
    let score = |(word, count): (&str, f64)| {
        rarity.get(word).copied().unwrap_or_default() * count * (K1 + 1.0) / (count + norm)
    };
    counts.into_iter().map(score).sum()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of passages and words; a score needs no more than 52 bits"
)]
fn as_f64(number: u64) -> f64 {
    number as f64
}
