//! The context's data beside its rules (`tests/rules`): bounds, texts, and that the index keeps to the log.

mod naive;
mod random;
mod references;
mod writing;

use super::Method::{Assign, Concat, Merge, Push, Set};
use super::*;
use crate::reference::{MAX_INDEX, Segment};
use proptest::prelude::*;
use serde_json::json;

fn path(text: &str) -> Path {
    text.parse().unwrap()
}

fn entry(instance: Option<&str>, at: &str, method: Method, value: Value) -> Write {
    Write {
        path: path(at),
        instance: instance.map(str::to_owned),
        method,
        value,
    }
}

fn data(writes: impl IntoIterator<Item = Write>) -> Data {
    let mut data = Data::default();
    for write in writes {
        data.write(write).unwrap();
    }
    data
}

fn global(writes: &[(&str, Method, Value)]) -> Data {
    data(
        writes
            .iter()
            .map(|(at, method, value)| entry(None, at, *method, value.clone())),
    )
}
