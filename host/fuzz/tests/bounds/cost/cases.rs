//! Every reader of bytes from outside, with inputs that are made to cost.

use super::measure::{Bound, hold};
use super::shapes::{self, Shape};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use toolhold_agent::contract::{
    CallSearch, OfferedNames, Provenance, ReplyReader, RequestView, read_from,
};
use toolhold_json::bounded;
use toolhold_json::coerce::coerce;
use toolhold_json::grammar_subset::GrammarSubset;
use toolhold_json::repair::{TextEnd, repair};
use toolhold_json::scan::Scan;
use toolhold_json::{fragment, strict};
use toolhold_knowledge::fuzzing::found_by;
use toolhold_model::fuzzing::completion;
use toolhold_policy::{HttpGrant, Manifest, Redactor, is_name, pii, text, tool_name};
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::compose::Composition;
use toolhold_protocol::context::{Context, Message};
use toolhold_protocol::contract::Contract;
use toolhold_protocol::plan::{Graph, Plan};
use toolhold_protocol::reference::Argument;
use toolhold_protocol::saved::SavedRequest;
use toolhold_protocol::settings::Settings;
use toolhold_protocol::tool::Tool;
use toolhold_sandbox::docs::{package, section, wit};
use toolhold_sandbox::fuzzing::{FuzzedSignature, admitted};
use toolhold_sandbox::{Engine, EngineConfig, is_slot};
use toolhold_schema::Validator;

/// Memory of a JSON value for each byte of its text: the weight that `toolhold_json::bounded` counts with, and what is
/// copied while a list grows.
const VALUE: usize = 320;
/// Memory of what keeps texts.
const TEXT: usize = 24;

/// The readers: what `docs/security.md` calls each, its bound, its inputs, and the reader.
macro_rules! readers {
    ($($name:ident: $place:literal, $kib:literal KiB, $memory:expr, $budget:literal ms, [$($shapes:expr),+], $read:expr;)+) => {
        /// What `docs/security.md` calls the places that are measured here.
        pub const PLACES: &[&str] = &[$($place),+];

        $(#[test]
        fn $name() {
            let bound = Bound {
                largest: $kib << 10,
                memory: $memory,
                budget: Duration::from_millis($budget),
            };
            for shapes in [$($shapes),+] {
                hold($place, bound, shapes, $read);
            }
        })+
    };
}

readers! {
    json_text: "JSON", 256 KiB, VALUE, 0 ms, [shapes::JSON], |text| {
        drop(bounded::from_str::<Value>(text));
        drop(strict::parse(text));
    };
    mended_json: "JSON that is nearly right", 256 KiB, VALUE, 0 ms, [shapes::JSON, shapes::REPLIES], |text| {
        drop(repair(text, TextEnd::Own));
        drop(repair(text, TextEnd::Cut));
    };
    json_in_pieces: "JSON that comes in pieces", 256 KiB, VALUE, 0 ms, [shapes::JSON], |text| {
        let mut scan = Scan::new(0);
        for piece in pieces(text, 64) {
            if scan.push(piece).is_err() {
                return;
            }
        }
        drop(scan.finish());
    };
    json_in_part: "JSON that was cut, or a page of it", 256 KiB, 2 * VALUE, 0 ms, [shapes::JSON, shapes::TEXTS], |text| {
        drop(fragment::read(text));
    };
    schemas: "JSON Schemas", 64 KiB, 2_000, 2_000 ms, [shapes::SCHEMAS, shapes::JSON], |text| {
        if let Ok(schema) = serde_json::from_str(text) {
            drop(Validator::new(&schema));
        }
    };
    values: "values that are checked", 128 KiB,  2 * VALUE, 0 ms, [shapes::JSON, CHECKED], |text| {
        if let Ok(value) = serde_json::from_str(text) {
            for validator in VALIDATORS.iter() {
                drop(validator.check(&value));
            }
        }
    };
    coerced_values: "arguments that are slightly wrong", 64 KiB, 2 * VALUE, 400 ms, [shapes::JSON, CHECKED], |text| {
        if let Ok(value) = serde_json::from_str(text) {
            for schema in CHECKS.iter() {
                drop(coerce(schema, &value));
            }
        }
    };
    reduced_schemas: "schemas as grammars", 64 KiB, 2 * VALUE, 0 ms, [shapes::SCHEMAS], |text| {
        if let Ok(schema) = serde_json::from_str(text) {
            drop(GrammarSubset::new(Some(100)).reduce(&schema, "t"));
        }
    };
    component_values: "values of a component's types", 256 KiB, 2 * VALUE, 0 ms, [VALUES], |text| {
        if let Ok(value) = serde_json::from_str(text) {
            for signature in SIGNATURES.iter() {
                drop(signature.round_trip(&value, 1 << 20));
            }
        }
    };
    streams: "answers of model endpoints", 256 KiB, VALUE, 0 ms, [shapes::STREAMS, shapes::JSON], |text| {
        for bytes in [1, 64, usize::MAX] {
            drop(completion(text.as_bytes().chunks(bytes), 4 << 20, Some("text/event-stream")));
        }
        drop(completion([text.as_bytes()], 4 << 20, None));
    };
    replies: "text that a model wrote", 64 KiB, 2 * VALUE, 0 ms, [shapes::REPLIES, shapes::JSON], |text| {
        streamed(text, 64, &Provenance::default());
        whole(text, &Provenance::default());
    };
    secrets: "secrets in what comes back", 32 KiB, TEXT, 0 ms, [shapes::TEXTS, NEARLY_SECRET], |text| {
        let mut stream = REDACTOR.stream();
        for piece in text.as_bytes().chunks(64) {
            drop(stream.push(piece));
        }
        drop(stream.finish());
        drop(REDACTOR.clean(text.as_bytes()));
    };
    personal_data: "personal data in texts", 32 KiB, TEXT, 0 ms, [shapes::TEXTS], |text| {
        drop(pii::find(text, |_| true));
    };
    manifests: "manifests", 64 KiB, 600, 0 ms, [shapes::TOML], |text| {
        drop(Manifest::parse(text));
    };
    plans: "plans", 256 KiB, VALUE, 0 ms, [shapes::PLANS, shapes::JSON], |text| {
        if let Ok(value) = serde_json::from_str(text)
            && let Ok(plan) = Plan::parse(&value)
        {
            drop(Graph::new(plan.steps));
        }
    };
    references: "references", 64 KiB, 64, 0 ms, [shapes::TEXTS, REFERENCES], |text| {
        drop(Argument::parse(text));
    };
    contexts: "messages of a context", 128 KiB, 2 * VALUE, 0 ms, [shapes::CONTEXTS, shapes::JSON], |text| {
        if let Ok(value) = serde_json::from_str(text)
            && let Ok(messages) = Message::parse_all(&value)
        {
            drop(Context::new(messages));
        }
    };
    saved_requests: "saved Requests", 128 KiB, 2 * VALUE, 0 ms, [shapes::CONTEXTS], |text| {
        if let Ok(context) = serde_json::from_str::<Value>(text) {
            drop(SavedRequest::parse(&json!({"context": context})));
        }
    };
    docs_in_wit: "WIT beside a component", 128 KiB, 600, 0 ms, [shapes::WIT], |text| {
        let mut package = wit::WitPackage::default();
        package.files.push(("a.wit".into(), text.into()));
        drop(wit::read_all(&[package], &mut Vec::new()));
    };
    docs_in_components: "docs in a component", 256 KiB, VALUE, 0 ms, [shapes::JSON, SECTIONS], |text| {
        drop(package::parse(text.as_bytes()));
        drop(section::parse(text.as_bytes()));
        let component = [b"\0asm\x0d\0\x01\0", text.as_bytes()].concat();
        std::hint::black_box(section::find(&component, "docs"));
    };
    names: "names of modules and tools", 64 KiB, TEXT, 0 ms, [shapes::TEXTS], |text| {
        std::hint::black_box((is_name(text), is_slot(text), tool_name("m", text).is_ok()));
    };
    addresses: "addresses of requests", 64 KiB, TEXT, 0 ms, [shapes::TEXTS], |text| {
        if let Ok(grant) = serde_json::from_value::<HttpGrant>(json!({"origin": "https://a.example", "path_prefix": "/a"})) {
            drop(admitted(&grant, &format!("https://a.example/a/{text}")));
            drop(admitted(&grant, text));
        }
    };
    shown_texts: "texts that people read", 256 KiB, TEXT, 0 ms, [shapes::TEXTS], |text| {
        drop(text::line(text));
        drop(text::block(text, "  "));
        drop(text::visible(text, 4_000));
        drop(text::json(text));
    };
    documents: "documents of collections", 64 KiB, 64, 1_000 ms, [DOCUMENTS], |text| {
        std::hint::black_box(found_by(text));
    };
    mcp_messages: "messages of MCP", 256 KiB, VALUE, 0 ms, [shapes::MESSAGES, shapes::JSON], |text| {
        toolhold_mcp::fuzzing::of_client(text.as_bytes());
        toolhold_mcp::fuzzing::of_server(text.as_bytes());
    };
    mcp_tools: "tools that an MCP server lists", 64 KiB, 2_000, 2_000 ms, [LISTED, shapes::JSON], |text| {
        if let Ok(Value::Array(tools)) = serde_json::from_str(text) {
            toolhold_mcp::fuzzing::listed(tools);
        }
    };
}

/// What a splitter of texts and of Markdown may find dear.
const DOCUMENTS: &[Shape] = &[
    ("one letter", |n| "a".repeat(n)),
    ("quotes in each other", |n| format!("{}a", ">".repeat(n))),
    ("lists in each other", |n| "- ".repeat(n / 2)),
    ("emphasis that does not end", |n| "*a ".repeat(n / 3)),
    ("emphasis of all kinds", |n| "*_**__a".repeat(n / 7)),
    ("links that do not end", |n| "[".repeat(n)),
    ("images in each other", |n| "![a](".repeat(n / 5)),
    ("code that does not end", |n| {
        shapes::many(n, "", "`#", " ", "")
    }),
    ("fences", |n| "```\n".repeat(n / 4)),
    ("headings", |n| shapes::many(n, "", "# h#", "\n", "")),
    ("one long heading", |n| format!("# {}", "a ".repeat(n / 2))),
    ("tables", |n| {
        format!("|a|b|\n|-|-|\n{}", "|a|b|\n".repeat(n / 6))
    }),
    ("a wide table", |n| {
        format!("{}\n{}\n", "|a".repeat(n / 4), "|-".repeat(n / 4))
    }),
    ("references", |n| shapes::many(n, "", "[a#]: b", "\n", "")),
    ("rules", |n| "---\n".repeat(n / 4)),
    ("sentences", |n| "A b. ".repeat(n / 5)),
    ("no space at all", |n| "東".repeat(n / 3)),
    ("marks on one letter", |n| {
        format!("a{}", "\u{301}".repeat(n / 2))
    }),
    ("joined pictures", |n| "\u{1F469}\u{200D}".repeat(n / 7)),
    ("flags", |n| "\u{1F1E6}".repeat(n / 4)),
    ("letters that become many", |n| "\u{FDFA} ".repeat(n / 4)),
    ("blanks", |n| " ".repeat(n)),
    ("returns", |n| "\r\n".repeat(n / 2)),
    ("lines of a letter", |n| "a\n".repeat(n / 2)),
    ("cells", |n| "a,".repeat(n / 2)),
    ("angles", |n| "<a ".repeat(n / 3)),
    ("comments that do not end", |n| "<!-- ".repeat(n / 5)),
];

/// The bound of text that a model wrote, for inputs of other sizes.
const fn replies_of(largest: usize) -> Bound {
    Bound {
        largest,
        memory: 2 * VALUE,
        budget: Duration::ZERO,
    }
}

#[test]
fn replies_in_small_pieces() {
    for shapes in [shapes::MARKS, shapes::REPLIES] {
        hold(
            "text that a model wrote, in small pieces",
            replies_of(64 << 10),
            shapes,
            |text| {
                for bytes in [1, 44] {
                    streamed(text, bytes, &Provenance::default());
                }
            },
        );
    }
}

/// The inputs are larger than those in small pieces: copies cost little, and only many large ones are found.
#[test]
fn replies_in_one_piece() {
    for shapes in [shapes::MARKS, shapes::REPLIES] {
        hold(
            "text that a model wrote, in one piece",
            replies_of(1 << 20),
            shapes,
            |text| streamed(text, usize::MAX, &Provenance::default()),
        );
    }
}

/// Marks around calls that open none, so that the search goes on.
const OPENS_NONE: &[Shape] = &[
    ("marks around calls in a sentence", |n| {
        format!("It {}", "</s> a".repeat(n / 6))
    }),
    ("a mark around calls and blanks", |n| {
        format!("It </s>{}", " ".repeat(n))
    }),
    ("beginnings of marks in a sentence", |n| {
        format!("It {}", "</s><tool_cal ".repeat(n / 14))
    }),
    ("marks of calls in a sentence", |n| {
        format!("It {}", "is <tools> ".repeat(n / 11))
    }),
    ("marks of calls before prose", |n| {
        format!("It {}", "is.\n<tools> are ".repeat(n / 16))
    }),
    ("marks of calls before many blanks", |n| {
        let blanks = " ".repeat(900);
        format!(
            "It {}",
            format!("is.\n<tools>{blanks}are so").repeat(n / 920)
        )
    }),
    ("marks of calls before long words", |n| {
        let word = "a<".repeat(450);
        format!(
            "It {}",
            format!("is.\n<tools>-{word} are so").repeat(n / 920)
        )
    }),
    ("marks of calls in one word", |n| {
        let marks = "<|plugin|>".repeat(90);
        format!("It {}", format!("is {marks} so ").repeat(n / 907))
    }),
    ("headers that are none", |n| {
        format!("It {}", "is <|start|>assistant so it is> ".repeat(n / 32))
    }),
];

/// Marks of calls are looked for in a reply that readers are shown while it comes.
#[test]
fn replies_that_are_shown_while_they_come() {
    for shapes in [OPENS_NONE, shapes::MARKS, shapes::REPLIES] {
        hold(
            "text that a model wrote, where readers are shown it",
            replies_of(64 << 10),
            shapes,
            |text| {
                for bytes in [1, 44, usize::MAX] {
                    searched(CallSearch::default(), text, bytes);
                    let names = OfferedNames::of(["weather.now", "news"]);
                    searched(CallSearch::of(names), text, bytes);
                }
            },
        );
    }
}

/// Marks of the reply are compared with the texts that the model was shown.
#[test]
fn replies_that_repeat_marks() {
    static SHOWN: LazyLock<Provenance> = LazyLock::new(|| {
        let marks = "</think> [/THINK] <|end|> </thinking> <tool_call> </tool_call>";
        Provenance::of([marks, &shapes::many(64 << 10, "", "word # ", "", "")])
    });
    hold(
        "text that a model wrote, with marks that it was shown",
        replies_of(16 << 10),
        shapes::MARKS,
        |text| whole(text, &SHOWN),
    );
}

fn tools() -> [Arc<Tool>; 2] {
    ["weather.now", "news"].map(|name| Arc::new(Tool::new(name)))
}

/// Reads a reply as it comes, in pieces of `bytes` bytes.
fn streamed(text: &str, bytes: usize, shown: &Provenance) {
    for contract in Contract::ALL {
        let mut reader = ReplyReader::new(contract, &tools());
        for piece in pieces(text, bytes) {
            drop(reader.push_from(&Delta::Content(piece.to_owned()), shown));
        }
        drop(reader.finish_from(shown));
    }
}

/// Looks for a call in a reply as it comes, in pieces of `bytes` bytes.
fn searched(mut search: CallSearch, text: &str, bytes: usize) {
    let mut held = String::new();
    for piece in pieces(text, bytes) {
        held.push_str(piece);
        let prose = search.pass(&held);
        if prose.is_before_call {
            return;
        }
        held.drain(..prose.bytes);
    }
}

/// Reads a reply that is complete.
fn whole(text: &str, shown: &Provenance) {
    let settings = Settings::default();
    let completion = Completion {
        content: text.to_owned(),
        ..Completion::default()
    };
    for contract in Contract::ALL {
        let view = RequestView {
            model: "",
            instructions: "",
            turns: &[],
            composition: Composition::default(),
            tools: &tools(),
            output_schema: None,
            settings: &settings,
        };
        drop(read_from(contract, &completion, &view, shown));
    }
}

/// Pieces of a text as a stream brings them, of at most `bytes` bytes; at least one character.
fn pieces(text: &str, bytes: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let first = rest.chars().next()?.len_utf8();
        let end = rest.floor_char_boundary(bytes.min(rest.len())).max(first);
        let (piece, after) = rest.split_at(end);
        rest = after;
        Some(piece)
    })
}

/// Schemas that make a value cost.
static CHECKS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    vec![
        json!({"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "string"}}),
        json!({"items": {"anyOf": [{"type": "string"}, {"type": "object"}, {"items": {"type": "integer"}}]}}),
        json!({"uniqueItems": true}),
        json!({"contains": {"const": [[1]]}, "maxContains": 3}),
        json!({"patternProperties": {"^(a|k)+[0-9]*$": {"type": "boolean"}}, "propertyNames": {"maxLength": 3}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"items": {"$ref": "#/$defs/a"}}, {"additionalProperties": {"$ref": "#/$defs/a"}}]}}}),
        json!({"items": {"enum": [1, 2, "a", [1], {"a": 1}]}}),
        json!({"unevaluatedProperties": false, "anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}),
        json!({"pattern": "^(a+)+$", "items": {"pattern": "(a|b)*c", "multipleOf": 0.01}}),
    ]
});

static VALIDATORS: LazyLock<Vec<Validator>> = LazyLock::new(|| {
    CHECKS
        .iter()
        .filter_map(|schema| Validator::new(schema).ok())
        .collect()
});

/// Values for these.
const CHECKED: &[Shape] = &[
    ("equal lists", |n| shapes::many(n, "[", "[[1]]", ",", "]")),
    ("equal objects", |n| {
        shapes::many(n, "[", "{\"a\":[1]}", ",", "]")
    }),
    ("texts for patterns", |n| {
        shapes::many(n, "[", "\"aaaaaaaaaaaaaaaaaaaaaaaab\"", ",", "]")
    }),
    ("one text for patterns", |n| {
        format!("\"{}b\"", "a".repeat(n))
    }),
    ("numbers in texts", |n| {
        shapes::many(n, "{", "\"a#\":\"1\"", ",", "}")
    }),
    ("numbers", |n| shapes::many(n, "[", "0.0#1", ",", "]")),
];

/// Secrets that texts of [`NEARLY_SECRET`] nearly are.
static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| {
    let long = long_secret();
    let secrets = [("one", "canary-0123456789"), ("long", &long)];
    Redactor::new(secrets).unwrap_or_default()
});

fn long_secret() -> String {
    (1..60).map(|n| (n * 7_919).to_string()).collect()
}

const NEARLY_SECRET: &[Shape] = &[
    ("the beginning of a secret", |n| {
        "canary-012345678".repeat(n / 16)
    }),
    ("the end of the longer one", |n| {
        long_secret()[1..].repeat(n / 300 + 1)
    }),
    ("percent", |n| "%63%61%6e%61%72%79-0123".repeat(n / 24)),
    ("base64", |n| "Y2FuYXJ5LTAxMjM0NTY3".repeat(n / 20)),
    ("hex", |n| "63616e6172792d3031323334".repeat(n / 24)),
    ("the end of a secret", |n| "anary-0123456789".repeat(n / 16)),
    ("a secret again and again", |n| {
        "canary-0123456789".repeat(n / 17)
    }),
];

const TYPES: &str = r#"(component (import "i" (instance
    (export "f" (func
        (param "numbers" (list u32)) (param "texts" (list string)) (param "rows" (list (tuple string (option u32))))
        (param "text" string))))))"#;

/// Types whose values are dear where a part is come to more than once, or looked for among all parts.
fn dear_types() -> Vec<String> {
    let options = (0..OPTIONS).fold("u8".to_owned(), |inner, _| format!("(option {inner})"));
    let names = |unit: fn(usize) -> String| (0..NAMES).map(unit).collect::<String>();
    let of_names = [
        ("enum", names(|at| format!(" \"kind{at:04}\""))),
        ("variant", names(|at| format!(" (case \"kind{at:04}\" u8)"))),
        (
            "record",
            names(|at| {
                format!(" (field \"member-that-callers-may-leave-out{at:04}\" (option u8))")
            }),
        ),
    ];
    let of_names = of_names.map(|(kind, parts)| {
        format!(
            "(component (import \"i\" (instance (type $of ({kind}{parts})) (export \"of\" (type $named (eq $of)))
                (export \"f\" (func (param \"{kind}s\" (list $named)))))))"
        )
    });
    let options = format!(
        "(component (import \"i\" (instance (export \"f\" (func (param \"options\" (list {options})))))))"
    );
    of_names.into_iter().chain([options]).collect()
}

/// Options in each other: as many as types may be deep, with the list around them.
const OPTIONS: usize = 15;
/// Names of a type: with a payload each, no more parts than a function may have.
const NAMES: usize = 600;

static SIGNATURES: LazyLock<Vec<FuzzedSignature>> = LazyLock::new(|| {
    let Ok(engine) = Engine::new(EngineConfig {
        concurrent_calls: 2,
        max_memory_bytes: 16 << 20,
        ..EngineConfig::default()
    }) else {
        return Vec::new();
    };
    let types = [TYPES.to_owned()].into_iter().chain(dear_types());
    let signatures = types.filter_map(|types| {
        let component = wat::parse_str(types).ok()?;
        FuzzedSignature::imported(&engine, &component).ok()?
    });
    signatures.collect()
});

#[test]
fn the_types_have_a_json_form() {
    let some = (1..OPTIONS).fold(json!(1), |inner, _| json!({"some": inner}));
    let values = [
        json!({"numbers": [1], "texts": ["a"], "rows": [["a", 1]], "text": "a"}),
        json!({"enums": ["kind0599"]}),
        json!({"variants": [{"kind0599": 1}]}),
        json!({"records": []}),
        json!({"options": [some]}),
    ];
    assert_eq!(SIGNATURES.len(), values.len());
    for (signature, value) in SIGNATURES.iter().zip(values) {
        let back = signature.round_trip(&value, 1 << 20);
        assert_eq!(back.and_then(Result::ok), Some(value));
    }
    assert_eq!(VALIDATORS.len(), CHECKS.len());
    assert!(!REDACTOR.is_empty());
}

const VALUES: &[Shape] = &[
    ("numbers", |n| {
        let numbers = shapes::many(n, "[", "7", ",", "]");
        format!("{{\"numbers\":{numbers},\"texts\":[],\"rows\":[],\"text\":\"\"}}")
    }),
    ("texts", |n| {
        let texts = shapes::many(n, "[", "\"\"", ",", "]");
        format!("{{\"numbers\":[],\"texts\":{texts},\"rows\":[],\"text\":\"\"}}")
    }),
    ("rows", |n| {
        let rows = shapes::many(n, "[", "[\"a\",null]", ",", "]");
        format!("{{\"numbers\":[],\"texts\":[],\"rows\":{rows},\"text\":\"\"}}")
    }),
    ("a text", |n| {
        format!(
            "{{\"numbers\":[],\"texts\":[],\"rows\":[],\"text\":\"{}\"}}",
            "x".repeat(n)
        )
    }),
    ("what is not there", |n| {
        shapes::many(n, "{", "\"k#\":0", ",", "}")
    }),
    // Deeper the longer: a part that is come to twice at each level costs as much as its depth allows.
    ("options in each other", |n| {
        let deep = (n.ilog2().saturating_sub(10) as usize * 2).min(OPTIONS - 1);
        let item = format!("{}0{}", "{\"some\":".repeat(deep), "}".repeat(deep));
        shapes::many(n, "{\"options\":[", &item, ",", "]}")
    }),
    // Later names the longer.
    ("names of an enum", |n| {
        shapes::many(
            n,
            "{\"enums\":[",
            &format!("\"{}\"", last_name(n)),
            ",",
            "]}",
        )
    }),
    ("cases of a variant", |n| {
        let item = format!("{{\"{}\":0}}", last_name(n));
        shapes::many(n, "{\"variants\":[", &item, ",", "]}")
    }),
    ("records without their members", |n| {
        shapes::many(n, "{\"records\":[", "{}", ",", "]}")
    }),
];

/// A name of [`dear_types`], later for more bytes.
fn last_name(bytes: usize) -> String {
    format!("kind{:04}", (bytes / 256).clamp(1, NAMES) - 1)
}

const REFERENCES: &[Shape] = &[
    ("a long path", |n| {
        format!("\u{2020}s{}", ".a".repeat(n / 2))
    }),
    ("places in lists", |n| {
        format!("\u{2020}s{}", "[0]".repeat(n / 3))
    }),
    ("alternatives", |n| {
        shapes::many(n, "", "\u{2020}s.k#", " || ", "")
    }),
    ("all of them", |n| {
        shapes::many(n, "", "\u{2020}s.k#", " && ", "")
    }),
    ("brackets", |n| format!("\u{2020}s{}", "[".repeat(n))),
];

/// Sections of a component: a kind, a length and a name.
const SECTIONS: &[Shape] = &[
    ("empty sections", |n| "\0\0".repeat(n / 2)),
    ("sections of another name", |n| {
        "\0\u{5}\u{4}docx".repeat(n / 7)
    }),
    ("a length without end", |n| {
        "\0".to_owned() + &"\u{7f}".repeat(n)
    }),
];

const LISTED: &[Shape] = &[
    ("tools", |n| {
        shapes::many(
            n,
            "[",
            "{\"name\":\"t#\",\"inputSchema\":{\"type\":\"object\"}}",
            ",",
            "]",
        )
    }),
    ("the same tool", |n| {
        shapes::many(
            n,
            "[",
            "{\"name\":\"a\",\"inputSchema\":{\"type\":\"object\"}}",
            ",",
            "]",
        )
    }),
    ("a tool of many properties", |n| {
        shapes::many(
            n,
            "[{\"name\":\"a\",\"inputSchema\":{\"type\":\"object\",\"properties\":{",
            "\"p#\":{\"type\":\"string\"}",
            ",",
            "}}}]",
        )
    }),
    ("a tool with a long description", |n| {
        format!(
            "[{{\"name\":\"a\",\"description\":\"{}\",\"inputSchema\":{{\"type\":\"object\"}}}}]",
            "\u{202e}".repeat(n / 3)
        )
    }),
];
