//! Origins of web pages, as browsers write them (RFC 6454, 6.2): one that is written otherwise is never met.

use url::Url;

/// What is wrong with the first that is none.
pub fn fault(origins: &[String]) -> Option<String> {
    let wrong = origins.iter().find(|origin| !is_origin(origin))?;
    Some(format!(
        "{wrong:?} is no origin, such as \"https://console.example.com\""
    ))
}

fn is_origin(origin: &str) -> bool {
    let Ok(url) = Url::parse(origin) else {
        return false;
    };
    let written = match url.origin() {
        own @ url::Origin::Tuple(..) => own.ascii_serialization(),
        // Those of browser extensions, whose schemes only browsers know.
        url::Origin::Opaque(_) => {
            let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
                return false;
            };
            let port = url.port().map(|port| format!(":{port}"));
            format!("{}://{host}{}", url.scheme(), port.unwrap_or_default())
        }
    };
    written == origin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_browsers_write_is_an_origin() {
        for (origin, is) in [
            ("https://console.example.com", true),
            ("http://127.0.0.1:3000", true),
            ("http://[::1]:3000", true),
            ("chrome-extension://abcdefghijklmnop", true),
            ("https://console.example.com/", false),
            ("https://console.example.com:443", false),
            ("https://Console.example.com", false),
            ("https://console.example.com/page", false),
            ("https://ann@console.example.com", false),
            ("chrome-extension://abc/page", false),
            ("console.example.com", false),
            ("data:text/html,", false),
            ("null", false),
            ("*", false),
            ("", false),
        ] {
            assert_eq!(fault(&[origin.to_owned()]).is_none(), is, "{origin}");
        }
    }
}
