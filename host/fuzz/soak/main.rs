//! `cargo xtask soak`: the chaos soak (`toolhold_fuzz::soak`), as a program.

use anyhow::{Context as _, Result};
use clap::Parser;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use toolhold_fuzz::soak::{self, SoakPlan};
use toolhold_sandbox::{Compiler, CompilerProcess};

/// The product's: how much memory a process keeps that freed all is its allocator's matter.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Debug, Parser)]
struct Arguments {
    /// Seconds to run
    #[arg(long)]
    seconds: u64,
    /// Seed of all choices (default: random)
    #[arg(long)]
    seed: Option<u64>,
    /// The `toolhold` binary, which compiles components in a process of its own
    #[arg(long)]
    toolhold: PathBuf,
    /// A folder of components to load beside those that are generated
    #[arg(long)]
    components: Option<PathBuf>,
}

#[tokio::main]
#[expect(
    clippy::print_stdout,
    reason = "the samples and the verdict are the answer"
)]
async fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let seed = match arguments.seed {
        Some(seed) => seed,
        // Any number will do that is another one each time.
        None => SystemTime::now()
            .duration_since(UNIX_EPOCH)?
            .as_nanos()
            .try_into()?,
    };
    let mut components = Vec::new();
    if let Some(folder) = &arguments.components {
        let entries =
            fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))?;
        for entry in entries {
            components.push(fs::read(entry?.path())?);
        }
    }
    let plan = SoakPlan {
        duration: Duration::from_secs(arguments.seconds),
        seed,
        components,
        compiler: Compiler::Process(CompilerProcess {
            program: arguments.toolhold,
            arguments: vec!["compile-component".to_owned()],
            serves_author: false,
        }),
        every: Duration::from_secs(10),
        // tokio keeps idle threads for ten seconds.
        settle: Duration::from_secs(15),
    };
    println!(
        "seed {seed}, {} components of wasm-smith, after a warm-up:",
        plan.components.len()
    );
    let verdict = soak::run(&plan, |sample| println!("{sample}")).await?;
    println!(
        "resident {} → {} MiB, threads {} → {}, descriptors {} → {}",
        verdict.start.resident_bytes >> 20,
        verdict.end.resident_bytes >> 20,
        verdict.start.threads,
        verdict.end.threads,
        verdict.start.descriptors,
        verdict.end.descriptors,
    );
    for fault in &verdict.faults {
        println!("BROKE: {fault}");
    }
    if verdict.faults.is_empty() {
        println!("all held");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}
