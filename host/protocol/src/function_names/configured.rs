//! Names of a configuration, among those that another system lists.

use super::map::{NameKind, fold};
use std::collections::BTreeSet;
use thiserror::Error;

/// Maximum names that an error quotes.
const MAX_QUOTED: usize = 4;

/// A configured name fits several of the listed names, so it stands for none of them.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("it fits {}; write the one that is meant", quoted(.names))]
pub struct AmbiguousName {
    /// In alphabetical order.
    names: Vec<String>,
}

/// The listed name that a configured one stands for: the exact one; or the only one that differs from it in `-`, `_`, `.`
/// and case alone, or is the form in which it goes out. Prefixes such as `functions.` belong to a configured name: a grant
/// must reach no other tool.
///
/// # Errors
/// Several names fit, and none of them is the exact one.
pub fn configured<'n>(
    name: &str,
    listed: impl IntoIterator<Item = &'n str>,
) -> Result<Option<&'n str>, AmbiguousName> {
    let folded = fold(name);
    // Beside a tool of another name with the same form, the tool is listed under this one.
    let digested = NameKind::Tool.digested(name, |_| false);
    let mut fitting = BTreeSet::new();
    for own in listed {
        if own == name {
            return Ok(Some(own));
        }
        // A name and its one notation are of the same length.
        if own == digested || (own.len() == name.len() && fold(own) == folded) {
            fitting.insert(own);
        }
    }
    if fitting.len() > 1 {
        return Err(AmbiguousName {
            names: fitting.into_iter().map(str::to_owned).collect(),
        });
    }
    Ok(fitting.pop_first())
}

fn quoted(names: &[String]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(MAX_QUOTED)
        .map(|name| format!("{name:?}"))
        .collect();
    let shown = shown.join(" and ");
    match names.len().saturating_sub(MAX_QUOTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_name_is_the_exact_one_or_the_only_one_that_is_like_it() {
        let long = format!("files.{}", "x".repeat(80));
        let long_form = NameKind::Tool.alone(&long).into_owned();
        let cases: [(&str, &[&str], Option<&str>); 10] = [
            ("a.b", &["a.b", "a-b", "a_b"], Some("a.b")),
            ("a.b", &["c", "a-b"], Some("a-b")),
            ("a-b", &["A_B"], Some("A_B")),
            ("a.b", &["a-b", "a-b"], Some("a-b")),
            (
                long.as_str(),
                &[long_form.as_str()],
                Some(long_form.as_str()),
            ),
            ("a.b", &["ab", "a/b", "a b", "x.a.b"], None),
            ("functions.b", &["b"], None),
            ("tool.delete", &["delete"], None),
            ("a b", &["a_b"], None),
            ("a", &[], None),
        ];
        for (name, listed, expect) in cases {
            let found = configured(name, listed.iter().copied());
            assert_eq!(found, Ok(expect), "{name}");
        }
    }

    #[test]
    fn a_configured_name_that_fits_several_is_refused_and_all_are_named() {
        let refused = |name: &str, listed: &[&str]| {
            let found = configured(name, listed.iter().copied());
            found.unwrap_err().to_string()
        };
        assert_eq!(
            refused("a.b", &["c", "a_b", "a-b"]),
            r#"it fits "a-b" and "a_b"; write the one that is meant"#
        );
        // As a list of Toolhold's has them: the second one is `a.b`.
        let digested = NameKind::Tool.digested("a.b", |_| false);
        let reason = refused("a.b", &["a-b", &digested]);
        assert!(reason.contains(&digested), "{reason}");
        let many = ["abc", "Abc", "aBc", "abC", "ABc", "ABC"];
        let reason = refused("aBC", &many);
        assert!(reason.contains("and 2 more"), "{reason}");
    }
}
