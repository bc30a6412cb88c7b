//! The lines of a component's source at which it crashed, for an author: what debug information says of them.
//!
//! Debug information is bytes from outside, and a small program for each line that is looked up. So the compiler's process
//! reads it ([`dwarf`](super::dwarf)), under limits of its own, and this host takes from it a few short texts. Without an
//! answer in time a crash is told without lines.

use super::process::{self, CompilerTask, Job};
use crate::engine::{Compiler, CompilerProcess, Engine};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use toolhold_files::Links;
use toolhold_policy::Digest;
use toolhold_policy::text::UntrustedText;

/// Time until a crash is told without lines.
const LINES_TIME: Duration = Duration::from_secs(3);
/// Processor time of the process, in seconds.
const LINES_CPU_SECONDS: u64 = 3;
/// Memory of the process: the component, the debug information beside it, and what is made of both.
const LINES_MEMORY_BYTES: u64 = 512 << 20;
/// Bytes of its answer.
const MAX_ANSWER_BYTES: u64 = 64 << 10;
/// Bytes of a file with debug information.
const MAX_DEBUG_FILE_BYTES: u64 = 128 << 20;

/// A line of source code, as debug information has it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SourceLine {
    pub function: Option<UntrustedText>,
    pub file: Option<UntrustedText>,
    pub line: Option<u32>,
    pub column: Option<u32>,
}

/// What the process is asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LinesTask {
    /// The component's bytes come first, those of the file with debug information after them.
    pub component_bytes: usize,
    /// Of instructions, in bytes of the component.
    pub offsets: Vec<Option<usize>>,
}

/// Where the lines of one component are found.
#[derive(Debug)]
pub(crate) struct DebugInfo {
    component: Arc<Vec<u8>>,
    file: PathBuf,
    process: CompilerProcess,
}

/// The file below the folder of toolchains in which the build of the component with this digest keeps a core module of it
/// with its debug information, or a component with the same code.
pub fn debug_file(toolchains: &Path, component: &Digest) -> PathBuf {
    toolchains.join("debug").join(format!("{component}.wasm"))
}

impl DebugInfo {
    /// `None` where no author works, and where there is no process that may read it.
    pub fn of(engine: &Engine, digest: &Digest, component: &Arc<Vec<u8>>) -> Option<Self> {
        let config = engine.config();
        let Compiler::Process(process) = &config.compiler else {
            return None;
        };
        Some(Self {
            component: component.clone(),
            file: debug_file(config.debug_info.as_ref()?, digest),
            process: process.clone(),
        })
    }

    /// For each offset its line, and those of the functions that the compiler put it into, the innermost first. `None` if
    /// nothing is known of any.
    pub async fn lines(&self, offsets: &[Option<usize>]) -> Option<Vec<Vec<SourceLine>>> {
        /// Its memory is bounded for one process.
        static ONE: Semaphore = Semaphore::const_new(1);
        if offsets.iter().all(Option::is_none) {
            return None;
        }
        let answer = async {
            let _turn = ONE.acquire().await;
            self.ask(offsets).await
        };
        let lines = timeout(LINES_TIME, answer).await.ok().flatten()?;
        lines.iter().any(|it| !it.is_empty()).then_some(lines)
    }

    async fn ask(&self, offsets: &[Option<usize>]) -> Option<Vec<Vec<SourceLine>>> {
        let file = self.file.clone();
        // A component that was built elsewhere may have its own.
        let debug = super::COMPONENTS.run(None, move || {
            toolhold_files::read(&file, MAX_DEBUG_FILE_BYTES, Links::Refuse).unwrap_or_default()
        });
        let debug = debug.await.ok()?;
        let job = Job {
            task: CompilerTask::Lines(LinesTask {
                component_bytes: self.component.len(),
                offsets: offsets.to_vec(),
            }),
            memory_bytes: LINES_MEMORY_BYTES,
            cpu_seconds: LINES_CPU_SECONDS,
        };
        let mut child = process::start(&self.process, 1).ok()?;
        let input = [self.component.as_slice(), &debug];
        let conversed = process::converse(&mut child, &job, &input, MAX_ANSWER_BYTES).await;
        let (status, answer, complaint) = conversed
            .inspect_err(|error| tracing::debug!(%error, "no lines of a crash"))
            .ok()?;
        if !status.success() {
            tracing::debug!(%status, complaint, "no lines of a crash");
            return None;
        }
        serde_json::from_slice(&answer).ok()
    }
}
