//! Modules that were not written for this host: their exported functions become tools.
//!
//! [`exports`] walks what a component exports; `names` says what each function is called, `describe`
//! what a model reads of it, and [`output`] turns what it returned into a tool's output.

mod describe;
mod names;
mod signature;

pub(crate) use describe::CombinedDocs;

use crate::call::{CallState, GuestCall};
use crate::engine::Engine;
use crate::error::LoadError;
use crate::value::fuel::{BYTES_PER_FUEL, bytes_per_fuel};
use crate::value::shape::{PartsBudget, Shape, ShapeMember, ShapeReader};
use crate::value::{self, LiftError};
use describe::Signature;
use serde_json::Value;
use std::collections::HashMap;
use toolhold_policy::Output;
use toolhold_policy::limits::Limits;
use toolhold_policy::text;
use toolhold_policy::tool::{MAX_TOOLS_PER_MODULE, ToolSpec};
use toolhold_policy::{CallError, ErrorClass};
use wasmtime::Store;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex, InstancePre, ResourceType, Val};

/// Maximum exported functions that are looked at, those that cannot be tools included.
const MAX_EXPORTED_FUNCTIONS: usize = 4_096;
/// Maximum refusals that are listed: a person reads them.
const MAX_REFUSED_EXPORTS: usize = MAX_TOOLS_PER_MODULE;

/// An exported function with the plan of its calls.
#[derive(Debug, Clone)]
pub(crate) struct TypedFunction {
    pub index: ComponentExportIndex,
    pub params: Vec<ShapeMember>,
    pub result: Option<Shape>,
}

#[derive(Default)]
pub(crate) struct TypedExports {
    pub tools: Vec<ToolSpec>,
    /// By their local names.
    pub functions: HashMap<String, TypedFunction>,
    /// Exports that are no tools, and why.
    pub refused: Vec<(String, String)>,
}

impl TypedExports {
    fn refuse(&mut self, export: &Export, reason: String) {
        if self.refused.len() < MAX_REFUSED_EXPORTS {
            self.refused.push((export.shown(), reason));
        }
    }
}

/// Every exported function of the world and of its exported interfaces, except WASI's own.
pub(crate) fn exports(
    engine: &Engine,
    module: &str,
    component: &Component,
    sources: &CombinedDocs,
) -> Result<TypedExports, LoadError> {
    let mut found = TypedExports::default();
    let mut functions = Vec::new();
    let exports = listed(engine, component);
    if exports.len() > MAX_EXPORTED_FUNCTIONS {
        return Err(LoadError::NoTools {
            detail: format!("s: it exports more than {MAX_EXPORTED_FUNCTIONS} functions"),
        });
    }
    let mut budget = PartsBudget::default();
    for export in exports {
        match export.function(&mut budget) {
            Ok(function) => functions.push((export, function)),
            Err(reason) => found.refuse(&export, reason),
        }
    }
    let keys: Vec<_> = functions
        .iter()
        .map(|(export, _)| (export.interface.as_deref(), export.name.as_str()))
        .collect();
    let names = names::assign(module, &keys);
    for ((export, function), name) in functions.into_iter().zip(names) {
        let signature = Signature {
            interface: export.interface.as_deref(),
            function: &export.name,
            params: &function.params,
            result: function.result.as_ref(),
        };
        let tool = name.and_then(|local| {
            let spec = sources.tool(module, &local, &signature)?;
            Ok((local, spec))
        });
        match tool {
            Ok((local, spec)) => {
                found.tools.push(spec);
                found.functions.insert(local, function);
            }
            Err(reason) => found.refuse(&export, reason),
        }
        if found.tools.len() > MAX_TOOLS_PER_MODULE {
            break;
        }
    }
    match found.tools.len() {
        0 => {
            let reasons = found.refused.iter().take(8);
            let reasons = reasons.map(|(name, why)| format!("; {name}: {why}"));
            Err(LoadError::NoTools {
                detail: reasons.collect(),
            })
        }
        1..=MAX_TOOLS_PER_MODULE => Ok(found),
        _ => Err(LoadError::NoTools {
            detail: format!("s: it has more than {MAX_TOOLS_PER_MODULE}"),
        }),
    }
}

/// One exported function.
struct Export {
    interface: Option<String>,
    name: String,
    func: ComponentFunc,
    index: Option<ComponentExportIndex>,
    /// The resources of its interface and of the world, by name.
    resources: std::rc::Rc<Vec<(ResourceType, String)>>,
}

fn listed(engine: &Engine, component: &Component) -> Vec<Export> {
    let engine = engine.wasmtime();
    let mut out = Vec::new();
    let ty = component.component_type();
    let mut resources = Vec::new();
    for (name, item) in ty.imports(engine).chain(ty.exports(engine)) {
        match item.ty {
            ComponentItem::Resource(ty) => resources.push((ty, name.to_owned())),
            ComponentItem::ComponentInstance(instance) => {
                for (name, item) in instance.exports(engine) {
                    if let ComponentItem::Resource(ty) = item.ty {
                        resources.push((ty, name.to_owned()));
                    }
                }
            }
            _ => {}
        }
    }
    let resources = std::rc::Rc::new(resources);
    for (name, item) in ty.exports(engine) {
        if out.len() > MAX_EXPORTED_FUNCTIONS {
            break;
        }
        match item.ty {
            ComponentItem::ComponentFunc(func) => out.push(Export {
                interface: None,
                name: name.to_owned(),
                func,
                index: component.get_export_index(None, name),
                resources: resources.clone(),
            }),
            // How other hosts start a program or hand it a request: not for models.
            ComponentItem::ComponentInstance(_) if name.starts_with("wasi:") => {}
            ComponentItem::ComponentInstance(instance) => {
                let parent = component.get_export_index(None, name);
                for (function, item) in instance.exports(engine) {
                    if out.len() > MAX_EXPORTED_FUNCTIONS {
                        break;
                    }
                    if let ComponentItem::ComponentFunc(func) = item.ty {
                        out.push(Export {
                            interface: Some(name.to_owned()),
                            name: function.to_owned(),
                            func,
                            index: component.get_export_index(parent.as_ref(), function),
                            resources: resources.clone(),
                        });
                    }
                }
            }
            _ => {}
        }
    }
    out
}

/// The parameters of the `init` that componentize-py and componentize-qjs export beside what the
/// author wrote: they call it once, while they make the component.
const RUNTIME_INIT_PARAMETERS: [&[&str]; 2] = [
    &["app-name", "symbols", "stub-wasi"],
    &["shim", "script", "entry-path", "disable-gc"],
];

impl Export {
    fn shown(&self) -> String {
        let interface = self.interface.as_deref();
        let name = interface.map_or(self.name.clone(), |i| format!("{i}#{}", self.name));
        text::visible(&name, 200)
    }

    /// The function as tools call it, or why it cannot be one.
    fn function(&self, budget: &mut PartsBudget) -> Result<TypedFunction, String> {
        if let Some((_, of)) = self.name.split_once(']') {
            let resource = of.split('.').next().unwrap_or(of);
            return Err(format!(
                "it belongs to the resource {resource}, which lives only inside one instance; a plain function that does the whole job can be a tool"
            ));
        }
        if self.func.async_() {
            return Err(
                "it is an async function of the component model, which this host does not run yet; export it without async".into(),
            );
        }
        let names: Vec<_> = self.func.params().map(|(name, _)| name).collect();
        if self.name == "init" && RUNTIME_INIT_PARAMETERS.contains(&names.as_slice()) {
            return Err(
                "it is how the language's runtime was started when the component was made".into(),
            );
        }
        let mut reader = ShapeReader::new(&self.resources, budget);
        let params = self
            .func
            .params()
            .map(|(name, ty)| {
                let shape = reader.shape(&ty);
                Ok(ShapeMember {
                    name: name.to_owned(),
                    shape: shape.map_err(|reason| format!("parameter {name}: {reason}"))?,
                })
            })
            .collect::<Result<_, String>>()?;
        let result = self.func.results().next().map(|ty| reader.shape(&ty));
        Ok(TypedFunction {
            index: self
                .index
                .ok_or("the component does not export it after all")?,
            params,
            result: result
                .transpose()
                .map_err(|reason| format!("result: {reason}"))?,
        })
    }
}

/// One call of an exported function.
pub(crate) struct CallFunction<'a> {
    pub pre: &'a InstancePre<CallState>,
    pub function: &'a TypedFunction,
    pub arguments: &'a Value,
}

impl GuestCall for CallFunction<'_> {
    /// Absent: the function has no result. An error: the arguments are not of its parameters' types.
    type Return = Result<Option<Val>, String>;

    async fn perform(self, store: &mut Store<CallState>) -> wasmtime::Result<Self::Return> {
        // Reserved first: values take many times the bytes of their text, and wasmtime wants them as long as the guest runs.
        let gauge = &store.data().gauge;
        let most = gauge.most_of_arguments();
        let weight = value::weight(self.arguments, &self.function.params, most);
        let _kept = gauge.keep_arguments(weight)?;
        let arguments = match value::arguments(self.arguments, &self.function.params) {
            Ok(arguments) => arguments,
            Err(reason) => return Ok(Err(reason)),
        };
        // So that a result of any type takes the same memory at most.
        if let Some(shape) = &self.function.result {
            let fuel = store.hostcall_fuel() as u64 * BYTES_PER_FUEL / bytes_per_fuel(shape);
            store.set_hostcall_fuel(usize::try_from(fuel).unwrap_or(usize::MAX));
        }
        let instance = self.pre.instantiate_async(&mut *store).await?;
        let func = instance
            .get_func(&mut *store, self.function.index)
            .ok_or_else(|| wasmtime::format_err!("the export is no function"))?;
        let mut results = vec![Val::Bool(false); usize::from(self.function.result.is_some())];
        func.call_async(&mut *store, &arguments, &mut results)
            .await?;
        Ok(Ok(results.pop()))
    }
}

/// The result of a call, within its limits. A function's own `result` error is the tool's.
pub(crate) fn output(
    returned: Result<Option<Val>, String>,
    function: &TypedFunction,
    limits: &Limits,
) -> Result<Output, CallError> {
    let returned = returned.map_err(|reason| CallError::Arguments { reason })?;
    let json = |value, shape: &Shape| {
        value::to_json(value, shape, limits.output_bytes).map_err(|error| match error {
            LiftError::TooLarge => CallError::Output {
                limit: limits.output_bytes,
            },
            LiftError::TooMuchMemory { limit } => CallError::KeptBytes { limit },
            LiftError::NoForm(reason) => CallError::Encoding { reason },
        })
    };
    let side = |payload: Option<Box<Val>>, shape: Option<&Shape>| match (payload, shape) {
        (Some(payload), Some(shape)) => json(*payload, shape),
        _ => Ok(Value::Null),
    };
    match (returned, &function.result) {
        (Some(Val::Result(Ok(payload))), Some(Shape::Result(ok, _))) => {
            side(payload, ok.as_deref()).map(Output::Value)
        }
        (Some(Val::Result(Err(payload))), Some(Shape::Result(_, err))) => {
            let data = side(payload, err.as_deref())?;
            Err(CallError::Tool {
                class: ErrorClass::Correctable,
                message: text::visible(&failure(&data), 4_000),
                data: Some(data),
            })
        }
        (Some(value), Some(shape)) => json(value, shape).map(Output::Value),
        _ => Ok(Output::Value(Value::Null)),
    }
}

/// An error value as a sentence: its text, its case and the payload's text, or its `message`.
fn failure(data: &Value) -> String {
    match data {
        Value::Null => "the tool reported a failure without saying which".into(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            if let Some(Value::String(message)) = fields.get("message") {
                return message.clone();
            }
            match fields.iter().next() {
                Some((case, payload)) if fields.len() == 1 => {
                    format!("{case}: {}", failure(payload))
                }
                _ => data.to_string(),
            }
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::failure;
    use serde_json::json;

    #[test]
    fn an_error_value_reads_as_a_sentence() {
        for (data, expect) in [
            (json!("no such city"), "no such city"),
            (
                json!({"not-found": "no such file"}),
                "not-found: no such file",
            ),
            (
                json!({"denied": {"message": "ask first", "code": 3}}),
                "denied: ask first",
            ),
            (json!({"code": 3, "line": 1}), r#"{"code":3,"line":1}"#),
            (json!({"out-of-range": [1, 9]}), "out-of-range: [1,9]"),
        ] {
            assert_eq!(failure(&data), expect);
        }
    }
}
