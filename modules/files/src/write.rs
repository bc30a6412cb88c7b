use std::fs::{self, OpenOptions};
use std::io::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use toolhold_guest::{Annotations, Error, Tool, json};

use crate::roots::Roots;

pub fn tool(roots: impl Fn() -> Roots + 'static) -> Tool {
    Tool::new(
        "write",
        "Writes a text file: a new one (the default), over an old one, or at the end of one. \
         Directories on the way are created.",
        move |arguments| write(&roots(), &arguments),
    )
    .title("Write a file")
    .annotations(Annotations::DESTRUCTIVE)
    .example(
        "Save the word draft in notes/title.txt.",
        json!({ "path": "notes/title.txt", "content": "draft\n" }),
        json!({ "path": "notes/title.txt", "written_bytes": 6, "total_bytes": 6 }),
        "I saved it in notes/title.txt.",
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file.
    path: String,
    /// The text to write.
    content: String,
    /// What to do if the file exists: `create` refuses, `overwrite` replaces it, `append` writes at
    /// its end.
    #[serde(default)]
    mode: Mode,
}

#[derive(Default, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    #[default]
    Create,
    Overwrite,
    Append,
}

#[derive(Serialize, JsonSchema)]
struct Receipt {
    path: String,
    /// How many bytes this call wrote.
    written_bytes: usize,
    /// The size of the file now.
    total_bytes: u64,
}

fn write(roots: &Roots, arguments: &Arguments) -> Result<Receipt, Error> {
    let path = roots.resolve(&arguments.path)?;
    let failed = |error| roots.explain(&error, "write", &path);
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    roots.may_open(&path, "write")?;
    let mut options = OpenOptions::new();
    match arguments.mode {
        Mode::Create => options.write(true).create_new(true),
        Mode::Overwrite => options.write(true).create(true).truncate(true),
        Mode::Append => options.append(true).create(true),
    };
    let mut file = options.open(&path).map_err(failed)?;
    file.write_all(arguments.content.as_bytes())
        .map_err(failed)?;
    Ok(Receipt {
        path: roots.display(&path),
        written_bytes: arguments.content.len(),
        total_bytes: file.metadata().map_err(failed)?.len(),
    })
}
