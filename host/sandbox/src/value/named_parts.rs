//! Parts of a type that values name: the cases of a variant, the names of an enum or of flags.

use std::ops::Deref;

/// Parts in their order, each of which is found by its name in a few steps: a value may name the last of two thousand
/// in each of its items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedParts<T> {
    parts: Vec<T>,
    /// Places in `parts`, in the order of the names.
    by_name: Vec<usize>,
}

impl<T: AsRef<str>> NamedParts<T> {
    pub fn find(&self, name: &str) -> Option<&T> {
        let place = self.by_name.binary_search_by(|at| {
            let known = self.parts.get(*at).map(name_of);
            known.cmp(&Some(name))
        });
        let at = self.by_name.get(place.ok()?)?;
        self.parts.get(*at)
    }
}

impl<T: AsRef<str>> From<Vec<T>> for NamedParts<T> {
    fn from(parts: Vec<T>) -> Self {
        let mut by_name: Vec<_> = parts.iter().enumerate().collect();
        by_name.sort_by(|(_, one), (_, other)| name_of(*one).cmp(name_of(*other)));
        let by_name = by_name.into_iter().map(|(at, _)| at).collect();
        Self { parts, by_name }
    }
}

impl<T: AsRef<str>> FromIterator<T> for NamedParts<T> {
    fn from_iter<I: IntoIterator<Item = T>>(parts: I) -> Self {
        parts.into_iter().collect::<Vec<_>>().into()
    }
}

fn name_of<T: AsRef<str>>(part: &T) -> &str {
    part.as_ref()
}

impl<T> Deref for NamedParts<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_found_by_its_name_and_keeps_its_place() {
        let names = ["red", "light-green", "blue", "a", "zebra"].map(str::to_owned);
        let parts: NamedParts<String> = names.iter().cloned().collect();
        assert_eq!(*parts, names);
        for name in &names {
            assert_eq!(parts.find(name), Some(name));
        }
        for unknown in ["", "re", "redd", "zz"] {
            assert_eq!(parts.find(unknown), None);
        }
        assert_eq!(NamedParts::<String>::from(Vec::new()).find("red"), None);
    }
}
