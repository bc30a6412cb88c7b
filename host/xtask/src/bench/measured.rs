//! Reads criterion's results: a folder for each bench, with its name and its estimates.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use serde::Deserialize;

#[derive(Deserialize)]
struct Benchmark {
    full_id: String,
}

#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    /// Nanoseconds.
    point_estimate: f64,
}

/// The median times since then, by name of the bench, in nanoseconds.
pub fn times(folder: &Path, since: SystemTime) -> Result<BTreeMap<String, f64>> {
    let mut times = BTreeMap::new();
    collect(folder, since, &mut times)?;
    Ok(times)
}

fn collect(folder: &Path, since: SystemTime, times: &mut BTreeMap<String, f64>) -> Result<()> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("could not list {}", folder.display()))?;
    for entry in entries {
        let path = entry
            .with_context(|| format!("could not list {}", folder.display()))?
            .path();
        if !path.is_dir() {
            continue;
        }
        // `base` is the run before, `new` the last one.
        if path.file_name().is_none_or(|name| name != "new") {
            collect(&path, since, times)?;
            continue;
        }
        let estimates = path.join("estimates.json");
        let written = estimates.metadata().and_then(|file| file.modified());
        if written.is_ok_and(|written| written >= since) {
            let name: Benchmark = read(&path.join("benchmark.json"))?;
            let estimates: Estimates = read(&estimates)?;
            times.insert(name.full_id, estimates.median.point_estimate);
        }
    }
    Ok(())
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let text =
        fs::read_to_string(path).with_context(|| format!("could not read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not what criterion writes", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_last_run_of_each_bench_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let bench = |path: &str, id: &str, nanoseconds: f64, age: u64| {
            let folder = folder.path().join(path);
            fs::create_dir_all(&folder).unwrap();
            let benchmark = format!(r#"{{"group_id": "call", "full_id": "{id}", "title": "t"}}"#);
            fs::write(folder.join("benchmark.json"), benchmark).unwrap();
            let estimate =
                |time: f64| format!(r#"{{"point_estimate": {time}, "standard_error": 1.0}}"#);
            let estimates = format!(
                r#"{{"mean": {}, "median": {}}}"#,
                estimate(nanoseconds * 2.0),
                estimate(nanoseconds)
            );
            let path = folder.join("estimates.json");
            fs::write(&path, estimates).unwrap();
            let time = SystemTime::now() - Duration::from_secs(age);
            fs::File::options()
                .write(true)
                .open(path)
                .unwrap()
                .set_modified(time)
                .unwrap();
        };
        bench("call/toolhold/text/new", "call/toolhold/text", 1050.5, 0);
        bench("call/toolhold/text/base", "call/toolhold/text", 9.0, 0);
        bench("machine_step, 20/new", "machine/step, 20", 7.0, 0);
        bench("old/new", "old", 1.0, 3600);
        fs::create_dir_all(folder.path().join("report")).unwrap();
        let since = SystemTime::now() - Duration::from_mins(1);
        let times = times(folder.path(), since).unwrap();
        let expected = [("call/toolhold/text", 1050.5), ("machine/step, 20", 7.0)];
        let expected: BTreeMap<_, _> = expected.map(|(id, time)| (id.to_owned(), time)).into();
        assert_eq!(times, expected);
    }
}
