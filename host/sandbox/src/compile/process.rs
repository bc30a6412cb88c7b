//! Bytes → native code, where it cannot hurt.
//!
//! A compiler that works on hostile input takes as long and as much as the input's author chooses. So
//! it can run in a process of its own: bounded in time and memory by the module's limits, and in
//! processors; killed when its caller stops waiting. The host's own executable is that process
//! ([`compiler_process`] is its whole `main`); a library user without one compiles in process.

use super::dwarf;
use super::lines::LinesTask;
use crate::engine::{Compiler, CompilerProcess, Engine, Variant, code_config};
use crate::error::LoadError;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use toolhold_policy::limits::Limits;

/// Native code that our own compiler made just now. There is no other way to get one, which is what
/// makes it safe to load.
#[derive(Debug)]
pub(crate) struct Artefact(Vec<u8>);

impl Artefact {
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The first line of what the process is given; what the task is about follows.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub task: CompilerTask,
    pub memory_bytes: u64,
    pub cpu_seconds: u64,
}

/// What the process does.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum CompilerTask {
    /// Compiles a component.
    Compile { variant: Variant },
    /// Finds lines of a component's source.
    Lines(LinesTask),
}

/// First line of the process's answer to [`CompilerTask::Compile`]; the artefact follows.
#[derive(Debug, Serialize, Deserialize)]
struct Reply {
    artefact_bytes: usize,
}

/// Maximum bytes that are read of the process's stderr.
const MAX_STDERR_BYTES: u64 = 16 << 10;
/// Maximum bytes of compiled code for each byte of its component: about twenty is normal.
const ARTEFACT_FACTOR: u64 = 32;
/// Maximum bytes of compiled code of the smallest component. The image of a memory has up to 64 MiB, however few bytes
/// the component puts into it.
const SMALL_ARTEFACT_BYTES: u64 = 128 << 20;
/// Maximum bytes of the first line of the answer.
const MAX_REPLY_BYTES: u64 = 1 << 10;

/// Maximum bytes of the compiled code of a component of this size.
fn max_artefact_bytes(component_bytes: usize) -> u64 {
    let of_size = (component_bytes as u64).saturating_mul(ARTEFACT_FACTOR);
    of_size.saturating_add(SMALL_ARTEFACT_BYTES)
}

/// Compiles `bytes` for `engine`, within `compile_ms` and `compile_memory_bytes` of `limits`.
///
/// # Errors
/// [`LoadError::Compile`] with the compiler's reason, [`LoadError::CompileTime`],
/// [`LoadError::CompileMemory`] or [`LoadError::CompiledSize`] if it was stopped.
pub(crate) async fn compile(
    engine: &Engine,
    limits: &Limits,
    bytes: Arc<Vec<u8>>,
) -> Result<Artefact, LoadError> {
    match &engine.config().compiler {
        Compiler::InProcess => {
            let engine = engine.clone();
            let limit = max_artefact_bytes(bytes.len());
            let compile = move || engine.wasmtime().precompile_component(&bytes);
            let artefact = super::COMPONENTS
                .run(None, compile)
                .await
                .map_err(|failure| compile_error(&failure.to_string()))?
                .map_err(|error| compile_error(&format!("{error:#}")))?;
            if artefact.len() as u64 > limit {
                return Err(LoadError::CompiledSize { limit });
            }
            Ok(Artefact(artefact))
        }
        Compiler::Process(process) => in_process(process, engine.which(), limits, &bytes).await,
    }
}

async fn in_process(
    process: &CompilerProcess,
    variant: Variant,
    limits: &Limits,
    bytes: &[u8],
) -> Result<Artefact, LoadError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let job = Job {
        task: CompilerTask::Compile { variant },
        memory_bytes: limits.compile_memory_bytes,
        // No less than the clock allows: it ends a process that lost its host.
        cpu_seconds: limits
            .compile_ms
            .div_ceil(1_000)
            .max(1)
            .saturating_mul(cores),
    };
    let threads = if process.serves_author {
        cores
    } else {
        cores.div_ceil(2)
    };
    // Dropped with this future, and killed then: a caller that left needs no code.
    let mut child = start(process, threads).map_err(|error| {
        compile_error(&format!(
            "the compiler {} cannot be started: {error}",
            process.program.display()
        ))
    })?;
    let input = [bytes];
    let limit = max_artefact_bytes(bytes.len());
    let max_answer = limit.saturating_add(MAX_REPLY_BYTES);
    let conversed = converse(&mut child, &job, &input, max_answer);
    match timeout(limits.compile_time(), conversed).await {
        Err(_) => Err(LoadError::CompileTime {
            limit: limits.compile_ms,
        }),
        Ok(Err(error)) => Err(compile_error(&format!("the compiler broke off: {error}"))),
        // Before its status: the process fails when nothing reads the rest.
        Ok(Ok((_, answer, _))) if announced(&answer) > limit => {
            Err(LoadError::CompiledSize { limit })
        }
        Ok(Ok((status, _, complaint))) if !status.success() => {
            let complaint = complaint.trim();
            // Killed by a signal, by its own allocator, or unable to start a thread, whose stack is memory too: that
            // is how an exceeded limit looks.
            let is_out_of_memory = ["memory allocation", "ThreadPoolBuildError"]
                .iter()
                .any(|words| complaint.contains(words));
            if status.code().is_none() || is_out_of_memory {
                return Err(LoadError::CompileMemory {
                    limit: limits.compile_memory_bytes,
                    ended: status.to_string(),
                });
            }
            Err(compile_error(complaint))
        }
        Ok(Ok((_, reply, _))) => {
            read_reply(reply).ok_or_else(|| compile_error("the compiler's answer is incomplete"))
        }
    }
}

/// Bytes of the artefact that the answer says it has.
fn announced(answer: &[u8]) -> u64 {
    first_line::<Reply>(answer).map_or(0, |(reply, _)| reply.artefact_bytes as u64)
}

fn read_reply(mut bytes: Vec<u8>) -> Option<Artefact> {
    let (reply, begin): (Reply, usize) = first_line(&bytes)?;
    bytes.drain(..begin);
    (bytes.len() == reply.artefact_bytes).then_some(Artefact(bytes))
}

/// The JSON of the first line, and where the next one begins.
fn first_line<T: DeserializeOwned>(bytes: &[u8]) -> Option<(T, usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let value = serde_json::from_slice(bytes.get(..end)?).ok()?;
    Some((value, end + 1))
}

/// Starts the process, which is killed when it is dropped.
pub(super) fn start(process: &CompilerProcess, threads: u64) -> std::io::Result<Child> {
    Command::new(&process.program)
        .args(&process.arguments)
        .env_clear()
        .env("RAYON_NUM_THREADS", threads.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
}

/// Gives the process its job and what the job is about. Returns how it ended, at most so many bytes of its answer, and
/// its complaint.
pub(super) async fn converse(
    child: &mut Child,
    job: &Job,
    input: &[&[u8]],
    max_answer_bytes: u64,
) -> std::io::Result<(std::process::ExitStatus, Vec<u8>, String)> {
    let broken = || std::io::Error::other("a pipe to it is missing");
    let mut stdin = child.stdin.take().ok_or_else(broken)?;
    let stdout = child.stdout.take().ok_or_else(broken)?;
    let stderr = child.stderr.take().ok_or_else(broken)?;
    let mut line = serde_json::to_vec(job)?;
    line.push(b'\n');
    let give = async move {
        for part in [line.as_slice()].iter().chain(input) {
            // A process that fails early closes the pipe; its own words say why.
            if stdin.write_all(part).await.is_err() {
                return;
            }
        }
        drop(stdin.shutdown().await);
    };
    let (mut artefact, mut complaint) = (Vec::new(), Vec::new());
    let take = async {
        tokio::try_join!(
            async {
                stdout
                    .take(max_answer_bytes)
                    .read_to_end(&mut artefact)
                    .await
            },
            async {
                stderr
                    .take(MAX_STDERR_BYTES)
                    .read_to_end(&mut complaint)
                    .await
            },
        )
    };
    let ((), taken) = tokio::join!(give, take);
    taken?;
    let status = child.wait().await?;
    Ok((
        status,
        artefact,
        String::from_utf8_lossy(&complaint).into_owned(),
    ))
}

/// The compiler's reason, with what to do about it where authors run into it. A component with async
/// functions fails as a whole, because the engine is built without them.
fn compile_error(reason: &str) -> LoadError {
    let reason = if reason.contains("component model async feature") {
        format!(
            "it has async functions of the component model, which this host does not run yet; export it without async ({reason})"
        )
    } else {
        reason.to_owned()
    };
    LoadError::Compile { reason }
}

/// The compiler's process: reads a job and a component from stdin, bounds itself, writes the compiled
/// component, or the lines that were asked for, to stdout. It opens no file and no socket.
///
/// # Errors
/// What the caller should print to stderr before it exits with a failure.
pub fn compiler_process() -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut input = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut input)
        .map_err(text)?;
    let (job, begin): (Job, usize) = first_line(&input)
        .ok_or("this command is the host's own compiler; it is not for people")?;
    bound(&job).map_err(text)?;
    let given = input.get(begin..).unwrap_or_default();
    let mut stdout = std::io::BufWriter::with_capacity(1 << 20, std::io::stdout().lock());
    match &job.task {
        CompilerTask::Compile { variant } => compile_here(*variant, given, &mut stdout)?,
        CompilerTask::Lines(task) => {
            let lines = dwarf::lines(task, given)?;
            serde_json::to_writer(&mut stdout, &lines).map_err(|error| error.to_string())?;
        }
    }
    stdout.flush().map_err(text)
}

fn compile_here(
    variant: Variant,
    component: &[u8],
    answer: &mut impl std::io::Write,
) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let artefact = compiled(variant, component).map_err(|error| format!("{error:#}"))?;
    let reply = Reply {
        artefact_bytes: artefact.len(),
    };
    let mut line = serde_json::to_vec(&reply).map_err(|error| error.to_string())?;
    line.push(b'\n');
    answer.write_all(&line).map_err(text)?;
    answer.write_all(&artefact).map_err(text)
}

/// Returns the component's code for engines of that variant.
fn compiled(variant: Variant, component: &[u8]) -> wasmtime::Result<Vec<u8>> {
    wasmtime::Engine::new(&code_config(variant))?.precompile_component(component)
}

/// Limits for the rest of this process's life.
#[cfg(unix)]
fn bound(job: &Job) -> std::io::Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let bounds = [
        // Data and not address space: threads reserve address space that they never touch.
        (Resource::Data, job.memory_bytes),
        (Resource::Cpu, job.cpu_seconds),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
    ];
    for (resource, most) in bounds {
        let most = Some(most);
        let both = Rlimit {
            current: most,
            maximum: most,
        };
        setrlimit(resource, both)?;
    }
    Ok(())
}

#[cfg(not(unix))]
fn bound(_: &Job) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_cut_off_is_none() {
        let reply = Reply { artefact_bytes: 8 };
        let mut answer = serde_json::to_vec(&reply).unwrap();
        answer.extend(b"\nartefact");
        for end in 0..answer.len() {
            assert!(read_reply(answer[..end].to_vec()).is_none(), "{end}");
        }
        let whole = read_reply(answer.clone()).unwrap();
        assert_eq!(whole.bytes(), b"artefact");
        answer.push(b'x');
        assert!(read_reply(answer).is_none());
    }

    #[test]
    fn compiled_code_is_bounded_by_the_size_of_its_component() {
        assert_eq!(max_artefact_bytes(0), 128 << 20);
        assert_eq!(max_artefact_bytes(10 << 20), 448 << 20);
        let reply = Reply {
            artefact_bytes: 1 << 40,
        };
        let mut answer = serde_json::to_vec(&reply).unwrap();
        answer.extend(b"\nthe beginning of an artefact");
        assert_eq!(announced(&answer), 1 << 40);
        assert_eq!(announced(b"not an answer"), 0);
    }

    /// Two bytes, at both ends of 64 MiB: the image has all that lies between.
    #[tokio::test]
    async fn a_small_component_with_a_large_memory_image_still_compiles() {
        let bytes = wat::parse_str(
            r#"(component (core module (memory 1024)
                 (data (i32.const 0) "a") (data (i32.const 0x3ffffff) "b")))"#,
        );
        let engine = Engine::new(crate::EngineConfig::default()).unwrap();
        let artefact = compile(&engine, &Limits::default(), Arc::new(bytes.unwrap())).await;
        let size = artefact.unwrap().bytes().len() as u64;
        assert!(size < SMALL_ARTEFACT_BYTES, "{size}");
    }
}
