//! The file of tasks: TOML, or the same as JSON.

use crate::eval::expect::Expectations;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};
use toolhold_json::hex::sha256;
use toolhold_protocol::context::Message;
use toolhold_schema::Validator;

/// Bounds of a file: it is read as a whole, and every task is run.
pub(super) const MAX_BYTES: u64 = 4 << 20;
pub(super) const MAX_TASKS: usize = 2_000;
const MAX_ID_CHARS: usize = 40;

/// Tasks with what is expected of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    #[serde(default)]
    pub description: String,
    pub tasks: Vec<Task>,
}

/// One task. Each attempt at it has a folder and a state of its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// Lower case letters, digits and hyphens.
    pub id: String,
    /// Difficulty: 1 is a single call.
    #[serde(default = "easy")]
    pub level: u8,
    /// What the user says.
    #[serde(rename = "task")]
    pub text: String,
    /// Tools, or modules for all of theirs. No others are offered.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Modules that see the task's folder as `/data`, and those that may change it.
    #[serde(default)]
    pub may_read: Vec<String>,
    #[serde(default)]
    pub may_write: Vec<String>,
    /// Files of the folder, by path.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Calls before the run that may write to the folder, for example to create a database.
    #[serde(default)]
    pub setup: Vec<Setup>,
    /// Messages before the task, as in the file of `toolhold run --context`.
    #[serde(default)]
    pub context: Vec<Value>,
    #[serde(default)]
    pub instructions: Option<String>,
    /// What the answer must satisfy; text if absent.
    #[serde(default)]
    pub output_schema: Option<Value>,
    /// Limits below the configuration's.
    #[serde(default)]
    pub max_steps: Option<u32>,
    #[serde(default)]
    pub timeout_s: Option<f64>,
    pub expect: Expectations,
    /// Replies that solve the task, each with calls or the answer. The model does not see them; tests replay
    /// them, which proves that the task can be solved.
    #[serde(default)]
    pub solution: Vec<Value>,
    /// A wrong answer that satisfies the output schema, for the same tests.
    #[serde(default)]
    pub wrong: Option<Value>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    pub tool: String,
    pub arguments: Value,
}

fn easy() -> u8 {
    1
}

impl Set {
    /// Reads a file: JSON if it is named so, TOML otherwise.
    ///
    /// # Errors
    /// The file is invalid; the error names the task.
    pub fn read(path: &Path) -> Result<Self, String> {
        let unreadable = |error: std::io::Error| format!("it cannot be read: {error}");
        let size = std::fs::metadata(path).map_err(unreadable)?;
        if size.len() > MAX_BYTES {
            return Err(format!("it has more than {MAX_BYTES} bytes"));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        if path.extension().is_some_and(|ending| ending == "json") {
            let set: Self = serde_json::from_str(&text).map_err(|error| error.to_string())?;
            set.checked()
        } else {
            Self::parse(&text)
        }
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// As [`Set::read`].
    pub fn parse(text: &str) -> Result<Self, String> {
        let set: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        set.checked()
    }

    fn checked(self) -> Result<Self, String> {
        if self.tasks.is_empty() {
            return Err("it holds no tasks".into());
        }
        if self.tasks.len() > MAX_TASKS {
            return Err(format!("it holds more than {MAX_TASKS} tasks"));
        }
        let mut ids = BTreeSet::new();
        for task in &self.tasks {
            task.check()
                .map_err(|reason| format!("task {:?}: {reason}", task.id))?;
            if !ids.insert(task.id.as_str()) {
                return Err(format!("two tasks have the id {:?}", task.id));
            }
        }
        Ok(self)
    }

    /// Keeps the tasks that `ids` name (`abc`, or `abc*` for all that begin so), and of those the ones of
    /// these levels. Empty lists keep all.
    ///
    /// # Errors
    /// An id matches no task, or no task remains.
    pub fn only(&mut self, ids: &[String], levels: &[u8]) -> Result<(), String> {
        let is_named = |id: &String, task: &Task| match id.strip_suffix('*') {
            Some(beginning) => task.id.starts_with(beginning),
            None => task.id == *id,
        };
        for id in ids {
            if !self.tasks.iter().any(|task| is_named(id, task)) {
                return Err(format!("there is no task {id:?}; --list prints them"));
            }
        }
        self.tasks.retain(|task| {
            (ids.is_empty() || ids.iter().any(|id| is_named(id, task)))
                && (levels.is_empty() || levels.contains(&task.level))
        });
        if self.tasks.is_empty() {
            return Err("no task is left of what --task and --level name".into());
        }
        Ok(())
    }

    /// All modules that the tasks need.
    pub fn modules(&self) -> Vec<String> {
        let all: BTreeSet<String> = self.tasks.iter().flat_map(Task::modules).collect();
        all.into_iter().collect()
    }
}

impl Task {
    /// The modules of its tools.
    pub fn modules(&self) -> Vec<String> {
        let of = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let setup = self.setup.iter().map(|setup| &setup.tool);
        let names = self.tools.iter().chain(setup).map(|name| of(name));
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The messages of its context.
    ///
    /// # Errors
    /// The messages are invalid.
    pub fn messages(&self) -> Result<Vec<Message>, String> {
        Message::parse_all(&Value::Array(self.context.clone())).map_err(|error| error.to_string())
    }

    /// Digest of the task: attempts count only for an unchanged task.
    pub fn digest(&self) -> String {
        digest(&serde_json::to_vec(self).unwrap_or_default())
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.id.is_empty() || self.id.len() > MAX_ID_CHARS || !self.id.chars().all(is_plain) {
            return Err(format!(
                "an id has 1 to {MAX_ID_CHARS} lower case letters, digits and hyphens"
            ));
        }
        if self.text.trim().is_empty() {
            return Err("`task` is empty: it is what the user says".into());
        }
        let modules = self.modules();
        for name in self.may_read.iter().chain(&self.may_write) {
            if !modules.contains(name) {
                return Err(format!(
                    "{name:?} is given the folder and is not among its tools"
                ));
            }
        }
        let expected = self.expect.files.keys().chain(&self.expect.no_files);
        for path in self.files.keys().chain(expected) {
            let inside = |part| matches!(part, Component::Normal(_));
            if path.is_empty() || !Path::new(path).components().all(inside) {
                return Err(format!("{path:?} is no path inside of its folder"));
            }
        }
        if let Some(seconds) = self.timeout_s
            && !(seconds > 0.0 && seconds < 1e9)
        {
            return Err(format!("timeout_s is {seconds}"));
        }
        if let Some(schema) = &self.output_schema {
            Validator::new(schema).map_err(|reason| format!("output_schema: {reason}"))?;
        }
        self.messages()
            .map_err(|reason| format!("context: {reason}"))?;
        self.expect.check()
    }
}

/// A digest of `bytes` with sixteen hex digits.
pub fn digest(bytes: &[u8]) -> String {
    let mut digest = sha256(bytes);
    digest.truncate(16);
    digest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::SHIPPED;

    const ONE: &str = "[[tasks]]\nid = \"a\"\ntask = \"say a\"\nexpect.answer.contains = [\"a\"]\n";

    #[test]
    fn the_shipped_set_is_one_and_tells_how_every_task_is_solved() {
        let set = Set::parse(SHIPPED).unwrap();
        assert_eq!(set.tasks.len(), 40);
        for task in &set.tasks {
            assert!(!task.solution.is_empty(), "{} has no solution", task.id);
            assert!((1..=4).contains(&task.level), "{}", task.id);
        }
    }

    #[test]
    fn a_set_is_the_same_in_both_forms() {
        let toml = Set::parse(ONE).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.json");
        std::fs::write(&path, serde_json::to_string(&toml).unwrap()).unwrap();
        let json = Set::read(&path).unwrap();
        assert_eq!(json.tasks[0].digest(), toml.tasks[0].digest());
    }

    #[test]
    fn fault_is_named_with_its_task() {
        for (text, why) in [
            ("tasks = []", "holds no tasks"),
            ("[[task]]\nid = \"a\"", "unknown field `task`"),
            (&format!("{ONE}{ONE}"), "two tasks have the id \"a\""),
            (
                &ONE.replace("id = \"a\"", "id = \"A b\""),
                "task \"A b\": an id has",
            ),
            (&ONE.replace("say a", " "), "task \"a\": `task` is empty"),
            (
                &format!("{ONE}may_read = [\"files\"]"),
                "not among its tools",
            ),
            (
                &format!("{ONE}files = {{ \"../x\" = \"\" }}"),
                "no path inside",
            ),
            (
                &format!("{ONE}expect.no_files = [\"/etc\"]"),
                "no path inside",
            ),
            (
                &format!("{ONE}output_schema = {{ type = 7 }}"),
                "output_schema",
            ),
            (
                &format!("{ONE}context = [{{ type = \"nonsense\" }}]"),
                "context: ",
            ),
            (&format!("{ONE}timeout_s = 0.0"), "timeout_s"),
            (&format!("{ONE}expects = 1"), "unknown field `expects`"),
            (
                "[[tasks]]\nid = \"a\"\ntask = \"b\"\nexpect = {}",
                "nothing could fail",
            ),
        ] {
            let error = Set::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn tasks_are_chosen_by_their_ids_and_by_level() {
        let two = format!(
            "{ONE}{}level = 2\n",
            ONE.replace("id = \"a\"", "id = \"ab\"")
        );
        let chosen = |ids: &[&str], levels: &[u8]| {
            let mut set = Set::parse(&two).unwrap();
            let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
            set.only(&ids, levels)?;
            Ok::<_, String>(set.tasks.len())
        };
        assert_eq!(chosen(&[], &[]), Ok(2));
        assert_eq!(chosen(&["a*"], &[2]), Ok(1));
        assert_eq!(chosen(&["a"], &[]), Ok(1));
        assert!(chosen(&["b"], &[]).unwrap_err().contains("no task \"b\""));
        assert!(chosen(&[], &[7]).unwrap_err().contains("no task is left"));
    }
}
