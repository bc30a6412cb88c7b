//! A configuration that was loaded: what is read again while it is used, and what it may not be used for.

use super::secrets::{self, Needs};
use super::{
    ConfigError, ContentInUse, Loaded, SecretReading, Untrusted, files, grants_file, load_granting,
    real, trusted,
};
use std::path::{Path, PathBuf};
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
    /// As [`super::load`]; a file has other bytes than those in effect, which a module may have written.
    pub fn again(&self, cause: ReloadCause) -> Result<Self, ConfigError> {
        let now = load_granting(
            self.file.as_deref(),
            &self.flags,
            None,
            &self.secrets_again(),
            self.content_after(cause),
        )?;
        self.refuse_what_modules_wrote(&now)?;
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
        if file.digest.is_some_and(|now| trusted.holds(&path, &now)) {
            return Ok(());
        }
        Err(ConfigError::WrittenByModules {
            module: module.to_owned(),
            is_gone: file.digest.is_none(),
            path,
        })
    }

    /// Grants of the present files and variables. No keyring is asked for them: one that is locked or does not answer
    /// neither prevents nor delays that something is taken back.
    ///
    /// # Errors
    /// As [`super::load`].
    pub fn policy_again(&self, cause: ReloadCause) -> Result<Policy, ConfigError> {
        let secrets = SecretReading {
            needs: Needs::None,
            ..self.secrets_again()
        };
        let content = self.content_after(cause);
        let now = load_granting(self.file.as_deref(), &self.flags, None, &secrets, content)?;
        Ok(now.configuration.policy())
    }

    /// Loads the configuration with this grants file.
    ///
    /// # Errors
    /// As [`super::load`].
    pub fn granting(&self, grants: &Path) -> Result<Self, ConfigError> {
        let secrets = self.secrets_again();
        let content = self.content_after(ReloadCause::Person);
        load_granting(
            self.file.as_deref(),
            &self.flags,
            Some(grants),
            &secrets,
            content,
        )
    }

    /// The content that stands in for a file that lost its own. None where a person asks for the files as they are.
    fn content_after(&self, cause: ReloadCause) -> Option<&ContentInUse> {
        (cause == ReloadCause::Change).then_some(&self.content)
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
        let needed_by = "nothing is run without its shields and decision rules";
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
