//! What is said of a typed function, by the best source that says anything.

use super::signature::signature;
use crate::docs::{Docs, ExampleDocs, FunctionDocs, Glossary, package, section, wit};
use crate::module::examples::MAX_EXAMPLES;
use crate::value::schema;
use crate::value::shape::{Shape, ShapeMember};
use std::collections::BTreeMap;
use toolhold_policy::manifest::ToolTexts;
use toolhold_policy::text;
use toolhold_policy::{Annotations, Claims, DocsSource, Example, ToolSpec};

/// As for tools that describe themselves, in `world`.
const MAX_DESCRIPTION_CHARS: usize = 4_000;
const MAX_TITLE_CHARS: usize = 100;
const MAX_EXAMPLE_TEXT_CHARS: usize = 500;
const MAX_EXAMPLE_BYTES: usize = 4 << 10;
const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// Interfaces that docs may be of: each function looks for its own among them.
const MAX_INTERFACES: usize = 1_000;

/// A function as its types have it.
pub(crate) struct Signature<'a> {
    pub interface: Option<&'a str>,
    pub function: &'a str,
    pub params: &'a [ShapeMember],
    pub result: Option<&'a Shape>,
}

/// All that was said about one component.
pub(crate) struct CombinedDocs {
    /// Best first. `module.toml` has its place before `package-docs`.
    written: Vec<(DocsSource, Docs)>,
    manifest: BTreeMap<String, ToolTexts>,
    /// What could not be read.
    pub notes: Vec<String>,
}

impl CombinedDocs {
    /// Reads what is in the component's custom sections and in the `.wit` files beside it. Whatever
    /// is wrong with one of them becomes a note.
    pub fn read(
        component: &[u8],
        packages: &[wit::WitPackage],
        manifest: BTreeMap<String, ToolTexts>,
    ) -> Self {
        let mut notes = Vec::new();
        let mut written = Vec::new();
        let mut custom = |name, parse: fn(&[u8]) -> Result<Docs, String>| {
            let parsed = section::find(component, name).map(parse);
            parsed.and_then(|parsed| {
                let noted = |error: String| {
                    let error = text::visible(&error, 300);
                    notes.push(format!(
                        "the component's section {name} is not read: {error}"
                    ));
                };
                parsed.map_err(noted).ok()
            })
        };
        let ours = custom(section::NAME, section::parse);
        let theirs = custom(package::NAME, package::parse);
        written.extend(ours.map(|docs| (DocsSource::Section, docs)));
        if !packages.is_empty() {
            written.push((DocsSource::Wit, wit::read_all(packages, &mut notes)));
        }
        written.extend(theirs.map(|docs| (DocsSource::PackageDocs, docs)));
        written.retain(|(_, docs)| {
            let fits = docs.exports.len() <= MAX_INTERFACES;
            if !fits {
                notes.push(format!(
                    "docs of more than {MAX_INTERFACES} interfaces are not read"
                ));
            }
            fits
        });
        Self {
            written,
            manifest,
            notes,
        }
    }

    /// The tool that the function becomes under the name `module.local`.
    pub fn tool(&self, module: &str, local: &str, of: &Signature<'_>) -> Result<ToolSpec, String> {
        let known: Vec<_> = self
            .written
            .iter()
            .filter_map(|(source, docs)| {
                Some((*source, docs, docs.function(of.interface, of.function)?))
            })
            .collect();
        let types = known
            .iter()
            .map(|(_, docs, function)| (*docs, *function))
            .find(|(_, f)| !f.parameters.is_empty() || !f.result.is_plain());
        let (input_schema, output_schema) = schemas(of, types)?;
        let (description, docs_source) = self.description(local, &known).unwrap_or_else(|| {
            let signature = signature(of.function, of.params, of.result, types);
            let origin = of.interface.map_or(String::new(), |i| format!(", of {i}"));
            (format!("{signature}{origin}"), DocsSource::Signature)
        });
        let own = self.manifest.get(local);
        let claims = known
            .iter()
            .fold(Claims::default(), |claims, (_, _, f)| {
                claims.or(f.annotations)
            })
            .or(own.map_or(Claims::default(), ToolTexts::claims));
        let title = known.iter().find_map(|(_, _, f)| f.title.as_deref());
        Ok(ToolSpec {
            name: text::tool_name(module, local)?,
            title: title
                .or(own.and_then(|own| Some(own.title.as_ref()?.raw())))
                .map(|title| text::visible(title, MAX_TITLE_CHARS).into()),
            description: description.into(),
            input_schema,
            output_schema,
            annotations: Annotations {
                read_only: claims.read_only.unwrap_or_default(),
                idempotent: claims.idempotent.unwrap_or_default(),
                destructive: claims.destructive.unwrap_or_default(),
                open_world: claims.open_world.unwrap_or_default(),
            },
            examples: examples(known.iter().map(|(_, _, f)| f.examples.as_slice())),
            docs_source,
        })
    }

    fn description(
        &self,
        local: &str,
        known: &[(DocsSource, &Docs, &FunctionDocs)],
    ) -> Option<(String, DocsSource)> {
        let of = |wanted: DocsSource| {
            let found = known.iter().find(|(source, _, _)| *source == wanted);
            found.and_then(|(_, _, function)| function.description.as_deref())
        };
        let own = || Some(self.manifest.get(local)?.description.as_ref()?.raw());
        [
            (of(DocsSource::Section), DocsSource::Section),
            (of(DocsSource::Wit), DocsSource::Wit),
            (own(), DocsSource::Manifest),
            (of(DocsSource::PackageDocs), DocsSource::PackageDocs),
        ]
        .into_iter()
        .find_map(|(text, source)| {
            let text = text::description(text?.trim(), MAX_DESCRIPTION_CHARS);
            (!text.trim().is_empty()).then_some((text, source))
        })
    }

    /// What could not be read, and what `module.toml` says of tools that are not there.
    pub fn into_notes<'a>(self, tools: impl Iterator<Item = &'a String>) -> Vec<String> {
        let tools: Vec<_> = tools.collect();
        let mut notes = self.notes;
        let unknown = self.manifest.keys().filter(|name| !tools.contains(name));
        notes.extend(unknown.map(|name| {
            let name = text::visible(name, 64);
            format!("module.toml describes the tool {name:?}, which the component does not have")
        }));
        notes
    }
}

/// Input and output schema, with the docs of types unless that makes them too large.
fn schemas(
    of: &Signature<'_>,
    docs: Option<(&Docs, &FunctionDocs)>,
) -> Result<(serde_json::Value, Option<serde_json::Value>), String> {
    let make = |docs: Option<(&Docs, &FunctionDocs)>| {
        let input = schema::documented_parameters(of.params, docs);
        let glossary = docs.map_or(Glossary::EMPTY, |(d, f)| Glossary::new(d, &f.result));
        let output = match of.result {
            // The error side becomes a tool error, so the model only ever sees the ok side.
            Some(Shape::Result(ok, _)) => ok.as_deref().map(|ok| {
                let entry = glossary.entry();
                schema::documented(ok, glossary.child(&entry, 0))
            }),
            Some(shape) => Some(schema::documented(shape, glossary)),
            None => None,
        };
        (input, output)
    };
    let fits = |(input, output): &(serde_json::Value, Option<serde_json::Value>)| {
        let output = output.as_ref().map_or(0, |o| o.to_string().len());
        input.to_string().len().max(output) <= MAX_SCHEMA_BYTES
    };
    [docs, None]
        .into_iter()
        .map(make)
        .find(fits)
        .ok_or_else(|| format!("its schema has more than {MAX_SCHEMA_BYTES} bytes"))
}

/// The examples of the first source that has any.
fn examples<'a>(mut sources: impl Iterator<Item = &'a [ExampleDocs]>) -> Vec<Example> {
    let found = sources.find(|examples| !examples.is_empty());
    let small = |value: &serde_json::Value| value.to_string().len() <= MAX_EXAMPLE_BYTES;
    let examples = found.unwrap_or_default().iter();
    examples
        .filter(|example| small(&example.arguments) && small(&example.output))
        .take(MAX_EXAMPLES)
        .map(|example| Example {
            task: text::visible(&example.task, MAX_EXAMPLE_TEXT_CHARS),
            arguments: text::visible_json(example.arguments.clone()),
            output: text::visible_json(example.output.clone()),
            answer: text::visible(&example.answer, MAX_EXAMPLE_TEXT_CHARS),
        })
        .collect()
}
