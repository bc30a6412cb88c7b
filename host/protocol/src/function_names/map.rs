//! A mapping between names of Toolhold's and the names that other systems take.

use sha2::{Digest as _, Sha256};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum characters of a name that goes out: endpoints refuse a longer one, and the whole request with it.
pub const MAX_OUTWARD: usize = 64;
/// Hexadecimal digits of the digest behind a name that was shortened or collides.
const DIGEST_DIGITS: usize = 10;
/// Prefixes that templates and models put before the name of a function, each with one of [`SEPARATORS`].
const NAMESPACES: [&str; 6] = [
    "functions",
    "function",
    "tools",
    "tool",
    "default_api",
    "multi_tool_use",
];
const SEPARATORS: [char; 3] = ['.', ':', '/'];

/// The things that names are of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NameKind {
    #[default]
    Tool,
    /// Parameters of a call. Their names that go out have no leading `_`: such properties are the host's.
    Parameter,
}

/// Names in both directions. A name that may go out as it is does; each other one has one form that goes out.
///
/// The forms depend on the set of names alone, and not on its order. A name that is added changes the form of another only
/// where both would have the same.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NameMap {
    kind: NameKind,
    outward: BTreeMap<String, String>,
    inward: HashMap<String, String>,
    /// By the name in one notation; `None` where it fits several names.
    folded: HashMap<String, Option<String>>,
}

impl NameMap {
    pub fn new<'n>(kind: NameKind, names: impl IntoIterator<Item = &'n str>) -> Self {
        let names: BTreeSet<&str> = names.into_iter().collect();
        let mut wanted: BTreeMap<String, usize> = BTreeMap::new();
        let others = names.iter().filter(|name| !kind.fits(name));
        for form in others.filter_map(|name| kind.plain(name)) {
            *wanted.entry(form).or_default() += 1;
        }
        let is_free = |form: &str| !names.contains(form) && wanted.get(form) == Some(&1);
        let mut map = Self {
            kind,
            ..Self::default()
        };
        for name in &names {
            let form = if kind.fits(name) {
                (*name).to_owned()
            } else {
                let plain = kind.plain(name).filter(|form| is_free(form));
                plain.unwrap_or_else(|| {
                    let is_taken = |form: &str| {
                        names.contains(form)
                            || wanted.contains_key(form)
                            || map.inward.contains_key(form)
                    };
                    kind.digested(name, is_taken)
                })
            };
            map.add(name, form);
        }
        map
    }

    fn add(&mut self, name: &str, form: String) {
        for written in [name, form.as_str()] {
            let folded = self.folded.entry(fold(written));
            folded
                .and_modify(|known| {
                    if known.as_deref() != Some(name) {
                        *known = None;
                    }
                })
                .or_insert_with(|| Some(name.to_owned()));
        }
        self.inward.insert(form.clone(), name.to_owned());
        self.outward.insert(name.to_owned(), form);
    }

    /// The name that goes out for one of Toolhold's. A name that is not in the map has the form that it has alone.
    pub fn outward<'n>(&'n self, name: &'n str) -> Cow<'n, str> {
        match self.outward.get(name) {
            Some(form) => Cow::Borrowed(form),
            None => self.kind.alone(name),
        }
    }

    /// The name of Toolhold's that came in as it went out, or as Toolhold calls it.
    pub fn exact(&self, written: &str) -> Option<&str> {
        let by_form = self.inward.get(written).map(String::as_str);
        by_form.or_else(|| {
            let own = self.outward.get_key_value(written);
            own.map(|(name, _)| name.as_str())
        })
    }

    /// The name of Toolhold's that is meant: the exact one; the one that is left without template marks, namespaces and
    /// white space; or the only one that differs in `-`, `_`, `.` and case alone.
    pub fn meant(&self, written: &str) -> Option<&str> {
        if let Some(name) = self.exact(written) {
            return Some(name);
        }
        let bare = bare_name(written);
        if let Some(name) = self.exact(&bare) {
            return Some(name);
        }
        self.folded.get(&fold(&bare))?.as_deref()
    }

    /// True if this name goes out.
    pub fn is_outward(&self, form: &str) -> bool {
        self.inward.contains_key(form)
    }
}

impl NameKind {
    /// True if the name may go out as it is.
    pub fn fits(self, name: &str) -> bool {
        let is_taken = name.chars().all(is_outward);
        is_taken && self.begins_well(name) && (1..=MAX_OUTWARD).contains(&name.len())
    }

    fn begins_well(self, form: &str) -> bool {
        self == Self::Tool || !form.starts_with('_')
    }

    /// The name with `-` in the place of dots and `_` in that of other characters. `None` if that is too long, or does not
    /// tell the name any more.
    fn plain(self, name: &str) -> Option<String> {
        let form = self.replaced(name);
        let is_told = form.chars().any(|c| c.is_ascii_alphanumeric());
        (is_told && form.len() <= MAX_OUTWARD).then_some(form)
    }

    fn replaced(self, name: &str) -> String {
        let form: String = name
            .chars()
            .map(|c| match c {
                c if is_outward(c) => c,
                '.' => '-',
                _ => '_',
            })
            .collect();
        match self {
            Self::Tool => form,
            Self::Parameter => form.trim_start_matches('_').to_owned(),
        }
    }

    /// The form of a name with no others beside it.
    pub fn alone(self, name: &str) -> Cow<'_, str> {
        if self.fits(name) {
            return Cow::Borrowed(name);
        }
        let plain = self.plain(name);
        Cow::Owned(plain.unwrap_or_else(|| self.digested(name, |_| false)))
    }

    /// The beginning of the name, and a digest of all of it; of another count where that is taken.
    pub(super) fn digested(self, name: &str, is_taken: impl Fn(&str) -> bool) -> String {
        let begin: String = self
            .replaced(name)
            .chars()
            .take(MAX_OUTWARD - 1 - DIGEST_DIGITS)
            .collect();
        let begin = match (begin.is_empty(), self) {
            (false, _) => begin,
            (true, Self::Tool) => "tool".to_owned(),
            (true, Self::Parameter) => "parameter".to_owned(),
        };
        let form = |count: u32| format!("{begin}_{}", digest(name, count));
        let mut forms = (0..=u32::MAX).map(form);
        forms
            .find(|form| !is_taken(form))
            .unwrap_or_else(|| form(0))
    }
}

fn is_outward(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// The first digits of the SHA-256 of a name.
fn digest(name: &str, count: u32) -> String {
    let mut hasher = Sha256::new();
    hasher.update(name.as_bytes());
    if count > 0 {
        hasher.update([0]);
        hasher.update(count.to_be_bytes());
    }
    let digits = hasher.finalize();
    let digits = digits.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let digits = digits.filter_map(|nibble| char::from_digit(nibble.into(), 16));
    digits.take(DIGEST_DIGITS).collect()
}

/// The name in one notation: lower case, with `_` in the place of `-` and `.`.
pub(super) fn fold(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            '-' | '.' => '_',
            c => c.to_ascii_lowercase(),
        })
        .collect()
}

/// The name without template marks, namespaces, quotes and white space, and without the number that Kimi puts behind it.
pub fn bare_name(written: &str) -> String {
    let named = written
        .rsplit_once("to=")
        .map_or(written, |(_, recipient)| recipient);
    let mut name: String = unmarked(named)
        .chars()
        .filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\'' | '`'))
        .collect();
    if let Some((before, number)) = name.rsplit_once(':')
        && !number.is_empty()
        && number.bytes().all(|c| c.is_ascii_digit())
    {
        name.truncate(before.len());
    }
    while let Some(rest) = without_namespace(&name) {
        name = rest.to_owned();
    }
    name
}

fn without_namespace(name: &str) -> Option<&str> {
    let rest = NAMESPACES
        .iter()
        .find_map(|namespace| name.strip_prefix(namespace)?.strip_prefix(SEPARATORS))?;
    (!rest.is_empty()).then_some(rest)
}

/// The first text that stands outside of marks such as `<|channel|>` and `[TOOL_CALLS]`.
fn unmarked(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let end = match rest.chars().next() {
            Some('<') => rest.split_once('>'),
            Some('[') => rest.split_once(']'),
            _ => None,
        };
        match end {
            Some((_, after)) => rest = after.trim_start(),
            None => break,
        }
    }
    rest.split(['<', '[']).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tools<'n>(names: impl IntoIterator<Item = &'n str>) -> NameMap {
        NameMap::new(NameKind::Tool, names)
    }

    #[test]
    fn names_that_fit_go_out_as_they_are_and_others_in_one_form() {
        let long = format!("files.{}", "x".repeat(80));
        let map = tools([
            "calculator.evaluate",
            "resolve-library-id",
            "_x",
            "9",
            "finish",
            &long,
        ]);
        for (name, form) in [
            ("calculator.evaluate", "calculator-evaluate"),
            ("resolve-library-id", "resolve-library-id"),
            ("_x", "_x"),
            ("9", "9"),
            ("finish", "finish"),
            ("not.there", "not-there"),
        ] {
            assert_eq!(map.outward(name), form);
        }
        let form = map.outward(&long).into_owned();
        assert_eq!(form.len(), MAX_OUTWARD);
        assert!(form.starts_with("files-xxx"), "{form}");
        assert_eq!(map.exact(&form), Some(long.as_str()));
    }

    #[test]
    fn a_name_that_fits_keeps_its_form_and_the_others_get_a_digest() {
        let map = tools(["a.b", "a-b", "c d", "c/d"]);
        assert_eq!(map.outward("a-b"), "a-b");
        let forms = ["a.b", "c d", "c/d"].map(|name| map.outward(name).into_owned());
        assert!(forms[0].starts_with("a-b_"), "{forms:?}");
        assert!(
            forms[1].starts_with("c_d_") && forms[1] != forms[2],
            "{forms:?}"
        );
        assert_eq!(map.meant("a-b"), Some("a-b"));
        assert_eq!(map.meant("a.b"), Some("a.b"));
        assert_eq!(map.meant("A_B"), None, "it fits two");
    }

    #[test]
    fn a_name_that_is_made_to_collide_with_a_digest_is_another_name() {
        let shortened = "x".repeat(100);
        let form = NameKind::Tool.alone(&shortened).into_owned();
        let map = tools([shortened.as_str(), form.as_str()]);
        assert_eq!(map.outward(&form), form);
        assert_ne!(map.outward(&shortened), form);
        assert_eq!(map.exact(&form), Some(form.as_str()));
    }

    #[test]
    fn parameters_begin_with_no_underscore() {
        let map = NameMap::new(
            NameKind::Parameter,
            ["_count", "count", "_of", "$filter", "用户", "_", "a b"],
        );
        assert_eq!(map.outward("count"), "count");
        assert_eq!(map.outward("_of"), "of");
        assert_eq!(map.outward("$filter"), "filter");
        assert_eq!(map.outward("a b"), "a_b");
        assert!(map.outward("_count").starts_with("count_"));
        assert!(map.outward("用户").starts_with("parameter_"));
        assert_eq!(map.exact("_count"), Some("_count"));
    }

    #[test]
    fn text_around_a_name_is_no_part_of_it() {
        let map = tools(["calculator.evaluate", "functions.of", "a_b"]);
        for written in [
            "calculator-evaluate",
            "calculator.evaluate",
            "calculator_evaluate",
            "Calculator-Evaluate",
            "calculator-evaluate<|channel|>commentary",
            "<|message|>calculator-evaluate",
            "<｜tool▁sep｜>calculator-evaluate<｜end｜>",
            "[TOOL_CALLS]calculator-evaluate[ARGS]",
            "<|start|>assistant<|channel|>commentary to=functions.calculator-evaluate <|constrain|>json",
            "functions.calculator-evaluate",
            "functions.functions.calculator-evaluate:0",
            "tools.calculator.evaluate",
            "default_api:calculator_evaluate",
            "calculator-evaluate\n",
            " calculator -evaluate\t",
            "\"calculator-evaluate\"",
        ] {
            assert_eq!(map.meant(written), Some("calculator.evaluate"), "{written}");
        }
        assert_eq!(map.meant("functions.of"), Some("functions.of"));
        for unknown in [
            "",
            "evaluate",
            "calculator",
            "<|a|>",
            "functions.",
            "calculator-evaluate json",
        ] {
            assert_eq!(map.meant(unknown), None, "{unknown}");
        }
    }

    fn names() -> impl Strategy<Value = Vec<String>> {
        let name = prop_oneof![
            "[ab]([-_. ]|[ab]|[AB]){0,3}",
            "[_$]{0,2}[ab]{0,2}",
            "[a-z.-]{60,70}",
            "(finish|functions\\.a|<a>|é|用){1,2}",
        ];
        prop::collection::vec(name, 0..12)
    }

    fn kinds() -> impl Strategy<Value = NameKind> {
        prop::sample::select(vec![NameKind::Tool, NameKind::Parameter])
    }

    fn map_of(kind: NameKind, names: &[String]) -> NameMap {
        NameMap::new(kind, names.iter().map(String::as_str))
    }

    proptest! {
        #[test]
        fn forms_fit_are_unique_and_lead_back(kind in kinds(), names in names()) {
            let map = map_of(kind, &names);
            let mut forms = BTreeSet::new();
            let distinct: BTreeSet<&String> = names.iter().collect();
            for name in distinct {
                let form = map.outward(name).into_owned();
                prop_assert!(kind.fits(&form), "{name:?} went out as {form:?}");
                prop_assert_eq!(map.meant(&form), Some(name.as_str()));
                prop_assert!(forms.insert(form), "{:?} twice", name);
            }
        }

        #[test]
        fn forms_do_not_depend_on_the_order(
            kind in kinds(),
            (names, shuffled) in names().prop_flat_map(|names| (Just(names.clone()), Just(names).prop_shuffle())),
        ) {
            prop_assert_eq!(map_of(kind, &names), map_of(kind, &shuffled));
        }

        #[test]
        fn a_name_more_changes_no_form_but_of_those_that_collide(kind in kinds(), names in names(), more in names()) {
            let before = map_of(kind, &names);
            let after = map_of(kind, &[names.clone(), more.clone()].concat());
            for name in &names {
                let form = before.outward(name);
                let collides = |other: &String| {
                    other != name && (*other == form || kind.replaced(other) == kind.replaced(name))
                };
                if kind.fits(name) || !more.iter().any(collides) {
                    prop_assert_eq!(after.outward(name), form);
                }
            }
        }

        #[test]
        fn no_text_breaks_the_reader(written in "\\PC{0,24}|(functions\\.|<\\||\\|>|a|to=|:0|\\[){0,8}") {
            let map = tools(["a", "a.b"]);
            if let Some(name) = map.meant(&written) {
                prop_assert!(["a", "a.b"].contains(&name));
            }
        }
    }
}
