//! For `host/fuzz` alone: what reads the bytes of clients and servers, without either. Not part of the public API.

use crate::offer::Offer;
use crate::{rpc, wire};
use serde_json::Value;

/// Reads what a client sent.
pub fn of_client(message: &[u8]) {
    drop(rpc::parse(message, &|_, bytes| match bytes {
        0..=65_536 => Ok(()),
        _ => Err("they are too large".into()),
    }));
}

/// Reads what a server sent.
pub fn of_server(message: &[u8]) {
    drop(wire::rpc::parse(message));
}

/// Reads the tools that a server lists, of which the operator named one.
pub fn listed(tools: Vec<Value>) {
    drop(Offer::read(tools, &["a".into()]).checks());
}
