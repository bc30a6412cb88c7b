//! The benchmark of retrieval on a small set: `benches/retrieval`.

#[path = "../../benches/retrieval/measure.rs"]
mod measure;

use measure::{Set, ndcg, own, recall, table};
use std::collections::BTreeSet;
use std::path::Path;

fn ids(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|&id| id.into()).collect()
}

#[test]
fn a_ranking_is_worth_what_it_has_at_the_top() {
    let gold: BTreeSet<String> = ids(&["a", "b"]).into_iter().collect();
    let close = |left: f64, right: f64| assert!((left - right).abs() < 1e-9, "{left} {right}");
    close(recall(&ids(&["a", "x", "b"]), &gold), 1.0);
    close(recall(&ids(&["x", "b"]), &gold), 0.5);
    close(ndcg(&ids(&["a", "b"]), &gold), 1.0);
    // 1 / log2(3) of 1 + 1 / log2(3).
    close(ndcg(&ids(&["x", "b"]), &gold), 0.386_852_807_234_541_6);
    let late: Vec<String> = (0..10).map(|n| n.to_string()).chain(ids(&["a"])).collect();
    close(recall(&late, &gold) + ndcg(&late, &gold), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_table_is_made_of_a_set() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture");
    let set = Set::read(&folder).unwrap();
    // A task without documents asks for none.
    assert_eq!((set.documents.len(), set.questions.len()), (4, 2));
    let arms = own(&set, None).await.unwrap();
    assert_eq!(arms.len(), 1);
    assert_eq!(arms[0].rankings[0][0], "fees");
    assert_eq!(arms[0].rankings[1][0], "hours");
    let table = table(&set, &arms);
    assert!(table.contains("4 documents, 2 questions"), "{table}");
    // The second question needs "cards", too, and has no word of it.
    assert!(table.contains("| full text | 0.750 | 0.807 |"), "{table}");

    let missing = Set::read(&folder.join("documents")).unwrap_err();
    assert!(missing.to_string().contains("cannot be read"), "{missing}");
}
