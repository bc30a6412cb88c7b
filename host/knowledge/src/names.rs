//! How collections are named: their owners' by their names alone, and those of others with their owner.

use toolhold_storage::Collection;

/// Stands for the user of the machine's terminal, who has no key: no key has this name.
const TERMINAL: &str = "~";

/// The owner of a collection, and its name among the owner's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionPath {
    /// Name of the key; empty for the user of the machine's terminal.
    pub owner: String,
    pub name: String,
}

impl CollectionPath {
    /// Reads `NAME`, which is the reader's, or `OWNER/NAME`. The parts may be anything.
    pub fn read(reader: &str, text: &str) -> Self {
        let (owner, name) = match text.split_once('/') {
            Some((TERMINAL, name)) => ("", name),
            Some((owner, name)) => (owner, name),
            None => (reader, text),
        };
        Self {
            owner: owner.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The name of a collection for `reader`, as [`Self::read`] reads it.
    pub fn of(reader: &str, collection: &Collection) -> String {
        let name = &collection.name;
        match &*collection.owner {
            owner if owner == reader => name.clone(),
            "" => format!("{TERMINAL}/{name}"),
            owner => format!("{owner}/{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for (reader, text, owner, name) in [
            ("ann", "notes", "ann", "notes"),
            ("ann", "bob/notes", "bob", "notes"),
            ("ann", "~/notes", "", "notes"),
            ("", "notes", "", "notes"),
            ("", "ann/notes", "ann", "notes"),
            ("ann", "a/b/c", "a", "b/c"),
        ] {
            let path = CollectionPath::read(reader, text);
            assert_eq!((&*path.owner, &*path.name), (owner, name), "{text}");
        }
    }
}
