//! Functions of this host in the place of wasmtime's.
//!
//! A guest is linked to the newest version of WASI that is there, and asks for a function by its name. So a function that
//! is put under a name that wasmtime does not have replaces nothing: the guest would get wasmtime's own, without meters.
//! Here that is an error, with which no module is loaded.

use crate::call::CallState;
#[cfg(test)]
use std::cell::RefCell;
#[cfg(test)]
use std::collections::BTreeSet;
use thiserror::Error;
use wasmtime::component::{ComponentNamedList, Lift, Linker, LinkerInstance, Lower, ResourceType};
use wasmtime::{Result, StoreContextMut};

/// The version of WASI that wasmtime has.
const WASI_VERSION: &str = "0.2.12";

#[cfg(test)]
thread_local! {
    static REPLACED: RefCell<BTreeSet<(String, String)>> = const { RefCell::new(BTreeSet::new()) };
}

/// Interfaces and functions that were replaced on this thread.
#[cfg(test)]
pub fn replaced_here() -> BTreeSet<(String, String)> {
    REPLACED.with_borrow(Clone::clone)
}

/// One of wasmtime's interfaces, of which functions are replaced.
pub struct ReplacedInterface<'a> {
    linker: &'a mut Linker<CallState>,
    /// With package and version.
    name: String,
}

/// wasmtime has no function or resource of that name. This host was built for another version of it.
#[derive(Debug, Error)]
#[error("{interface} has no {name} that could be replaced; this host does not fit its wasmtime")]
struct NothingToReplace {
    interface: String,
    name: String,
}

impl<'a> ReplacedInterface<'a> {
    /// The interface of WASI, such as `filesystem/types`.
    pub fn new(linker: &'a mut Linker<CallState>, interface: &str) -> Self {
        Self {
            linker,
            name: format!("wasi:{interface}@{WASI_VERSION}"),
        }
    }

    /// Replaces a function by one that does not wait.
    ///
    /// # Errors
    /// wasmtime has no function of that name.
    pub fn func_wrap<F, Params, Return>(&mut self, name: &str, function: F) -> Result<()>
    where
        F: Fn(StoreContextMut<'_, CallState>, Params) -> Result<Return> + Send + Sync + 'static,
        Params: ComponentNamedList + Lift + 'static,
        Return: ComponentNamedList + Lower + 'static,
    {
        self.replace(name, |interface| interface.func_wrap(name, function))
    }

    /// Replaces a function by one that may wait.
    ///
    /// # Errors
    /// wasmtime has no function of that name.
    pub fn func_wrap_async<Params, Return, F>(&mut self, name: &str, function: F) -> Result<()>
    where
        F: Fn(
                StoreContextMut<'_, CallState>,
                Params,
            ) -> Box<dyn Future<Output = Result<Return>> + Send + '_>
            + Send
            + Sync
            + 'static,
        Params: ComponentNamedList + Lift + 'static,
        Return: ComponentNamedList + Lower + 'static,
    {
        self.replace(name, |interface| interface.func_wrap_async(name, function))
    }

    /// Replaces a resource, and what is done when the guest drops one.
    ///
    /// # Errors
    /// wasmtime has no resource of that name.
    pub fn resource(
        &mut self,
        name: &str,
        of: ResourceType,
        drop: impl Fn(StoreContextMut<'_, CallState>, u32) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        self.replace(name, |interface| interface.resource(name, of, drop))
    }

    fn replace(
        &mut self,
        name: &str,
        define: impl FnOnce(&mut LinkerInstance<'_, CallState>) -> Result<()>,
    ) -> Result<()> {
        // Without shadowing, only a name that has nothing yet can be defined.
        let of = ResourceType::host::<()>();
        let mut interface = self.linker.instance(&self.name)?;
        if interface.resource(name, of, |_, _| Ok(())).is_ok() {
            return Err(NothingToReplace {
                interface: self.name.clone(),
                name: name.to_owned(),
            }
            .into());
        }
        #[cfg(test)]
        REPLACED.with_borrow_mut(|replaced| {
            replaced.insert((self.name.clone(), name.to_owned()));
        });
        self.linker.allow_shadowing(true);
        let defined = self
            .linker
            .instance(&self.name)
            .and_then(|mut interface| define(&mut interface));
        self.linker.allow_shadowing(false);
        defined
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, EngineConfig};

    #[test]
    fn a_function_that_wasmtime_does_not_have_is_not_replaced() {
        let engine = Engine::new(EngineConfig::default()).unwrap();
        let mut linker = Linker::new(engine.wasmtime());
        wasmtime_wasi::p2::add_to_linker_async(&mut linker).unwrap();
        let mut replace = |interface: &str, name: &str| {
            let mut interface = ReplacedInterface::new(&mut linker, interface);
            interface.func_wrap(name, |_, (): ()| Ok((5u64,)))
        };
        replace("random/random", "get-random-u64").unwrap();
        replace("random/random", "get-random-u64").unwrap();
        for (interface, name) in [
            ("random/random", "get-random-u128"),
            ("random/other", "get-random-u64"),
        ] {
            let refused = replace(interface, name).unwrap_err();
            let refused = refused.downcast_ref::<NothingToReplace>().unwrap();
            assert_eq!(refused.name, name);
        }
    }
}
