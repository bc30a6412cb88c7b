//! The available models, from `local_model/models.json`, which `fetch.py` reads, too.

use std::sync::LazyLock;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Deserialize;

/// The fields that this program needs; `fetch.py` reads the others.
#[derive(Debug, Deserialize)]
pub struct Model {
    /// The name the server answers to, and the stem of the file.
    pub name: String,
    /// Its name on the command line.
    short: String,
    /// Size, quantisation and licence in words.
    pub about: String,
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// 0.5 B parameters: 0.5 GB, the quicker one
    #[value(name = "0.5b")]
    Smaller,
    /// 1.5 B parameters: 1.1 GB, the more accurate one
    #[value(name = "1.5b")]
    Larger,
}

static MODELS: LazyLock<serde_json::Result<Vec<Model>>> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../local_model/models.json")));

impl Choice {
    pub fn model(self) -> Result<&'static Model> {
        let short = match self {
            Self::Smaller => "0.5b",
            Self::Larger => "1.5b",
        };
        let models = MODELS.as_ref().ok().context("models.json is malformed")?;
        models
            .iter()
            .find(|model| model.short == short)
            .with_context(|| format!("models.json has no model {short:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_is_in_the_catalogue() {
        for choice in Choice::value_variants() {
            assert!(choice.model().unwrap().bytes > 100_000_000);
        }
    }
}
