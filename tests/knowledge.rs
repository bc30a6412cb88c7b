//! Documents in collections: `toolhold knowledge`, with the real binary.

use serde_json::Value;
use sqlx::{Connection as _, Row as _};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};
use support::endpoint::{Endpoint, Scenario};
use support::host::{Finished, Host};
use support::transcript::{answers, told};

/// The lines of a command's output.
fn lines(done: &Finished) -> Vec<Value> {
    told_by(done, 0)
}

/// The same of a command that ends with this code.
fn told_by(done: &Finished, code: i32) -> Vec<Value> {
    assert_eq!(done.code, Some(code), "{done:?}");
    let lines = done.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn search(host: &Host, more: &[&str]) -> Vec<Value> {
    let done = host.run(&[&["knowledge", "search", "--json"], more].concat());
    assert_eq!(done.code, Some(0), "{done:?}");
    let found: Value = serde_json::from_str(&done.stdout).unwrap();
    found["passages"].as_array().unwrap().clone()
}

/// A Markdown text of about so many passages.
fn long(word: &str, sections: usize) -> String {
    let mut text = String::new();
    for number in 0..sections {
        let _ = write!(
            text,
            "## Part {number}\n\n{word} number {number}. {}\n\n",
            "And so on it goes with words. ".repeat(35)
        );
    }
    text
}

#[test]
fn what_was_added_is_found_where_it_is_and_not_after_it_was_removed() {
    let host = Host::new();
    host.write("notes/fees.md", "# Fees\n\nA lost card costs 20 euro.\n")
        .write("notes/b/hours.txt", "Open on Saturdays.\n")
        .write("notes/rates.csv", "name,rate\ngold,2\nsilver,1\n")
        .write("notes/main.rs", "fn interest() -> f64 { 0.5 }\n")
        .write("notes/photo.png", b"\x89PNG\r\n\x1a\n\0\0")
        .write("notes/paper.pdf", "%PDF-1.7")
        .write("notes/.hidden.md", "A hidden card.\n");
    let add = ["knowledge", "add", "--json", "--label", "team=a", "notes"];
    let told = told_by(&host.run(&add), 1);
    let sums = told.last().unwrap();
    assert_eq!(
        (&sums["added"], &sums["left_out"], &sums["failed"]),
        // The PDF is none.
        (&4.into(), &1.into(), &1.into()),
        "{told:?}"
    );
    let found = search(&host, &["What does a lost card cost?"]);
    assert_eq!(found.len(), 1, "{found:?}");
    let path = host.path().join("notes/fees.md");
    assert_eq!(found[0]["source"], path.to_str().unwrap());
    assert_eq!(found[0]["heading"], "Fees");
    let text = std::fs::read_to_string(&path).unwrap();
    let place = |key: &str| usize::try_from(found[0][key].as_u64().unwrap()).unwrap();
    assert_eq!(found[0]["text"], text[place("starts")..place("ends")]);
    for (words, file) in [
        ("saturday", "hours.txt"),
        ("silver", "rates.csv"),
        ("interest", "main.rs"),
    ] {
        let found = search(&host, &[words]);
        assert!(
            found[0]["source"].as_str().unwrap().ends_with(file),
            "{found:?}"
        );
    }
    assert!(search(&host, &["card", "--label", "team=b"]).is_empty());
    assert!(search(&host, &["hidden"]).is_empty());

    // The same again is nothing new.
    std::fs::remove_file(host.path().join("notes/paper.pdf")).unwrap();
    let told = lines(&host.run(&add));
    let sums = told.last().unwrap();
    assert_eq!((&sums["added"], &sums["unchanged"]), (&0.into(), &4.into()));
    host.write("notes/fees.md", "# Fees\n\nNothing costs anything.\n");
    let told = lines(&host.run(&add));
    assert_eq!(told.last().unwrap()["added"], 1);
    assert!(search(&host, &["lost"]).is_empty());

    let wrong = host.run(&["knowledge", "remove", "notes/fees.md", "notes/none.md"]);
    assert_eq!(wrong.code, Some(1), "{wrong:?}");
    assert_eq!(search(&host, &["fees"]).len(), 1, "nothing was deleted");
    let gone = lines(&host.run(&["knowledge", "remove", "--json", "notes/b", "notes/fees.md"]));
    assert_eq!(gone[0]["documents"], 2);
    assert!(search(&host, &["saturday fees"]).is_empty());
    let bytes = std::fs::read(host.path().join(".state/toolhold.db")).unwrap();
    for (needle, is_there) in [
        ("Saturdays", false),
        ("Nothing costs", false),
        ("silver,1", true),
    ] {
        let has = bytes
            .windows(needle.len())
            .any(|it| it == needle.as_bytes());
        assert_eq!(has, is_there, "{needle}");
    }
}

/// A file of the form safetensors with one tensor: three tokens, of which the first two are alike.
fn weights() -> Vec<u8> {
    let rows = [[0.0_f32, 0.0], [1.0, 0.0], [0.9, 0.1], [0.0, 1.0]];
    let data: Vec<u8> = rows
        .iter()
        .flatten()
        .flat_map(|it| it.to_le_bytes())
        .collect();
    let header = format!(
        r#"{{"embedding":{{"dtype":"F32","shape":[4,2],"data_offsets":[0,{}]}}}}"#,
        data.len()
    );
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    file
}

const TOKENIZER: &str = r###"{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":0,"content":"?",
    "single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true}],
    "normalizer":{"type":"Lowercase"},"pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,
    "model":{"type":"WordPiece","vocab":{"?":0,"car":1,"automobile":2,"tax":3},"unk_token":"?",
    "continuing_subword_prefix":"##","max_input_chars_per_word":100}}"###;

#[test]
fn with_a_static_model_a_passage_is_found_by_what_it_means() {
    let host = Host::new();
    host.write("weights.safetensors", weights())
        .write("tokenizer.json", TOKENIZER)
        .write("notes/blue.txt", "The automobile is blue.\n")
        .write("notes/due.txt", "The tax is due.\n");
    let words = host.run(&["knowledge", "add", "--collection", "words", "notes"]);
    assert!(
        words.stderr.contains("knowledge.weights names no model"),
        "{words:?}"
    );
    assert!(search(&host, &["car"]).is_empty());

    host.write(
        "toolhold.toml",
        "[knowledge]\nweights = \"weights.safetensors\"\ntokenizer = \"tokenizer.json\"\n",
    );
    // The collection from before has no vectors, and is found by words.
    let found = host.run(&["knowledge", "search", "--collection", "words", "car"]);
    assert!(
        found.stderr.contains("was made without the model"),
        "{found:?}"
    );
    let added = host.run(&["knowledge", "add", "notes"]);
    assert_eq!(added.code, Some(0), "{added:?}");
    assert!(!added.stderr.contains("words alone"), "{added:?}");
    let found = search(&host, &["car", "--collection", "documents"]);
    assert!(
        found[0]["source"].as_str().unwrap().ends_with("blue.txt"),
        "{found:?}"
    );
    let done = host.run(&["knowledge", "search", "--json", "car"]);
    let done: Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(done["found_by"], serde_json::json!(["words", "vectors"]));

    // Without the model there are no vectors to add, and those that are there do not count.
    host.write("toolhold.toml", "");
    host.write("notes/blue.txt", "The automobile is blue, and fast.\n");
    let refused = host.run(&["knowledge", "add", "notes"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("here is no model"), "{refused:?}");
    assert!(search(&host, &["car", "--collection", "documents"]).is_empty());

    for (config, expect) in [
        ("weights = \"weights.safetensors\"\n", "belong together"),
        (
            "weights = \"weights.safetensors\"\ntokenizer = \"notes/due.txt\"\n",
            "the tokenizer cannot be read",
        ),
        (
            "weights = \"none\"\ntokenizer = \"tokenizer.json\"\n",
            "knowledge.weights: none cannot be read",
        ),
    ] {
        host.write("toolhold.toml", format!("[knowledge]\n{config}"));
        let refused = host.run(&["knowledge", "search", "car"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(expect), "{expect}: {refused:?}");
    }
}

#[test]
fn what_is_named_and_no_text_fails_and_the_rest_is_added() {
    let host = Host::new();
    host.write("binary.txt", b"\x7fELF\0\0\0")
        .write("latin.txt", b"Gr\xfc\xdfe")
        .write("wide.txt", b"\xff\xfeH\0i\0")
        .write("page.mhtml", "<p>text")
        .write("empty.txt", " \n")
        .write("good.txt", "A good text.");
    let large = std::fs::File::create(host.path().join("large.txt")).unwrap();
    large.set_len(2 << 30).unwrap();
    let names = [
        "binary.txt",
        "latin.txt",
        "wide.txt",
        "page.mhtml",
        "empty.txt",
        "large.txt",
        "none.txt",
        "good.txt",
    ];
    let started = Instant::now();
    let done = host.run(&[&["knowledge", "add"], &names[..]].concat());
    assert!(started.elapsed() < Duration::from_secs(20));
    assert_eq!(done.code, Some(1), "{done:?}");
    for reason in [
        "binary.txt: it is no text",
        "latin.txt: it is not UTF-8 (byte 2)",
        "wide.txt: it is in UTF-16",
        "page.mhtml: a web page of this kind is read by an extractor, and none is there",
        "empty.txt: there is no text in it",
        "large.txt: it has 2147483648 bytes, and may have 16777216",
        "none.txt: it cannot be read",
    ] {
        assert!(done.stderr.contains(reason), "{reason}: {done:?}");
    }
    assert!(
        done.stdout.contains("1 document, 1 passage; 7 left out"),
        "{done:?}"
    );
    assert_eq!(search(&host, &["good"]).len(), 1);
}

/// What a document says is shown, and does nothing.
#[test]
fn a_hostile_document_is_text() {
    let host = Host::new();
    let text = "forged\x1b[2J \u{202e}words\nadded: 7 documents\n'; DROP TABLE passages; --\n";
    host.write("a.txt", format!("{text}{}", "More of it. ".repeat(20)));
    lines(&host.run(&["knowledge", "add", "--json", "a.txt"]));
    let done = host.run(&[
        "knowledge",
        "search",
        "forged \" OR words:* NEAR(a b) '; DROP TABLE",
    ]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(
        done.stdout.contains("forged\\u{1b}[2J \\u{202e}words"),
        "{done:?}"
    );
    assert!(!done.stdout.contains('\x1b') && !done.stdout.contains('\u{202e}'));
    for line in done.stdout.lines().skip(1) {
        assert!(line.starts_with("  "), "{line:?}");
    }
}

/// Passages of documents that are being added, as the database has them.
fn staged(host: &Host) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let path = host.path().join(".state/toolhold.db");
    runtime.block_on(async {
        sqlx::any::install_default_drivers();
        let url = format!("sqlite://{}?mode=ro", path.display());
        let Ok(mut connection) = sqlx::AnyConnection::connect(&url).await else {
            return 0;
        };
        let counted =
            "SELECT COALESCE(SUM(passages), 0) AS passages FROM documents WHERE state = 'staged'";
        let row = sqlx::query(counted).fetch_one(&mut connection).await;
        row.map_or(0, |row| row.get("passages"))
    })
}

/// `kill -9` in the middle: nothing of the document is found, and adding it again goes on.
#[test]
fn a_killed_process_leaves_nothing_half_visible() {
    let host = Host::new();
    host.write("a.md", "# First\n\nIt was whole before.\n")
        .write("book.md", long("marmalade", 3_000));
    let mut adding = host
        .command(&["knowledge", "add", "--json", "a.md", "book.md"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = Instant::now();
    let left = loop {
        let left = staged(&host);
        if left > 100 {
            break left;
        }
        assert!(
            started.elapsed() < Duration::from_mins(1),
            "it stages nothing"
        );
        assert_eq!(
            adding.try_wait().unwrap(),
            None,
            "it was too fast to be killed"
        );
        std::thread::sleep(Duration::from_millis(5));
    };
    adding.kill().unwrap();
    adding.wait().unwrap();
    assert!(search(&host, &["marmalade"]).is_empty());
    assert_eq!(search(&host, &["whole"]).len(), 1);
    let documents = lines(&host.run(&["knowledge", "list", "--json", "--collection", "documents"]));
    assert_eq!(documents.len(), 1, "{documents:?}");

    assert!(staged(&host) >= left);
    let told = lines(&host.run(&["knowledge", "add", "--json", "a.md", "book.md"]));
    let sums = told.last().unwrap();
    assert_eq!(
        (&sums["added"], &sums["unchanged"]),
        (&1.into(), &1.into()),
        "{told:?}"
    );
    assert_eq!(
        staged(&host),
        0,
        "the second attempt went on with the first"
    );
    assert_eq!(search(&host, &["marmalade", "--most", "100"]).len(), 100);
    let documents = lines(&host.run(&["knowledge", "list", "--json", "--collection", "documents"]));
    assert_eq!(documents[0]["passages"], sums["passages"]);
    assert!(documents[0]["passages"].as_u64().unwrap() >= 3_000);
}

#[test]
fn two_processes_add_to_one_collection_at_the_same_time() {
    let host = Host::new();
    for number in 0..30 {
        host.write(&format!("both/{number}.md"), long("plum", 6))
            .write(&format!("one/{number}.md"), long("pear", 3))
            .write(&format!("two/{number}.md"), long("fig", 3));
    }
    let started = ["one", "two"].map(|own| {
        let mut command = host.command(&["knowledge", "add", "--json", "both", own]);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    });
    for child in started {
        let done = support::host::finish(child.wait_with_output().unwrap());
        let told = lines(&done);
        let sums = told.last().unwrap();
        assert_eq!(sums["failed"], 0, "{told:?}");
    }
    let documents = lines(&host.run(&["knowledge", "list", "--json", "--collection", "documents"]));
    assert_eq!(documents.len(), 90);
    let collections = lines(&host.run(&["knowledge", "list", "--json"]));
    let passages: u64 = documents
        .iter()
        .map(|it| it["passages"].as_u64().unwrap())
        .sum();
    assert_eq!(collections[0]["documents"], 90);
    assert_eq!(collections[0]["passages"], passages);
    // What one of them replaced is gone after the next command.
    lines(&host.run(&["knowledge", "add", "--json", "both"]));
    assert_eq!(staged(&host), 0);
    let gone = lines(&host.run(&["knowledge", "remove", "--json", "--all", "--yes"]));
    assert_eq!(gone[0]["documents"], 90);
    assert_eq!(gone[0]["passages"], passages);
    assert!(lines(&host.run(&["knowledge", "list", "--json"])).is_empty());
}

/// A folder and a file in it may be named together; a folder that everything is from is not deleted by mistake.
#[test]
fn everything_is_removed_only_if_that_is_said() {
    let host = Host::new();
    host.write("notes/fees.md", "A card costs five euro.")
        .write("notes/hours.md", "Open on Saturdays.")
        .write("other.md", "Something else.");
    lines(&host.run(&["knowledge", "add", "--json", "notes"]));
    for all in [".", "/", "notes"] {
        let done = host.run(&["knowledge", "remove", all]);
        assert_eq!(done.code, Some(0), "{done:?}");
        assert!(
            done.stdout
                .contains("2 documents of documents would be deleted"),
            "{done:?}"
        );
        let told = lines(&host.run(&["knowledge", "remove", "--json", all]));
        assert_eq!(
            (&told[0]["documents"], &told[0]["would_delete"]),
            (&0.into(), &2.into())
        );
    }
    let told = lines(&host.run(&["knowledge", "remove", "--json", "--all"]));
    assert_eq!(told[0]["would_delete"], 2);
    assert_eq!(search(&host, &["card"]).len(), 1);

    lines(&host.run(&["knowledge", "add", "--json", "other.md"]));
    let both = ["knowledge", "remove", "--json", "notes", "notes/fees.md"];
    let told = lines(&host.run(&both));
    assert_eq!(told[0]["documents"], 2, "{told:?}");
    // What is named itself needs no more than that.
    let told = lines(&host.run(&["knowledge", "remove", "--json", "other.md"]));
    assert_eq!(
        (&told[0]["documents"], &told[0]["in_log"]),
        (&1.into(), &false.into())
    );
    lines(&host.run(&["knowledge", "add", "--json", "notes"]));
    let told = lines(&host.run(&["knowledge", "remove", "--json", ".", "--yes"]));
    assert_eq!(told[0]["documents"], 2);
}

#[test]
fn labels_are_changed_without_reading_anything_else_anew() {
    let host = Host::new();
    host.write("fees.md", "A card costs five euro.");
    lines(&host.run(&["knowledge", "add", "--json", "fees.md"]));
    let found = search(&host, &["card"]);
    let add = ["knowledge", "add", "--json", "--label", "team=a", "fees.md"];
    let told = lines(&host.run(&add));
    assert_eq!(told[0]["result"], "labelled");
    assert_eq!(
        (&told[1]["added"], &told[1]["labelled"]),
        (&0.into(), &1.into())
    );
    let labelled = search(&host, &["card", "--label", "team=a"]);
    assert_eq!(labelled[0]["id"], found[0]["id"]);
}

#[test]
fn a_run_finds_passages_in_the_configured_collections() {
    let host = Host::new();
    host.write("notes/fees.md", "# Fees\n\nA lost card costs 20 euro.\n")
        .write(
            "toolhold.toml",
            "[knowledge]\ncollections = [\"documents\"]\n",
        );
    assert_eq!(host.run(&["knowledge", "add", "notes"]).code, Some(0));
    let endpoint = Endpoint::start(Scenario::new([
        answers("\"A lost card costs 20 euro\" [k1], not [k2]."),
        answers("20 euro [k1]."),
    ]));
    let url = endpoint.base_url();
    let ask = |more: &[&str]| {
        let task = [
            "run",
            "--base-url",
            &url,
            "--model",
            "m",
            "What does a lost card cost?",
        ];
        host.run(&[&task, more].concat())
    };
    let done = ask(&["--budget"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    for part in [
        "1 passage found",
        "fees.md",
        "retrieved",
        "cites k1",
        "k2 no such passage",
    ] {
        assert!(done.stderr.contains(part), "{part}: {done:?}");
    }
    let asked = told(&endpoint, 0);
    assert!(asked.contains("A lost card costs 20 euro."), "{asked}");
    // The record has what was found, and says the same without the collection.
    assert_eq!(
        host.run(&["knowledge", "remove", "--all", "--yes"]).code,
        Some(0)
    );
    let shown = host.run(&["show", "last"]);
    assert!(shown.stdout.contains("1 passage found"), "{shown:?}");
    let replayed = host.run(&["runs", "replay", "last"]);
    assert_eq!(replayed.code, Some(0), "{replayed:?}");
    let done = ask(&[]);
    assert!(done.stderr.contains("there is no collection"), "{done:?}");
}

/// A folder that is watched: what changes is added, what is gone is deleted, and nothing else.
#[test]
fn a_watched_folder_is_followed() {
    let host = Host::new();
    host.write("notes/a.md", "The first note.\n")
        .write("notes/b.md", "The second note.\n")
        .write("other.md", "Not below the folder.\n");
    assert_eq!(host.run(&["knowledge", "add", "other.md"]).code, Some(0));
    let arguments = ["knowledge", "add", "--json", "--watch", "notes"];
    let mut child = host
        .command(&arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut sums = || loop {
        let line: Value = serde_json::from_str(&said.next().unwrap().unwrap()).unwrap();
        if line.get("collection").is_some() {
            return line;
        }
    };
    assert_eq!(sums()["added"], 2);
    // It may be noticed while they are written.
    std::fs::remove_file(host.path().join("notes/a.md")).unwrap();
    host.write("notes/b.md", "The second note is another one.\n")
        .write("notes/c/d.md", "A third, in a folder.\n");
    let (mut added, mut deleted) = (0, 0);
    while (added, deleted) != (2, 1) {
        let line = sums();
        added += line["added"].as_u64().unwrap();
        deleted += line["deleted"].as_u64().unwrap();
        assert!(added <= 2 && deleted <= 1, "{line}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let left = lines(&host.run(&["knowledge", "list", "--json", "--collection", "documents"]));
    let mut left: Vec<_> = left
        .iter()
        .map(|it| it["title"].as_str().unwrap().to_owned())
        .collect();
    left.sort();
    assert_eq!(left, ["b.md", "d.md", "other.md"]);
}

#[test]
fn an_export_is_imported_with_the_same_passages() {
    let host = Host::new();
    host.write("notes/long.md", long("Interest", 40))
        .write("notes/fees.csv", "card,fee\nlost,20\n");
    let add = ["knowledge", "add", "--label", "team=a", "notes"];
    assert_eq!(host.run(&add).code, Some(0));
    let export = ["knowledge", "export", "documents", "all.jsonl"];
    assert_eq!(host.run(&export).code, Some(0));
    // What is there is not written over.
    assert_eq!(host.run(&export).code, Some(1));
    let import = ["knowledge", "import", "--json", "copy", "all.jsonl"];
    let sums = lines(&host.run(&import));
    assert_eq!(
        (&sums[0]["added"], &sums[0]["unchanged"]),
        (&2.into(), &0.into())
    );
    let again = lines(&host.run(&import));
    assert_eq!(
        (&again[0]["added"], &again[0]["unchanged"]),
        (&0.into(), &2.into())
    );
    let all = |collection: &str| {
        let found = search(
            &host,
            &[
                "--collection",
                collection,
                "--most",
                "100",
                "--label",
                "team=a",
                "interest",
                "lost fee",
            ],
        );
        let passage = |it: &Value| {
            ["source", "starts", "ends", "heading", "text", "number"].map(|name| it[name].clone())
        };
        found.iter().map(passage).collect::<Vec<_>>()
    };
    let found = all("copy");
    assert!(found.len() > 20, "{}", found.len());
    assert_eq!(found, all("documents"));
    let few = search(
        &host,
        &[
            "--collection",
            "copy",
            "--most-of-document",
            "1",
            "interest",
            "lost fee",
        ],
    );
    assert_eq!(few.len(), 2);
    let short = search(
        &host,
        &[
            "--collection",
            "copy",
            "--most-characters",
            "30",
            "interest",
            "lost fee",
        ],
    );
    assert_eq!(short.len(), 1, "{short:?}");

    // A file that is cut off or changed adds nothing of its broken document.
    let text = std::fs::read_to_string(host.path().join("all.jsonl")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let cut = lines[..lines.len() - 1].join("\n");
    let other = text.replace("\"starts\":0", "\"starts\":1");
    let with = |line: usize, pointer: &str, value: Value| {
        let mut changed: Value = serde_json::from_str(lines[line]).unwrap();
        *changed.pointer_mut(pointer).unwrap() = value;
        let mut all = lines.clone();
        let changed = changed.to_string();
        all[line] = &changed;
        all.join("\n")
    };
    let wide = "x".repeat((32 << 10) + 1);
    for (broken, said) in [
        (
            &*with(1, "/passage/text", wide.into()),
            "a passage may have 32768 bytes",
        ),
        (
            &*with(0, "/document/bytes", ((16 << 20) + 1).into()),
            "a document may have 16777216",
        ),
        (cut.as_str(), "passages"),
        (other.as_str(), "not the next one"),
        ("{\"passage\": 1}", "line 1"),
        ("\u{0}", "line 1"),
        (&"x".repeat(300_000), "longer than"),
    ] {
        host.write("broken.jsonl", broken);
        let refused = host.run(&["knowledge", "import", "broken", "broken.jsonl"]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.stderr.contains(said), "{said}: {refused:?}");
    }
    let kept = host.run(&["knowledge", "keep", "copy", "7"]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    let listed = host.run(&["knowledge", "list"]);
    assert!(listed.stdout.contains("each kept 7 days"), "{listed:?}");
}

/// A file of `tests/fixtures/documents`.
fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/documents");
    std::fs::read(std::path::Path::new(folder).join(name)).unwrap()
}

/// What became of each file, by the last part of its path.
fn outcome<'a>(told: &'a [Value], name: &str) -> &'a Value {
    let of_file = |line: &&Value| line["source"].as_str().is_some_and(|it| it.ends_with(name));
    let found = told.iter().find(of_file);
    found.unwrap_or_else(|| panic!("{name} in {told:?}"))
}

#[test]
fn documents_that_are_no_text_are_read_in_the_sandbox() {
    let host = Host::new();
    for name in ["fees.docx", "rates.xlsx", "hours.odt", "fees.pdf"] {
        host.write(&format!("paper/{name}"), fixture(name));
    }
    host.write("paper/saved", fixture("fees.pdf")).write(
        "paper/cards.html",
        "<title>All cards</title><script>var hidden = 1</script><h1>Colours</h1><p>A golden card is yellow.",
    );
    let add = ["knowledge", "add", "--json", "paper"];
    let told = lines(&host.run(&add));
    assert_eq!(told.last().unwrap()["added"], 6, "{told:?}");
    for (words, file, heading, text) in [
        (
            "replacement",
            "fees.docx",
            "Cards",
            "20 euro & a photograph",
        ),
        ("platinum", "rates.xlsx", "Rates", "| platinum | 2.5 |"),
        ("saturdays", "hours.odt", "Hours", "Open on Saturdays."),
        (
            "yellow",
            "cards.html",
            "Colours",
            "A golden card is yellow.",
        ),
    ] {
        let found = search(&host, &[words]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0]["source"].as_str().unwrap().ends_with(file));
        assert_eq!(found[0]["heading"], heading);
        assert!(
            found[0]["text"].as_str().unwrap().contains(text),
            "{found:?}"
        );
    }
    let found = search(&host, &["stolen"]);
    assert_eq!(found[0]["heading"], "Page 1", "{found:?}");
    assert!(search(&host, &["hidden"]).is_empty());

    // The same again is not read again; with other labels it has them.
    let told = lines(&host.run(&add));
    assert_eq!(told.last().unwrap()["unchanged"], 6, "{told:?}");
    let told = lines(&host.run(&[&add[..], &["--label", "a=b"]].concat()));
    assert_eq!(told.last().unwrap()["labelled"], 6, "{told:?}");
    assert_eq!(search(&host, &["stolen", "--label", "a=b"]).len(), 1);
}

#[test]
fn a_hostile_document_is_refused_with_its_bound_and_stops_no_other() {
    let host = Host::new();
    for (path, content) in [
        ("paper/bomb.docx", fixture("bomb.docx")),
        ("paper/circle.pdf", fixture("circle.pdf")),
        ("paper/deep.docx", fixture("deep.docx")),
        ("paper/deep.html", "<div>".repeat(2_000).into_bytes()),
        ("paper/laughs.docx", fixture("laughs.docx")),
        (
            "paper/old.doc",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".to_vec(),
        ),
        (
            "paper/locked.docx",
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".to_vec(),
        ),
        ("paper/text.pdf", b"A text with another ending.".to_vec()),
        ("paper/tree.pdf", fixture("tree.pdf")),
        ("paper/zero.docx", Vec::new()),
        ("paper/zz.pdf", fixture("fees.pdf")),
    ] {
        host.write(path, content);
    }
    let told = told_by(&host.run(&["knowledge", "add", "--json", "paper"]), 1);
    for (file, reason) in [
        ("bomb.docx", "unpacked it has more than 64 MiB"),
        ("circle.pdf", "refer to each other in a circle"),
        ("deep.docx", "more than 1000 deep"),
        ("deep.html", "more than 512 deep"),
        ("laughs.docx", "entities of its own"),
        ("old.doc", "none is there for it"),
        ("locked.docx", "it is encrypted"),
        ("text.pdf", "it is damaged"),
        ("tree.pdf", "it is damaged"),
        ("zero.docx", "it is damaged"),
    ] {
        let outcome = outcome(&told, file);
        let why = outcome["reason"].as_str().unwrap_or_default();
        assert!(why.contains(reason), "{outcome}");
    }
    assert_eq!(outcome(&told, "zz.pdf")["result"], "added");
    assert_eq!(search(&host, &["stolen"]).len(), 1);
}

#[test]
fn an_extractor_of_ones_own_is_approved_as_any_module() {
    let host = Host::new();
    let component = |name: &str| {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        std::fs::read(
            root.join("components")
                .join(name)
                .join(format!("{name}.wasm")),
        )
        .unwrap()
    };
    host.write("modules/reader/reader.wasm", component("reader"))
        .write("notes/a.orders", "text\n# Orders\n\nFirst words.\n")
        .write(
            "toolhold.toml",
            "[knowledge]\nextractors = [\"reader\", \"nobody\"]\n",
        );
    let add = ["knowledge", "add", "--json", "notes"];
    let revoked = host.run(&["modules", "revoke", "reader"]);
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    let told = told_by(&host.run(&add), 1);
    let why = told[0]["reason"].as_str().unwrap();
    assert!(why.contains("disabled until a person approves it"), "{why}");
    let approved = host.run(&["modules", "approve", "reader", "--yes"]);
    assert_eq!(approved.code, Some(0), "{approved:?}");
    let told = lines(&host.run(&add));
    assert_eq!(told.last().unwrap()["added"], 1, "{told:?}");
    assert_eq!(search(&host, &["words"])[0]["heading"], "Orders");
    assert_eq!(lines(&host.run(&add)).last().unwrap()["unchanged"], 1);
    // What it does not read is named with what is missing.
    host.write("notes/b.pdf", "%PDF-1.7");
    let told = told_by(&host.run(&add), 1);
    let why = outcome(&told, "b.pdf")["reason"].as_str().unwrap();
    assert!(why.contains("there is no module nobody"), "{why}");
}
