//! What a module asks for and was not given, with the flags of `toolhold modules grant` that give it.

use super::Requests;
use crate::call::{AllowingRule, Denial};
use crate::egress::HttpGrant;
use crate::grant::{Access, Capability, Grant, Keep};
use crate::secret::SecretPlace;
use crate::text::shell_word;

impl Requests {
    /// What is asked for and `grant` does not give, for `module`.
    pub fn missing(&self, module: &str, grant: &Grant) -> Vec<Denial> {
        let mut missing = Vec::new();
        let mut add = |capability, asked: String, rule| {
            missing.push(Denial {
                asked: format!("{asked}, which its module.toml asks for").into(),
                rule,
                is_refused: false,
                capability: Some(capability),
            });
        };
        let flags = |flags: String| AllowingRule::Grant {
            module: module.to_owned(),
            flags: flags.into(),
        };
        for wish in &self.directories {
            let mut given = grant.directories.iter();
            let is_enough = |access| access == Access::ReadWrite || wish.access == Access::Read;
            if given.any(|given| given.guest == wish.guest && is_enough(given.access)) {
                continue;
            }
            let (to, mode) = match wish.access {
                Access::Read => ("read", ""),
                Access::ReadWrite => ("read and write", ":rw"),
            };
            let word = shell_word(&format!("DIR:{}{mode}", wish.guest));
            add(
                Capability::Directories,
                format!("to {to} a directory as {:?}", wish.guest),
                flags(format!("--with-dir {word}")),
            );
        }
        if let Some(wish) = self.scratch.as_ref().filter(|_| grant.scratch.is_none()) {
            let keep = match wish.keep {
                Keep::Call => "",
                Keep::Session => " --keep",
            };
            add(
                Capability::Scratch,
                format!("scratch files in {:?}", wish.guest),
                flags(format!("--scratch{keep}")),
            );
        }
        for wish in &self.environment {
            if !grant.environment.contains_key(&wish.name) {
                let word = shell_word(&format!("{}=VALUE", wish.name));
                add(
                    Capability::Environment,
                    format!("the variable {:?}", wish.name),
                    flags(format!("--with-env {word}")),
                );
            }
        }
        for wish in &self.http {
            if !grant.http.iter().any(|given| given.covers(wish)) {
                let sentence = wish.to_string();
                let to = sentence.strip_prefix("may ").unwrap_or(&sentence);
                add(Capability::Http, format!("to {to}"), flags(asking(wish)));
            }
        }
        for wish in &self.secrets {
            let mut given = grant.secrets.iter();
            if given.any(|given| given.slot().name == wish.name) {
                continue;
            }
            let (name, origin) = (&wish.name, &wish.origin);
            let rule = match &wish.place {
                SecretPlace::Header {
                    name: header,
                    format: None,
                } => {
                    let word = shell_word(&format!("{name}=VARIABLE {origin} {header}"));
                    flags(format!("--with-secret {word}"))
                }
                _ => AllowingRule::None(
                    "only the configuration can put a secret there (secrets, under [module.NAME])",
                ),
            };
            let asked = format!("the secret {name:?} for {origin}");
            add(Capability::Secrets, asked, rule);
        }
        if self.key_value.is_some() && grant.key_value.is_none() {
            add(
                Capability::KeyValue,
                "to keep keys and values".into(),
                flags("--key-value".into()),
            );
        }
        for wish in &self.tools {
            let module = wish.name.split(['.', '@']).next().unwrap_or_default();
            let mut given = grant.tools.iter();
            if !given.any(|given| *given == wish.name || given == module) {
                add(
                    Capability::Tools,
                    format!("to call {:?}", wish.name),
                    flags(format!("--with-tool {}", shell_word(&wish.name))),
                );
            }
        }
        missing
    }
}

/// The flags that give what `wish` asks for, without its redirects.
fn asking(wish: &HttpGrant) -> String {
    let private = if wish.is_private() { " --private" } else { "" };
    let word = shell_word(&wish.request());
    format!("--with-http {word}{private}")
}

#[cfg(test)]
mod tests {
    use crate::{Access, DirectoryGrant, Grant, KeyValueGrant, Manifest};

    #[test]
    fn what_is_missing_names_the_flags_that_give_it() {
        let manifest = Manifest::parse(
            r#"
            [[grants.directories]]
            guest = "/data"
            access = "read-write"
            [grants.scratch]
            keep = "session"
            [[grants.environment]]
            name = "TZ"
            [[grants.http]]
            origin = "http://127.0.0.1:8080"
            methods = ["GET", "POST"]
            path_prefix = "/v1"
            private = true
            [[grants.secrets]]
            name = "key"
            origin = "https://api.example.com"
            place = { header = { name = "Authorization" } }
            [[grants.secrets]]
            name = "query"
            origin = "https://api.example.com"
            place = { query = { name = "key" } }
            [grants.key_value]
            [[grants.tools]]
            name = "text.count; true"
            "#,
        )
        .unwrap();
        let lines = |grant: &Grant| -> Vec<String> {
            let missing = manifest.grants.missing("m", grant);
            missing
                .iter()
                .map(|denial| denial.rule.to_string())
                .collect()
        };
        let command = |flags: &str| format!("allowed by: toolhold modules grant m {flags}");
        let all = [
            command("--with-dir DIR:/data:rw"),
            command("--scratch --keep"),
            command("--with-env TZ=VALUE"),
            command("--with-http 'GET,POST http://127.0.0.1:8080/v1' --private"),
            command("--with-secret 'key=VARIABLE https://api.example.com Authorization'"),
            "only the configuration can put a secret there (secrets, under [module.NAME])"
                .to_owned(),
            command("--key-value"),
            command("--with-tool 'text.count; true'"),
        ];
        assert_eq!(lines(&Grant::default()), all);

        let directory = |access| DirectoryGrant {
            host: "/srv".into(),
            guest: "/data".into(),
            access,
            quota_bytes: None,
        };
        let mut some = Grant {
            directories: vec![directory(Access::Read)],
            key_value: Some(KeyValueGrant::default()),
            tools: vec!["text".into()],
            http: vec![manifest.grants.http[0].clone()],
            ..Grant::default()
        };
        assert_eq!(
            lines(&some),
            [0, 1, 2, 4, 5].map(|at: usize| all[at].clone())
        );
        some.directories = vec![directory(Access::ReadWrite)];
        assert_eq!(lines(&some), [1, 2, 4, 5].map(|at: usize| all[at].clone()));
    }
}
