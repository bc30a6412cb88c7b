//! Drawings as text: Mermaid and Graphviz.

use super::diagram::Diagram;
use super::flow::Flow;
use super::step::Step;
use std::fmt::Write as _;

pub(super) fn mermaid(steps: &[Step], flow: &Flow) -> String {
    let diagram = Diagram::of(steps, flow);
    let mut text = String::from("flowchart TD\n");
    for node in &diagram.nodes {
        let (left, right) = if node.is_input {
            ("([", "])")
        } else {
            ("[", "]")
        };
        let label = in_mermaid(&node.label);
        let _ = writeln!(text, "  {}{left}\"{label}\"{right}", node.id);
    }
    for arrow in &diagram.arrows {
        let line = if arrow.is_alternative { "-.->" } else { "-->" };
        let label = arrow.label.as_ref().map_or(String::new(), |label| {
            format!("|\"{}\"|", in_mermaid(label))
        });
        let _ = writeln!(text, "  {} {line}{label} {}", arrow.from, arrow.to);
    }
    text
}

pub(super) fn dot(steps: &[Step], flow: &Flow) -> String {
    let diagram = Diagram::of(steps, flow);
    let mut text = String::from("digraph plan {\n  node [shape=box];\n");
    for node in &diagram.nodes {
        let shape = if node.is_input { ", shape=ellipse" } else { "" };
        let label = in_dot(&node.label);
        let _ = writeln!(text, "  {} [label=\"{label}\"{shape}];", node.id);
    }
    for arrow in &diagram.arrows {
        let mut attributes = Vec::new();
        if let Some(label) = &arrow.label {
            attributes.push(format!("label=\"{}\"", in_dot(label)));
        }
        if arrow.is_alternative {
            attributes.push("style=dashed".into());
        }
        let attributes = match attributes.join(", ") {
            list if list.is_empty() => list,
            list => format!(" [{list}]"),
        };
        let _ = writeln!(text, "  {} -> {}{attributes};", arrow.from, arrow.to);
    }
    text.push_str("}\n");
    text
}

/// Mermaid reads quotes, HTML, Markdown, entities and `%%{directives}%%` even in the middle of a
/// quoted label, so all but harmless characters become entities.
fn in_mermaid(text: &str) -> String {
    let mut label = String::with_capacity(text.len());
    for c in text.chars() {
        let is_harmless = c.is_alphanumeric()
            || matches!(
                c,
                ' ' | '.' | ',' | '_' | '-' | '[' | ']' | '@' | '†' | '·' | '…'
            );
        if is_harmless {
            label.push(c);
        } else {
            let _ = write!(label, "#{};", u32::from(c));
        }
    }
    label
}

/// Graphviz ends a string at a quote, reads escapes after a backslash, and HTML's entities.
fn in_dot(text: &str) -> String {
    let mut label = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => label.push_str("\\\""),
            '\\' => label.push_str("\\\\"),
            '&' => label.push_str("&amp;"),
            other => label.push(other),
        }
    }
    label
}
