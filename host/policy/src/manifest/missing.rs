//! What a module asks for and was not given, with the flags of `toolhold modules grant` that give it.

use super::{
    DirectoryRequest, EnvironmentRequest, Requests, ScratchRequest, SecretRequest, ToolRequest,
};
use crate::call::{AllowingRule, Denial};
use crate::egress::HttpGrant;
use crate::grant::{Access, Capability, CollectionGrant, Grant, Keep, MemoryRight, MemoryScope};
use crate::secret::SecretPlace;
use crate::text::shell_word;

/// A wish of a module that its grant does not fulfil. It is put into words only if it is told: a module may have
/// thousands of wishes, and each of its calls may fail.
#[derive(Debug, Clone, Copy)]
pub enum UnfulfilledRequest<'a> {
    Directory(&'a DirectoryRequest),
    Scratch(&'a ScratchRequest),
    Variable(&'a EnvironmentRequest),
    Http(&'a HttpGrant),
    Secret(&'a SecretRequest),
    KeyValue,
    Collection(&'a CollectionGrant),
    /// A scope with the right that is missing.
    Memory(MemoryScope, MemoryRight),
    Tool(&'a ToolRequest),
}

impl Requests {
    /// What is asked for and `grant` does not give.
    pub fn missing<'a>(
        &'a self,
        grant: &'a Grant,
    ) -> impl Iterator<Item = UnfulfilledRequest<'a>> + use<'a> {
        use UnfulfilledRequest::{
            Collection, Directory, Http, KeyValue, Memory, Scratch, Secret, Tool, Variable,
        };
        let directories = self.directories.iter().filter(|wish| {
            let is_enough = |access| access == Access::ReadWrite || wish.access == Access::Read;
            let mut given = grant.directories.iter();
            !given.any(|given| given.guest == wish.guest && is_enough(given.access))
        });
        let scratch = self.scratch.as_ref().filter(|_| grant.scratch.is_none());
        let variables = self.environment.iter();
        let variables = variables.filter(|wish| !grant.environment.contains_key(&wish.name));
        let is_covered = |wish: &HttpGrant| grant.http.iter().any(|given| given.covers(wish));
        let http = self.http.iter().filter(move |wish| !is_covered(wish));
        let secrets = self.secrets.iter().filter(|wish| {
            let mut given = grant.secrets.iter();
            !given.any(|given| given.slot().name == wish.name)
        });
        let key_value = self
            .key_value
            .as_ref()
            .filter(|_| grant.key_value.is_none());
        let known = grant.knowledge.as_ref();
        let collections = self.knowledge.iter().flat_map(|wish| &wish.collections);
        let collections =
            collections.filter(move |wish| !known.is_some_and(|given| given.covers(wish)));
        let facts = self.knowledge.iter().flat_map(move |wish| {
            let scopes = MemoryScope::ALL.iter().copied();
            scopes.flat_map(move |scope| {
                let rights = wish.memory.of(scope).iter().copied();
                let missing = rights.filter(move |right| {
                    !known.is_some_and(|given| given.memory.of(scope).contains(right))
                });
                missing.map(move |right| (scope, right))
            })
        });
        let tools = self.tools.iter().filter(|wish| {
            let module = wish.name.split(['.', '@']).next().unwrap_or_default();
            let mut given = grant.tools.iter();
            !given.any(|given| *given == wish.name || given == module)
        });
        (directories.map(Directory))
            .chain(scratch.map(Scratch))
            .chain(variables.map(Variable))
            .chain(http.map(Http))
            .chain(secrets.map(Secret))
            .chain(key_value.map(|_| KeyValue))
            .chain(collections.map(Collection))
            .chain(facts.map(|(scope, right)| Memory(scope, right)))
            .chain(tools.map(Tool))
    }
}

impl UnfulfilledRequest<'_> {
    /// In words, for `module`.
    pub fn denial(self, module: &str) -> Denial {
        let (capability, asked, flags) = match self {
            Self::Directory(wish) => {
                let (to, mode) = match wish.access {
                    Access::Read => ("read", ""),
                    Access::ReadWrite => ("read and write", ":rw"),
                };
                let word = shell_word(&format!("DIR:{}{mode}", wish.guest));
                (
                    Capability::Directories,
                    format!("to {to} a directory as {:?}", wish.guest),
                    Some(format!("--with-dir {word}")),
                )
            }
            Self::Scratch(wish) => {
                let keep = match wish.keep {
                    Keep::Call => "",
                    Keep::Session => " --keep",
                };
                (
                    Capability::Scratch,
                    format!("scratch files in {:?}", wish.guest),
                    Some(format!("--scratch{keep}")),
                )
            }
            Self::Variable(wish) => {
                let word = shell_word(&format!("{}=VALUE", wish.name));
                (
                    Capability::Environment,
                    format!("the variable {:?}", wish.name),
                    Some(format!("--with-env {word}")),
                )
            }
            Self::Http(wish) => {
                let sentence = wish.to_string();
                let to = sentence.strip_prefix("may ").unwrap_or(&sentence);
                (Capability::Http, format!("to {to}"), Some(asking(wish)))
            }
            Self::Secret(SecretRequest {
                name,
                origin,
                place,
                ..
            }) => {
                let flags = match place {
                    SecretPlace::Header {
                        name: header,
                        format: None,
                    } => {
                        let word = shell_word(&format!("{name}=VARIABLE {origin} {header}"));
                        Some(format!("--with-secret {word}"))
                    }
                    _ => None,
                };
                let asked = format!("the secret {name:?} for {origin}");
                (Capability::Secrets, asked, flags)
            }
            Self::KeyValue => (
                Capability::KeyValue,
                "to keep keys and values".into(),
                Some("--key-value".into()),
            ),
            Self::Collection(wish) => {
                let rights: Vec<_> = wish.rights.iter().map(|right| right.name()).collect();
                let word = shell_word(&format!("{}:{}", wish.name, rights.join(",")));
                (
                    Capability::Knowledge,
                    format!("to {} the collection {:?}", wish.told(), wish.name),
                    Some(format!("--with-collection {word}")),
                )
            }
            Self::Memory(scope, right) => (
                Capability::Knowledge,
                format!("to {} facts of the {}", right.name(), scope.name()),
                Some(format!("--with-memory {}:{}", scope.name(), right.name())),
            ),
            Self::Tool(wish) => (
                Capability::Tools,
                format!("to call {:?}", wish.name),
                Some(format!("--with-tool {}", shell_word(&wish.name))),
            ),
        };
        let no_flags = AllowingRule::None(
            "only the configuration can put a secret there (secrets, under [module.NAME])",
        );
        Denial {
            asked: format!("{asked}, which its module.toml asks for").into(),
            rule: flags.map_or(no_flags, |flags| AllowingRule::Grant {
                module: module.to_owned(),
                flags: flags.into(),
            }),
            is_refused: false,
            capability: Some(capability),
        }
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
    use crate::manifest::KnowledgeRequest;
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
            [grants.knowledge]
            collections = [{ name = "*", rights = ["search"] }]
            memory = { user = ["recall"] }
            [[grants.tools]]
            name = "text.count; true"
            "#,
        )
        .unwrap();
        let lines = |grant: &Grant| -> Vec<String> {
            let missing = manifest.grants.missing(grant);
            missing
                .map(|wish| wish.denial("m").rule.to_string())
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
            command("--with-collection '*:search'"),
            command("--with-memory user:recall"),
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
            knowledge: manifest
                .grants
                .knowledge
                .as_ref()
                .map(KnowledgeRequest::grant),
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
