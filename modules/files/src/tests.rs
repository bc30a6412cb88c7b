use std::fs;

use tempfile::TempDir;
use toolhold_guest::{Error, Tool, Value, check, json};

use crate::roots::Roots;
use crate::tools_over;

/// A granted directory with two files and the tools over it.
fn fixture() -> (TempDir, Vec<Tool>) {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("notes")).unwrap();
    fs::write(
        directory.path().join("notes/todo.txt"),
        "buy milk\ncall Ada\n",
    )
    .unwrap();
    let roots = Roots::of(&[directory.path()]);
    (directory, tools_over(move || roots.clone()))
}

fn failure(result: Result<Value, Error>) -> String {
    result.unwrap_err().message().to_owned()
}

#[test]
fn examples_return_what_they_claim() {
    let (_directory, tools) = fixture();
    assert_eq!(check::examples(&tools), Vec::<String>::new());
}

#[test]
fn without_a_grant_every_tool_says_which_one_is_missing() {
    let tools = tools_over(Roots::granted);
    let calls = [
        ("list", json!({})),
        ("read", json!({ "path": "a" })),
        ("write", json!({ "path": "a", "content": "" })),
        ("search", json!({ "query": "a" })),
    ];
    for (tool, arguments) in calls {
        let error = check::call(&tools, tool, &arguments).unwrap_err();
        assert!(!error.is_correctable());
        assert!(
            error.message().contains("no directory is granted"),
            "{}",
            error.message()
        );
    }
}

#[test]
fn paths_stay_inside() {
    let (_directory, tools) = fixture();
    for path in ["..", "notes/../../x", "/etc/passwd", "notes/./../.."] {
        let error = failure(check::call(&tools, "read", &json!({ "path": path })));
        assert!(
            error.contains("outside the granted directories"),
            "{path}: {error}"
        );
    }
    let output = check::call(
        &tools,
        "read",
        &json!({ "path": "./notes/../notes//todo.txt" }),
    );
    assert_eq!(output.unwrap()["total_bytes"], 18);
}

#[test]
fn absolute_paths_and_further_grants_work() {
    let (directory, _) = fixture();
    let second = tempfile::tempdir().unwrap();
    fs::write(second.path().join("b.txt"), "b").unwrap();
    let roots = Roots::of(&[directory.path(), second.path()]);
    let tools = tools_over(move || roots.clone());

    let path = second.path().join("b.txt").display().to_string();
    let read = check::call(&tools, "read", &json!({ "path": path })).unwrap();
    assert_eq!(read, json!({ "text": "b", "total_bytes": 1 }));
    let listed = check::call(&tools, "list", &json!({})).unwrap();
    assert_eq!(
        listed["other_directories"],
        json!([second.path().display().to_string()])
    );
}

#[test]
fn lists_are_sorted_bounded_and_recursive_on_demand() {
    let (directory, tools) = fixture();
    fs::write(directory.path().join("b"), "").unwrap();
    fs::write(directory.path().join("a"), "").unwrap();
    let paths = |arguments: Value| {
        let output = check::call(&tools, "list", &arguments).unwrap();
        let entries = output["entries"].as_array().unwrap().clone();
        let paths: Vec<_> = entries.iter().map(|entry| entry["path"].clone()).collect();
        (json!(paths), output["truncated"] == json!(true))
    };
    assert_eq!(paths(json!({})), (json!(["a", "b", "notes"]), false));
    let all = json!(["a", "b", "notes", "notes/todo.txt"]);
    assert_eq!(paths(json!({ "recursive": true })), (all, false));
    assert_eq!(paths(json!({ "limit": 2 })), (json!(["a", "b"]), true));
}

#[test]
fn a_long_file_is_read_in_parts() {
    let (directory, tools) = fixture();
    let text = "one line\n".repeat(1_200);
    fs::write(directory.path().join("long"), &text).unwrap();
    let (mut read, mut offset) = (String::new(), json!(0));
    while !offset.is_null() {
        let arguments = json!({ "path": "long", "offset": offset });
        let part = check::call(&tools, "read", &arguments).unwrap();
        read += part["text"].as_str().unwrap();
        offset = part["next_offset"].clone();
    }
    assert_eq!(read, text);
    let beyond = check::call(&tools, "read", &json!({ "path": "long", "offset": 5_000 })).unwrap();
    assert_eq!(beyond["note"], "the file has only 1200 lines");
}

#[test]
fn bytes_are_cut_between_characters() {
    let (directory, tools) = fixture();
    let text = "aä€😀".repeat(20);
    fs::write(directory.path().join("wide"), &text).unwrap();
    for limit in [1, 4, 5, 6, 7] {
        let (mut read, mut offset) = (String::new(), json!(0));
        while !offset.is_null() {
            let arguments =
                json!({ "path": "wide", "unit": "bytes", "offset": offset, "limit": limit });
            let part = check::call(&tools, "read", &arguments).unwrap();
            read += part["text"].as_str().unwrap();
            offset = part["next_offset"].clone();
        }
        assert_eq!(read, text, "limit {limit}");
    }
}

#[test]
fn a_line_without_end_is_cut_and_said_so() {
    let (directory, tools) = fixture();
    fs::write(
        directory.path().join("one"),
        format!("{}\nlast\n", "x".repeat(200_000)),
    )
    .unwrap();
    let part = check::call(&tools, "read", &json!({ "path": "one" })).unwrap();
    assert_eq!(part["text"].as_str().map(str::len), Some(65_536));
    assert!(
        part["note"]
            .as_str()
            .is_some_and(|note| note.starts_with("line 1 is longer"))
    );
    let rest = check::call(&tools, "read", &json!({ "path": "one", "offset": 1 })).unwrap();
    assert_eq!(rest, json!({ "text": "last\n", "total_bytes": 200_006 }));
}

#[test]
fn binary_files_and_directories_are_refused_politely() {
    let (directory, tools) = fixture();
    fs::write(directory.path().join("image"), b"\x89PNG\0\0").unwrap();
    let error = failure(check::call(&tools, "read", &json!({ "path": "image" })));
    assert_eq!(
        error,
        "`image` is not text: a binary file of 6 bytes; choose another one"
    );
    let error = failure(check::call(&tools, "read", &json!({ "path": "notes" })));
    assert!(error.contains("it is a directory"), "{error}");
    let error = failure(check::call(&tools, "read", &json!({ "path": "nothing" })));
    assert!(error.contains("it does not exist"), "{error}");
}

#[test]
fn writing_never_replaces_unasked() {
    let (directory, tools) = fixture();
    let write = |mode: &str, content: &str| {
        let arguments = json!({ "path": "new/deep/a.txt", "content": content, "mode": mode });
        check::call(&tools, "write", &arguments)
    };
    write("create", "one").unwrap();
    let error = failure(write("create", "two"));
    assert!(
        error.contains("it exists already; use mode `overwrite`"),
        "{error}"
    );
    assert_eq!(write("append", "+two").unwrap()["total_bytes"], 7);
    write("overwrite", "3").unwrap();
    assert_eq!(
        fs::read_to_string(directory.path().join("new/deep/a.txt")).unwrap(),
        "3"
    );
}

#[test]
fn search_finds_texts_and_patterns_and_counts_what_it_skips() {
    let (directory, tools) = fixture();
    fs::write(directory.path().join("binary"), b"Ada\0").unwrap();
    fs::write(directory.path().join("many"), "a.b\n".repeat(150)).unwrap();
    let search = |arguments| check::call(&tools, "search", &arguments);

    let found = search(json!({ "query": "ADA", "ignore_case": true })).unwrap();
    assert_eq!(
        found["matches"],
        json!([{ "path": "notes/todo.txt", "line": 2, "text": "call Ada" }])
    );
    assert_eq!(
        (&found["files_searched"], &found["files_skipped"]),
        (&json!(2), &json!(1))
    );

    let found = search(json!({ "query": "a.b", "path": "many" })).unwrap();
    assert_eq!(found["matches"].as_array().map(Vec::len), Some(100));
    assert_eq!(found["truncated"], true);
    let found = search(json!({ "query": "^c.ll", "regex": true })).unwrap();
    assert_eq!(found["matches"][0]["line"], 2);
    let error = failure(search(json!({ "query": "(", "regex": true })));
    assert!(error.contains("no valid pattern"), "{error}");
}

#[cfg(unix)]
#[test]
fn names_that_are_no_text_are_counted() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let (directory, tools) = fixture();
    for name in [&b"a\xff"[..], b"notes/\xfe"] {
        fs::write(directory.path().join(OsStr::from_bytes(name)), "Ada").unwrap();
    }
    let all = check::call(&tools, "list", &json!({ "recursive": true })).unwrap();
    assert_eq!(all["entries"].as_array().map(Vec::len), Some(2));
    assert_eq!(all["unnamed"], 2);
    let one = check::call(&tools, "list", &json!({ "path": "notes" })).unwrap();
    assert_eq!(one["unnamed"], 1);
    let found = check::call(&tools, "search", &json!({ "query": "Ada" })).unwrap();
    assert_eq!(
        (&found["files_searched"], &found["unnamed"]),
        (&json!(1), &json!(2))
    );
}

#[cfg(unix)]
#[test]
fn a_fifo_is_called_one_and_not_waited_for() {
    let (directory, tools) = fixture();
    let fifo = directory.path().join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    let all = check::call(&tools, "list", &json!({})).unwrap();
    assert_eq!(all["entries"][0], json!({ "path": "fifo", "kind": "fifo" }));
    for (tool, arguments) in [
        ("read", json!({ "path": "fifo" })),
        ("search", json!({ "query": "a", "path": "fifo" })),
        (
            "write",
            json!({ "path": "fifo", "content": "", "mode": "append" }),
        ),
    ] {
        let error = check::call(&tools, tool, &arguments).unwrap_err();
        assert!(error.is_correctable());
        assert!(
            error.message().contains("a FIFO, a socket"),
            "{}",
            error.message()
        );
    }
}
