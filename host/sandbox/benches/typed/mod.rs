//! A bare embedding that calls a typed export with JSON text in and out: the same pool, fuel, epochs
//! and WASI, and the conversions as one writes them first, by walking `Type` and copying.

use serde_json::{Map, Value, json};
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{
    Component, ComponentExportIndex, InstancePre, Linker, ResourceTable, Type, Val,
};
use wasmtime::{Engine, Store};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

pub struct TypedState(WasiCtx, ResourceTable);

impl WasiView for TypedState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.0,
            table: &mut self.1,
        }
    }
}

pub struct Bare {
    engine: Engine,
    pre: InstancePre<TypedState>,
    function: ComponentExportIndex,
    params: Vec<(String, Type)>,
    result: Type,
}

impl Bare {
    pub fn new(config: &wasmtime::Config, bytes: &[u8], interface: &str, function: &str) -> Self {
        let engine = Engine::new(config).unwrap();
        let mut linker = Linker::new(&engine);
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        let component = Component::from_binary(&engine, bytes).unwrap();
        let parent = component.get_export_index(None, interface).unwrap();
        let (item, index) = component.get_export(Some(&parent), function).unwrap();
        let ComponentItem::ComponentFunc(ty) = item else {
            unreachable!("the bench names a function")
        };
        Self {
            pre: linker.instantiate_pre(&component).unwrap(),
            function: index,
            params: ty.params().map(|(n, t)| (n.to_owned(), t)).collect(),
            result: ty.results().next().unwrap(),
            engine,
        }
    }

    pub async fn call(&self, arguments: &str) -> String {
        let arguments: Value = serde_json::from_str(arguments).unwrap();
        let arguments: Vec<_> = self
            .params
            .iter()
            .map(|(name, ty)| lower(&arguments[name], ty))
            .collect();
        let state = TypedState(WasiCtx::builder().build(), ResourceTable::new());
        let mut store = Store::new(&self.engine, state);
        store.set_fuel(10_000_000_000).unwrap();
        store.set_epoch_deadline(1_000_000);
        let instance = self.pre.instantiate_async(&mut store).await.unwrap();
        let func = instance.get_func(&mut store, self.function).unwrap();
        let mut results = [Val::Bool(false)];
        func.call_async(&mut store, &arguments, &mut results)
            .await
            .unwrap();
        lift(&results[0], &self.result).to_string()
    }
}

fn lower(value: &Value, ty: &Type) -> Val {
    match ty {
        Type::U8 => Val::U8(value.as_u64().unwrap().try_into().unwrap()),
        Type::U16 => Val::U16(value.as_u64().unwrap().try_into().unwrap()),
        Type::U32 => Val::U32(value.as_u64().unwrap().try_into().unwrap()),
        Type::S64 => Val::S64(value.as_i64().unwrap()),
        Type::Float64 => Val::Float64(value.as_f64().unwrap()),
        Type::String => Val::String(value.as_str().unwrap().to_owned()),
        Type::Enum(_) => Val::Enum(value.as_str().unwrap().to_owned()),
        Type::Option(_) if value.is_null() => Val::Option(None),
        Type::Option(option) => Val::Option(Some(Box::new(lower(value, &option.ty())))),
        Type::List(list) => Val::List(
            value
                .as_array()
                .unwrap()
                .iter()
                .map(|item| lower(item, &list.ty()))
                .collect(),
        ),
        Type::Record(record) => Val::Record(
            record
                .fields()
                .map(|field| (field.name.to_owned(), lower(&value[field.name], &field.ty)))
                .collect(),
        ),
        Type::Flags(_) => Val::Flags(
            value
                .as_array()
                .unwrap()
                .iter()
                .map(|name| name.as_str().unwrap().to_owned())
                .collect(),
        ),
        Type::Variant(variant) => match value {
            Value::String(name) => Val::Variant(name.clone(), None),
            Value::Object(object) => {
                let (name, payload) = object.iter().next().unwrap();
                let case = variant.cases().find(|case| case.name == name).unwrap();
                let payload = lower(payload, &case.ty.unwrap());
                Val::Variant(name.clone(), Some(Box::new(payload)))
            }
            _ => unreachable!("the bench's arguments fit"),
        },
        _ => unreachable!("the bench's types"),
    }
}

fn lift(value: &Val, ty: &Type) -> Value {
    match (value, ty) {
        (Val::S64(v), _) => json!(v),
        (Val::String(v), _) => json!(v),
        (Val::List(items), Type::List(list)) => {
            items.iter().map(|item| lift(item, &list.ty())).collect()
        }
        (Val::Record(fields), Type::Record(record)) => fields
            .iter()
            .zip(record.fields())
            .map(|((name, value), field)| (name.clone(), lift(value, &field.ty)))
            .collect::<Map<_, _>>()
            .into(),
        (Val::Result(Ok(Some(value))), Type::Result(result)) => lift(value, &result.ok().unwrap()),
        _ => unreachable!("the bench's types"),
    }
}
