//! Tests that did not run: those, or parts of them, for which the machine lacks something, and those that are ignored.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::{narrate, project, source};

/// The folder into which tests write why they, or parts of them, did not run.
pub struct LeftOutFolder(PathBuf);

impl LeftOutFolder {
    pub fn create() -> Result<Self> {
        let folder = project::target_folder()?.join("left-out");
        let at = |what: &str| format!("could not {what} {}", folder.display());
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| at("empty"));
            }
            _ => {}
        }
        fs::create_dir_all(&folder).with_context(|| at("make"))?;
        Ok(Self(folder))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Prints each reason with its tests.
    pub fn tell(&self) -> Result<()> {
        let all = toolhold_needs::read(&self.0)
            .with_context(|| format!("could not read {}", self.0.display()))?;
        if all.is_empty() {
            narrate::line("no test was left out");
            return Ok(());
        }
        narrate::line(&format!(
            "{} tests or parts of tests were LEFT OUT:",
            all.len()
        ));
        for alike in all.chunk_by(|one, two| (&one.need, &one.why) == (&two.need, &two.why)) {
            let tests: Vec<_> = alike.iter().map(|it| it.test.as_str()).collect();
            if let Some(first) = alike.first() {
                narrate::line(&format!(
                    "  {}: {} ({})",
                    first.need,
                    first.why,
                    tests.join(", ")
                ));
            }
        }
        Ok(())
    }
}

/// Names of ignored tests, by the reason in their attribute.
type TestsByReason = BTreeMap<String, Vec<String>>;

/// Prints the tests that are ignored, with their reasons, from their sources.
pub fn tell_ignored(root: &Path) -> Result<()> {
    let mut ignored = TestsByReason::new();
    for text in source::texts_with_tests(root)? {
        for (reason, test) in ignored_tests(&text) {
            ignored.entry(reason).or_default().push(test);
        }
    }
    for (reason, mut tests) in ignored {
        tests.sort();
        narrate::line(&format!(
            "{} tests are ignored: {reason} ({})",
            tests.len(),
            tests.join(", ")
        ));
    }
    Ok(())
}

/// The ignored tests of a source: reason and name.
fn ignored_tests(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut reason = None;
    for line in source.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("#[ignore") {
            let quoted = rest.split('"').nth(1);
            reason = Some(quoted.unwrap_or("no reason is given").to_owned());
        } else if let Some((before, rest)) = line.split_once("fn ")
            && (before.is_empty() || before.ends_with(' '))
            && let Some(reason) = reason.take()
        {
            let name = rest.split('(').next().unwrap_or(rest);
            found.push((reason, name.to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_tests_are_found_with_their_reasons() {
        // Each line is quoted, so that this file has no attribute that would be found in it.
        let source = [
            "#[test]",
            "fn is_run() {}",
            "#[test]",
            "#[ignore = \"takes minutes\"]",
            "fn takes_minutes() {}",
            "    #[ignore]",
            "    #[tokio::test]",
            "    async fn takes_long() {",
            "        let text = \"fn is_text()\";",
        ];
        let found = ignored_tests(&source.join("\n"));
        let expected = [
            ("takes minutes", "takes_minutes"),
            ("no reason is given", "takes_long"),
        ];
        let found: Vec<_> = found
            .iter()
            .map(|(reason, test)| (reason.as_str(), test.as_str()))
            .collect();
        assert_eq!(found, expected);
    }
}
