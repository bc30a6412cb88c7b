//! `toolhold config`.

use crate::config::Setting;
use crate::exit::Exit;
use crate::terminal::columns::{Column, aligned};
use crate::terminal::{output, style};

pub fn show(settings: &[Setting], json: bool) -> anyhow::Result<Exit> {
    if json {
        output::json(&settings)?;
        return Ok(Exit::Ok);
    }
    let rows = settings.iter().map(|Setting { key, value, origin }| {
        let origin = if origin == "default" {
            style::dim(origin)
        } else {
            style::good(origin)
        };
        [key.clone(), format!("= {value}  {origin}")]
    });
    for line in aligned(&[Column::Left(0); 2], 1, rows) {
        println!("{line}");
    }
    Ok(Exit::Ok)
}
