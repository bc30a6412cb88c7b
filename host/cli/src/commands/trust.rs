//! `toolhold trust`: shows what a found file would do, and pins its bytes if the person trusts it
//! (docs/security.md, "Files that were found").

use crate::commands::modules::confirmed;
use crate::config::{self, FOUND, Flags, FoundFile, Loaded, settings};
use crate::exit::Exit;
use crate::terminal::columns::{Column, aligned};
use crate::terminal::output;
use crate::terminal::style::{ago, bold, good, line};
use anyhow::{Context as _, Result, bail};
use clap::Args;
use similar::TextDiff;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use toolhold_runtime::host;
use toolhold_runtime::trust::{FileTrust, TrustedFile, TrustedFiles, digest};
use toolhold_storage::Draft;

#[derive(Debug, Args)]
pub struct TrustArgs {
    /// The file, or its folder [default: ./toolhold.toml].
    file: Option<PathBuf>,
    /// Trust the file without asking for confirmation.
    #[arg(long, short, conflicts_with_all = ["list", "revoke"])]
    yes: bool,
    /// List the trusted files, and trust none.
    #[arg(long, conflicts_with_all = ["file", "revoke"])]
    list: bool,
    /// Trust the file no more.
    #[arg(long)]
    revoke: bool,
}

/// Says what of a found file does not hold.
pub fn note(loaded: &Loaded) {
    if let Some(untrusted) = &loaded.untrusted {
        output::left_out(&untrusted.in_words());
    }
}

pub async fn trust(named: Option<&Path>, flags: &Flags, args: &TrustArgs) -> Result<Exit> {
    let trusted = config::trusted(flags)?;
    if args.list {
        list(&trusted.all().context("the trusted files cannot be read")?);
        return Ok(Exit::Ok);
    }
    let folder = folder(args.file.as_deref().unwrap_or(Path::new(".")))?;
    if args.revoke {
        return revoke(&trusted, &folder, flags).await;
    }
    if let Some(named) = named {
        bail!(
            "{} is named by --config (or TOOLHOLD_CONFIG): it needs no trust, and {FOUND} is not read",
            named.display()
        );
    }
    let file = FoundFile::read(&folder)?;
    let file = file.with_context(|| format!("there is no {FOUND} in {}", folder.display()))?;
    // What is shown now is what is trusted, whatever the file says when the answer comes.
    let (path, bytes) = (file.path.clone(), file.bytes.clone());
    let shown = line(&path.display().to_string());
    let standing = trusted.trust_in(&path, &bytes);
    if standing == FileTrust::Trusted {
        println!("{shown} is trusted as it is");
        return Ok(Exit::Ok);
    }
    let needing = config::in_need_of_trust(file)?;
    if needing.is_empty() {
        println!("{shown} sets nothing that needs trust");
        return Ok(Exit::Ok);
    }
    println!("{}", bold(&shown));
    let now = settings(&bytes)?;
    if let FileTrust::Changed { before } = &standing {
        // A text that was trusted was read before.
        show_difference(&settings(before.as_bytes()).unwrap_or_default(), &now);
    } else {
        let needing: BTreeSet<String> = needing.into_iter().map(|it| it.key).collect();
        let (needing, harmless): (Vec<_>, Vec<_>) =
            now.iter().partition(|(key, _)| needing.contains(key));
        show("holds in any case:", &harmless);
        // Last, so that nothing moves it off the screen before the question.
        show("holds if it is trusted:", &needing);
    }
    if !args.yes && !confirmed(&format!("trust {shown} as it is now?"))? {
        println!("{shown} stays untrusted");
        return Ok(Exit::Failed);
    }
    let draft = Draft::file_trusted(&path.display().to_string(), &digest(&bytes));
    // Logged first: the audit log has every decision.
    log(flags, draft).await?;
    let kept = trusted.trust(&path, &bytes);
    kept.context("the trust in the file cannot be kept")?;
    println!("{} {shown}", good("trusted:"));
    Ok(Exit::Ok)
}

/// The folder of the file that is meant.
fn folder(file: &Path) -> Result<PathBuf> {
    if file.is_dir() {
        return Ok(file.to_owned());
    }
    if file.file_name().is_none_or(|name| name != FOUND) {
        bail!(
            "{}: only a file that is called {FOUND} is found; others are read where --config names them",
            file.display()
        );
    }
    let parent = file.parent().filter(|it| !it.as_os_str().is_empty());
    Ok(parent.unwrap_or(Path::new(".")).to_owned())
}

/// Writes into the audit log that is the user's own, and not where a found file says.
async fn log(flags: &Flags, draft: Draft) -> Result<()> {
    let store = host::store(&config::of_user(flags)?).await?;
    let logged = store.audit(draft).await;
    logged.context("the decision cannot be written into the audit log")
}

/// The file itself may be gone, and its folder too.
async fn revoke(trusted: &TrustedFiles, folder: &Path, flags: &Flags) -> Result<Exit> {
    let real = folder.canonicalize();
    let real = real.or_else(|_| std::path::absolute(folder))?;
    let path = real.join(FOUND);
    let was_trusted = trusted.revoke(&path);
    let was_trusted = was_trusted.context("the trust in the file cannot be taken back")?;
    let text = path.display().to_string();
    let path = line(&text);
    if was_trusted {
        // After it: nothing may keep trust from being taken back.
        log(flags, Draft::file_revoked(&text)).await?;
        println!("{} {path}", good("revoked:"));
    } else {
        println!("{path} was not trusted");
    }
    Ok(Exit::of(was_trusted))
}

fn list(files: &[TrustedFile]) {
    if files.is_empty() {
        println!("no file is trusted");
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_secs());
    let rows = files.iter().map(|file| {
        let since = ago(now.saturating_sub(file.at));
        [line(&file.path), line(&file.digest), since]
    });
    for row in aligned(&[Column::Left(0); 3], 2, rows) {
        println!("{row}");
    }
}

fn show(title: &str, settings: &[&(String, toml::Value)]) {
    if settings.is_empty() {
        return;
    }
    println!("  {title}");
    for setting in settings {
        output::tell(&format!("    {}", in_a_line(setting)));
    }
}

/// Comments and layout have no effect, so settings are compared and not lines.
fn show_difference(before: &[(String, toml::Value)], now: &[(String, toml::Value)]) {
    println!("  since it was trusted:");
    let text = |settings: &[(String, toml::Value)]| -> String {
        let lines = settings.iter().map(|setting| in_a_line(setting) + "\n");
        lines.collect()
    };
    let (before, now) = (text(before), text(now));
    for change in TextDiff::from_lines(&before, &now).iter_all_changes() {
        output::tell(&format!(
            "    {}",
            output::changed_line(change.tag(), change.value())
        ));
    }
}

/// No value can fake a line of ours. TOML writes a text of several lines as such; JSON does not.
fn in_a_line((key, value): &(String, toml::Value)) -> String {
    let mut text = value.to_string();
    if text.contains('\n') {
        text = serde_json::to_string(value).unwrap_or(text);
    }
    line(&format!("{key} = {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_one_line_without_escapes() {
        let text = "[mcp.\"a\\n\\u202e\"]\nenv = { A = \"b\\nrun.max_steps = 3\\u001b[2J\" }\nurl = 'C:\\n'";
        let lines: Vec<String> = settings(text.as_bytes())
            .unwrap()
            .iter()
            .map(in_a_line)
            .collect();
        assert_eq!(
            lines,
            [
                r#"mcp.a\n\u{202e}.env = {"A":"b\nrun.max_steps = 3\u001b[2J"}"#,
                r"mcp.a\n\u{202e}.url = 'C:\n'",
            ]
        );
    }
}
