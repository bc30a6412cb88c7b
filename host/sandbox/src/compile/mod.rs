//! From a component's bytes to code that may be started: looked at, compiled or taken from the cache,
//! and held against its limits.

pub mod cache;
mod dwarf;
mod edits;
mod lines;
mod process;
mod sealed;
pub mod unused;

pub use cache::{Cache, CacheLookupCounts};
pub use lines::debug_file;
pub(crate) use lines::{DebugInfo, SourceLine};
pub use process::compiler_process;

use crate::engine::{Compiler, Engine};
use crate::error::LoadError;
use cache::FolderName;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use toolhold_admission::{WorkFailure, WorkKind};
use toolhold_policy::Digest;
use toolhold_policy::limits::Limits;
use wasmtime::component::Component;

/// Refuses a component that is larger than its module's may be, wherever it comes from.
pub(crate) fn check_size(size: u64, limit: u64) -> Result<(), LoadError> {
    if size > limit {
        return Err(LoadError::TooLarge { size, limit });
    }
    Ok(())
}

/// Says what a file is before the compiler would say that it is not Wasm.
pub(crate) fn check_header(bytes: &[u8]) -> Result<(), LoadError> {
    let not = |reason: &str| {
        Err(LoadError::NotAComponent {
            reason: reason.into(),
        })
    };
    if wasmtime::Engine::detect_precompiled(bytes).is_some() || bytes.starts_with(b"\x7fELF") {
        return Err(LoadError::Precompiled);
    }
    match bytes.get(..8) {
        Some(b"\0asm\x0d\0\x01\0") => Ok(()),
        Some(b"\0asm\x01\0\0\0") => not(
            "it is a core module; build for the target wasm32-wasip2, or wrap it with `wasm-tools component new`",
        ),
        Some([b'\0', b'a', b's', b'm', ..]) => not("it is of a version this host does not know"),
        None if bytes.is_empty() => not("the file is empty"),
        _ => not("it does not begin with the Wasm header"),
    }
}

/// Components and their code that are read, stored and compiled in this process, for uploads among others.
const COMPONENTS: WorkKind = WorkKind::new("components", 16);
/// Components up to this size compile in a second or two, unless they are made to take long.
const SMALL_COMPONENT_BYTES: usize = 1 << 20;
/// Time for a small component before it has to wait for its turn with the large ones.
const SMALL_COMPILE_TIME: Duration = Duration::from_secs(5);

/// What is compiled.
pub(crate) struct CompileSource {
    pub bytes: Arc<Vec<u8>>,
    /// The module's folder, if its component is built there: its author waits for it again and again.
    pub built_in: Option<PathBuf>,
}

/// The component's code, from the cache or from the compiler. Both run off the async threads. Two compilations
/// run at a time, because each takes several cores by itself: of one small component, which is stopped if it
/// takes long and begins anew as a large one, and of one large one. So neither large components nor small ones
/// that are made to take long hold up the others.
pub(crate) async fn compiled(
    engine: &Engine,
    cache: Option<&Cache>,
    limits: &Limits,
    source: CompileSource,
    compiling: &(dyn Fn() + Sync),
) -> Result<(Component, Digest), LoadError> {
    static SMALL: Semaphore = Semaphore::const_new(1);
    static LARGE: Semaphore = Semaphore::const_new(1);
    let lost = |failure: WorkFailure| LoadError::Compile {
        reason: failure.to_string(),
    };

    let CompileSource { bytes, built_in } = source;
    let compiler = &engine.config().compiler;
    // The folder matters where an author waits for what is built in it.
    let serves_author =
        matches!(compiler, Compiler::Process(process) if process.serves_author) && cache.is_some();
    let built_in = built_in.filter(|_| serves_author);
    let (cached, digest, edited) = {
        let (engine, cache, bytes) = (engine.clone(), cache.cloned(), bytes.clone());
        let looked = move || {
            let digest = Digest::of(&bytes);
            let folder = built_in.as_deref().and_then(FolderName::of);
            let cached = cache.and_then(|cache| {
                let component = cache.load(&engine, &digest)?;
                note_edit(&cache, &engine, folder.as_ref(), &digest);
                Some(component)
            });
            (cached, digest, folder)
        };
        COMPONENTS.run(None, looked).await.map_err(lost)?
    };
    if let Some(component) = cached {
        return Ok((component, digest));
    }
    // A compiler in this process cannot be stopped.
    let may_stop = matches!(compiler, Compiler::Process(_));
    let is_small = bytes.len() <= SMALL_COMPONENT_BYTES;
    let mut quick = None;
    if is_small && may_stop {
        let _turn = SMALL.acquire().await;
        compiling();
        let compiled = process::compile(engine, limits, bytes.clone());
        quick = timeout(SMALL_COMPILE_TIME, compiled).await.ok();
    }
    let artefact = match quick {
        Some(artefact) => artefact?,
        None => {
            let _turn = LARGE.acquire().await;
            compiling();
            process::compile(engine, limits, bytes).await?
        }
    };
    let (engine, cache) = (engine.clone(), cache.cloned());
    let adopted = COMPONENTS.run(None, move || {
        if let Some(cache) = cache {
            if let Err(error) = cache.store(&engine, &digest, artefact.bytes()) {
                tracing::warn!(%digest, %error, "the compiled component could not be cached");
            }
            note_edit(&cache, &engine, edited.as_ref(), &digest);
        }
        cache::adopt(&engine, &artefact)
    });
    let component = adopted.await.map_err(lost)??;
    Ok((component, digest))
}

/// Returns the code of a base ([`crate::base`]) of the module in `folder`, from the cache or from the compiler. `digest` is
/// that of the files from which the base is made.
pub(crate) async fn compiled_base(
    engine: &Engine,
    cache: Option<&Cache>,
    limits: &Limits,
    bytes: Arc<Vec<u8>>,
    digest: Digest,
    folder: PathBuf,
) -> Result<Component, LoadError> {
    let lost = |failure: WorkFailure| LoadError::Compile {
        reason: failure.to_string(),
    };
    if let Some(cache) = cache.cloned() {
        let engine = engine.clone();
        let load = COMPONENTS.run(None, move || cache.load(&engine, &digest));
        if let Some(component) = load.await.map_err(lost)? {
            return Ok(component);
        }
    }
    let artefact = process::compile(engine, limits, bytes).await?;
    let (engine, cache) = (engine.clone(), cache.cloned());
    let adopted = COMPONENTS.run(None, move || {
        if let Some(cache) = cache {
            if let Err(error) = cache.store(&engine, &digest, artefact.bytes()) {
                tracing::warn!(%error, "the compiled base could not be cached");
            }
            // Under a name of its own, so that it does not take the place of the author's component.
            note_edit(
                &cache,
                &engine,
                FolderName::of_base(&folder).as_ref(),
                &digest,
            );
        }
        cache::adopt(&engine, &artefact)
    });
    adopted.await.map_err(lost)?
}

/// Notes what an author's folder holds now. It costs nobody a call if that fails: entries stay in the cache.
fn note_edit(cache: &Cache, engine: &Engine, folder: Option<&FolderName>, digest: &Digest) {
    let noted = folder.map(|folder| cache.replace_edit(engine, folder, digest));
    if let Some(Err(error)) = noted {
        tracing::warn!(%error, "what earlier edits compiled is still in the cache");
    }
}

/// Refuses a component that could never start, and says which limit would have to be raised.
pub(crate) fn within_limits(component: &Component, limits: &Limits) -> Result<(), LoadError> {
    let Some(needs) = component.resources_required() else {
        return Ok(());
    };
    for (what, name, needed, limit) in [
        (
            "bytes in its first memory",
            "memory_bytes",
            needs.max_initial_memory_size.unwrap_or_default(),
            limits.memory_bytes,
        ),
        (
            "memories",
            "memories",
            needs.num_memories.into(),
            limits.memories,
        ),
        ("tables", "tables", needs.num_tables.into(), limits.tables),
        (
            "elements in its first table",
            "table_elements",
            needs.max_initial_table_size.unwrap_or_default(),
            limits.table_elements,
        ),
    ] {
        if needed > limit {
            return Err(LoadError::Limits {
                reason: format!("{needed} {what}, and its limit {name} is {limit}"),
            });
        }
    }
    Ok(())
}
