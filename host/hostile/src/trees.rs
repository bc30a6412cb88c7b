//! Folders nested deeper than any path is long.

use std::fs;
use std::io;
use std::path::Path;

/// Levels that are made by one path.
const STRETCH: usize = 50;

/// Makes a tree of at least `levels` folders, each in the last one, at `top`, which must not exist yet.
pub fn deepen(top: &Path, levels: usize) -> io::Result<()> {
    let above = top.with_extension("above");
    fs::create_dir(top)?;
    for _ in 0..levels.div_ceil(STRETCH) {
        // A stretch is put above what is there, so that every path is short.
        fs::create_dir(&above)?;
        let mut deepest = above.clone();
        for _ in 0..STRETCH {
            deepest.push("d");
            fs::create_dir(&deepest)?;
        }
        fs::rename(top, deepest.join("d"))?;
        fs::rename(&above, top)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_as_deep_as_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("deep");
        deepen(&top, 200).unwrap();
        assert!(top.join("d/".repeat(200)).is_dir());
    }
}
