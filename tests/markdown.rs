//! `modules/markdown`: pages as Markdown, hostile pages included.

use serde_json::{Value, json};
use support::sandbox::{call, kind, registry, repository};
use toolhold_needs::is_built;
use toolhold_policy::Output;
use toolhold_sandbox::{Policy, Registry};

async fn markdown() -> Option<Registry> {
    if !is_built(&repository(), "modules/markdown") {
        return None;
    }
    let registry = registry(Policy::default());
    registry
        .load_folder(
            &repository().join("modules"),
            Some(&["markdown".to_owned()]),
            &|_| (),
        )
        .await
        .expect("the folder is there");
    assert!(registry.failures().is_empty(), "{:?}", registry.failures());
    Some(registry)
}

async fn value(registry: &Registry, tool: &str, arguments: Value) -> Value {
    match call(registry, tool, arguments).await.result {
        Ok(Output::Value(value)) => value,
        other => panic!("{tool} gave {other:?}"),
    }
}

#[tokio::test]
async fn pages_become_markdown() {
    let Some(registry) = markdown().await else {
        return;
    };
    for (html, expected) in [
        ("<p>a<p>b", "a\n\nb"),
        ("<h2>A <b>b</b></h2>text", "## A **b**\n\ntext"),
        ("x <b>wor<i>ld</i></b>, a*b", "x **wor*ld***, a\\*b"),
        (
            "<p>x</p><ul><li>one<li>two<ul><li>deep</ul><li>three</ul>",
            "x\n\n- one\n- two\n  - deep\n- three",
        ),
        (
            "<ol start=3><li>x<li><p>y</p><p>z</p></ol>",
            "3. x\n4. y\n\n   z",
        ),
        ("<blockquote><p>a</p><p>b</p></blockquote>", "> a\n>\n> b"),
        (
            "<pre><code class='language-js'>a\n  `b`</code></pre>",
            "```js\na\n  `b`\n```",
        ),
        (
            "<table><tr><th>A<th>B|C</tr><tr><td>1<td>2<br>3</table>",
            "| A | B\\|C |\n| --- | --- |\n| 1 | 2 3 |",
        ),
        (
            "a<script>no()</script><style>no</style><p hidden>no</p><i style='display: none'>no</i> b",
            "a b",
        ),
        (
            "<a href='../x y'>l</a> <a href='javascript:no()'>m</a> <img src=/p.png alt=pic>",
            "[l](https://e.org/x%20y) m ![pic](https://e.org/p.png)",
        ),
        (
            "use <code>a*b</code> &amp; &lt;tag&gt;",
            "use `a*b` & \\<tag>",
        ),
        ("1. no list<br># no heading", "1\\. no list\n\\# no heading"),
        ("", ""),
        ("<b><b><b>x", "**x**"),
    ] {
        let arguments = json!({ "html": html, "base_url": "https://e.org/a/b" });
        assert_eq!(
            value(&registry, "markdown.from_html", arguments).await["markdown"],
            json!(expected),
            "{html}"
        );
    }
    let page = value(
        &registry,
        "markdown.from_html",
        json!({ "html": "<title> A\n page </title><a href='https://a.b/?q=1'>one</a><a href='https://a.b/?q=1'>again</a>" }),
    )
    .await;
    assert_eq!(page["title"], json!("A page"));
    assert_eq!(
        page["links"],
        json!([{ "text": "one", "url": "https://a.b/?q=1" }])
    );
    assert_eq!(page["truncated"], json!(false));
}

#[tokio::test]
async fn hostile_pages_are_answered_within_limits() {
    let Some(registry) = markdown().await else {
        return;
    };
    let million = 1_000_000;
    for (name, html) in [
        (
            "five megabytes",
            "<p>Hello <b>world</b> <a href='/x'>l</a></p>".repeat(120_000),
        ),
        ("one paragraph", "<b>x</b> ".repeat(500_000)),
        ("brackets", "<".repeat(million)),
        ("attributes", format!("<a {}>", "x=y ".repeat(million / 10))),
        ("comments", "<!--".repeat(million)),
        ("entities", "&amp;".repeat(million)),
        ("cells", format!("<table><tr>{}", "<td>x".repeat(million))),
        ("code", format!("<pre>{}", "`".repeat(4 * million))),
    ] {
        let report = call(&registry, "markdown.from_html", json!({ "html": html })).await;
        let Ok(Output::Value(page)) = report.result else {
            panic!("{name}: {:?}", report.result);
        };
        assert!(
            page["markdown"]
                .as_str()
                .is_some_and(|text| text.len() <= 20_000),
            "{name}"
        );
    }
    for (name, html) in [
        ("deep", "<div>".repeat(million)),
        ("deep lists", "<ul><li>".repeat(100_000)),
        ("too long", "x".repeat(7 * million)),
    ] {
        let report = call(&registry, "markdown.from_html", json!({ "html": html })).await;
        assert_eq!(kind(&report), "tool", "{name}: {:?}", report.result);
    }
}

#[tokio::test]
async fn an_outline_is_a_tree_of_the_headings() {
    let Some(registry) = markdown().await else {
        return;
    };
    let text = "# A\ntext\n## B `c` [l](u)\n```\n# no\n```\nSet\n===\n\n> q\n---\n#no\n<!--\n# no\n-->\n### D ###\n";
    let leaf = |level: u32, text: &str, line: u32| json!({ "level": level, "text": text, "line": line, "children": [] });
    let expected = json!({ "headings": [
        { "level": 1, "text": "A", "line": 1, "children": [leaf(2, "B c l", 3)] },
        { "level": 1, "text": "Set", "line": 7, "children": [leaf(3, "D", 16)] },
    ] });
    assert_eq!(
        value(&registry, "markdown.outline", json!({ "markdown": text })).await,
        expected
    );
    let many = json!({ "markdown": "# a\n".repeat(100_000) });
    assert_eq!(
        kind(&call(&registry, "markdown.outline", many).await),
        "tool"
    );
}
