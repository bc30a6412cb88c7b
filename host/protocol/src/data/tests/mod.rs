//! The context's data: the rules of section 2, and that the index beside the log keeps to them.

mod instances;
mod naive;
mod random;
mod reading;
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

fn source(text: &str) -> Source {
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

/// Set in an instance or in the global data.
fn sets(writes: &[(Option<&str>, &str, Value)]) -> Data {
    data(
        writes
            .iter()
            .map(|(instance, at, value)| entry(*instance, at, Method::Set, value.clone())),
    )
}

fn read(data: &Data, at: &str) -> Option<Value> {
    data.read(&path(at), None).ok().map(Cow::into_owned)
}
