//! llama.cpp's server from a wheel, in its own virtual environment. `local_model/requirements.txt` pins the
//! wheel by hash.

use std::path::PathBuf;

use anyhow::{Context, Result};

use super::home;
use crate::narrate::Narration;
use crate::project;
use crate::wheels::Wheel;

/// The interpreter of an environment that can import the server.
pub fn install(narration: Narration) -> Result<PathBuf> {
    let wheel = Wheel {
        what: "llama.cpp's server (a wheel of 34 MB)",
        environment: home::folder()?.join("python"),
        requirements: project::xtask_folder().join("local_model/requirements.txt"),
        proof: &["python", "-c", "import xllamacpp"],
        advice: "if it misses libgomp.so.1, install your system's libgomp (Debian: apt-get install libgomp1)",
    };
    let programs = wheel
        .install(narration)
        .context("without it, use an endpoint of your own (--base-url)")?;
    Ok(programs.join("python"))
}
