//! What one call may use, and who decides it.
//!
//! The operator sets the defaults, a module's own `module.toml` asks for more or less, and the
//! operator's ceiling has the last word over what a module asked for.

use crate::egress::HttpLimits;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The limits of one call. Each one fires with its own [`crate::CallError`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// Wasm instructions, roughly (wasmtime's fuel). Deterministic for one component and one
    /// wasmtime version; a hot loop burns about 1.5 billion a second.
    pub fuel: u64,
    /// Wall clock for the whole call in milliseconds: queueing, instantiation, the call itself,
    /// reading the result. Covers what fuel cannot see, such as a guest asleep in a host call.
    pub timeout_ms: u64,
    /// Bytes of linear memory, summed over all memories of the component, the initial size counted.
    pub memory_bytes: u64,
    /// Elements of all tables together.
    pub table_elements: u64,
    /// Bytes of Wasm stack. Rounded up to a power of two, because each size needs an engine of its
    /// own.
    pub stack_bytes: u64,
    /// Bytes of JSON a call may be given.
    pub argument_bytes: u64,
    /// Bytes of JSON a call may return.
    pub output_bytes: u64,
    /// Bytes kept of stdout, stderr and log lines, each. More is counted and dropped.
    pub capture_bytes: u64,
    /// Live handles (streams, descriptors, pollables…) in the call's resource table.
    pub handles: u64,
    /// What it may use of outbound HTTP, where that is granted.
    pub http: HttpLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // About seven seconds of a hot loop: generous for a tool, finite for a mistake.
            fuel: 10_000_000_000,
            timeout_ms: 10_000,
            memory_bytes: 128 << 20,
            // CPython needs some ten thousand; the engine's pool holds 20 000 a table.
            table_elements: 100_000,
            stack_bytes: 512 << 10,
            argument_bytes: 4 << 20,
            output_bytes: 4 << 20,
            capture_bytes: 64 << 10,
            handles: 1_000,
            http: HttpLimits::default(),
        }
    }
}

impl Limits {
    /// The most a module may ask for in its own `module.toml`, unless the operator says otherwise.
    pub fn default_ceiling() -> Self {
        Self {
            fuel: 100_000_000_000,
            timeout_ms: 60_000,
            memory_bytes: 512 << 20,
            table_elements: 200_000,
            stack_bytes: 4 << 20,
            argument_bytes: 16 << 20,
            output_bytes: 16 << 20,
            capture_bytes: 1 << 20,
            handles: 10_000,
            http: HttpLimits::default(),
        }
    }

    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// These limits with the values that `request` names put in their place.
    #[must_use]
    pub fn overridden(&self, request: &LimitsRequest) -> Self {
        Self {
            fuel: request.fuel.unwrap_or(self.fuel),
            timeout_ms: request.timeout_ms.unwrap_or(self.timeout_ms),
            memory_bytes: request.memory_bytes.unwrap_or(self.memory_bytes),
            table_elements: request.table_elements.unwrap_or(self.table_elements),
            stack_bytes: request.stack_bytes.unwrap_or(self.stack_bytes),
            argument_bytes: request.argument_bytes.unwrap_or(self.argument_bytes),
            output_bytes: request.output_bytes.unwrap_or(self.output_bytes),
            capture_bytes: request.capture_bytes.unwrap_or(self.capture_bytes),
            handles: request.handles.unwrap_or(self.handles),
            http: self.http.clone(),
        }
    }

    /// What a module gets when it asks for `request`: the defaults where it is silent, what it asked
    /// for where it speaks, but never more than `ceiling`. A default that the operator set above the
    /// ceiling stays: the ceiling binds modules, not operators.
    #[must_use]
    pub fn granted(&self, request: &LimitsRequest, ceiling: &Limits) -> Self {
        let capped = LimitsRequest {
            fuel: request.fuel.map(|v| v.min(ceiling.fuel)),
            timeout_ms: request.timeout_ms.map(|v| v.min(ceiling.timeout_ms)),
            memory_bytes: request.memory_bytes.map(|v| v.min(ceiling.memory_bytes)),
            table_elements: request
                .table_elements
                .map(|v| v.min(ceiling.table_elements)),
            stack_bytes: request.stack_bytes.map(|v| v.min(ceiling.stack_bytes)),
            argument_bytes: request
                .argument_bytes
                .map(|v| v.min(ceiling.argument_bytes)),
            output_bytes: request.output_bytes.map(|v| v.min(ceiling.output_bytes)),
            capture_bytes: request.capture_bytes.map(|v| v.min(ceiling.capture_bytes)),
            handles: request.handles.map(|v| v.min(ceiling.handles)),
        };
        self.overridden(&capped)
    }
}

/// Some of the limits: the `[limits]` table of a `module.toml` or of the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsRequest {
    pub fuel: Option<u64>,
    pub timeout_ms: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub table_elements: Option<u64>,
    pub stack_bytes: Option<u64>,
    pub argument_bytes: Option<u64>,
    pub output_bytes: Option<u64>,
    pub capture_bytes: Option<u64>,
    pub handles: Option<u64>,
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
}
