//! An index of records of runs by the documents and facts of which they have texts.
//!
//! The journal of a run writes it in the transaction of the event that has the text, so that the records are found in
//! which a deleted document or fact is, without reading all others. What was deleted is noted in the transaction that
//! deletes it. `redaction` takes the texts out.
//!
//! Known are the passages that were found before a run, and what the tools of the module `knowledge` take and return.
//! What other modules do with the same import is not known: their results have shapes of their own.

use crate::column::signed;
use crate::statements::{OpenTransaction, SqlValue};
use crate::time::now_ms;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use toolhold_protocol::event::{EventKind, ToolOutcome};
use uuid::Uuid;

/// A tool of the module `knowledge` that takes or returns texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnowledgeTool {
    /// Returns passages: `search` and `read`.
    Passages,
    /// Returns facts.
    Recall,
    /// Takes a fact, and returns its id.
    Remember,
}

impl KnowledgeTool {
    /// By its full name, which may have a version: `knowledge@1.2.recall`.
    fn of(tool: &str) -> Option<Self> {
        let (module, own) = tool.rsplit_once('.')?;
        if module.split('@').next() != Some("knowledge") {
            return None;
        }
        match own {
            "search" | "read" => Some(Self::Passages),
            "recall" => Some(Self::Recall),
            "remember" => Some(Self::Remember),
            _ => None,
        }
    }
}

/// The names under which a run and its sub-agents have these tools.
#[derive(Debug, Clone, Default)]
pub struct KnowledgeTools(HashMap<String, KnowledgeTool>);

impl KnowledgeTools {
    /// Takes the run's next event.
    pub fn take(&mut self, event: &EventKind) {
        let mut kind = event;
        while let EventKind::Sub { what, .. } = kind {
            kind = what;
        }
        if let EventKind::Run { tools, .. } = kind {
            let known = tools.iter().filter_map(|bound| {
                let tool = KnowledgeTool::of(bound.called())?;
                Some((bound.tool.name.clone(), tool))
            });
            self.0.extend(known);
        }
    }

    /// The tool that is called by this name, if it is one of them.
    pub fn named(&self, name: &str) -> Option<KnowledgeTool> {
        self.0
            .get(name)
            .copied()
            .or_else(|| KnowledgeTool::of(name))
    }
}

/// The passages and facts whose texts an event has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TextIds {
    pub passages: BTreeSet<i64>,
    pub facts: BTreeSet<Uuid>,
}

impl TextIds {
    /// The ids in `event`. `tools` has seen the events before it.
    pub fn of(event: &EventKind, tools: &KnowledgeTools) -> Self {
        match event {
            EventKind::Sub { what, .. } => Self::of(what, tools),
            EventKind::Run { request, .. } => match &request.carried {
                Some(carried) => Self {
                    passages: carried.passages.clone(),
                    facts: carried.facts.clone(),
                },
                None => Self::default(),
            },
            EventKind::Retrieved { passages, .. } => Self {
                passages: passages.iter().filter_map(|it| it.passage).collect(),
                facts: BTreeSet::new(),
            },
            EventKind::ToolResult {
                tool,
                outcome: ToolOutcome::Output(value),
                ..
            } => match tools.named(tool) {
                Some(KnowledgeTool::Passages) => Self {
                    passages: listed(value, PASSAGES).filter_map(passage_id).collect(),
                    facts: BTreeSet::new(),
                },
                Some(KnowledgeTool::Recall) => Self {
                    passages: BTreeSet::new(),
                    facts: listed(value, FACTS).filter_map(fact_id).collect(),
                },
                Some(KnowledgeTool::Remember) => Self {
                    passages: BTreeSet::new(),
                    facts: fact_id(value).into_iter().collect(),
                },
                None => Self::default(),
            },
            _ => Self::default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.passages.is_empty() && self.facts.is_empty()
    }
}

/// The member of a result with the passages that were found.
pub const PASSAGES: &str = "passages";
/// The member of a result with the facts that were found.
pub const FACTS: &str = "facts";

fn listed<'v>(value: &'v Value, member: &str) -> impl Iterator<Item = &'v Value> {
    let listed = value.get(member).and_then(Value::as_array);
    listed.into_iter().flatten()
}

/// The number of a passage, as a result has it.
pub fn passage_id(passage: &Value) -> Option<i64> {
    passage.get("id")?.as_str()?.parse().ok()
}

/// The id of a fact, as a result has it.
pub fn fact_id(fact: &Value) -> Option<Uuid> {
    fact.get("id")?.as_str()?.parse().ok()
}

/// A passage that is gone already has the source that the records of the runs $3 have for it, or else an empty one.
/// PostgreSQL, SQLite.
const ADD_PASSAGES: [&str; 2] = [
    "INSERT INTO shown_texts (source, run, passage) SELECT COALESCE(passages.document, \
     (SELECT MAX(older.source) FROM shown_texts AS older WHERE older.run IN \
     (SELECT value FROM json_array_elements_text($3::json) AS runs (value)) AND older.passage = shown.id), ''), \
     CAST($1 AS TEXT), shown.id FROM (SELECT CAST(value AS BIGINT) AS id FROM json_array_elements_text($2::json) AS listed (value)) AS shown \
     LEFT JOIN passages ON passages.id = shown.id WHERE true ON CONFLICT (source, run, passage) DO NOTHING",
    "INSERT INTO shown_texts (source, run, passage) SELECT COALESCE(passages.document, \
     (SELECT MAX(older.source) FROM shown_texts AS older WHERE older.run IN \
     (SELECT value FROM json_each($3)) AND older.passage = shown.value), ''), \
     CAST($1 AS TEXT), shown.value FROM json_each($2) AS shown LEFT JOIN passages ON passages.id = shown.value WHERE true \
     ON CONFLICT (source, run, passage) DO NOTHING",
];
const ADD_FACTS: [&str; 2] = [
    "INSERT INTO shown_texts (source, run, passage) SELECT value, CAST($1 AS TEXT), 0 \
     FROM json_array_elements_text($2::json) AS listed (value) WHERE true ON CONFLICT (source, run, passage) DO NOTHING",
    "INSERT INTO shown_texts (source, run, passage) SELECT value, CAST($1 AS TEXT), 0 FROM json_each($2) WHERE true \
     ON CONFLICT (source, run, passage) DO NOTHING",
];

/// Notes that the record of `run` has these texts. `before`: the runs whose records it has them from.
pub async fn write(
    transaction: &mut OpenTransaction<'_>,
    run: Uuid,
    before: &[Uuid],
    shown: &TextIds,
) -> Result<(), sqlx::Error> {
    let encoded = |ids: Result<String, serde_json::Error>| {
        ids.map_err(|error| sqlx::Error::Encode(error.into()))
    };
    if !shown.passages.is_empty() {
        let values = [
            SqlValue::from(run),
            encoded(serde_json::to_string(&shown.passages))?.into(),
            encoded(serde_json::to_string(before))?.into(),
        ];
        let statement = transaction.choose(ADD_PASSAGES);
        transaction.execute(statement, &values).await?;
    }
    if !shown.facts.is_empty() {
        let facts = encoded(serde_json::to_string(&shown.facts))?;
        let statement = transaction.choose(ADD_FACTS);
        transaction
            .execute(statement, &[run.into(), facts.into()])
            .await?;
    }
    Ok(())
}

/// Notes that a document was deleted, and with it the versions that it took the place of.
pub async fn document_deleted(
    transaction: &mut OpenTransaction<'_>,
    document: Uuid,
) -> Result<(), sqlx::Error> {
    let values = [document.into(), signed(now_ms()).into()];
    transaction.execute(DELETE_DOCUMENT, &values).await?;
    Ok(())
}

const DELETE_DOCUMENT: &str = "INSERT INTO deleted_texts (source, digest, deleted_ms) \
         WITH RECURSIVE versions (id) AS (SELECT CAST($1 AS TEXT) UNION \
         SELECT replaced_documents.document FROM replaced_documents \
         JOIN versions ON replaced_documents.successor = versions.id) \
         SELECT versions.id, COALESCE(documents.digest, ''), CAST($2 AS BIGINT) FROM versions \
         LEFT JOIN documents ON documents.id = versions.id WHERE true ON CONFLICT (source) DO NOTHING";

/// Notes that the document `new` took the place of `old`, if records may have texts of `old` or of earlier versions.
pub async fn document_replaced(
    transaction: &mut OpenTransaction<'_>,
    old: Uuid,
    new: Uuid,
) -> Result<(), sqlx::Error> {
    let values = [old.into(), new.into()];
    transaction.execute(REPLACE_DOCUMENT, &values).await?;
    Ok(())
}

const REPLACE_DOCUMENT: &str = "INSERT INTO replaced_documents (document, successor) SELECT CAST($1 AS TEXT), CAST($2 AS TEXT) \
         WHERE EXISTS (SELECT 1 FROM shown_texts WHERE source = $1) \
         OR EXISTS (SELECT 1 FROM replaced_documents WHERE successor = $1) ON CONFLICT (document) DO NOTHING";

/// Notes that facts were forgotten.
pub async fn facts_forgotten(
    transaction: &mut OpenTransaction<'_>,
    facts: &[Uuid],
) -> Result<(), sqlx::Error> {
    let now = signed(now_ms());
    for fact in facts {
        transaction
            .execute(
                "INSERT INTO deleted_texts (source, deleted_ms) VALUES ($1, $2) ON CONFLICT (source) DO NOTHING",
                &[(*fact).into(), now.into()],
            )
            .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(tool: &str, output: Value) -> EventKind {
        let result = json!({"event": "tool_result", "step": 1, "id": "c", "tool": tool, "output": output, "usage": {}});
        serde_json::from_value(result).unwrap()
    }

    #[test]
    fn texts_are_known_by_their_ids_in_what_the_module_returns() {
        let fact = Uuid::now_v7();
        let tools = KnowledgeTools::default();
        for (tool, output, passages, facts) in [
            (
                "knowledge.search",
                json!({"passages": [{"id": "7", "text": "a"}, {"id": "x"}, {}]}),
                vec![7],
                vec![],
            ),
            (
                "knowledge@1.2.read",
                json!({"passages": [{"id": "8"}]}),
                vec![8],
                vec![],
            ),
            (
                "knowledge.recall",
                json!({"facts": [{"id": fact, "text": "a"}]}),
                vec![],
                vec![fact],
            ),
            (
                "knowledge.remember",
                json!({"id": fact}),
                vec![],
                vec![fact],
            ),
            ("knowledge.forget", json!({"id": fact}), vec![], vec![]),
            (
                "other.search",
                json!({"passages": [{"id": "7"}]}),
                vec![],
                vec![],
            ),
            ("knowledge.search", json!("nothing"), vec![], vec![]),
        ] {
            let expected = TextIds {
                passages: passages.into_iter().collect(),
                facts: facts.into_iter().collect(),
            };
            let event = result(tool, output);
            assert_eq!(TextIds::of(&event, &tools), expected, "{tool}");
            let inner = EventKind::Sub {
                call: "outer".into(),
                what: Box::new(event),
            };
            assert_eq!(TextIds::of(&inner, &tools), expected, "{tool} inside");
        }
    }
}
