//! A configuration that was loaded: what is read again while it is used, and what it may not be used for.

use super::secrets::{self, Needs};
use super::{
    ConfigError, Loaded, SecretReading, Untrusted, files, grants_file, load, load_granting, real,
    trusted,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use toml::Value;
use toolhold_runtime::config::Configuration;
use toolhold_sandbox::Policy;

/// Why the configuration is read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReloadCause {
    /// A file changed.
    Change,
    /// A person asked for it, by SIGHUP, who has seen the file.
    Person,
}

impl Loaded {
    /// Loads the present files and variables, with the same flags. Secrets that were read before hold on while the
    /// keyring cannot be used.
    ///
    /// # Errors
    /// As [`load`]; a file has other bytes than those in effect, which a module may have written; a file lost what it
    /// is for, and no person asked.
    pub fn again(&self, cause: ReloadCause) -> Result<Self, ConfigError> {
        let now = load_granting(
            self.file.as_deref(),
            &self.flags,
            None,
            &self.secrets_again(),
        )?;
        self.refuse_what_modules_wrote(&now)?;
        if cause == ReloadCause::Change {
            self.refuse_what_was_emptied(&now)?;
        }
        Ok(Self {
            only: self.only.clone(),
            ..now
        })
    }

    /// Bytes that took effect are pinned where a module may write: others need a person.
    fn refuse_what_modules_wrote(&self, now: &Self) -> Result<(), ConfigError> {
        let (Some(then), Some(file)) = (&self.in_effect, &now.in_effect) else {
            return Ok(());
        };
        if then == file {
            return Ok(());
        }
        let policies = [&self.configuration, &now.configuration].map(Configuration::policy);
        let path = real(&file.path);
        let mut writers = policies.iter().filter_map(|policy| policy.writer_of(&path));
        let Some(module) = writers.next() else {
            return Ok(());
        };
        let trusted = trusted(&self.flags)?;
        if file.digest.is_some_and(|now| trusted.trusts(&path, &now)) {
            return Ok(());
        }
        Err(ConfigError::WrittenByModules {
            module: module.to_owned(),
            is_gone: file.digest.is_none(),
            path,
        })
    }

    /// A full disk, a shell's `>` and some editors leave a file empty, or cut, for a moment or for good. That is no
    /// configuration: all agents would lose their endpoint. The file of `toolhold modules grant` is written as a whole.
    fn refuse_what_was_emptied(&self, now: &Self) -> Result<(), ConfigError> {
        // What holds of a file that is not trusted is said elsewhere.
        if now.untrusted.is_some() {
            return Ok(());
        }
        let grants = format!("file {}", self.grants_file().display());
        let origins = self.settings.iter().map(|setting| setting.origin.as_str());
        let origins: BTreeSet<&str> = origins
            .filter(|origin| origin.starts_with("file ") && *origin != grants)
            .collect();
        for origin in origins {
            let (then, left) = (self.set_by(origin), now.set_by(origin));
            let names_endpoints =
                |set: &BTreeMap<&str, &Value>| set.keys().any(|key| key.starts_with("endpoints."));
            let grants = then.keys().any(|key| key.starts_with("module."));
            let is_empty = left.is_empty() && (names_endpoints(&then) || grants);
            let is_part = left.iter().all(|(key, value)| then.get(key) == Some(value));
            if is_empty || (is_part && names_endpoints(&then) && !names_endpoints(&left)) {
                return Err(ConfigError::Emptied {
                    origin: origin.to_owned(),
                    is_empty,
                });
            }
        }
        Ok(())
    }

    /// The settings of one origin.
    fn set_by(&self, origin: &str) -> BTreeMap<&str, &Value> {
        let own = self
            .settings
            .iter()
            .filter(|setting| setting.origin == origin);
        own.map(|setting| (setting.key.as_str(), &setting.value))
            .collect()
    }

    /// Grants of the present files and variables. No keyring is asked for them: one that is locked or does not answer
    /// neither prevents nor delays that something is taken back.
    ///
    /// # Errors
    /// As [`load`].
    pub fn policy_again(&self, cause: ReloadCause) -> Result<Policy, ConfigError> {
        let now = load(self.file.as_deref(), &self.flags, Needs::None)?;
        if cause == ReloadCause::Change {
            self.refuse_what_was_emptied(&now)?;
        }
        Ok(now.configuration.policy())
    }

    /// Loads the configuration with this grants file.
    ///
    /// # Errors
    /// As [`load`].
    pub fn granting(&self, grants: &Path) -> Result<Self, ConfigError> {
        let secrets = self.secrets_again();
        load_granting(self.file.as_deref(), &self.flags, Some(grants), &secrets)
    }

    fn secrets_again(&self) -> SecretReading {
        SecretReading {
            needs: self.needs,
            before: self.secrets.clone(),
        }
    }

    /// The file that `toolhold modules grant` writes.
    pub fn grants_file(&self) -> PathBuf {
        grants_file(self.configuration.state_folder())
    }

    /// The files that are read, whether they exist or not.
    pub fn files(&self) -> Vec<PathBuf> {
        let files = match &self.file {
            Some(file) => vec![file.clone()],
            None => files::usual_files(),
        };
        let files = files.into_iter().chain(self.records.clone());
        let files = files.chain(secrets::path());
        files.chain([self.grants_file()]).collect()
    }

    /// Refuses to serve with a part of the configuration.
    ///
    /// # Errors
    /// The found file is not trusted, and sets what only a trusted file may.
    pub fn servable(&self) -> Result<(), ConfigError> {
        self.refuse_untrusted("nothing is served with a part of the configuration", |_| {
            true
        })
    }

    /// Refuses to run tools without protections that the found file asks for.
    ///
    /// # Errors
    /// As [`servable`](Self::servable), if shields or calls that wait for a person are among what does not hold.
    pub fn protected(&self) -> Result<(), ConfigError> {
        let needed_by = "nothing is run without its shields and approvals";
        self.refuse_untrusted(needed_by, Untrusted::protects)
    }

    fn refuse_untrusted(
        &self,
        needed_by: &'static str,
        matters: impl Fn(&Untrusted) -> bool,
    ) -> Result<(), ConfigError> {
        match &self.untrusted {
            Some(untrusted) if matters(untrusted) => Err(ConfigError::Untrusted {
                untrusted: untrusted.clone(),
                needed_by,
            }),
            _ => Ok(()),
        }
    }
}
