//! Elements that stand in a list only because a later one was written: null when the list is read,
//! and absent when they are.
//!
//! A side table, because holes are rare and the trees stay plain JSON that can be borrowed.

use super::Method;
use crate::reference::Segment;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};

/// The path of a list → its holes. Neither is ever empty.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Holes(BTreeMap<Vec<Segment>, BTreeSet<usize>>);

impl Holes {
    pub fn contains(&self, path: &[Segment]) -> bool {
        match path.split_last() {
            Some((Segment::Index(index), list)) => self
                .0
                .get(list)
                .is_some_and(|indices| indices.contains(index)),
            _ => false,
        }
    }

    /// The list at `list` was padded.
    pub fn dig(&mut self, list: &[Segment], indices: Range<usize>) {
        if !indices.is_empty() {
            self.0.entry(list.to_vec()).or_default().extend(indices);
        }
    }

    /// `value` is written at `path`: elements on the way exist now, and lists that it replaces take
    /// their holes with them.
    pub fn close(&mut self, path: &[Segment], method: Method, value: &Value) {
        if self.0.is_empty() {
            return;
        }
        for (depth, segment) in path.iter().enumerate() {
            if let Segment::Index(index) = segment
                && let Some(indices) = self.0.get_mut(&path[..depth])
                && indices.remove(index)
                && indices.is_empty()
            {
                self.0.remove(&path[..depth]);
            }
        }
        let replaced: Vec<_> = self
            .0
            .range::<[Segment], _>((Bound::Included(path), Bound::Unbounded))
            .map_while(|(list, _)| Some((list, list.strip_prefix(path)?)))
            .filter(|(_, rest)| !outlasts(rest, method, value))
            .map(|(list, _)| list.clone())
            .collect();
        for list in replaced {
            self.0.remove(&list);
        }
    }
}

/// Whether what stands at `rest`, below the path that is written, is still there afterwards.
fn outlasts(rest: &[Segment], method: Method, value: &Value) -> bool {
    match (method, rest, value) {
        (Method::Push | Method::Concat, ..) => true,
        (Method::Assign, [Segment::Key(key), ..], Value::Object(fields)) => {
            !fields.contains_key(key)
        }
        (Method::Merge, [Segment::Key(key), deeper @ ..], Value::Object(fields)) => fields
            .get(key)
            .is_none_or(|field| outlasts(deeper, method, field)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::Path;
    use serde_json::json;

    fn segments(path: &str) -> Vec<Segment> {
        format!("†s{path}").parse::<Path>().unwrap().segments
    }

    #[test]
    fn a_hole_ends_when_it_is_written_or_its_list_is_replaced() {
        for (path, method, value, ends) in [
            (".a[1]", Method::Set, json!(1), true),
            (".a[1].x", Method::Push, json!(1), true),
            (".a[2]", Method::Set, json!(1), false),
            (".b", Method::Set, json!(1), false),
            (".a", Method::Set, json!([]), true),
            ("", Method::Set, json!({}), true),
            (".a", Method::Push, json!(1), false),
            (".a", Method::Concat, json!([1]), false),
            ("", Method::Merge, json!({"b": 1}), false),
            ("", Method::Merge, json!({"a": [1]}), true),
            ("", Method::Merge, json!({"a": {"x": 1}}), true),
            ("", Method::Merge, json!(1), true),
            (".a", Method::Merge, json!({}), true),
            ("", Method::Assign, json!({"b": 1}), false),
            ("", Method::Assign, json!({"a": {}}), true),
        ] {
            let mut holes = Holes::default();
            holes.dig(&segments(".a"), 1..2);
            holes.close(&segments(path), method, &value);
            let left = holes.contains(&segments(".a[1]"));
            assert_eq!(left, !ends, "{method:?} {path} {value}");
            assert_eq!(holes.0.is_empty(), ends, "{method:?} {path} {value}");
        }
    }
}
