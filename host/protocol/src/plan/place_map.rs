//! Values by place, so that all that overlap a place are found without looking at the others.

use crate::reference::{Path, Segment};
use std::collections::BTreeMap;

/// A place as a key: in this order all places inside one follow it.
type PlaceKey<'a> = (&'a str, &'a [Segment]);

#[derive(Debug)]
pub(super) struct PlaceMap<'a, V>(BTreeMap<PlaceKey<'a>, V>);

impl<V> Default for PlaceMap<'_, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<'a, V> PlaceMap<'a, V> {
    /// The values of all places that overlap `path`.
    pub fn overlapping(&self, path: &'a Path) -> impl Iterator<Item = &V> {
        let (kind, segments) = key(path);
        let above =
            (0..segments.len()).filter_map(move |depth| self.0.get(&(kind, &segments[..depth])));
        let inside = self.0.range((kind, segments)..);
        let inside = inside.take_while(move |(place, _)| is_inside(place, (kind, segments)));
        above.chain(inside.map(|(_, value)| value))
    }

    /// Takes out the values of `path` and of all places inside it.
    pub fn remove_inside(&mut self, path: &'a Path) {
        let within = key(path);
        let inside = self.0.range(within..);
        let inside = inside.take_while(|(place, _)| is_inside(place, within));
        let inside: Vec<PlaceKey<'a>> = inside.map(|(place, _)| *place).collect();
        for place in inside {
            self.0.remove(&place);
        }
    }

    pub fn insert(&mut self, path: &'a Path, value: V) {
        self.0.insert(key(path), value);
    }
}

impl<'a, T> PlaceMap<'a, Vec<T>> {
    pub fn push(&mut self, path: &'a Path, value: T) {
        self.0.entry(key(path)).or_default().push(value);
    }
}

fn key(path: &Path) -> PlaceKey<'_> {
    (&path.kind, &path.segments)
}

fn is_inside(place: &PlaceKey<'_>, within: PlaceKey<'_>) -> bool {
    place.0 == within.0 && place.1.starts_with(within.1)
}
