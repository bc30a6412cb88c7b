//! For `host/fuzz` alone: conversions by type, without an instance, and where a
//! request would go, without a network. Not part of the public API.

use crate::egress;
use crate::engine::Engine;
use crate::value::LiftError;
use crate::value::shape::{Shape, ShapeMember};
use crate::value::{self, schema};
use http::{Method, Uri};
use serde_json::{Map, Value};
use toolhold_policy::HttpGrant;
use url::Url;
use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

/// Memory of one call's arguments as component values.
const MOST_BYTES: u64 = 56 << 20;

/// The parameters of a function.
#[derive(Debug)]
pub struct FuzzedSignature(Vec<ShapeMember>);

impl FuzzedSignature {
    /// Of the first function in the first interface that a component imports; `None` where a type has
    /// no JSON form. An import needs no code, so nothing but types is compiled.
    ///
    /// # Errors
    /// Why the component does not validate, or that it imports no function.
    pub fn imported(engine: &Engine, component: &[u8]) -> Result<Option<Self>, String> {
        let component = Component::from_binary(engine.wasmtime(), component)
            .map_err(|error| format!("{error:#}"))?;
        let ty = component.component_type();
        let function = ty
            .imports(engine.wasmtime())
            .find_map(|(_, item)| match item.ty {
                ComponentItem::ComponentInstance(instance) => instance
                    .exports(engine.wasmtime())
                    .find_map(|(_, item)| match item.ty {
                        ComponentItem::ComponentFunc(function) => Some(function),
                        _ => None,
                    }),
                _ => None,
            })
            .ok_or("it imports no function")?;
        let parts = function.params().map(|(name, ty)| {
            let shape = Shape::of(&ty)?;
            let name = name.to_owned();
            Ok(ShapeMember { name, shape })
        });
        Ok(parts.collect::<Result<_, String>>().ok().map(Self))
    }

    /// The schema a model sees for these parameters.
    pub fn schema(&self) -> Value {
        schema::parameters(&self.0)
    }

    /// Arguments as the component would get them, turned back into JSON of at most `limit` bytes a
    /// parameter. `None` where the arguments are refused, for their types or their memory.
    ///
    /// # Errors
    /// What was accepted and cannot be turned back.
    pub fn round_trip(&self, arguments: &Value, limit: u64) -> Option<Result<Value, LiftError>> {
        // As a call: nothing becomes values whose memory was not told before.
        if value::weight(arguments, &self.0, MOST_BYTES) > MOST_BYTES {
            return None;
        }
        let values = value::arguments(arguments, &self.0).ok()?;
        let back = values
            .into_iter()
            .zip(&self.0)
            .map(|(value, part)| {
                let json = value::to_json(value, &part.shape, limit)?;
                Ok((part.name.clone(), json))
            })
            .collect::<Result<Map<_, _>, LiftError>>();
        Some(back.map(Value::Object))
    }
}

/// Where the host would go for a GET of `uri` under this grant; `None` where it goes nowhere.
pub fn admitted(grant: &HttpGrant, uri: &str) -> Option<Url> {
    let uri: Uri = uri.parse().ok()?;
    egress::admitted(grant, &Method::GET, &uri)
}
