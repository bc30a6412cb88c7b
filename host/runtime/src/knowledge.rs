//! The knowledge in a store, with the model that `[knowledge]` names.

use crate::config::Configuration;
use crate::document_addresses::DocumentAddresses;
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::sync::Arc;
use toolhold_admission::own_work;
use toolhold_files::Links;
use toolhold_knowledge::{Embedder as _, Knowledge, Settings, StaticModel};
use toolhold_storage::{Store, Vectors};

/// Bytes of the weights: of 256,000 tokens with 2,048 numbers each.
const MAX_WEIGHTS_BYTES: u64 = 1 << 30;
const MAX_TOKENIZER_BYTES: u64 = 64 << 20;

/// The knowledge in a store, with the vectors that new collections have.
#[derive(Debug)]
pub struct ConfiguredKnowledge {
    pub knowledge: Knowledge,
    /// Absent: no model is configured.
    pub vectors: Option<Vectors>,
    /// The addresses whose documents a task may name.
    pub addresses: DocumentAddresses,
}

/// Reads the model's files: a process does so once.
///
/// # Errors
/// The model's files cannot be read, or are of another form.
pub async fn open(
    config: &Configuration,
    store: Store,
    settings: Settings,
) -> Result<ConfiguredKnowledge> {
    let table = config.knowledge().clone();
    let addresses = table.addresses();
    let is_named = |path: &Path| !path.as_os_str().is_empty();
    let model = match (is_named(&table.weights), is_named(&table.tokenizer)) {
        (false, false) => None,
        (true, true) => {
            let read = own_work(move || read_model(&table.weights, &table.tokenizer));
            Some(read.await??)
        }
        _ => bail!("knowledge.weights and knowledge.tokenizer belong together: set both, or none"),
    };
    let vectors = match &model {
        Some(model) => Some(Vectors {
            model: model.model().to_owned(),
            dimensions: u32::try_from(model.dimensions())?,
        }),
        None => None,
    };
    let embedder = model.map(|model| Arc::new(model) as Arc<_>);
    Ok(ConfiguredKnowledge {
        knowledge: Knowledge::new(store, settings, embedder),
        vectors,
        addresses,
    })
}

fn read_model(weights: &Path, tokenizer: &Path) -> Result<StaticModel> {
    let read = |path: &Path, key: &str, most: u64| {
        toolhold_files::read(path, most, Links::Follow)
            .with_context(|| format!("{key}: {} cannot be read", path.display()))
    };
    let of_weights = read(weights, "knowledge.weights", MAX_WEIGHTS_BYTES)?;
    let of_tokenizer = read(tokenizer, "knowledge.tokenizer", MAX_TOKENIZER_BYTES)?;
    StaticModel::new(&of_weights, &of_tokenizer).with_context(|| {
        format!(
            "{} and {} are no static model",
            weights.display(),
            tokenizer.display()
        )
    })
}
