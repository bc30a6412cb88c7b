//! Modules that were not written for this host: their exported functions become tools.

use crate::call::TypedFunction;
use crate::engine::Engine;
use crate::error::LoadError;
use crate::module::{Annotations, MAX_TOOLS, ToolSpec};
use crate::{schema, text};
use std::collections::HashMap;
use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, ComponentExportIndex, Type};

#[derive(Default)]
pub(crate) struct TypedExports {
    pub tools: Vec<ToolSpec>,
    pub functions: HashMap<String, TypedFunction>,
    pub refused: Vec<(String, String)>,
}

/// Every exported function of the world and of its exported interfaces, except WASI's own.
pub(crate) fn typed_exports(
    engine: &Engine,
    module: &str,
    component: &Component,
) -> Result<TypedExports, LoadError> {
    let mut found = TypedExports::default();
    let ty = component.component_type();
    for (name, item) in ty.exports(engine.wasmtime()) {
        match item.ty {
            ComponentItem::ComponentFunc(func) => {
                let index = component.get_export_index(None, name);
                found.add(module, None, name, &func, index);
            }
            ComponentItem::ComponentInstance(instance) if !name.starts_with("wasi:") => {
                let parent = component.get_export_index(None, name);
                for (function, item) in instance.exports(engine.wasmtime()) {
                    if let ComponentItem::ComponentFunc(func) = item.ty {
                        let index = component.get_export_index(parent.as_ref(), function);
                        found.add(module, Some(name), function, &func, index);
                    }
                }
            }
            _ => {}
        }
    }
    if found.tools.is_empty() || found.tools.len() > MAX_TOOLS {
        let reasons: Vec<_> = found
            .refused
            .iter()
            .map(|(name, why)| format!("; {name}: {why}"))
            .collect();
        let detail = if found.tools.is_empty() {
            reasons.concat()
        } else {
            format!("s: more than {MAX_TOOLS}")
        };
        return Err(LoadError::NoTools { detail });
    }
    Ok(found)
}

impl TypedExports {
    fn add(
        &mut self,
        module: &str,
        interface: Option<&str>,
        function: &str,
        func: &ComponentFunc,
        index: Option<ComponentExportIndex>,
    ) {
        let signature = interface.map_or(function.to_owned(), |i| format!("{i}#{function}"));
        match typed_tool(module, interface, function, func) {
            Ok((mut local, mut spec)) => {
                let Some(index) = index else { return };
                if self.functions.contains_key(&local) {
                    // Two interfaces export the same name: the interface tells them apart.
                    let prefix = interface.map_or("world", |i| i.rsplit('/').next().unwrap_or(i));
                    local = snake(&format!(
                        "{}_{local}",
                        prefix.split('@').next().unwrap_or(prefix)
                    ));
                    let taken = self.functions.contains_key(&local);
                    match text::tool_name(module, &local) {
                        Ok(name) if !taken => spec.name = name,
                        Ok(name) => {
                            let reason = format!("the name {name} is already taken");
                            return self.refused.push((signature, reason));
                        }
                        Err(reason) => return self.refused.push((signature, reason)),
                    }
                }
                let params = func.params().map(|(n, t)| (n.to_owned(), t)).collect();
                let result = func.results().next();
                self.functions.insert(
                    local,
                    TypedFunction {
                        index,
                        params,
                        result,
                    },
                );
                self.tools.push(spec);
            }
            Err(reason) => self.refused.push((signature, reason)),
        }
    }
}

fn typed_tool(
    module: &str,
    interface: Option<&str>,
    function: &str,
    func: &ComponentFunc,
) -> Result<(String, ToolSpec), String> {
    if func.async_() {
        return Err("async functions of the component model are not supported yet".into());
    }
    let local = snake(function);
    let name = text::tool_name(module, &local)?;
    let params: Vec<_> = func.params().map(|(n, t)| (n.to_owned(), t)).collect();
    let input_schema = schema::parameters(params.iter().map(|(n, t)| (n.as_str(), t)))?;
    let output = func.results().next();
    let output_schema = match &output {
        // The error side becomes a tool error, so the model only ever sees the ok side.
        Some(Type::Result(result)) => result.ok().map(|ty| schema::of(&ty)),
        Some(ty) => Some(schema::of(ty)),
        None => None,
    }
    .transpose()
    .map_err(|reason| format!("result: {reason}"))?;
    let names: Vec<_> = params.iter().map(|(n, _)| n.as_str()).collect();
    let origin = interface.map_or(String::new(), |i| format!(" of {i}"));
    Ok((
        local.clone(),
        ToolSpec {
            name,
            title: None,
            description: format!("{function}({}){origin}", names.join(", ")),
            input_schema,
            output_schema,
            annotations: Annotations::default(),
            examples: Vec::new(),
        },
    ))
}

fn snake(kebab: &str) -> String {
    kebab.to_ascii_lowercase().replace('-', "_")
}
