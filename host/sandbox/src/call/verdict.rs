//! The cause of a guest's end: the limit that fired, or the crash.

use super::crash::Crash;
use super::meter::{
    KeptTooMuch, MAX_RANDOM_BYTES, RefusedResource, TooManyBytes, TooMuchRandomness,
};
use super::{CallState, lifted_bytes};
use std::time::Duration;
use toolhold_policy::limits::Limits;
use toolhold_policy::{CallError, ErrorClass, HttpLimit, TakenPlaces};
use wasmtime::component::ResourceTableError;
use wasmtime::{PoolConcurrencyLimitError, Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi_http::FieldMapError;

/// What wasmtime lets the fields of one HTTP message have: names and values.
const FIELDS_BYTES: u64 = 128 << 10;
/// What the `http` crate lets a map of fields have.
const MAX_FIELDS: u64 = 1 << 15;

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
    if error.downcast_ref::<PoolConcurrencyLimitError>().is_some() {
        return CallError::Busy {
            places: TakenPlaces::Pool,
            waited: Duration::ZERO,
        };
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
        // Without a frame of the guest, the guest had returned: what was read is its result.
        let is_host_call = error
            .downcast_ref::<WasmBacktrace>()
            .is_some_and(|trace| !trace.frames().is_empty());
        return if is_host_call {
            CallError::HostCall {
                limit: lifted_bytes(limits),
            }
        } else {
            CallError::Output {
                limit: limits.output_bytes,
            }
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
    if let Some(TooMuchRandomness) = error.downcast_ref() {
        return CallError::RandomBytes {
            limit: MAX_RANDOM_BYTES,
        };
    }
    match error.downcast_ref::<FieldMapError>() {
        Some(FieldMapError::TotalSizeTooBig) => {
            return CallError::HttpBody {
                limit: HttpLimit::FieldBytes(FIELDS_BYTES),
            };
        }
        Some(FieldMapError::TooManyFields) => {
            return CallError::HttpBody {
                limit: HttpLimit::Fields(MAX_FIELDS),
            };
        }
        _ => {}
    }
    if error.downcast_ref::<TooManyBytes>().is_some() {
        return CallError::HostBytes {
            limit: limits.host_bytes,
        };
    }
    if let Some(kept) = error.downcast_ref::<KeptTooMuch>() {
        return (*kept).into();
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
        Some(RefusedResource::Descriptors) => return CallError::Descriptors,
        Some(RefusedResource::Quota) => return CallError::Quota { reason: cause },
        Some(RefusedResource::KeptBytes { limit }) => return CallError::KeptBytes { limit },
        Some(RefusedResource::HostFull { ceiling }) => return CallError::HostFull { ceiling },
        None => {}
    }
    if let Some(end) = state.outbound.fired() {
        return end.into();
    }
    CallError::Trap {
        reason: Crash::of(error, state).reason(&[]),
    }
}
