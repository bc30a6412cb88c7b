//! Web pages as Markdown: what a reader of the page reads, without its scripts, styles, navigation and addresses.

mod charset;

use htmd::element_handler::{HandlerResult, Handlers};
use htmd::options::{BulletListMarker, Options};
use htmd::{Element, HtmlToMarkdown, Node};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use toolhold_guest::extractor::{Document, ExtractError, Extracted, Format, MarkdownText};

toolhold_guest::export_extractor!(formats, extract);

/// Elements in each other. Browsers flatten what is deeper, and the parser and the converter call themselves.
const MAX_DEPTH: usize = 512;

/// What nobody reads, or leads elsewhere.
const LEFT_OUT: [&str; 17] = [
    "script", "style", "noscript", "template", "nav", "svg", "math", "iframe", "object", "canvas",
    "audio", "video", "button", "select", "input", "textarea", "dialog",
];

fn formats() -> Vec<Format> {
    let format = |media_type: &str, endings: &[&str]| Format {
        media_type: media_type.to_owned(),
        endings: endings.iter().map(|&ending| ending.to_owned()).collect(),
    };
    vec![
        format("text/html", &["html", "htm"]),
        format("application/xhtml+xml", &["xhtml", "xht"]),
    ]
}

fn extract(document: Document, _: &str) -> Result<Extracted, ExtractError> {
    convert(&document.bytes())
}

fn convert(bytes: &[u8]) -> Result<Extracted, ExtractError> {
    let html = charset::decode(bytes);
    let title: Arc<Mutex<Option<String>>> = Arc::default();
    let found = title.clone();
    let converter = HtmlToMarkdown::builder()
        .options(Options {
            bullet_list_marker: BulletListMarker::Dash,
            ul_bullet_spacing: 1,
            ol_number_spacing: 1,
            ..Options::default()
        })
        .skip_tags(LEFT_OUT.to_vec())
        .add_handler(
            vec!["head"],
            |handlers: &dyn Handlers, element: Element<'_>| {
                // For the title alone.
                handlers.walk_children(element.node);
                None
            },
        )
        .add_handler(
            vec!["title"],
            move |handlers: &dyn Handlers, element: Element<'_>| {
                let said = handlers.walk_children(element.node).content;
                let mut title = found.lock().unwrap_or_else(PoisonError::into_inner);
                title.get_or_insert(said);
                None
            },
        )
        // Addresses are words that nobody wrote, and by which passages would be found.
        .add_handler(
            vec!["a"],
            |handlers: &dyn Handlers, element: Element<'_>| {
                Some(handlers.walk_children(element.node))
            },
        )
        .add_handler(vec!["img"], |_: &dyn Handlers, element: Element<'_>| {
            let alt = element
                .attrs
                .iter()
                .find(|attribute| &*attribute.name.local == "alt")?;
            let words: Vec<&str> = alt.value.split_whitespace().collect();
            Some(HandlerResult::from(words.join(" ")))
        })
        .build();
    let tree = converter
        .html_to_tree(&html)
        .map_err(|error| ExtractError::Damaged(error.to_string()))?;
    check_depth(&tree)?;
    let markdown = converter.tree_to_markdown(&tree);
    let mut text = MarkdownText::default();
    text.push(&plain(&markdown))?;
    let title = title.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(Extracted {
        title: title.map(|title| plain(title.trim())),
        text: text.into_text(),
    })
}

fn check_depth(tree: &Rc<Node>) -> Result<(), ExtractError> {
    let mut open = vec![(tree.clone(), 0_usize)];
    while let Some((node, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return Err(ExtractError::TooLarge(format!(
                "its elements stand in each other more than {MAX_DEPTH} deep"
            )));
        }
        let children = node.children.borrow();
        open.extend(children.iter().map(|child| (child.clone(), depth + 1)));
    }
    Ok(())
}

/// Markdown with the characters that the page has: passages are quoted as they are.
fn plain(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len());
    let mut is_code = false;
    for line in markdown.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            text.push_str(line);
            continue;
        }
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match chars.peek() {
                Some('\\' | '*' | '_' | '`' | '[' | ']') if c == '\\' => text.extend(chars.next()),
                _ => text.push(c),
            }
        }
    }
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(html: &str) -> String {
        convert(html.as_bytes()).unwrap().text
    }

    #[test]
    fn what_a_reader_reads_is_left() {
        let page = "<!doctype html><html><head><title> Fees &amp; costs </title><style>p{}</style>\
            <script>var lost = 'card';</script></head><body><nav><a href='/'>Home</a></nav>\
            <h1>Fees</h1><p>A lost <b>card</b> costs <a href='https://x.example/p'>20_30 euro</a> *.</p>\
            <h2>Hours</h2><ul><li>Monday</li><li>Sunday <img src=x alt='closed'></li></ul>\
            <table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table>\
            <pre><code>let a_b = c[1];</code></pre></body></html>";
        let extracted = convert(page.as_bytes()).unwrap();
        assert_eq!(extracted.title.as_deref(), Some("Fees & costs"));
        let text = extracted.text;
        for said in [
            "# Fees\n",
            "A lost **card** costs 20_30 euro *.",
            "## Hours\n",
            "- Monday",
            "- Sunday closed",
            "let a_b = c[1];",
        ] {
            assert!(text.contains(said), "{said:?} in {text}");
        }
        for unsaid in ["Home", "lost = ", "p{}", "x.example"] {
            assert!(!text.contains(unsaid), "{unsaid:?} in {text}");
        }
        assert!(text.contains("| 1") && text.contains('2'), "{text}");
    }

    #[test]
    fn what_is_deep_or_broken_is_read_or_refused() {
        let nested =
            |depth: usize| format!("{}word{}", "<div>".repeat(depth), "</div>".repeat(depth));
        assert_eq!(text(&nested(400)).trim(), "word");
        assert!(matches!(
            convert(nested(600).as_bytes()),
            Err(ExtractError::TooLarge(_))
        ));
        assert_eq!(
            text("<p>open <b>bold <i>both").trim(),
            "open **bold *both***"
        );
        assert_eq!(
            text("<p>&bogus; &#x26; &#1114112;</p>").trim(),
            "&bogus; & \u{fffd}"
        );
    }
}
