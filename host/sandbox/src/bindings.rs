//! The host's side of `toolhold:module`, generated from `wit/`. The only generated code.

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "tool-module",
    imports: {
        "toolhold:module/key-value": async,
        "toolhold:module/other-tools": async,
        "toolhold:module/current-call": trappable,
        "toolhold:module/knowledge": async,
        "toolhold:module/file-locks": async | trappable,
    },
    with: {
        "toolhold:module/file-locks.lockable-file": crate::disk::byte_lock::LockableFile,
    },
    exports: { default: async },
});

pub use self::toolhold::module::{
    current_call, file_locks, key_value, knowledge, log, other_tools, progress, secrets, types,
};

/// The world of a shield, with the types of the tool world.
pub mod shield {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "shield",
        with: {
            "toolhold:module/types": crate::bindings::toolhold::module::types,
            "toolhold:module/log": crate::bindings::toolhold::module::log,
        },
        exports: { default: async },
    });

    pub use self::exports::toolhold::module::shields;
}

/// The optional export of a tool module whose calls may continue as jobs.
pub mod jobs {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "job-tools",
        with: {
            "toolhold:module/types": crate::bindings::toolhold::module::types,
        },
        exports: { default: async },
    });

    pub use self::exports::toolhold::module::jobs::{JobState, Started};
}

/// The world of an extractor.
pub mod extractor {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "extractor",
        imports: { "toolhold:module/document": trappable },
        with: {
            "toolhold:module/log": crate::bindings::toolhold::module::log,
        },
        exports: { default: async },
    });

    pub use self::exports::toolhold::module::extractors;
    pub use self::toolhold::module::document;
}
