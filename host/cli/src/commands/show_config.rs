//! `toolhold config`.

use crate::config::Setting;
use crate::exit::Exit;
use crate::terminal::style;

pub fn show(settings: &[Setting], json: bool) -> anyhow::Result<Exit> {
    if json {
        println!("{}", serde_json::to_string_pretty(settings)?);
        return Ok(Exit::Ok);
    }
    let width = settings.iter().map(|s| s.key.len()).max().unwrap_or(0);
    for Setting { key, value, origin } in settings {
        let origin = if origin == "default" {
            style::dim(origin)
        } else {
            style::good(origin)
        };
        println!("{key:width$} = {value}  {origin}");
    }
    Ok(Exit::Ok)
}
