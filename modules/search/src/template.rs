//! Templates of OpenSearch 1.1, "OpenSearch URL template syntax": `{name}` is replaced by the parameter's value, `{name?}`
//! may stay empty.

use std::fmt::Write as _;

use toolhold_guest::{Error, json};

/// The parameters of one search.
pub struct Parameters<'a> {
    pub terms: &'a str,
    pub count: u32,
    /// From 1.
    pub page: u32,
}

/// How a value is written into the template.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Url,
    /// In a JSON string.
    Json,
}

impl Parameters<'_> {
    /// The template with the parameters put in.
    ///
    /// # Errors
    /// It needs a parameter that there is not, or a brace is never closed.
    pub fn fill(&self, template: &str, place: Place) -> Result<String, Error> {
        let mut filled = String::new();
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            filled.push_str(before);
            // A brace of the JSON itself.
            let is_name = |name: &str| {
                !name.is_empty()
                    && name
                        .chars()
                        .all(|it| it.is_ascii_alphanumeric() || it == ':')
            };
            let name = after.split_once('}');
            let Some((name, after)) =
                name.filter(|(name, _)| is_name(name.strip_suffix('?').unwrap_or(name)))
            else {
                if place == Place::Url {
                    let message = format!(
                        "the search engine's template is wrong: {template:?} has a lone brace"
                    );
                    return Err(Error::fatal(message));
                }
                filled.push('{');
                rest = after;
                continue;
            };
            match self.value(name.trim_end_matches('?')) {
                Some(value) => filled.push_str(&place.written(&value)),
                None if name.ends_with('?') => {}
                None => {
                    let message = format!(
                        "the search engine's template needs {{{name}}}, which is not known here"
                    );
                    return Err(Error::fatal(message));
                }
            }
            rest = after;
        }
        filled.push_str(rest);
        Ok(filled)
    }

    fn value(&self, name: &str) -> Option<String> {
        let first = u64::from(self.page - 1) * u64::from(self.count) + 1;
        match name {
            "searchTerms" => Some(self.terms.to_owned()),
            "count" => Some(self.count.to_string()),
            "startPage" => Some(self.page.to_string()),
            "startIndex" => Some(first.to_string()),
            // For engines that count results or pages from zero.
            "offset" => Some((first - 1).to_string()),
            "pageOffset" => Some((self.page - 1).to_string()),
            "language" => Some("*".to_owned()),
            "inputEncoding" | "outputEncoding" => Some("UTF-8".to_owned()),
            _ => None,
        }
    }
}

impl Place {
    fn written(self, value: &str) -> String {
        match self {
            Self::Url => percent_encoded(value),
            Self::Json => {
                let quoted = json!(value).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
        }
    }
}

/// All but the unreserved characters of RFC 3986, 2.3.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(template: &str, place: Place) -> Result<String, String> {
        let parameters = Parameters {
            terms: "a \"b\" & {c}",
            count: 5,
            page: 3,
        };
        let filled = parameters.fill(template, place);
        filled.map_err(|error| error.message().to_owned())
    }

    #[test]
    fn parameters_are_put_in() {
        for (template, place, expected) in [
            (
                "https://e.x/?q={searchTerms}&n={count}",
                Place::Url,
                "https://e.x/?q=a%20%22b%22%20%26%20%7Bc%7D&n=5",
            ),
            (
                "{startPage} {startIndex} {offset} {pageOffset}",
                Place::Url,
                "3 11 10 2",
            ),
            ("a={unknown?}&l={language?}", Place::Url, "a=&l=%2A"),
            (
                r#"{"q": "{searchTerms}", "n": {count}}"#,
                Place::Json,
                r#"{"q": "a \"b\" & {c}", "n": 5}"#,
            ),
            ("{}", Place::Json, "{}"),
        ] {
            assert_eq!(fill(template, place).as_deref(), Ok(expected), "{template}");
        }
        for (template, part) in [
            ("{custom:thing}", "needs {custom:thing}"),
            ("?q={searchTerms", "lone brace"),
        ] {
            let error = fill(template, Place::Url).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
