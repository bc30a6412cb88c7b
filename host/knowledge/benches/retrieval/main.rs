//! How well passages are found: recall and nDCG of the first ten documents on a public set with gold documents.
//!
//! `cargo bench -p toolhold-knowledge --bench retrieval -- --data FOLDER [--weights FILE --tokenizer FILE]
//! [--bm25s PYTHON]`. FOLDER is
//! `data/tau2/domains/banking_knowledge` of github.com/sierra-research/tau2-bench, or has the same form: `documents/`
//! and `tasks/`, of one JSON file each. PYTHON is an interpreter with `bm25s` and `PyStemmer`, whose ranking of the same
//! documents for the same questions stands beside ours. FILEs are of a static model, such as PyPI's `wordllama` has.
#![expect(clippy::print_stdout, reason = "it prints a table")]

mod measure;

use anyhow::{Context as _, Result, bail};
use measure::{Arm, Set};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use toolhold_knowledge::StaticModel;

#[tokio::main]
async fn main() -> Result<()> {
    let (mut data, mut python, mut weights, mut tokenizer) = (None, None, None, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            // cargo's own.
            "--bench" => {}
            "--data" => data = arguments.next().map(PathBuf::from),
            "--bm25s" => python = arguments.next(),
            "--weights" => weights = arguments.next(),
            "--tokenizer" => tokenizer = arguments.next(),
            other => bail!(
                "unknown argument {other:?}; there are --data FOLDER, --weights FILE, --tokenizer FILE and --bm25s PYTHON"
            ),
        }
    }
    let Some(data) = data else {
        // `cargo bench` of everything has no data.
        println!("retrieval: left out; it needs --data FOLDER");
        return Ok(());
    };
    let set = Set::read(&data)?;
    let read = |file: &String| std::fs::read(file).with_context(|| file.clone());
    let model = match (&weights, &tokenizer) {
        (Some(weights), Some(tokenizer)) => {
            Some(StaticModel::new(&read(weights)?, &read(tokenizer)?)?)
        }
        (None, None) => None,
        _ => bail!("--weights and --tokenizer belong together"),
    };
    let mut arms = measure::own(&set, model).await?;
    if let Some(python) = python {
        arms.push(bm25s(&set, &python)?);
    }
    print!("{}", measure::table(&set, &arms));
    Ok(())
}

/// The ranking by PyPI's `bm25s`, of whole documents.
fn bm25s(set: &Set, python: &str) -> Result<Arm> {
    let mut child = Command::new(python)
        .args(["-c", include_str!("bm25s_ranking.py")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{python} does not start"))?;
    let mut input = child.stdin.take().context("it has no input")?;
    input.write_all(&serde_json::to_vec(&asked(set))?)?;
    drop(input);
    let done = child.wait_with_output()?;
    if !done.status.success() {
        bail!("{python} failed: has it bm25s and PyStemmer?");
    }
    Ok(Arm {
        name: "bm25s (PyPI), whole documents".into(),
        rankings: serde_json::from_slice(&done.stdout)?,
        remark: String::new(),
    })
}

fn asked(set: &Set) -> Value {
    let documents = set.documents.iter();
    let documents = documents.map(|it| json!({"id": it.id, "text": measure::text(it)}));
    let questions = set.questions.iter().map(|it| &it.text);
    json!({"documents": documents.collect::<Vec<_>>(), "questions": questions.collect::<Vec<_>>()})
}
