//! `toolhold config`.

use crate::config::Loaded;
use crate::exit::Exit;
use crate::terminal::columns::{Column, aligned};
use crate::terminal::{output, style};

pub fn show(loaded: &Loaded, json: bool) -> anyhow::Result<Exit> {
    if json {
        output::json(&loaded.settings)?;
        return Ok(Exit::Ok);
    }
    let held = loaded.settings.iter().map(|setting| {
        let origin = if setting.origin == "default" {
            style::dim(&setting.origin)
        } else {
            style::good(&setting.origin)
        };
        (setting, origin)
    });
    let ignored = loaded.untrusted.iter().flat_map(|it| &it.ignored);
    let ignored = ignored.map(|setting| {
        let origin = format!("{}, not trusted: does not hold", setting.origin);
        (setting, style::warn(&origin))
    });
    let rows = held.chain(ignored).map(|(setting, origin)| {
        let value = style::line(&setting.value.to_string());
        [style::line(&setting.key), format!("= {value}  {origin}")]
    });
    for line in aligned(&[Column::Left(0); 2], 1, rows) {
        println!("{line}");
    }
    Ok(Exit::Ok)
}
