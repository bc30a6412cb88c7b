//! What the person who works on a module gets and nobody else does.

use super::files::ConfigFiles;
use super::flags::Flags;
use super::layers;
use super::secrets::StoredSecrets;

/// Lines of a crash cost a process each, and a hostile module may crash as often as it is called.
#[test]
fn only_an_author_is_told_lines() {
    let files = ConfigFiles::default();
    let merged = layers::merge(&files, &Flags::default(), std::iter::empty()).unwrap();
    let mut config = super::configuration(
        &merged,
        &ConfigFiles::default(),
        &StoredSecrets::default(),
        merged.table(),
        "",
    )
    .unwrap();
    assert_eq!(config.engine().debug_info, None);
    config.serve_author();
    assert_eq!(config.engine().debug_info, Some(config.toolchains_folder()));
}
