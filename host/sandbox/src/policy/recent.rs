//! Values of one module that are made for a key when it calls, and kept for its next calls.

use std::collections::HashMap;

/// The values that were used most recently, by key.
#[derive(Debug)]
pub(super) struct Recent<T> {
    most: usize,
    /// Each with the number of its last use.
    by_key: HashMap<String, (u64, T)>,
    uses: u64,
}

impl<T: Clone> Recent<T> {
    /// Makes room for `most` values.
    pub fn new(most: usize) -> Self {
        Self {
            most,
            by_key: HashMap::new(),
            uses: 0,
        }
    }

    pub fn get(&mut self, key: &str) -> Option<T> {
        let (last, value) = self.by_key.get_mut(key)?;
        self.uses += 1;
        *last = self.uses;
        Some(value.clone())
    }

    /// Keeps the value in the place of the one that was used longest ago.
    pub fn put(&mut self, key: &str, value: T) {
        if self.by_key.len() >= self.most && !self.by_key.contains_key(key) {
            let oldest = self.by_key.iter().min_by_key(|(_, (last, _))| *last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.by_key.remove(&oldest);
            }
        }
        self.uses += 1;
        self.by_key.insert(key.to_owned(), (self.uses, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_in_use_stays_and_the_one_used_longest_ago_goes() {
        let mut recent = Recent::new(3);
        for key in ["a", "b", "c"] {
            recent.put(key, key.to_uppercase());
        }
        assert_eq!(recent.get("a").as_deref(), Some("A"));
        recent.put("b", "again".into());
        recent.put("d", "D".into());
        assert_eq!(recent.get("c"), None);
        assert_eq!(recent.get("a").as_deref(), Some("A"));
        for number in 0..100 {
            recent.put(&number.to_string(), String::new());
            assert_eq!(recent.get("a").as_deref(), Some("A"), "{number}");
        }
        assert_eq!(recent.by_key.len(), 3);
    }
}
