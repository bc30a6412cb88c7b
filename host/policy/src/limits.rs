//! The limits of a module, from its file to each of its calls, and who sets them.
//!
//! The operator sets the defaults, a module's own `module.toml` asks for more or less, and the
//! operator's ceiling has the last word over what a module asked for. `limits!` holds the whole
//! table: a limit is added there and nowhere else, and is then a key of `[module.NAME.limits]` and of
//! `module.toml`, a line of `toolhold modules inspect`, and has a default and a ceiling.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use toolhold_json::depth::MAX_DEPTH;

/// One limit of a module, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// The key in the configuration and in `module.toml`.
    pub name: &'static str,
    pub value: u64,
    /// What it bounds.
    pub bounds: &'static str,
}

macro_rules! limits {
    ($($(#[doc = $doc:literal])+ $name:ident: $default:expr, $ceiling:expr, $bounds:literal;)+) => {
        /// The limits of a module. Each one fires with its own [`crate::CallError`], or with its own
        /// error of loading when the module cannot be called yet.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
        pub struct Limits {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        /// Some of the limits: `[limits]` of a `module.toml`, or `[limits]`, `[ceiling]` and
        /// `[module.NAME.limits]` of the configuration.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct LimitsRequest {
            $(#[serde(skip_serializing_if = "Option::is_none")] pub $name: Option<u64>,)+
        }

        impl LimitsRequest {
            /// The keys of the table.
            pub const NAMES: &[&str] = &[$(stringify!($name),)+];
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Limits {
            /// The most a module may ask for in its own `module.toml`, unless the operator says
            /// otherwise.
            pub fn default_ceiling() -> Self {
                Self { $($name: $ceiling,)+ }
            }

            /// These limits with the values that `request` names put in their place.
            #[must_use]
            pub fn overridden(&self, request: &LimitsRequest) -> Self {
                Self { $($name: request.$name.unwrap_or(self.$name),)+ }
            }

            /// What a module gets when it asks for `request`: the defaults where it is silent, what
            /// it asked for where it speaks, but never more than `ceiling`. A default that the
            /// operator set above the ceiling stays: the ceiling binds modules, not operators.
            #[must_use]
            pub fn granted(&self, request: &LimitsRequest, ceiling: &Limits) -> Self {
                Self {
                    $($name: request
                        .$name
                        .map_or(self.$name, |asked| capped(asked, ceiling.$name, stringify!($name))),)+
                }
            }

            /// Returns all limits, in the order of the table.
            pub fn entries(&self) -> Vec<Limit> {
                vec![$(Limit { name: stringify!($name), value: self.$name, bounds: $bounds },)+]
            }
        }
    };
}

/// Maximum core instances of a component: the engine's pool is laid out for so many.
pub const MAX_INSTANCES: u64 = 64;
/// Maximum tables of a component: the engine's pool is laid out for so many.
pub const MAX_TABLES: u64 = 16;
/// Maximum linear memories of a component: the engine's pool is laid out for so many.
pub const MAX_MEMORIES: u64 = 4;

limits! {
    /// Wasm instructions, roughly (wasmtime's fuel). Deterministic for one component and one
    /// wasmtime version; a hot loop burns about 1.5 billion a second. 0: not counted, which makes
    /// hot loops up to 1.7 times faster and leaves an endless one to `timeout_ms`; only an operator
    /// can choose that.
    fuel: 10_000_000_000, 100_000_000_000, "instructions, roughly";
    /// Wall clock for the whole call in milliseconds: queueing, instantiation, the call itself,
    /// reading the result. Covers what fuel cannot see, such as a guest asleep in a host call.
    timeout_ms: 10_000, 60_000, "milliseconds from asking to answer, queueing included";
    /// Bytes of linear memory, summed over all memories of the component, the initial size counted.
    memory_bytes: 128 << 20, 512 << 20, "bytes of memory, all memories together";
    /// Elements of all tables together. CPython needs some ten thousand.
    table_elements: 100_000, 200_000, "elements of all tables";
    /// Core instances inside the component. CPython brings 14.
    instances: 64, MAX_INSTANCES, "core instances";
    /// Tables of all core instances.
    tables: 16, MAX_TABLES, "tables";
    /// Linear memories of all core instances.
    memories: 4, MAX_MEMORIES, "linear memories";
    /// Bytes of Wasm stack. Rounded up to 256 KiB, 512 KiB, 4 MiB or 8 MiB, because each size needs an engine
    /// of its own.
    stack_bytes: 512 << 10, 4 << 20, "bytes of Wasm stack";
    /// Live handles (streams, descriptors, pollables…) in the call's resource table.
    handles: 1_000, 10_000, "open handles";
    /// Bytes that host calls move for the guest: files, streams, random numbers, keys and values, and the
    /// description of its own call.
    host_bytes: 256 << 20, 4 << 30, "bytes read and written through host calls";
    /// Bytes of memory that the host keeps for a call while it runs: HTTP fields, requests that are not sent yet,
    /// listings of directories, and writes that are not on disk. All calls together have a ceiling of their own
    /// (`modules.kept_bytes`).
    kept_bytes: 32 << 20, 256 << 20, "bytes of the host's memory kept for the call";
    /// Bytes of JSON a call may be given: arguments and reserved properties.
    argument_bytes: 4 << 20, 16 << 20, "bytes of arguments";
    /// Bytes of JSON a call may return.
    output_bytes: 4 << 20, 16 << 20, "bytes of result";
    /// Levels of arrays and objects in arguments and results. More than the ceiling could not be recorded.
    json_depth: 64, MAX_DEPTH as u64, "levels of nesting in arguments and results";
    /// Bytes kept of stdout, stderr and log lines, each. More is counted and dropped.
    capture_bytes: 64 << 10, 1 << 20, "bytes kept of stdout, stderr and log, each";
    /// HTTP requests of one call.
    http_requests: 32, 256, "HTTP requests";
    /// HTTP requests of one call that are under way at the same time.
    http_concurrent: 8, 32, "HTTP requests at the same time";
    /// Bytes of HTTP request bodies, all requests of a call together.
    http_request_bytes: 1 << 20, 16 << 20, "bytes of HTTP request bodies";
    /// Bytes of HTTP responses, headers and bodies, all of a call together.
    http_response_bytes: 8 << 20, 64 << 20, "bytes of HTTP responses";
    /// Milliseconds for one HTTP request, from connecting to its last byte.
    http_timeout_ms: 10_000, 60_000, "milliseconds for one HTTP request";
    /// Calls of this module that run at the same time. More wait, with their deadline running. No module gets
    /// more than half of the host's places (64) by its own wish.
    concurrent_calls: 32, 32, "calls of this module at the same time";
    /// Calls of this module in a minute, as a bucket that refills steadily. 0: not limited.
    calls_per_minute: 6_000, 60_000, "calls of this module in a minute";
    /// Bytes of the component; a larger file is refused before it is read. A Python component has
    /// 28 MB; a hundred is an attack or a mistake.
    component_bytes: 64 << 20, 64 << 20, "bytes of the component";
    /// Milliseconds to ask the module for its tools when it is loaded, once its code is there. A module that
    /// computes its list takes a few; one that sleeps would hold up what is loaded behind it.
    list_tools_ms: 500, 5_000, "milliseconds to list its tools when it is loaded";
    /// Milliseconds to compile the component. Like the next, it holds where the compiler is a process
    /// of its own; a compiler in this process cannot be stopped.
    compile_ms: 120_000, 120_000, "milliseconds to compile the component";
    /// Bytes of memory that the compiler may use for the component.
    compile_memory_bytes: 4 << 30, 4 << 30, "bytes of memory to compile the component";
}

/// For these 0 means "not limited", which is more than any number.
const ZERO_IS_UNLIMITED: [&str; 2] = ["fuel", "calls_per_minute"];

fn capped(asked: u64, ceiling: u64, name: &str) -> u64 {
    if !ZERO_IS_UNLIMITED.contains(&name) {
        return asked.min(ceiling);
    }
    match (asked, ceiling) {
        (_, 0) => asked,
        (0, ceiling) => ceiling,
        (asked, ceiling) => asked.min(ceiling),
    }
}

impl Limits {
    /// Time limit of one call.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// Time limit of one compilation.
    pub fn compile_time(&self) -> Duration {
        Duration::from_millis(self.compile_ms)
    }

    /// Time limit of listing the tools.
    pub fn list_tools_time(&self) -> Duration {
        Duration::from_millis(self.list_tools_ms)
    }

    /// Whether instructions are counted.
    pub fn metered(&self) -> bool {
        self.fuel > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_gets_what_it_asks_up_to_the_ceiling() {
        let defaults = Limits::default();
        let ceiling = Limits::default_ceiling();
        let request = LimitsRequest {
            fuel: Some(u64::MAX),
            timeout_ms: Some(5),
            ..LimitsRequest::default()
        };
        let granted = defaults.granted(&request, &ceiling);
        assert_eq!(granted.fuel, ceiling.fuel);
        assert_eq!(granted.timeout_ms, 5);
        assert_eq!(granted.memory_bytes, defaults.memory_bytes);
    }

    #[test]
    fn the_ceiling_does_not_bind_the_operator() {
        let defaults = Limits {
            fuel: 200,
            ..Limits::default()
        };
        let ceiling = Limits {
            fuel: 100,
            ..Limits::default_ceiling()
        };
        assert_eq!(
            defaults.granted(&LimitsRequest::default(), &ceiling).fuel,
            200
        );
    }

    #[test]
    fn a_module_cannot_ask_for_no_limit() {
        let request = LimitsRequest {
            fuel: Some(0),
            calls_per_minute: Some(0),
            ..LimitsRequest::default()
        };
        let ceiling = Limits::default_ceiling();
        let granted = Limits::default().granted(&request, &ceiling);
        assert_eq!(granted.fuel, ceiling.fuel);
        assert_eq!(granted.calls_per_minute, ceiling.calls_per_minute);
        assert!(!Limits::default().overridden(&request).metered());
    }

    /// Longer work continues as a job, whose questions are calls.
    #[test]
    fn statement_000_69_no_module_gets_more_than_a_minute_for_a_call() {
        for asked in [60_001, u64::MAX] {
            let request = LimitsRequest {
                timeout_ms: Some(asked),
                ..LimitsRequest::default()
            };
            let granted = Limits::default().granted(&request, &Limits::default_ceiling());
            assert_eq!(granted.timeout_ms, 60_000, "{asked}");
        }
    }

    #[test]
    fn every_limit_is_told() {
        let entries = Limits::default().entries();
        assert_eq!(entries.len(), 26);
        assert!(entries.iter().all(|limit| !limit.bounds.is_empty()));
    }
}
