//! The flags of every command that say where modules come from and what they are given.

use crate::config::Flags;
use clap::Args;
use std::path::PathBuf;
use toml::Value;

/// Sources of modules, and grants.
#[derive(Debug, Args)]
#[command(next_help_heading = "Modules and what they are given")]
pub struct ModuleArgs {
    /// The folder whose components become tools [default: modules].
    #[arg(long = "modules", global = true, value_name = "DIR")]
    folder: Option<PathBuf>,
    // Brackets in a doc comment would be links.
    #[arg(
        long = "dir",
        global = true,
        value_name = "GRANT",
        help = "Give a module a directory: MODULE=HOST[:GUEST[:rw]], such as files=./notes:/data:rw"
    )]
    directories: Vec<String>,
    /// Give a module an environment variable: MODULE=NAME=VALUE, such as clock=TZ=UTC.
    #[arg(long = "env", global = true, value_name = "GRANT")]
    environment: Vec<String>,
    /// Run modules without pins; meant for authors of modules.
    #[arg(long, global = true)]
    trust_all: bool,
    /// Use only the components that were fetched from registries before; no network access.
    #[arg(long, global = true)]
    offline: bool,
}

impl ModuleArgs {
    /// The flags that are settings of the configuration.
    ///
    /// # Errors
    /// A grant has a wrong form.
    pub fn put(&self, flags: &mut Flags) -> anyhow::Result<()> {
        flags.set(
            "--modules",
            "modules.folder",
            self.folder.as_ref().map(|f| f.display().to_string()),
        );
        let pinning = self.trust_all.then_some("never");
        flags.set("--trust-all", "modules.pinning", pinning);
        flags.set("--offline", "oci.offline", self.offline.then_some(true));
        for (module, grants) in grouped(&self.directories, "--dir", "MODULE=HOST[:GUEST[:rw]]")? {
            let list: Vec<Value> = grants.iter().map(|grant| directory(grant)).collect();
            flags.set("--dir", format!("module.{module}.directories"), Some(list));
        }
        for (module, grants) in grouped(&self.environment, "--env", "MODULE=NAME=VALUE")? {
            let mut table = toml::Table::new();
            for grant in grants {
                let Some((name, value)) = grant.split_once('=') else {
                    anyhow::bail!("--env {module}={grant}: expected MODULE=NAME=VALUE");
                };
                table.insert(name.to_owned(), Value::String(value.to_owned()));
            }
            flags.set("--env", format!("module.{module}.environment"), Some(table));
        }
        Ok(())
    }
}

/// `a=x a=y b=z` → a: x, y; b: z.
fn grouped<'a>(
    grants: &'a [String],
    flag: &str,
    form: &str,
) -> anyhow::Result<Vec<(&'a str, Vec<&'a str>)>> {
    let mut groups: Vec<(&str, Vec<&str>)> = Vec::new();
    for grant in grants {
        let Some((module, rest)) = grant
            .split_once('=')
            .filter(|(m, r)| !m.is_empty() && !r.is_empty())
        else {
            anyhow::bail!("{flag} {grant}: expected {form}");
        };
        match groups.iter_mut().find(|(name, _)| *name == module) {
            Some((_, list)) => list.push(rest),
            None => groups.push((module, vec![rest])),
        }
    }
    Ok(groups)
}

/// `HOST[:GUEST[:rw|:ro]]` as a configuration value; the guest path defaults to /data.
pub fn directory(grant: &str) -> Value {
    let mut parts = grant.split(':');
    let host = parts.next().unwrap_or_default();
    let guest = parts
        .next()
        .filter(|guest| !guest.is_empty())
        .unwrap_or("/data");
    let access = match parts.next() {
        Some("rw") => "read-write",
        None | Some("ro") => "read",
        // Checked with the configuration, whose error lists the allowed forms.
        Some(other) => other,
    };
    let mut table = toml::Table::new();
    table.insert("host".into(), host.into());
    table.insert("guest".into(), guest.into());
    table.insert("access".into(), access.into());
    Value::Table(table)
}
