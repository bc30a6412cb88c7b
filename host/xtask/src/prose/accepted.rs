//! The accepted findings, `host/xtask/prose.toml`. The numbers are exact and only sink: a finding more is a fault, and a
//! finding less that is not written down would leave room for a new fault.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};

use super::files;
use super::sign::{ProseFinding, Sign};

/// The committed file, below the repository's root.
pub const PATH: &str = "host/xtask/prose.toml";

const HEAD: &str = "# Accepted findings of `cargo xtask prose`, by crate and sign. `--accept` lowers the numbers; nothing raises them.\n";

/// Numbers of findings, by crate and sign. A crate without findings has a row, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignCounts(BTreeMap<String, BTreeMap<Sign, usize>>);

/// A number that is not the accepted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountChange {
    pub krate: String,
    pub sign: Sign,
    pub found: usize,
    pub accepted: usize,
}

impl SignCounts {
    pub fn of(crates: impl IntoIterator<Item = String>, findings: &[ProseFinding]) -> Self {
        let mut counts = Self::default();
        for krate in crates {
            counts.0.entry(krate).or_default();
        }
        for finding in findings {
            let krate = counts.0.entry(files::crate_of(&finding.path)).or_default();
            *krate.entry(finding.sign).or_default() += 1;
        }
        counts
    }

    /// # Errors
    /// The text is not TOML, or names a sign that does not exist.
    pub fn parse(text: &str) -> Result<Self> {
        let counts = toml::from_str(text).with_context(|| format!("{PATH} cannot be read"))?;
        Ok(Self(counts))
    }

    pub fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (krate, signs) in &self.0 {
            let signs = signs.iter().filter(|(_, count)| **count > 0);
            let signs: Vec<_> = signs
                .map(|(sign, count)| format!("{sign} = {count}"))
                .collect();
            let _ = if signs.is_empty() {
                writeln!(text, "{krate} = {{}}")
            } else {
                writeln!(text, "{krate} = {{ {} }}", signs.join(", "))
            };
        }
        text
    }

    pub fn crates(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub fn has(&self, krate: &str) -> bool {
        self.0.contains_key(krate)
    }

    pub fn total(&self, krate: &str) -> usize {
        self.0.get(krate).map_or(0, |signs| signs.values().sum())
    }

    fn get(&self, krate: &str, sign: Sign) -> usize {
        let signs = self.0.get(krate);
        signs
            .and_then(|signs| signs.get(&sign))
            .copied()
            .unwrap_or(0)
    }

    fn by_sign(&self) -> BTreeMap<Sign, usize> {
        let mut sums = BTreeMap::new();
        for (sign, count) in self.0.values().flatten() {
            *sums.entry(*sign).or_default() += count;
        }
        sums
    }

    /// The numbers of `self` that are not those of `accepted`.
    pub fn changes(&self, accepted: &Self) -> Vec<CountChange> {
        let mut places: Vec<_> = [self, accepted]
            .into_iter()
            .flat_map(|counts| &counts.0)
            .flat_map(|(krate, signs)| signs.keys().map(move |sign| (krate, *sign)))
            .collect();
        places.sort_unstable();
        places.dedup();
        let change = |(krate, sign): (&String, Sign)| {
            let (found, accepted) = (self.get(krate, sign), accepted.get(krate, sign));
            let krate = krate.clone();
            (found != accepted).then_some(CountChange {
                krate,
                sign,
                found,
                accepted,
            })
        };
        places.into_iter().filter_map(change).collect()
    }

    /// `accepted` with each number lowered to that of `self`; no number rises.
    pub fn lowering(&self, accepted: &Self) -> Self {
        let mut lowered = self.clone();
        for (krate, signs) in &mut lowered.0 {
            for (sign, count) in signs {
                *count = (*count).min(accepted.get(krate, *sign));
            }
        }
        lowered
    }

    /// The numbers of `self` that are higher than those of the file at the base of a change. A crate that the base
    /// lacks may have got another's numbers, by a new name; then the sum of the workspace may not rise.
    pub fn raised(&self, base: &Self) -> Vec<String> {
        let known = base.by_sign();
        let is_known = |sign: &Sign| known.contains_key(sign);
        let mut raised = Vec::new();
        for change in self.changes(base) {
            let CountChange {
                krate,
                sign,
                found,
                accepted,
            } = change;
            if found > accepted && base.has(&krate) && is_known(&sign) {
                raised.push(format!("{sign} of {krate} from {accepted} to {found}"));
            }
        }
        for (sign, sum) in self.by_sign() {
            if let Some(before) = known.get(&sign).filter(|before| sum > **before) {
                raised.push(format!("{sign} of all crates from {before} to {sum}"));
            }
        }
        raised
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> SignCounts {
        SignCounts::parse(text).unwrap()
    }

    fn change(krate: &str, sign: Sign, found: usize, accepted: usize) -> CountChange {
        let krate = krate.to_owned();
        CountChange {
            krate,
            sign,
            found,
            accepted,
        }
    }

    #[test]
    fn the_file_is_sorted_and_read_as_it_was_written() {
        let text = "text = {}\nagent = { words = 2, opening = 10, unit = 0 }\n";
        let written = counts(text).text();
        let rows: Vec<_> = written.lines().skip(1).collect();
        assert_eq!(rows, ["agent = { opening = 10, words = 2 }", "text = {}"]);
        assert_eq!(counts(&written).text(), written);
        assert!(SignCounts::parse("agent = { openings = 1 }").is_err());
    }

    #[test]
    fn numbers_that_rose_or_sank_are_changes() {
        let found = counts("agent = { opening = 3, words = 1 }\njson = { unit = 1 }");
        let accepted = counts("agent = { opening = 2, words = 1, unit = 4 }\ngone = { words = 1 }");
        assert_eq!(
            found.changes(&accepted),
            [
                change("agent", Sign::Opening, 3, 2),
                change("agent", Sign::Unit, 0, 4),
                change("gone", Sign::Words, 0, 1),
                change("json", Sign::Unit, 1, 0),
            ]
        );
        assert_eq!(found.changes(&found), []);
    }

    #[test]
    fn accepting_lowers_numbers_and_raises_none() {
        let found = counts("agent = { opening = 3, words = 1 }\njson = { unit = 1 }\ntext = {}");
        let accepted = counts("agent = { opening = 2, words = 5 }\ngone = { words = 1 }");
        let lowered = found.lowering(&accepted);
        assert_eq!(
            lowered.text(),
            counts("agent = { opening = 2, words = 1 }\njson = {}\ntext = {}").text()
        );
    }

    #[test]
    fn numbers_above_those_of_the_base_are_raised() {
        let base = counts("agent = { opening = 2 }\njson = { opening = 3 }\ntext = {}");
        let raised = |text: &str| counts(text).raised(&base);
        assert_eq!(
            raised("agent = { opening = 1 }\ntext = {}"),
            [] as [&str; 0]
        );
        assert_eq!(
            raised("agent = { opening = 2 }\ntext = { opening = 1 }"),
            ["opening of text from 0 to 1"]
        );
        assert_eq!(
            raised("agent = { opening = 2 }\nnew = { opening = 3 }"),
            [] as [&str; 0]
        );
        assert_eq!(
            raised("agent = { opening = 2 }\nnew = { opening = 4 }"),
            ["opening of all crates from 5 to 6"]
        );
        assert_eq!(
            raised("agent = { unit = 7 }"),
            [] as [&str; 0],
            "a new sign"
        );
    }
}
