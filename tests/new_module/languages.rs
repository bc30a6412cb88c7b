//! Templates of each language: the README is followed, the schema follows the types of the source, and a failure names
//! its place. All in one folder, because what an edit leaves as it was is not compiled again there.

use super::{answered, edited, readme_is_followed, template};
use serde_json::{Value, json};
use support::host::Host;

/// Edits of the template, by which its tool has one more parameter. No word of a schema is among them. With that
/// parameter the tool fails on purpose, and `failure` is in what the caller is told: the place.
struct TypeEdits<'a> {
    source: &'a str,
    edits: &'a [(&'a str, &'a str)],
    failure: &'a str,
}

/// The README's commands have pinned what the template was.
fn approve(host: &Host) {
    let approved = host.run(&["modules", "approve", "words", "--yes"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
}

/// The tool of this name in what `inspect` tells.
fn tool_named<'a>(told: &'a Value, name: &str) -> &'a Value {
    let full = format!("words.{name}");
    let tools = told["tools"].as_array().into_iter().flatten();
    let mut found = tools.filter(|tool| tool["name"] == name || tool["name"] == full.as_str());
    found.next().unwrap_or_else(|| panic!("no {name}: {told}"))
}

fn schema_follows_the_types(host: &Host, language: &str, types: &TypeEdits) -> Option<()> {
    let built = edited(host, types.source, types.edits)?;
    assert_eq!(built.code, Some(0), "{built:?}");
    approve(host);
    let told = host.run(&["modules", "inspect", "words", "--json"]);
    let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
    let tool = tool_named(&told, "word_frequency");
    let input = &tool["input_schema"];
    let prefix = &input["properties"]["prefix"];
    assert_eq!(
        prefix["description"], "Only words that begin so.",
        "{language}: {input}"
    );
    assert!(prefix["type"].to_string().contains("\"string\""), "{input}");
    assert_eq!(input["properties"]["top"]["maximum"], 1000, "{input}");
    assert_eq!(input["required"], json!(["text"]), "{input}");
    assert_eq!(input["additionalProperties"], false, "{input}");
    let output = &tool["output_schema"];
    assert_eq!(output["required"], json!(["words", "distinct"]), "{output}");
    let word = "/properties/words/items/properties/word/type";
    assert_eq!(output.pointer(word), Some(&json!("string")), "{output}");
    // It is checked as any other.
    let refused = host.run(&[
        "modules",
        "call",
        "words.word_frequency",
        r#"{"text":"a","prefix":1}"#,
    ]);
    assert_eq!(refused.code, Some(5), "{refused:?}");
    assert!(refused.stderr.contains("/prefix"), "{refused:?}");
    let failed = host.run(&[
        "modules",
        "call",
        "words.word_frequency",
        r#"{"text":"a","prefix":"x"}"#,
    ]);
    assert_eq!(failed.code, Some(5), "{failed:?}");
    assert!(failed.stderr.contains(types.failure), "{failed:?}");
    Some(())
}

/// A module of types that are less usual than a template's (`unusual/`): its schemas, and a call that goes through them.
struct UnusualTypes<'a> {
    sources: &'a [(&'a str, &'a str)],
    expected: &'a str,
    /// Whether the edits of the template import these sources, so that its component has this tool, too: each
    /// interpreter of Python costs 25 s of a processor to be built and compiled.
    is_imported: bool,
}

impl UnusualTypes<'_> {
    fn write(&self, host: &Host) {
        for (name, text) in self.sources {
            host.write(&format!("modules/words/{name}"), text);
        }
    }
}

fn schemas_of_unusual_types(host: &Host, language: &str, types: &UnusualTypes) -> Option<()> {
    if !types.is_imported {
        types.write(host);
        let built = answered("build", || host.run(&["build", "words"]))?;
        assert_eq!(built.code, Some(0), "{built:?}");
        approve(host);
    }
    let expected: Value = serde_json::from_str(types.expected).expect("JSON");
    let told = host.run(&["modules", "inspect", "words", "--json"]);
    let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
    let tool = tool_named(&told, "add");
    assert_eq!(tool["input_schema"], expected["input"], "{language}");
    assert_eq!(tool["output_schema"], expected["output"], "{language}");
    let arguments = expected["arguments"].to_string();
    let called = host.run(&["modules", "call", "words.add", &arguments]);
    assert_eq!(called.code, Some(0), "{called:?}");
    let gives: Value = serde_json::from_str(&called.stdout).expect("JSON");
    assert_eq!(gives, expected["gives"], "{language}");
    Some(())
}

/// None where the rest could not be tried, which is on the list of what was left out.
fn goes_through(
    language: &str,
    needs: &[&str],
    types: &TypeEdits,
    unusual: Option<&UnusualTypes>,
) -> Option<()> {
    let host = template(language, needs)?;
    readme_is_followed(&host, language)?;
    if let Some(imported) = unusual.filter(|unusual| unusual.is_imported) {
        imported.write(&host);
    }
    schema_follows_the_types(&host, language, types)?;
    unusual.map_or(Some(()), |unusual| {
        schemas_of_unusual_types(&host, language, unusual)
    })
}

#[test]
fn a_module_in_c() {
    let edits = [
        (
            "  int64_t top;\n} arguments;",
            "  int64_t top;\n  toolhold_text prefix;\n} arguments;",
        ),
        (
            "    TOOLHOLD_FIELD(arguments, top,",
            "    TOOLHOLD_FIELD(arguments, prefix, .is_optional = true, .description = \"Only words that begin so.\"),\n    \
             TOOLHOLD_FIELD(arguments, top,",
        ),
        (
            "  toolhold_text text = asked->text;\n",
            "  toolhold_text text = asked->text;\n  if (asked->prefix.bytes) __builtin_trap();\n",
        ),
    ];

    let types = TypeEdits {
        source: "module.c",
        edits: &edits,
        failure: "instruction executed\n  │   at word_frequency (module.c:",
    };
    let unusual = UnusualTypes {
        sources: &[("module.c", include_str!("unusual/module.c"))],
        expected: include_str!("unusual/c.json"),
        is_imported: false,
    };
    goes_through("c", &["python3"], &types, Some(&unusual));
}

#[test]
fn a_module_in_go() {
    let edits = [
        (
            "\tTop  *int ",
            "\tPrefix *string `json:\"prefix\" description:\"Only words that begin so.\"`\n\tTop  *int ",
        ),
        (
            "\ttop := 10\n",
            "\ttop := 10\n\tif arguments.Prefix != nil {\n\t\tpanic(*arguments.Prefix)\n\t}\n",
        ),
    ];

    let types = TypeEdits {
        source: "main.go",
        edits: &edits,
        failure: "word_frequency panicked: x (words/main.go:",
    };
    let unusual = UnusualTypes {
        sources: &[("main.go", include_str!("unusual/main.go"))],
        expected: include_str!("unusual/go.json"),
        is_imported: false,
    };
    goes_through("go", &["python3"], &types, Some(&unusual));
}

#[test]
fn a_module_in_python() {
    let edits = [
        (
            "    top: Annotated",
            "    prefix: Annotated[str, \"Only words that begin so.\"] = \"\",\n    top: Annotated",
        ),
        (
            "    counts = Counter(",
            "    if prefix:\n        raise ValueError(prefix)\n    counts = Counter(",
        ),
        ("import re\n", "import re\n\nimport unusual\n"),
    ];

    let types = TypeEdits {
        source: "app.py",
        edits: &edits,
        failure: "word_frequency raised ValueError: x (app.py, line ",
    };
    let unusual = UnusualTypes {
        sources: &[("unusual.py", include_str!("unusual/unusual.py"))],
        expected: include_str!("unusual/python.json"),
        is_imported: true,
    };
    goes_through("python", &["python3"], &types, Some(&unusual));
}

/// The edits of JavaScript and of TypeScript.
const IN_SCRIPTS: [(&str, &str); 2] = [
    (
        "    top: optional(",
        "    prefix: optional(string(\"Only words that begin so.\")),\n    top: optional(",
    ),
    (
        "  run({ text, top = 10 }) {\n",
        "  run({ text, top = 10, prefix }) {\n    if (prefix) throw new RangeError(prefix);\n",
    ),
];

#[test]
fn a_module_in_javascript() {
    // What is thrown and is no error is told too.
    let [schema, (run, _)] = IN_SCRIPTS;
    let throwing = "  run({ text, top = 10, prefix }) {\n    if (prefix) throw `no ${prefix}`;\n";
    let types = TypeEdits {
        source: "module.js",
        edits: &[schema, (run, throwing)],
        failure: "word_frequency threw no x",
    };
    goes_through("js", &["node", "npm"], &types, None);
}

#[test]
fn a_module_in_typescript() {
    let types = TypeEdits {
        source: "module.ts",
        edits: &IN_SCRIPTS,
        failure: "word_frequency threw RangeError: x (at run (",
    };
    let unusual = UnusualTypes {
        sources: &[
            ("module.ts", include_str!("unusual/module.ts")),
            ("rows.ts", include_str!("unusual/rows.ts")),
        ],
        expected: include_str!("unusual/typescript.json"),
        is_imported: false,
    };
    goes_through("typescript", &["node", "npm"], &types, Some(&unusual));
}
