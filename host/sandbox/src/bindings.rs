//! The host's side of `toolhold:module`, generated from `wit/`. The only generated code.

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "tool-module",
    exports: { default: async },
});

pub use self::toolhold::module::{log, progress, types};
