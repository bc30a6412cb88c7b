//! A small real model on this machine's CPU, so that the first command a person runs, and the
//! end-to-end tests, need no account and no GPU.
//!
//! `catalogue` knows which models there are, `python` and `fetch` put the server and the weights
//! into the cache, `server` starts and ends the process, `record` remembers detached ones and tells
//! ours from others, `commands` is what `cargo xtask local-model` does.

mod catalogue;
pub mod commands;
mod fetch;
mod health;
mod home;
mod python;
mod record;
mod server;

use std::path::PathBuf;
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

pub use catalogue::{Choice, Model};
use server::LocalServer;

use crate::narrate::{self, Narration};

/// A running model: one that was running before and continues afterwards, or one that ends when this is
/// dropped.
#[derive(Debug)]
pub struct LocalModel {
    pub base_url: String,
    pub name: &'static str,
    /// The file of the weights, in the cache.
    pub weights: PathBuf,
    _own: Option<LocalServer>,
}

impl LocalModel {
    pub fn borrow_or_start(model: &'static Model) -> Result<Self> {
        if let Some(running) = record::find(model)?.filter(record::Record::answers) {
            narrate::line(&format!(
                "using the local model that runs at {}",
                running.base_url()
            ));
            return Ok(Self {
                base_url: running.base_url(),
                name: &model.name,
                weights: fetch::weights_file(model)?,
                _own: None,
            });
        }
        let installed = install(model, Narration::Drawn)?;
        let server = LocalServer::start_owned(&installed, server::free_port(None)?)?;
        Ok(Self {
            base_url: server.base_url(),
            name: &model.name,
            weights: installed.weights,
            _own: Some(server),
        })
    }
}

/// Downloads of the server and the weights into the cache, in a thread. An error is printed, and the start of the
/// model tries again.
pub fn fetch_meanwhile(model: &'static Model) -> JoinHandle<()> {
    thread::spawn(move || {
        if let Err(error) = install(model, Narration::Lines) {
            narrate::line(&format!("the local model is not here yet: {error:#}"));
        }
    })
}

/// Everything a server process needs, in the cache.
#[derive(Debug)]
struct InstalledModel {
    model: &'static Model,
    python: PathBuf,
    weights: PathBuf,
}

fn install(model: &'static Model, narration: Narration) -> Result<InstalledModel> {
    // Serialized, because two processes would write the same files.
    let _exclusive = home::lock()?;
    let python = python::install(narration).context("llama.cpp's server could not be installed")?;
    let weights = fetch::fetch(&python, model, narration)?;
    Ok(InstalledModel {
        model,
        python,
        weights,
    })
}
