//! The guest's HTTP requests before they are sent: `wasi:http/types` as wasmtime implements it, where what the host
//! keeps is counted first.
//!
//! wasmtime bounds the fields of one handle, but not how many handles are full, and the text of a method or an
//! authority not at all. And it has no code for what ended a body: a guest that is told only a text takes a limit for a
//! connection that broke, and tries again.

use super::files::Store;
use super::replaced::ReplacedInterface;
use crate::call::CallState;
use crate::egress::BODY_MEMORY_BYTES;
use wasmtime::Result;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::io::error::Error as StreamFailure;
use wasmtime_wasi_http::p2::HeaderResult;
use wasmtime_wasi_http::p2::bindings::http::types::{
    ErrorCode, HeaderError, HostFields, HostOutgoingRequest as Requests,
    HostOutgoingResponse as Responses, Method,
};
use wasmtime_wasi_http::p2::types::{HostOutgoingRequest, HostOutgoingResponse};
use wasmtime_wasi_http::{Error, FieldMap, WasiHttpView as _};

/// A handle of fields without any.
const FIELDS_BYTES: u64 = 256;
/// A field besides its name and its value: two places in a map that grows, and two allocations.
const FIELD_BYTES: u64 = 256;
/// The most that fields may take, of which wasmtime counts 128 KiB: it counts no growth and no allocation.
const MAX_FIELDS_BYTES: u64 = 640 << 10;

type Fields = Resource<FieldMap>;
type Http<'a> = ReplacedInterface<'a>;

/// Puts the counted functions over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    let mut types = ReplacedInterface::new(linker, "http/types");
    fields(&mut types)?;
    filled(&mut types)?;
    requests(&mut types)?;
    failures(&mut types)?;
    Ok(())
}

/// Functions that make fields, and their end.
fn fields(types: &mut Http<'_>) -> Result<()> {
    types.resource(
        "fields",
        ResourceType::host::<FieldMap>(),
        |mut store: Store<'_>, handle| {
            let state = store.data_mut().entered();
            state.http_memory.dropped(handle);
            HostFields::drop(&mut state.http(), Resource::new_own(handle))
        },
    )?;
    types.func_wrap("[constructor]fields", |mut store: Store<'_>, (): ()| {
        let state = store.data_mut().entered();
        let fields = HostFields::new(&mut state.http())?;
        state.made(&fields)?;
        Ok((fields,))
    })?;
    types.func_wrap(
        "[static]fields.from-list",
        |mut store: Store<'_>, (entries,): (Vec<(String, Vec<u8>)>,)| {
            let state = store.data_mut().entered();
            let fields = answer(HostFields::from_list(&mut state.http(), entries))?;
            if let Ok(fields) = &fields {
                state.made(fields)?;
            }
            Ok((fields,))
        },
    )?;
    types.func_wrap(
        "[method]fields.clone",
        |mut store: Store<'_>, (of,): (Fields,)| {
            let state = store.data_mut().entered();
            let fields = HostFields::clone(&mut state.http(), of)?;
            state.made(&fields)?;
            Ok((fields,))
        },
    )
}

/// Functions that put something into fields.
fn filled(types: &mut Http<'_>) -> Result<()> {
    types.func_wrap(
        "[method]fields.append",
        |mut store: Store<'_>, (fields, name, value): (Fields, String, Vec<u8>)| {
            let state = store.data_mut().entered();
            let bytes = field_bytes(name.len(), value.len());
            state
                .http_memory
                .grown(fields.rep(), bytes, MAX_FIELDS_BYTES)?;
            let appended = HostFields::append(&mut state.http(), fields, name, value);
            Ok((answer(appended)?,))
        },
    )?;
    types.func_wrap(
        "[method]fields.set",
        |mut store: Store<'_>, (fields, name, values): (Fields, String, Vec<Vec<u8>>)| {
            let state = store.data_mut().entered();
            let bytes = values
                .iter()
                .map(|value| field_bytes(name.len(), value.len()));
            let bytes = bytes.sum();
            state
                .http_memory
                .grown(fields.rep(), bytes, MAX_FIELDS_BYTES)?;
            let set = HostFields::set(&mut state.http(), fields, name, values);
            Ok((answer(set)?,))
        },
    )
}

/// Functions that put something into a request, or into a response of the guest's own, which is never sent.
fn requests(types: &mut Http<'_>) -> Result<()> {
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: Store<'_>, (request, method): (Resource<HostOutgoingRequest>, Method)| {
            let state = store.data_mut().entered();
            if let Method::Other(method) = &method {
                state.spent(method.len())?;
            }
            Ok((state.http().set_method(request, method)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store: Store<'_>, (request, path): (Resource<HostOutgoingRequest>, Option<String>)| {
            let state = store.data_mut().entered();
            state.spent(path.as_ref().map_or(0, String::len))?;
            Ok((state.http().set_path_with_query(request, path)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: Store<'_>, (request, name): (Resource<HostOutgoingRequest>, Option<String>)| {
            let state = store.data_mut().entered();
            state.spent(name.as_ref().map_or(0, String::len))?;
            Ok((state.http().set_authority(request, name)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.body",
        |mut store: Store<'_>, (request,): (Resource<HostOutgoingRequest>,)| {
            let state = store.data_mut().entered();
            state.spent(BODY_MEMORY_BYTES)?;
            Ok((Requests::body(&mut state.http(), request)?,))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-response.body",
        |mut store: Store<'_>, (response,): (Resource<HostOutgoingResponse>,)| {
            let state = store.data_mut().entered();
            state.spent(BODY_MEMORY_BYTES)?;
            Ok((Responses::body(&mut state.http(), response)?,))
        },
    )
}

/// The code of what ended a body. wasmtime's function looks for another type than its bodies fail with.
fn failures(types: &mut Http<'_>) -> Result<()> {
    types.func_wrap(
        "http-error-code",
        |mut store: Store<'_>, (failure,): (Resource<StreamFailure>,)| {
            let failure = store.data_mut().entered().table.get(&failure)?;
            let code = failure.downcast_ref::<ErrorCode>().cloned();
            Ok((code.or_else(|| failure.downcast_ref().and_then(body_code)),))
        },
    )
}

/// The errors that `egress` ends a body with.
fn body_code(error: &Error) -> Option<ErrorCode> {
    Some(match error {
        Error::ConnectionReadTimeout => ErrorCode::ConnectionReadTimeout,
        Error::ConnectionTerminated => ErrorCode::ConnectionTerminated,
        Error::ConnectionTimeout => ErrorCode::ConnectionTimeout,
        Error::HttpProtocolError => ErrorCode::HttpProtocolError,
        Error::HttpRequestBodySize(limit) => ErrorCode::HttpRequestBodySize(*limit),
        Error::HttpResponseBodySize(limit) => ErrorCode::HttpResponseBodySize(*limit),
        Error::HttpResponseIncomplete => ErrorCode::HttpResponseIncomplete,
        Error::HttpResponseTimeout => ErrorCode::HttpResponseTimeout,
        Error::InternalError(said) => ErrorCode::InternalError(said.clone()),
        Error::TlsProtocolError => ErrorCode::TlsProtocolError,
        _ => return None,
    })
}

impl CallState {
    fn made(&mut self, fields: &Fields) -> Result<()> {
        let map = self.table.get(fields)?;
        let entries = map
            .iter()
            .map(|(name, value)| field_bytes(name.as_str().len(), value.len()));
        let bytes = FIELDS_BYTES + entries.sum::<u64>();
        let bytes = bytes.min(MAX_FIELDS_BYTES);
        self.http_memory.made(&self.gauge, fields.rep(), bytes)?;
        Ok(())
    }

    fn spent(&mut self, bytes: usize) -> Result<()> {
        Ok(self.http_memory.spent(&self.gauge, bytes as u64)?)
    }
}

fn field_bytes(name: usize, value: usize) -> u64 {
    FIELD_BYTES + name as u64 + value as u64
}

/// An error of the fields is the guest's, a trap ends it.
fn answer<T>(result: HeaderResult<T>) -> Result<Result<T, HeaderError>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) => error.downcast().map(Err),
    }
}
