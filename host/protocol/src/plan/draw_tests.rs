use super::graph_tests::{graph, shop};
use proptest::prelude::*;
use serde_json::json;

#[test]
fn drawings_show_steps_data_and_what_comes_from_outside() {
    let graph = graph(&shop());
    insta::assert_snapshot!(graph.mermaid(), @r#"
    flowchart TD
      s0["0 · mail.send"]
      s1["1 · shop.charge"]
      s2["2 · shop.quote"]
      s3["3 · shop.stock @berlin"]
      i0(["†input.card"])
      i1(["†input.item"])
      i2(["†input.item @berlin"])
      i3(["†input.note"])
      i4(["†state.gift"])
      i5(["†user.mail"])
      i0 --> s1
      i1 --> s2
      i2 --> s3
      i3 -.-> s0
      i4 -.-> s0
      i5 --> s0
      s1 -->|"†state.receipt"| s0
      s2 -->|"†state.quote.total"| s1
    "#);
    insta::assert_snapshot!(graph.dot(), @r#"
    digraph plan {
      node [shape=box];
      s0 [label="0 · mail.send"];
      s1 [label="1 · shop.charge"];
      s2 [label="2 · shop.quote"];
      s3 [label="3 · shop.stock @berlin"];
      i0 [label="†input.card", shape=ellipse];
      i1 [label="†input.item", shape=ellipse];
      i2 [label="†input.item @berlin", shape=ellipse];
      i3 [label="†input.note", shape=ellipse];
      i4 [label="†state.gift", shape=ellipse];
      i5 [label="†user.mail", shape=ellipse];
      i0 -> s1;
      i1 -> s2;
      i2 -> s3;
      i3 -> s0 [style=dashed];
      i4 -> s0 [style=dashed];
      i5 -> s0;
      s1 -> s0 [label="†state.receipt"];
      s2 -> s1 [label="†state.quote.total"];
    }
    "#);
    insta::assert_snapshot!(graph.outline(), @r#"
    4 steps in 3 layers, at most 2 at the same time
    layer 1
      2 shop.quote
          /item ← †input.item from outside
          → †state.quote
      3 shop.stock @berlin
          /item ← †input.item from outside
          → †state.log (push)
    layer 2
      1 shop.charge
          /card ← †input.card from outside
          /sum ← †state.quote.total from 2
          → †state.receipt || †state.failure
    layer 3
      0 mail.send
          /to ← †user.mail from outside
          /text ← †state.receipt from 1
          /note ← †state.gift || †input.note from outside
    "#);
}

#[test]
fn no_name_breaks_out_of_a_drawing() {
    let graph = graph(&json!([
        {"_tool": "a\"]; click s0 \"javascript:alert(1)\"\n  s9[\"x", "_outputPath": "†s"},
        {"_tool": "`<img src=x onerror=alert(1)>` #quot; %%{init: {\"securityLevel\":\"loose\"}}%%", "x": "†s"},
        {"_tool": "end\\", "_instance": "\\\" ]; evil -> evil; \u{202e}\u{1b}[2J", "a\"/\n": "†größe.x[0]"},
        {"_tool": "x".repeat(10_000)},
    ]));
    insta::assert_snapshot!(graph.mermaid(), @r#"
    flowchart TD
      s0["0 · a#34;]#59; click s0 #34;javascript#58;alert#40;1#41;#34;#92;u#123;a#125;  s9[#34;x"]
      s1["1 · #96;#60;img src#61;x onerror#61;alert#40;1#41;#62;#96; #35;quot#59; #37;#37;#123;init#58; #123;#34;securityLevel#34;#58;…"]
      s2["2 · end#92; @#92;#34; ]#59; evil -#62; evil#59; #92;u#123;202e#125;#92;u#123;1b#125;[2J"]
      s3["3 · xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"]
      i0(["†größe.x[0] @#92;#34; ]#59; evil -#62; evil#59; #92;u#123;202e#125;#92;u#123;1b#125;[2J"])
      i0 --> s2
      s0 -->|"†s"| s1
    "#);
    insta::assert_snapshot!(graph.dot(), @r#"
    digraph plan {
      node [shape=box];
      s0 [label="0 · a\"]; click s0 \"javascript:alert(1)\"\\u{a}  s9[\"x"];
      s1 [label="1 · `<img src=x onerror=alert(1)>` #quot; %%{init: {\"securityLevel\":…"];
      s2 [label="2 · end\\ @\\\" ]; evil -> evil; \\u{202e}\\u{1b}[2J"];
      s3 [label="3 · xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"];
      i0 [label="†größe.x[0] @\\\" ]; evil -> evil; \\u{202e}\\u{1b}[2J", shape=ellipse];
      i0 -> s2;
      s0 -> s1 [label="†s"];
    }
    "#);
    insta::assert_snapshot!(graph.outline(), @r#"
    4 steps in 2 layers, at most 3 at the same time
    layer 1
      0 a"]; click s0 "javascript:alert(1)"\u{a}  s9["x
          → †s
      2 end\ @\" ]; evil -> evil; \u{202e}\u{1b}[2J
          /a"~1\u{a} ← †größe.x[0] from outside
      3 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…
    layer 2
      1 `<img src=x onerror=alert(1)>` #quot; %%{init: {"securityLevel":…
          /x ← †s from 0
    "#);
}

proptest! {
    #[test]
    fn no_text_breaks_a_drawing(tool in "\\PC{1,40}|[\"\\\\#;%{}<>\\n\\]]{1,20}", instance in ".{0,20}", key in ".{0,20}") {
        prop_assume!(!key.starts_with('_'));
        let mut call = json!({"_tool": tool, "_instance": instance, "_outputPath": "†s.out"});
        call[key] = json!("†s.x || †input.y");
        let graph = graph(&json!([call, {"_tool": "r", "_instance": instance, "x": "†s.out"}]));
        // Two steps, two inputs, an arrow from each input and one between the steps.
        prop_assert_eq!(graph.mermaid().lines().count(), 1 + 4 + 3);
        for line in graph.mermaid().lines() {
            prop_assert!(line.matches('"').count() % 2 == 0 && line.matches('"').count() <= 2, "{}", line);
        }
        prop_assert_eq!(graph.dot().lines().count(), 2 + 4 + 3 + 1);
        let shown = graph.outline();
        prop_assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{}", shown);
    }
}
