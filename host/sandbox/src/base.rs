//! Components that are made from a component which ran: what a call left in its memory becomes the memory of a new one.
//!
//! An interpreter that has an author's sources in its memory is such a component. The code of all that are made from the
//! same one, the base, is the same, so that an edit costs no compilation of an interpreter (`toolhold build --dev`).
//!
//! Nothing that a guest can have opened may stay in its memory: handles mean nothing in another instance. So while it runs
//! it has a clock, random numbers and an empty environment, and any other import ends it.

use crate::compile::{Cache, compiled_base};
use crate::engine::Engine;
use crate::error::LoadError;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use tokio::runtime::Handle;
use toolhold_policy::Digest;
use toolhold_policy::limits::Limits;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    Component, Instance, Lift, Linker, LinkerInstance, ResourceTable, ResourceType, Val, WasmList,
};
use wasmtime::{Store, StoreContextMut, StoreLimits, StoreLimitsBuilder};
use wasmtime_wasi::random::WasiRandom;
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wizer::{ComponentInstanceState, Wizer};

/// Maximum duration of the call, in ticks of the epoch, which are milliseconds.
const MAX_CALL_MS: u64 = 5_000;
/// Maximum instructions of the call.
const MAX_FUEL: u64 = 20_000_000_000;

/// The interface that a base exports, and the function of it that is called.
const TOOLS: &str = "toolhold:module/tools@0.1.0";
const CALL: &str = "call";

/// Makes components from bases.
#[derive(Debug, Clone)]
pub struct BaseRunner {
    engine: Engine,
    cache: Option<Cache>,
}

/// What came of a call that answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseOutcome {
    /// It returned a value; its memory is in this component.
    Component(Vec<u8>),
    /// It returned a message: why there is nothing to make a component of.
    Message(String),
}

/// No component can be made from the base.
#[derive(Debug, thiserror::Error)]
pub enum BaseError {
    #[error("it needs {import} while it is built")]
    Outside { import: String },
    #[error("{0}")]
    Load(#[from] LoadError),
    #[error("{reason}")]
    Failed { reason: String },
}

impl BaseRunner {
    pub fn new(engine: Engine, cache: Option<Cache>) -> Self {
        Self { engine, cache }
    }

    /// Calls `call` of a base with these arguments and makes a component of what it is then. The compiled base is kept for
    /// the module in this folder.
    ///
    /// Blocks: call it from a blocking thread of a runtime.
    ///
    /// # Errors
    /// It called for more than it has, took too long or too much, or is not of the kind that this works with.
    pub fn call(
        &self,
        base: Vec<u8>,
        folder: &Path,
        arguments: String,
    ) -> Result<BaseOutcome, BaseError> {
        let runner = self.clone();
        let folder = folder.to_owned();
        let digest = Digest::of(&base);
        let made = Handle::current().block_on(async {
            let wizer = Wizer::new();
            let (context, instrumented) = wizer.instrument_component(&base)?;
            let mut called = runner
                .called(instrumented, digest, folder, arguments)
                .await?;
            let component = wizer.snapshot_component(&context, &mut called).await?;
            called
                .unread
                .map_or(Ok(component), |fault| Err(fault.into()))
        });
        match made {
            Ok(component) => Ok(BaseOutcome::Component(component)),
            Err(Stopped::Message(message)) => Ok(BaseOutcome::Message(message)),
            Err(Stopped::Fault(fault)) => Err(fault),
        }
    }

    /// An instance of the base after the call. `base` is its digest before it was instrumented.
    async fn called(
        &self,
        instrumented: Vec<u8>,
        base: Digest,
        folder: PathBuf,
        arguments: String,
    ) -> Result<CalledBase, Stopped> {
        let engine = &self.engine;
        let limits = Limits::default();
        let component = compiled_base(
            engine,
            self.cache.as_ref(),
            &limits,
            Arc::new(instrumented),
            Digest::of(format!("a base, instrumented by wizer: {base}").as_bytes()),
            folder,
        )
        .await
        .map_err(BaseError::Load)?;
        let _place = engine.listing_permit().await;
        let _running = engine.running();
        let linker = linker(engine, &component)?;
        let memory = usize::try_from(limits.memory_bytes).unwrap_or(usize::MAX);
        let state = BaseState {
            wasi: WasiCtxBuilder::new().build(),
            table: ResourceTable::new(),
            limits: StoreLimitsBuilder::new().memory_size(memory).build(),
        };
        let mut store = Store::new(engine.wasmtime(), state);
        store.limiter(|state| &mut state.limits);
        store.set_epoch_deadline(MAX_CALL_MS);
        // Of an engine that counts none, it has no limit but the time.
        let _ = store.set_fuel(MAX_FUEL);
        let instance = linker.instantiate_async(&mut store, &component).await?;
        let answer = call(&mut store, &instance, arguments).await?;
        // What follows only reads.
        store.set_epoch_deadline(MAX_CALL_MS);
        match answer {
            Answer::Value => Ok(CalledBase {
                store,
                instance,
                unread: None,
            }),
            Answer::Message(message) => Err(Stopped::Message(message)),
        }
    }
}

/// Why a component was not made.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error("{0}")]
    Message(String),
    #[error("{0}")]
    Fault(#[from] BaseError),
}

impl From<wasmtime::Error> for Stopped {
    fn from(error: wasmtime::Error) -> Self {
        let fault = match error.downcast_ref::<UsedImport>() {
            Some(UsedImport(import)) => BaseError::Outside {
                import: import.clone(),
            },
            None => BaseError::Failed {
                reason: format!("{error:#}"),
            },
        };
        Self::Fault(fault)
    }
}

/// An import that ends the call.
#[derive(Debug, thiserror::Error)]
#[error("it called {0}")]
struct UsedImport(String);

enum Answer {
    Value,
    Message(String),
}

async fn call(
    store: &mut Store<BaseState>,
    instance: &Instance,
    arguments: String,
) -> Result<Answer, Stopped> {
    let unfit = |what: &str| BaseError::Failed {
        reason: format!("{what} of a base is not the one of a module"),
    };
    let function = instance
        .get_export_index(&mut *store, None, TOOLS)
        .and_then(|tools| instance.get_export_index(&mut *store, Some(&tools), CALL))
        .and_then(|call| instance.get_func(&mut *store, call))
        .ok_or_else(|| unfit("the function `call`"))?;
    let text = |text: &str| Val::String(text.to_owned());
    let invocation = Val::Record(vec![
        ("id".to_owned(), text("build")),
        ("tool".to_owned(), text("build")),
        ("arguments".to_owned(), Val::String(arguments)),
        ("context".to_owned(), Val::List(Vec::new())),
    ]);
    let mut results = [Val::Bool(false)];
    function
        .call_async(&mut *store, &[invocation], &mut results)
        .await?;
    let [Val::Result(Ok(Some(output)))] = results else {
        return Err(unfit("the answer").into());
    };
    match *output {
        Val::Variant(case, Some(held)) if case == "message" => match *held {
            Val::String(message) => Ok(Answer::Message(message)),
            _ => Err(unfit("the message").into()),
        },
        Val::Variant(case, _) if case == "value" => Ok(Answer::Value),
        _ => Err(unfit("the answer").into()),
    }
}

struct BaseState {
    wasi: WasiCtx,
    table: ResourceTable,
    limits: StoreLimits,
}

impl WasiView for BaseState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

type Caller<'a> = StoreContextMut<'a, BaseState>;

/// Whatever the component imports: a few functions that leave nothing behind, and others that end the call.
fn linker(engine: &Engine, component: &Component) -> wasmtime::Result<Linker<BaseState>> {
    let mut linker = Linker::new(engine.wasmtime());
    wasmtime_wasi::p2::bindings::random::random::add_to_linker::<BaseState, WasiRandom>(
        &mut linker,
        |state| state.wasi.random(),
    )?;
    for (name, item) in component.component_type().imports(engine.wasmtime()) {
        let ComponentItem::ComponentInstance(imported) = item.ty else {
            continue;
        };
        let interface = name.split('@').next().unwrap_or_default();
        if interface == "wasi:random/random" {
            continue;
        }
        let mut instance = linker.instance(name)?;
        for (function, item) in imported.exports(engine.wasmtime()) {
            match item.ty {
                ComponentItem::ComponentFunc(_) => {
                    link(&mut instance, interface, function)?;
                }
                ComponentItem::Resource(_) => {
                    instance.resource(function, ResourceType::host::<()>(), |_, _| Ok(()))?;
                }
                _ => {}
            }
        }
    }
    Ok(linker)
}

/// Links a function: one that opens nothing, or one that ends the call.
fn link(
    instance: &mut LinkerInstance<'_, BaseState>,
    interface: &str,
    function: &str,
) -> wasmtime::Result<()> {
    match (interface, function) {
        ("wasi:cli/environment", "get-environment") => {
            instance.func_wrap(function, |_: Caller<'_>, (): ()| {
                Ok((Vec::<(String, String)>::new(),))
            })?;
        }
        ("wasi:cli/environment", "get-arguments") => {
            instance.func_wrap(function, |_: Caller<'_>, (): ()| {
                Ok((Vec::<String>::new(),))
            })?;
        }
        ("wasi:clocks/monotonic-clock", "now") => {
            let begun = Instant::now();
            instance.func_wrap(function, move |_: Caller<'_>, (): ()| {
                let now = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
                Ok((now,))
            })?;
        }
        ("wasi:clocks/wall-clock", "now") => {
            // A record is lifted from a type of its own, which this makes of any.
            instance.func_new(function, |_, _, _, results| {
                let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
                let now = now.unwrap_or_default();
                let fields = vec![
                    ("seconds".to_owned(), Val::U64(now.as_secs())),
                    ("nanoseconds".to_owned(), Val::U32(now.subsec_nanos())),
                ];
                if let Some(result) = results.first_mut() {
                    *result = Val::Record(fields);
                }
                Ok(())
            })?;
        }
        _ => {
            let import = format!("{interface}#{function}");
            instance.func_new(function, move |_, _, _, _| {
                Err(wasmtime::Error::new(UsedImport(import.clone())))
            })?;
        }
    }
    Ok(())
}

/// The instance whose memory and globals are read.
struct CalledBase {
    store: Store<BaseState>,
    instance: Instance,
    /// Why one of them could not be read: the library's trait has no errors.
    unread: Option<wasmtime::Error>,
}

impl CalledBase {
    /// Calls `function` of `interface`, which the library added, and gives what it returned to `see`.
    async fn read<T, R>(
        &mut self,
        interface: &str,
        function: &str,
        see: impl FnOnce(&Store<BaseState>, T) -> R,
    ) -> Option<R>
    where
        T: Lift + Send + Sync + 'static,
    {
        let store = &mut self.store;
        let read = async {
            let missing = || wasmtime::format_err!("{interface}#{function} is missing");
            let index = self
                .instance
                .get_export_index(&mut *store, None, interface)
                .and_then(|outer| {
                    self.instance
                        .get_export_index(&mut *store, Some(&outer), function)
                })
                .ok_or_else(missing)?;
            let function = self
                .instance
                .get_typed_func::<(), (T,)>(&mut *store, index)?;
            let (value,) = function.call_async(&mut *store, ()).await?;
            Ok(see(store, value))
        };
        match read.await {
            Ok(read) => Some(read),
            Err(error) => {
                self.unread.get_or_insert(error);
                None
            }
        }
    }
}

impl ComponentInstanceState for CalledBase {
    async fn call_func_ret_list_u8(
        &mut self,
        interface: &str,
        function: &str,
        contents: impl FnOnce(&[u8]) + Send,
    ) {
        let see = |store: &Store<BaseState>, list: WasmList<u8>| contents(list.as_le_slice(store));
        self.read(interface, function, see)
            .await
            .unwrap_or_default();
    }

    async fn call_func_ret_s32(&mut self, interface: &str, function: &str) -> i32 {
        let read = self.read(interface, function, |_, value: i32| value).await;
        read.unwrap_or_default()
    }

    async fn call_func_ret_s64(&mut self, interface: &str, function: &str) -> i64 {
        let read = self.read(interface, function, |_, value: i64| value).await;
        read.unwrap_or_default()
    }

    async fn call_func_ret_f32(&mut self, interface: &str, function: &str) -> u32 {
        let bits = |_: &_, value: f32| value.to_bits();
        self.read(interface, function, bits)
            .await
            .unwrap_or_default()
    }

    async fn call_func_ret_f64(&mut self, interface: &str, function: &str) -> u64 {
        let bits = |_: &_, value: f64| value.to_bits();
        self.read(interface, function, bits)
            .await
            .unwrap_or_default()
    }
}
