//! Makes the words of stored passages anew where another version of the rules made them, so that documents that were added
//! before an update are found after it. Vectors, texts and dates stay as they are.

use crate::add::{BATCH, Cut, WORDS_PART};
use crate::knowledge::Knowledge;
use std::time::{Duration, Instant};
use toolhold_storage::{Collection, CollectionDocument, Passage, PassageWords, StoreError};
use uuid::Uuid;

/// Documents that are asked for at a time.
const PAGE_DOCUMENTS: u32 = 100;
/// Maximum time that one search gives to a renewal, counted between documents. Others are renewed by the next searches.
const TIME_OF_SEARCH: Duration = Duration::from_secs(2);

impl Knowledge {
    /// Renews the words of documents in `collections`, for as long as a search may wait for it.
    pub(crate) async fn renew_words(
        &self,
        reader: &str,
        collections: &[Collection],
    ) -> Result<(), StoreError> {
        let ends = Instant::now() + TIME_OF_SEARCH;
        let words = self.words_recipe();
        for collection in collections {
            if self.renewed.has(collection.id) {
                continue;
            }
            let mut after = Uuid::nil();
            loop {
                let page = self
                    .store
                    .documents_of_other_recipe(collection.id, &words, after, PAGE_DOCUMENTS)
                    .await?;
                let Some(last) = page.last() else { break };
                after = last.id;
                for document in &page {
                    if Instant::now() >= ends {
                        return Ok(());
                    }
                    self.renew_document(reader, document, &words).await?;
                }
            }
            self.renewed.add(collection.id);
        }
        Ok(())
    }

    async fn renew_document(
        &self,
        reader: &str,
        document: &CollectionDocument,
        words: &str,
    ) -> Result<(), StoreError> {
        let Some(recipe) = with_words(&document.recipe, words) else {
            return Ok(());
        };
        let most = u32::try_from(BATCH).unwrap_or(u32::MAX);
        let mut first = 0;
        loop {
            let page = self
                .store
                .passages_of(reader, document, first, most)
                .await?;
            let Some(last) = page.last() else { break };
            first = last.number + 1;
            let passages = page.into_iter().map(|it| self.reworded(it)).collect();
            if !self.store.reword_passages(document, passages).await? {
                return Ok(());
            }
        }
        // The reader lost the right to read the rest, and another will go on.
        if first < document.passages {
            return Ok(());
        }
        self.store.change_recipe(document, &recipe).await
    }

    fn reworded(&self, passage: Passage) -> PassageWords {
        let cut = Cut::stored(passage.heading, passage.text, passage.starts..passage.ends);
        PassageWords {
            passage: passage.id,
            words: self.splitter.words(&cut.whole()),
        }
    }
}

/// The recipe with `words` in the place of the part that says how words were made. `None` if it has no such part.
fn with_words(recipe: &str, words: &str) -> Option<String> {
    let (cut, rest) = recipe.split_once(WORDS_PART)?;
    let (_, vectors) = rest.split_once(", ")?;
    Some(format!("{cut}{words}{vectors}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recipe_has_the_version_of_its_words_alone() {
        let words = ", words 3 English, ";
        assert_eq!(
            with_words(
                "split 3 Plain 1200 150, words 2 English, vectors a, b",
                words
            )
            .as_deref(),
            Some("split 3 Plain 1200 150, words 3 English, vectors a, b")
        );
        assert_eq!(with_words("1", words), None);
    }
}
