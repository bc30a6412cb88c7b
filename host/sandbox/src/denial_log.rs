//! What a call asked for and was not given, noted where it is refused.
//!
//! It is for the author and the operator. The guest gets the error that it would get anyway: nothing here is read
//! while it runs.

use http::Method;
use parking_lot::Mutex;
use std::fmt::Display;
use toolhold_policy::egress::{AddressScope, is_localhost, literal, reach};
use toolhold_policy::manifest::Requests;
use toolhold_policy::text::shell_word;
use toolhold_policy::{AllowingRule, CallError, Capability, Denial, Denials, Grant};
use url::Url;

/// Most bytes of a path or a tool's name in a command that people copy; what is longer, or cut, would allow another
/// thing.
const MAX_WORD_BYTES: usize = 200;

/// Most characters of the guest's own words in one denial.
const MAX_QUOTED_CHARS: usize = 100;

/// Words of the guest's choice, told apart from the host's.
fn quoted(word: &str) -> String {
    let cut: String = word.chars().take(MAX_QUOTED_CHARS).collect();
    let more = if cut.len() < word.len() { "…" } else { "" };
    format!("{cut:?}{more}")
}

/// The denials of one call, or of its HTTP requests.
#[derive(Debug, Default)]
pub(crate) struct DenialLog(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    denials: Denials,
    /// It asked for its directories, or for its variables, and there was none.
    found_no_directory: bool,
    found_no_variable: bool,
}

/// Why a request to a granted origin, or to another one, was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RefusedRequest {
    /// No grant is for it.
    NotGranted,
    /// A grant is, and the address that its host is, or that its host's name leads to, is out of its reach.
    Address { is_private: bool },
}

/// What a call wanted to do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileUse {
    Read,
    Write,
}

impl DenialLog {
    /// Takes over what `other` noted.
    pub fn join(&mut self, other: &Self) {
        let other = std::mem::take(&mut *other.0.lock());
        let own = self.0.get_mut();
        for denial in other.denials.kept {
            own.denials.push(denial);
        }
        own.denials.dropped = own.denials.dropped.saturating_add(other.denials.dropped);
        own.found_no_directory |= other.found_no_directory;
        own.found_no_variable |= other.found_no_variable;
    }

    /// A request was refused.
    pub fn request(&self, method: &Method, url: &Url, refused: RefusedRequest) {
        let host = url.host();
        let address = host.as_ref().and_then(literal);
        let is_here = url.host_str().is_some_and(is_localhost);
        let scope = address.map(reach);
        let origin = url.origin().ascii_serialization();
        // Printable and without blanks, as every URL is.
        let mut asked = format!("{method} {origin}{}", url.path());
        let mut needs_private = is_here || scope == Some(AddressScope::Private);
        let mut is_out_of_reach = scope == Some(AddressScope::Never);
        if let RefusedRequest::Address { is_private } = refused
            && scope.is_none()
        {
            // In front: what is long is cut at its end.
            asked = format!(
                "of a name that leads to this machine, its network or a reserved address: {asked}"
            );
            needs_private = true;
            is_out_of_reach = is_private;
        }
        let rule = if is_out_of_reach {
            AllowingRule::None("no grant reaches link-local, multicast and reserved addresses")
        } else if !matches!(url.scheme(), "http" | "https") {
            AllowingRule::None("a grant is for http or https")
        } else if [Method::CONNECT, Method::TRACE].contains(method) {
            AllowingRule::None("no grant gives CONNECT and TRACE")
        } else {
            let path = Some(url.path()).filter(|path| path.len() <= MAX_WORD_BYTES && *path != "/");
            let word = shell_word(&format!("{method} {origin}{}", path.unwrap_or_default()));
            let private = if needs_private { " --private" } else { "" };
            flags(format!("--with-http {word}{private}"))
        };
        self.note(Capability::Http, asked, rule);
    }

    /// A use of `path`, in the directory that the guest sees as `guest`, was refused. `is_read_only`: the grant of the
    /// directory.
    ///
    /// The guest's code for it is also that of a system that refuses this process what only a file's owner may do
    /// (EPERM). So without a path that leads out, more than one cause is named.
    pub fn file(&self, wish: FileUse, path: Option<&str>, guest: &str, is_read_only: bool) {
        let leads_out = path.is_some_and(leads_out);
        let path = path.map_or_else(|| "a file".into(), quoted);
        if leads_out {
            self.note(
                Capability::Directories,
                format!("{path} in {guest}"),
                AllowingRule::None(
                    "it leads out of the directory; grant the directory that it is in (--with-dir)",
                ),
            );
        } else if wish == FileUse::Write && is_read_only {
            let word = shell_word(&format!("DIR:{guest}:rw"));
            self.note(
                Capability::Directories,
                format!("to change {path} in {guest}, which it may only read"),
                flags(format!("--with-dir {word}")),
            );
        } else {
            self.note(
                Capability::Directories,
                format!("{path} in {guest}"),
                AllowingRule::None(
                    "the system did not permit it (another owner, an immutable file), or a link leads it out of the \
                     directory, or it is neither a file nor a folder",
                ),
            );
        }
    }

    /// A change of `path`, in the directory that the guest sees as `guest`, was refused: it is this host's own.
    pub fn reserved(&self, path: &str, guest: &str, what: &str) {
        let asked = format!("to change {} in {guest}, which is {what}", quoted(path));
        let rule = AllowingRule::None(
            "this host takes decisions from it, or runs it, so no grant lets a module change it; a person can",
        );
        self.note(Capability::Directories, asked, rule);
    }

    /// The guest asked which directories it has.
    pub fn directories_listed(&self, count: usize) {
        if count == 0 {
            self.0.lock().found_no_directory = true;
        }
    }

    /// The guest asked for its variables.
    pub fn variables_listed(&self, count: usize) {
        if count == 0 {
            self.0.lock().found_no_variable = true;
        }
    }

    /// Keys and values were asked for.
    pub fn key_value(&self) {
        let rule = flags("--key-value".into());
        self.note(Capability::KeyValue, "keys and values".into(), rule);
    }

    /// Documents or facts were asked for. `words` give them, behind the flag's name.
    pub fn knowledge(&self, asked: String, flag: &str, words: &str) {
        let rule = if words.len() > MAX_WORD_BYTES {
            AllowingRule::None("no collection has so long a name")
        } else {
            flags(format!("{flag} {}", shell_word(words)))
        };
        self.note(Capability::Knowledge, asked, rule);
    }

    /// A tool was to be called that the module was not granted.
    pub fn tool(&self, tool: &str) {
        let rule = if tool.len() > MAX_WORD_BYTES {
            AllowingRule::None("no tool has so long a name")
        } else {
            flags(format!("--with-tool {}", shell_word(tool)))
        };
        self.note(Capability::Tools, format!("to call {}", quoted(tool)), rule);
    }

    /// The address of a host was asked for, by its name.
    pub fn lookup(&self, name: &str) {
        self.socket(format_args!("the address of {}", quoted(name)));
    }

    /// A socket or an address was asked for.
    pub fn socket(&self, asked: impl Display) {
        self.0.lock().denials.push(Denial {
            asked: asked.to_string().into(),
            rule: AllowingRule::None(
                "no grant gives sockets; send HTTP requests by wasi:http, which the SDKs do (--with-http)",
            ),
            is_refused: true,
            capability: None,
        });
    }

    fn note(&self, capability: Capability, asked: String, rule: AllowingRule) {
        self.0.lock().denials.push(Denial {
            asked: asked.into(),
            rule,
            is_refused: true,
            capability: Some(capability),
        });
    }

    /// The denials of a call of `module` that ended with `result`.
    ///
    /// The host does not see which variable a guest looks for among its own, nor which path it looks for below its
    /// directories. So for a call that its own code failed, what `requests` asks for and `granted` lacks is among them,
    /// and that it looked where there was nothing.
    pub fn ended<T>(
        self,
        module: &str,
        result: &Result<T, CallError>,
        requests: &Requests,
        granted: &Grant,
    ) -> Denials {
        let mut noted = self.0.into_inner();
        for denial in &mut noted.denials.kept {
            if let AllowingRule::Grant { module: of, .. } = &mut denial.rule {
                module.clone_into(of);
            }
        }
        if !matches!(result, Err(CallError::Tool { .. } | CallError::Trap { .. })) {
            return noted.denials;
        }
        let mut missing = requests.missing(granted);
        while !noted.denials.is_full()
            && let Some(wish) = missing.next()
        {
            let missing = wish.denial(module);
            let mut kept = noted.denials.kept.iter();
            if !kept.any(|denial| denial.rule == missing.rule) {
                noted.denials.push(missing);
            }
        }
        // They are counted, and not put into words.
        let more = u64::try_from(missing.count()).unwrap_or(u64::MAX);
        noted.denials.dropped = noted.denials.dropped.saturating_add(more);
        let told = |noted: &Noted, kind| {
            let mut kept = noted.denials.kept.iter();
            kept.any(|denial| denial.capability == Some(kind))
        };
        if noted.found_no_directory && !told(&noted, Capability::Directories) {
            noted.denials.push(Denial {
                asked: "files: it looked for its directories, and has none".into(),
                rule: flags_of(module, "--with-dir DIR:/data".into()),
                is_refused: false,
                capability: Some(Capability::Directories),
            });
        }
        if noted.found_no_variable && !told(&noted, Capability::Environment) {
            noted.denials.push(Denial {
                asked: "variables: it looked for them, and has none".into(),
                rule: flags_of(module, "--with-env NAME=VALUE".into()),
                is_refused: false,
                capability: Some(Capability::Environment),
            });
        }
        noted.denials
    }
}

/// Whether a path leads out of the directory that it begins in, by its own words.
fn leads_out(path: &str) -> bool {
    let mut depth = 0_i64;
    let mut is_out = path.starts_with('/');
    for part in path.split('/') {
        depth += match part {
            "" | "." => 0,
            ".." => -1,
            _ => 1,
        };
        is_out |= depth < 0;
    }
    is_out
}

/// The flags that would allow it; the module is filled in when the call has ended.
fn flags(flags: String) -> AllowingRule {
    flags_of("", flags)
}

fn flags_of(module: &str, flags: String) -> AllowingRule {
    AllowingRule::Grant {
        module: module.to_owned(),
        flags: flags.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_policy::Manifest;

    /// The lines of one call that was refused this.
    fn lines(log: DenialLog) -> Vec<String> {
        let done: Result<(), CallError> = Ok(());
        let denials = log.ended("m", &done, &Requests::default(), &Grant::default());
        denials.kept.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_cause_of_a_refused_file_is_told_by_its_path() {
        let out = "leads out of the directory; grant the directory";
        let system = "the system did not permit it (another owner";
        let rights = "--with-dir DIR:/data:rw";
        for (wish, path, is_read_only, expect) in [
            (FileUse::Read, Some("../a"), true, out),
            (FileUse::Read, Some("a/../../b"), false, out),
            (FileUse::Read, Some("/etc/passwd"), false, out),
            // More rights in the directory would not help.
            (FileUse::Write, Some("../a"), true, out),
            (FileUse::Write, Some("a/../b"), true, rights),
            (FileUse::Write, None, true, rights),
            (FileUse::Write, Some("a/../b"), false, system),
            (FileUse::Write, None, false, system),
            (FileUse::Read, Some("link"), true, system),
        ] {
            let log = DenialLog::default();
            log.file(wish, path, "/data", is_read_only);
            let lines = lines(log);
            assert!(
                matches!(lines.as_slice(), [line] if line.contains(expect)),
                "{wish:?} {path:?}: {lines:?}"
            );
            let is_wider = lines[0].contains("--with-dir");
            assert_eq!(is_wider, expect != system, "{lines:?}");
        }
    }

    #[test]
    fn wishes_that_are_not_told_are_counted() {
        let wishes: Vec<String> = (0..2_500)
            .map(|number| format!("[[grants.environment]]\nname = \"V{number}\"\n"))
            .collect();
        let manifest = Manifest::parse(&wishes.concat()).unwrap();
        let failed: Result<(), _> = Err(CallError::Trap { reason: "t".into() });
        let grant = Grant::default();
        let denials = DenialLog::default().ended("m", &failed, &manifest.grants, &grant);
        assert_eq!((denials.kept.len(), denials.dropped), (16, 2_484));
    }
}
