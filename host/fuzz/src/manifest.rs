//! `module.toml`: nothing panics, and what is accepted says the same after being written and read.

use toolhold_policy::Manifest;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let Ok(manifest) = Manifest::parse(text) else {
        return;
    };
    let written = toml::to_string(&manifest)
        .unwrap_or_else(|error| panic!("accepted, but cannot be written: {error}\n{text}"));
    match Manifest::parse(&written) {
        Ok(read) => assert_eq!(read, manifest, "{written}"),
        Err(error) => panic!("accepted, but not once written: {error}\n{written}"),
    }
}
