//! The templates' schemas follow the types of their source, and a failure names its place.

use super::{answered, edited};
use serde_json::{Value, json};
use support::host::Host;
use toolhold_needs::has_program;

/// One more parameter in the source, and no word of a schema: the tool has it. With that parameter it fails on
/// purpose, and `failure` is in what the caller is told: the place.
fn schema_follows_the_types(
    language: &str,
    needs: &str,
    source: &str,
    edits: &[(&str, &str)],
    failure: &str,
) {
    let host = Host::new();
    let Some(built) = edited(&host, language, needs, source, edits) else {
        return;
    };
    assert_eq!(built.code, Some(0), "{built:?}");
    let told = host.run(&["modules", "inspect", "words", "--json"]);
    let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
    let input = &told["tools"][0]["input_schema"];
    let prefix = &input["properties"]["prefix"];
    assert_eq!(
        prefix["description"], "Only words that begin so.",
        "{language}: {input}"
    );
    assert!(prefix["type"].to_string().contains("\"string\""), "{input}");
    assert_eq!(input["properties"]["top"]["maximum"], 1000, "{input}");
    assert_eq!(input["required"], json!(["text"]), "{input}");
    assert_eq!(input["additionalProperties"], false, "{input}");
    let output = &told["tools"][0]["output_schema"];
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
    assert!(failed.stderr.contains(failure), "{failed:?}");
}

#[test]
fn a_schema_follows_the_types_in_c() {
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
    let failure = "instruction executed\n  │   at word_frequency (module.c:";
    schema_follows_the_types("c", "python3", "module.c", &edits, failure);
}

#[test]
fn a_schema_follows_the_types_in_go() {
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
    let failure = "word_frequency panicked: x (words/main.go:";
    schema_follows_the_types("go", "python3", "main.go", &edits, failure);
}

#[test]
fn a_schema_follows_the_types_in_python() {
    let edits = [
        (
            "    top: Annotated",
            "    prefix: Annotated[str, \"Only words that begin so.\"] = \"\",\n    top: Annotated",
        ),
        (
            "    counts = Counter(",
            "    if prefix:\n        raise ValueError(prefix)\n    counts = Counter(",
        ),
    ];
    let failure = "word_frequency raised ValueError: x (app.py, line ";
    schema_follows_the_types("python", "python3", "app.py", &edits, failure);
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
const SCRIPTS_FAILURE: &str = "word_frequency threw RangeError: x (at run (";

#[test]
fn a_schema_follows_the_types_in_javascript() {
    // What is thrown and is no error is told too.
    let [schema, (run, _)] = IN_SCRIPTS;
    let throwing = "  run({ text, top = 10, prefix }) {\n    if (prefix) throw `no ${prefix}`;\n";
    let edits = [schema, (run, throwing)];
    let failure = "word_frequency threw no x";
    schema_follows_the_types("js", "npm", "module.js", &edits, failure);
}

#[test]
fn a_schema_follows_the_types_in_typescript() {
    schema_follows_the_types("ts", "npm", "module.ts", &IN_SCRIPTS, SCRIPTS_FAILURE);
}

/// A module of types that are less usual than a template's (`unusual/`): its schemas, and a call that goes through them.
fn schemas_of_unusual_types(language: &str, needs: &str, sources: &[(&str, &str)], expected: &str) {
    if !has_program(needs, &format!("no {language} is built")) {
        return;
    }
    let host = Host::new();
    let made = host.run(&["new-module", "words", "--lang", language]);
    assert_eq!(made.code, Some(0), "{made:?}");
    for (name, text) in sources {
        host.write(&format!("modules/words/{name}"), text);
    }
    let Some(built) = answered("build", || host.run(&["build", "words"])) else {
        return;
    };
    assert_eq!(built.code, Some(0), "{built:?}");
    let expected: Value = serde_json::from_str(expected).expect("JSON");
    let told = host.run(&["modules", "inspect", "words", "--json"]);
    let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
    let tool = &told["tools"][0];
    assert_eq!(tool["input_schema"], expected["input"], "{language}");
    assert_eq!(tool["output_schema"], expected["output"], "{language}");
    let arguments = expected["arguments"].to_string();
    let called = host.run(&["modules", "call", "words.add", &arguments]);
    assert_eq!(called.code, Some(0), "{called:?}");
    let gives: Value = serde_json::from_str(&called.stdout).expect("JSON");
    assert_eq!(gives, expected["gives"], "{language}");
}

#[test]
fn unusual_types_have_their_schemas_in_c() {
    let sources = [("module.c", include_str!("unusual/module.c"))];
    schemas_of_unusual_types("c", "python3", &sources, include_str!("unusual/c.json"));
}

#[test]
fn unusual_types_have_their_schemas_in_go() {
    let sources = [("main.go", include_str!("unusual/main.go"))];
    schemas_of_unusual_types("go", "python3", &sources, include_str!("unusual/go.json"));
}

#[test]
fn unusual_types_have_their_schemas_in_python() {
    let sources = [("app.py", include_str!("unusual/app.py"))];
    let expected = include_str!("unusual/python.json");
    schemas_of_unusual_types("python", "python3", &sources, expected);
}

#[test]
fn unusual_types_have_their_schemas_in_typescript() {
    let sources = [
        ("module.ts", include_str!("unusual/module.ts")),
        ("rows.ts", include_str!("unusual/rows.ts")),
    ];
    let expected = include_str!("unusual/typescript.json");
    schemas_of_unusual_types("ts", "npm", &sources, expected);
}
