//! How people name tools: `MODULE.TOOL`, or `MODULE` for all of its tools.

/// The module that a tool is of.
pub fn module_of(tool: &str) -> &str {
    tool.split('.').next().unwrap_or_default()
}

/// Whether `name` means this tool, by its own name or its module's.
pub fn means(name: &str, tool: &str) -> bool {
    name == tool || name == module_of(tool)
}

/// Whether one of these names means the tool; without a list, every tool is allowed.
pub fn allows(allowed: Option<&[String]>, tool: &str) -> bool {
    allowed.is_none_or(|names| names.iter().any(|name| means(name, tool)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_named_by_itself_or_by_its_module() {
        let names = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        for (allowed, tool, is_allowed) in [
            (names(&["text"]), "text.count", true),
            (names(&["text.count"]), "text.count", true),
            (names(&["text.count"]), "text.hash", false),
            (names(&["tex", "count"]), "text.count", false),
            (names(&["text.count"]), "text", false),
            (names(&[]), "text.count", false),
        ] {
            assert_eq!(
                allows(Some(&allowed), tool),
                is_allowed,
                "{allowed:?} {tool}"
            );
        }
        assert!(allows(None, "text.count"));
    }
}
