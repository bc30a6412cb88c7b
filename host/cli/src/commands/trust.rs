//! `toolhold trust`: shows the settings of a found file, or of one that a module may have written, and pins its bytes if
//! the person trusts it (docs/security.md, "Files that were found").

use crate::commands::modules::confirmed;
use crate::config::{self, FOUND, Flags, FoundFile, Loaded, settings};
use crate::exit::Exit;
use crate::terminal::columns::{Column, aligned};
use crate::terminal::output;
use crate::terminal::style::{ago, bold, good, line};
use anyhow::{Context as _, Result};
use clap::Args;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use toolhold_runtime::file_pins::{FilePinState, FilePins, PinnedFile, digest};
use toolhold_runtime::host;
use toolhold_storage::Draft;

#[derive(Debug, Args)]
pub struct TrustArgs {
    /// The file, or its folder [default: the one that --config names, or ./toolhold.toml].
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
    let file = args.file.as_deref().or(named).unwrap_or(Path::new("."));
    let place = TrustedPlace::of(file, named.is_some())?;
    if args.revoke {
        return revoke(&trusted, &place, flags).await;
    }
    let file = place.read()?;
    // The bytes that are shown now are trusted, whatever the file says when the answer comes.
    let (path, bytes) = (file.path.clone(), file.bytes.clone());
    let shown = line(&path.display().to_string());
    let before = trusted.record(&path);
    let pin_state = trusted.state(&path, &bytes);
    if pin_state == FilePinState::Pinned {
        println!("{shown} is trusted as it is");
        return Ok(Exit::Ok);
    }
    let needing = if place.is_found {
        config::in_need_of_trust(file)?
    } else {
        Vec::new()
    };
    if needing.is_empty() && place.is_found {
        println!("{shown} sets nothing that needs trust");
        return Ok(Exit::Ok);
    }
    println!("{}", bold(&shown));
    let now = settings(&bytes)?;
    if let FilePinState::Changed { before } = &pin_state {
        // A text that was trusted was read before.
        show_difference(&settings(before.as_bytes()).unwrap_or_default(), &now);
    } else if !place.is_found {
        show("a server takes over:", &now.iter().collect::<Vec<_>>());
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
    // Logged first: the audit log has every file that a person trusted.
    log(flags, draft).await?;
    let kept = trusted.pin(&path, &bytes, before.as_ref());
    kept.context("the file is not trusted")?;
    println!("{} {shown}", good("trusted:"));
    Ok(Exit::Ok)
}

/// A configuration file that may be trusted.
struct TrustedPlace {
    folder: PathBuf,
    name: OsString,
    /// True if it is read because it is there. Others are read because a person names them, and need trust only where a
    /// module may write them under a server.
    is_found: bool,
}

impl TrustedPlace {
    /// The file that is meant by its path, or by its folder's. `is_named`: by `--config`.
    fn of(file: &Path, is_named: bool) -> Result<Self> {
        if file.is_dir() {
            return Ok(Self {
                folder: file.to_owned(),
                name: FOUND.into(),
                is_found: !is_named,
            });
        }
        let name = file.file_name();
        let name = name.with_context(|| format!("{} names no file", file.display()))?;
        let parent = file.parent().filter(|it| !it.as_os_str().is_empty());
        Ok(Self {
            folder: parent.unwrap_or(Path::new(".")).to_owned(),
            name: name.to_owned(),
            is_found: name == FOUND && !is_named,
        })
    }

    fn read(&self) -> Result<FoundFile> {
        let file = FoundFile::read_named(&self.folder, &self.name)?;
        let (name, folder) = (self.name.display(), self.folder.display());
        file.with_context(|| format!("there is no {name} in {folder}"))
    }
}

/// Writes into the audit log that is the user's own, and not where a found file says.
async fn log(flags: &Flags, draft: Draft) -> Result<()> {
    let store = host::store(&config::of_user(flags)?).await?;
    let logged = store.audit(draft).await;
    logged
        .context("it cannot be written into the audit log who trusted the file, or no longer does")
}

/// The file itself may be gone, and its folder too.
async fn revoke(trusted: &FilePins, place: &TrustedPlace, flags: &Flags) -> Result<Exit> {
    let real = place.folder.canonicalize();
    let real = real.or_else(|_| std::path::absolute(&place.folder))?;
    let path = real.join(&place.name);
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

fn list(files: &[PinnedFile]) {
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
    output::tell_difference(&before, &now);
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
