//! Gives stored passages other words, where another version of the rules made them. The texts stay as they are.

use super::documents::{COLUMNS, CollectionDocument, document, lock_collection};
use crate::column::signed;
use crate::database::InTime as _;
use crate::error::StoreError;
use crate::store::Store;
use uuid::Uuid;

/// The words of a stored passage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassageWords {
    pub passage: i64,
    /// Words for the search, like [`NewPassage::words`](super::NewPassage::words).
    pub words: String,
}

impl Store {
    /// Returns visible documents of a collection whose recipe does not contain `part`, oldest first, after `after`.
    /// `part` has no wildcards of SQL.
    pub async fn documents_of_other_recipe(
        &self,
        collection: Uuid,
        part: &str,
        after: Uuid,
        most: u32,
    ) -> Result<Vec<CollectionDocument>, StoreError> {
        let rows = sqlx::query(sqlx::AssertSqlSafe(format!(
            "SELECT {COLUMNS} FROM documents WHERE collection = $1 AND state = 'visible' AND recipe NOT LIKE $2 \
             AND id > $3 ORDER BY id LIMIT $4"
        )))
        .bind(collection.to_string())
        .bind(format!("%{part}%"))
        .bind(after.to_string())
        .bind(i64::from(most))
        .fetch_all(&self.pool)
        .in_time(&self.database)
        .await?;
        let documents: Result<_, sqlx::Error> = rows.iter().map(document).collect();
        Ok(documents?)
    }

    /// Replaces the words of some passages of a document, in one transaction. Returns `false`, and changes nothing, if
    /// the document is visible no more.
    pub async fn reword_passages(
        &self,
        of: &CollectionDocument,
        passages: Vec<PassageWords>,
    ) -> Result<bool, StoreError> {
        let (collection, document) = (of.collection, of.id);
        let work = self.transact_long(move |mut transaction| {
            Box::pin(async move {
                // First, as publishing does.
                lock_collection(&mut transaction, collection).await?;
                let visible: Option<(String,)> =
                    transaction.row(VISIBLE, &[document.into()]).await?;
                if visible.is_none() {
                    return Ok(false);
                }
                let mut more = 0;
                for PassageWords { passage, words } in &passages {
                    let values = [(*passage).into(), document.into()];
                    let older: Option<(String,)> = transaction.row(WORDS, &values).await?;
                    let Some((older,)) = older else { continue };
                    more += word_count(words) - word_count(&older);
                    // PostgreSQL derives its index from the row.
                    let is_file = transaction.is_file();
                    if is_file {
                        transaction.execute(UNINDEX, &[(*passage).into()]).await?;
                    }
                    let values = [(*passage).into(), words.as_str().into()];
                    transaction.execute(REWORD, &values).await?;
                    if is_file {
                        transaction.execute(INDEX, &[(*passage).into()]).await?;
                    }
                }
                let values = [document.into(), more.into()];
                transaction.execute(COUNT_IN_DOCUMENT, &values).await?;
                let values = [collection.into(), more.into()];
                transaction.execute(COUNT_IN_COLLECTION, &values).await?;
                Ok(true)
            })
        });
        work.await
    }

    /// Records that all passages of a document have the words of `recipe`.
    pub async fn change_recipe(
        &self,
        document: &CollectionDocument,
        recipe: &str,
    ) -> Result<(), StoreError> {
        let values = vec![
            document.id.into(),
            document.recipe.clone().into(),
            recipe.to_owned().into(),
        ];
        self.execute(CHANGE_RECIPE, values).await?;
        Ok(())
    }
}

fn word_count(words: &str) -> i64 {
    signed(words.split(' ').filter(|word| !word.is_empty()).count() as u64)
}

const VISIBLE: &str = "SELECT id FROM documents WHERE id = $1 AND state = 'visible'";
const WORDS: &str = "SELECT words FROM passages WHERE id = $1 AND document = $2";
const UNINDEX: &str = "INSERT INTO passage_words (passage_words, rowid, collection, words) \
     SELECT 'delete', id, collection, words FROM passages WHERE id = $1";
const INDEX: &str = "INSERT INTO passage_words (rowid, collection, words) \
     SELECT id, collection, words FROM passages WHERE id = $1";
const REWORD: &str = "UPDATE passages SET words = $2 WHERE id = $1";
const COUNT_IN_DOCUMENT: &str = "UPDATE documents SET words = words + $2 WHERE id = $1";
const COUNT_IN_COLLECTION: &str = "UPDATE collections SET words = words + $2 WHERE id = $1";
const CHANGE_RECIPE: &str =
    "UPDATE documents SET recipe = $3 WHERE id = $1 AND state = 'visible' AND recipe = $2";
