//! The least that an embedding needs for the same call: pooling, fuel, epochs, WASI, the same
//! component and the same JSON, but no limits beyond fuel, no deadline, no capture, no report.

use toolhold::module::file_locks::{HostLockableFile, LockError, LockKind, LockableFile};
use toolhold::module::key_value::KeyValueError;
use toolhold::module::knowledge;
use toolhold::module::types::ToolError;
use wasmtime::component::{Component, HasSelf, Linker, Resource, ResourceTable};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store,
};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

wasmtime::component::bindgen!({ path: "../../wit", world: "tool-module", exports: { default: async } });

pub struct BareState(WasiCtx, ResourceTable);

impl WasiView for BareState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.0,
            table: &mut self.1,
        }
    }
}

impl toolhold::module::types::Host for BareState {}
impl toolhold::module::log::Host for BareState {
    fn write(&mut self, _: toolhold::module::log::Level, _: String) {}
}
impl toolhold::module::progress::Host for BareState {
    fn report(&mut self, _: u64, _: u64, _: String) {}
}

impl toolhold::module::key_value::Host for BareState {
    fn get(&mut self, _: String) -> Result<Option<Vec<u8>>, KeyValueError> {
        Ok(None)
    }
    fn set(&mut self, _: String, _: Vec<u8>) -> Result<(), KeyValueError> {
        Err(KeyValueError::Denied)
    }
    fn delete(&mut self, _: String) -> Result<bool, KeyValueError> {
        Ok(false)
    }
    fn keys(&mut self, _: String) -> Result<Vec<String>, KeyValueError> {
        Ok(Vec::new())
    }
}

impl toolhold::module::knowledge::Host for BareState {
    fn search(&mut self, _: knowledge::SearchQuery) -> Known<knowledge::SearchResult> {
        Err(no_knowledge())
    }
    fn read(&mut self, _: knowledge::Reading) -> Known<Vec<knowledge::Passage>> {
        Err(no_knowledge())
    }
    fn remember(&mut self, _: knowledge::NewFact) -> Known<knowledge::Fact> {
        Err(no_knowledge())
    }
    fn recall(&mut self, _: knowledge::RecallQuery) -> Known<Vec<knowledge::Fact>> {
        Err(no_knowledge())
    }
    fn forget(&mut self, _: String, _: bool) -> Known<u32> {
        Err(no_knowledge())
    }
}

type Known<T> = Result<T, knowledge::KnowledgeError>;

fn no_knowledge() -> knowledge::KnowledgeError {
    knowledge::KnowledgeError::Denied(String::new())
}

impl toolhold::module::secrets::Host for BareState {
    fn available(&mut self) -> Vec<toolhold::module::secrets::Secret> {
        Vec::new()
    }
}
impl toolhold::module::other_tools::Host for BareState {
    fn call(&mut self, _: String, _: String) -> Result<String, ToolError> {
        unreachable!("the bench's tools call no others")
    }
}
impl toolhold::module::current_call::Host for BareState {
    fn reserved_properties(&mut self) -> String {
        "{}".into()
    }
    fn tool_schema(&mut self) -> String {
        "{}".into()
    }
}

/// The files of the benches' calls are locked by none of them.
impl toolhold::module::file_locks::Host for BareState {
    fn patience(&mut self) -> u64 {
        0
    }
}
impl HostLockableFile for BareState {
    fn open(&mut self, _: String) -> Locked<Resource<LockableFile>> {
        Err(LockError::Denied)
    }
    fn lock(&mut self, _: Resource<LockableFile>, _: u64, _: u64, _: LockKind) -> Locked<()> {
        Err(LockError::Denied)
    }
    fn unlock(&mut self, _: Resource<LockableFile>, _: u64, _: u64) -> Locked<()> {
        Err(LockError::Denied)
    }
    fn is_locked(&mut self, _: Resource<LockableFile>, _: u64, _: u64) -> Locked<bool> {
        Err(LockError::Denied)
    }
    fn drop(&mut self, _: Resource<LockableFile>) -> wasmtime::Result<()> {
        Ok(())
    }
}

type Locked<T> = Result<T, LockError>;

pub fn config() -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(64)
        .total_stacks(64)
        .total_core_instances(1_280)
        .total_memories(128)
        .total_tables(256)
        .max_component_instance_size(4 << 20)
        .max_core_instances_per_component(64)
        .max_memories_per_component(4)
        .max_tables_per_component(16)
        .max_memory_size(512 << 20)
        .linear_memory_keep_resident(2 << 20)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(16 << 10)
        .pagemap_scan(Enabled::Auto)
        .max_unused_warm_slots(16);
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(true)
        .memory_guaranteed_dense_image_size(64 << 20)
        .async_stack_zeroing(true)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

pub struct Bare {
    engine: Engine,
    pre: ToolModulePre<BareState>,
}

impl Bare {
    pub fn new(config: &Config, bytes: &[u8]) -> Self {
        let engine = Engine::new(config).unwrap();
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        // Python imports the whole world, whether it uses it or not.
        ToolModule::add_to_linker::<BareState, HasSelf<BareState>>(&mut linker, |state| state)
            .unwrap();
        let component = Component::from_binary(&engine, bytes).unwrap();
        let pre = ToolModulePre::new(linker.instantiate_pre(&component).unwrap()).unwrap();
        Self { engine, pre }
    }

    pub async fn call(&self, tool: &str, arguments: &serde_json::Value) -> serde_json::Value {
        let mut store = Store::new(
            &self.engine,
            BareState(WasiCtx::builder().build(), ResourceTable::new()),
        );
        store.set_fuel(10_000_000_000).unwrap();
        store.set_epoch_deadline(1_000_000);
        let instance = self.pre.instantiate_async(&mut store).await.unwrap();
        let invocation = exports::toolhold::module::tools::Invocation {
            id: "bench".into(),
            tool: tool.into(),
            arguments: arguments.to_string(),
            context: Vec::new(),
        };
        let output = instance
            .toolhold_module_tools()
            .call_call(&mut store, &invocation)
            .await
            .unwrap();
        match output.unwrap() {
            exports::toolhold::module::tools::Output::Value(json) => {
                serde_json::from_str(&json).unwrap()
            }
            exports::toolhold::module::tools::Output::Message(_) => {
                unreachable!("the bench's tools return values")
            }
        }
    }
}
