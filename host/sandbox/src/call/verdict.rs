//! The cause of a guest's end: the limit that fired, or the crash.

use super::CallState;
use super::meter::{RefusedResource, TooManyBytes};
use std::time::Duration;
use toolhold_policy::limits::Limits;
use toolhold_policy::text;
use toolhold_policy::{CallError, ErrorClass};
use wasmtime::Trap;
use wasmtime::component::ResourceTableError;
use wasmtime_wasi::I32Exit;

/// Which limit fired, or how the guest died.
pub(crate) fn classify(
    error: &wasmtime::Error,
    state: &CallState,
    limits: &Limits,
    stack: usize,
    timeout: Duration,
) -> CallError {
    match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => return CallError::Fuel { limit: limits.fuel },
        Some(Trap::Interrupt) => return CallError::Deadline { limit: timeout },
        Some(Trap::StackOverflow) => return CallError::Stack { limit: stack },
        Some(
            Trap::StringOutOfBounds
            | Trap::ListOutOfBounds
            | Trap::InvalidChar
            | Trap::InvalidDiscriminant,
        ) => {
            return CallError::Encoding {
                reason: error.root_cause().to_string(),
            };
        }
        _ => {}
    }
    // With another code it is how the runtimes of languages end after a panic.
    if let Some(I32Exit(0)) = error.downcast_ref() {
        return CallError::Tool {
            class: ErrorClass::Correctable,
            message: "the tool ended itself, with exit code 0, before it returned a result".into(),
            data: None,
        };
    }
    if matches!(
        error.downcast_ref::<ResourceTableError>(),
        Some(ResourceTableError::Full)
    ) {
        return CallError::Handles {
            limit: limits.handles,
        };
    }
    let cause = error.root_cause().to_string();
    // wasmtime has no type for these.
    if cause.contains("fuel allocated for hostcalls has been exhausted") {
        return CallError::Output {
            limit: limits.output_bytes,
        };
    }
    if cause.contains("invalid utf-8")
        || cause.contains("utf8")
        || cause.contains("pointer/length out of bounds")
    {
        return CallError::Encoding { reason: cause };
    }
    if cause.contains("resource table has no free keys") || cause.contains("too many handles") {
        return CallError::Handles {
            limit: limits.handles,
        };
    }
    if error.downcast_ref::<TooManyBytes>().is_some() {
        return CallError::HostBytes {
            limit: limits.host_bytes,
        };
    }
    // A refusal by itself ends no guest; a guest that dies after one died of it.
    match state.gauge.refused() {
        Some(RefusedResource::Memory) => {
            return CallError::Memory {
                limit: limits.memory_bytes,
            };
        }
        Some(RefusedResource::Table) => {
            return CallError::Table {
                limit: limits.table_elements,
            };
        }
        Some(RefusedResource::HostBytes) => {
            return CallError::HostBytes {
                limit: limits.host_bytes,
            };
        }
        Some(RefusedResource::Quota) => return CallError::Quota { reason: cause },
        None => {}
    }
    if let Some(limit) = state.outbound.fired() {
        return CallError::HttpBody { limit };
    }
    let stderr = state.stderr.captured().text;
    let last_words: Vec<_> = stderr
        .lines()
        .rev()
        .filter(|line| !line.trim().is_empty())
        .take(4)
        .collect();
    let reason = if last_words.is_empty() {
        cause
    } else {
        let words: Vec<_> = last_words.into_iter().rev().collect();
        format!("{cause}; it last wrote: {}", words.join(" / "))
    };
    CallError::Trap {
        reason: text::visible(&reason, 1_000),
    }
}
