//! Scripts of the page of a server, as a browser gets them: whether a text can become markup or hide another one.

use crate::fault::{AttackFailure, ensure};
use crate::serving::{Answered, Served};

/// Directives without which a text could become markup, or a script come from elsewhere.
const DIRECTIVES: [&str; 6] = [
    "default-src 'none'",
    "script-src 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
];
/// Ways from a text to markup or to a script.
const SINKS: [&str; 14] = [
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "setHTML",
    "document.write",
    "DOMParser",
    "parseFromString",
    "createContextualFragment",
    "createPolicy",
    "srcdoc",
    "eval(",
    "new Function",
    "javascript:",
    "<script",
];
/// Text nodes are made of escaped text.
const ESCAPED: [&str; 2] = ["exact(", "readable("];
/// Words of texts about which no person decides. Some hidden characters stay in them.
const LENIENT: [&str; 3] = ["prose", "setProse", "readable"];

/// Units of UTF-16, from the first to the last of each pair.
type UnitClass = Vec<(u16, u16)>;

/// The expression of the page's script that finds hidden characters: alternatives of classes, one for each unit.
struct HiddenCharacters(Vec<Vec<UnitClass>>);

impl HiddenCharacters {
    /// Reads the expression in the script. `None` if it has none of this form.
    fn of(script: &str) -> Option<Self> {
        let (_, rest) = script.split_once("const HIDDEN = /")?;
        let (pattern, _) = rest.split_once("/g;")?;
        let alternatives = pattern.split('|').map(units);
        alternatives.collect::<Option<_>>().map(Self)
    }

    fn has(&self, c: char) -> bool {
        let mut buffer = [0; 2];
        let units = c.encode_utf16(&mut buffer);
        self.0.iter().any(|alternative| {
            alternative.len() == units.len()
                && alternative
                    .iter()
                    .zip(units.iter())
                    .all(|(class, unit)| class.iter().any(|(a, z)| a <= unit && unit <= z))
        })
    }
}

/// The classes of an alternative.
fn units(alternative: &str) -> Option<Vec<UnitClass>> {
    let (mut rest, mut units) = (alternative, Vec::new());
    while !rest.is_empty() {
        if let Some(inner) = rest.strip_prefix('[') {
            let (class, after) = inner.split_once(']')?;
            units.push(ranges(class)?);
            rest = after;
        } else {
            let (unit, after) = unit(rest)?;
            units.push(vec![(unit, unit)]);
            rest = after;
        }
    }
    Some(units)
}

fn ranges(class: &str) -> Option<UnitClass> {
    let (mut rest, mut ranges) = (class, Vec::new());
    while !rest.is_empty() {
        let (first, after) = unit(rest)?;
        let (last, after) = match after.strip_prefix('-') {
            Some(after) => unit(after)?,
            None => (first, after),
        };
        ranges.push((first, last));
        rest = after;
    }
    Some(ranges)
}

/// The unit that a text such as `\u200b` begins with, and the rest.
fn unit(text: &str) -> Option<(u16, &str)> {
    let digits = text.strip_prefix("\\u")?;
    let unit = u16::from_str_radix(digits.get(..4)?, 16).ok()?;
    Some((unit, digits.get(4..)?))
}

/// The page's scripts make text nodes alone, and escape each of these characters where a person decides. The number of
/// scripts.
pub fn ensure_text_stays_text(
    served: &Served,
    hidden: impl Iterator<Item = char>,
) -> Result<usize, AttackFailure> {
    let page = fetch(served, "/", "text/html")?;
    ensure(page.body.contains("src=\"/page/main.js\""), || {
        "the page has another script: nothing is proved".into()
    })?;
    let mut names = vec!["main.js".to_owned()];
    let mut at = 0;
    while let Some(name) = names.get(at).cloned() {
        let script = fetch(served, &format!("/page/{name}"), "text/javascript")?.body;
        for sink in SINKS {
            ensure(!script.contains(sink), || format!("{name} has {sink:?}"))?;
        }
        for made in script.split("createTextNode(").skip(1) {
            ensure(ESCAPED.iter().any(|call| made.starts_with(call)), || {
                format!("{name} makes a text node of {made:.40}")
            })?;
        }
        for imported in script.split("\"./").skip(1) {
            let imported = imported.split('"').next().unwrap_or_default();
            if imported
                .rsplit_once('.')
                .is_some_and(|(_, kind)| kind == "js")
                && !names.iter().any(|known| known == imported)
            {
                names.push(imported.to_owned());
            }
        }
        at += 1;
    }
    let decisions = fetch(served, "/page/decision.js", "text/javascript")?.body;
    for word in LENIENT {
        ensure(!decisions.contains(word), || {
            format!("decision.js shows text with {word}")
        })?;
    }
    let elements = fetch(served, "/page/dom.js", "text/javascript")?.body;
    let known = HiddenCharacters::of(&elements).ok_or_else(|| {
        AttackFailure::Broke("dom.js has no expression for hidden characters".into())
    })?;
    for c in hidden {
        ensure(known.has(c), || format!("the page shows {c:?} as it is"))?;
    }
    for used in ["decision.js", "dom.js", "json.js"] {
        ensure(names.iter().any(|name| name == used), || {
            format!("the page does not use {used}: nothing is proved")
        })?;
    }
    Ok(names.len())
}

/// A file of the page, with the headers that keep a browser to its kind and to the page's own scripts.
fn fetch(served: &Served, path: &str, kind: &str) -> Result<Answered, AttackFailure> {
    let answered = served.ask("GET", path, &[], "")?;
    let found = answered.header("content-type").unwrap_or_default();
    ensure(
        answered.status == 200
            && found.starts_with(kind)
            && answered.header("x-content-type-options") == Some("nosniff"),
        || format!("{path} is answered {} as {found:?}", answered.status),
    )?;
    let policy = answered
        .header("content-security-policy")
        .unwrap_or_default();
    for directive in DIRECTIVES {
        ensure(policy.contains(directive), || {
            format!("{path} comes without {directive:?}: {policy:?}")
        })?;
    }
    Ok(answered)
}
