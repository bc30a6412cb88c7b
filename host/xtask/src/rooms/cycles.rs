//! Cycles: sets of rooms in which each reaches all others.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::arrows::Arrows;

#[derive(Debug)]
pub struct ModuleCycle {
    pub rooms: BTreeSet<String>,
    /// The arrows between its rooms, the rarest first.
    pub edges: Vec<CycleEdge>,
}

#[derive(Debug)]
pub struct CycleEdge {
    pub from: String,
    pub to: String,
    /// How many lines draw this arrow.
    pub lines: usize,
    pub first: (PathBuf, usize),
}

pub fn cycles(arrows: &Arrows) -> Vec<ModuleCycle> {
    let mut cycles: Vec<ModuleCycle> = Vec::new();
    for room in &arrows.rooms {
        if cycles.iter().any(|cycle| cycle.rooms.contains(room)) {
            continue;
        }
        let back = |other: &&String| reached(arrows, other).contains(room);
        let rooms: BTreeSet<_> = reached(arrows, room).iter().filter(back).cloned().collect();
        if !rooms.is_empty() {
            let edges = edges(arrows, &rooms);
            cycles.push(ModuleCycle { rooms, edges });
        }
    }
    cycles
}

/// All rooms that can be reached from this one; itself only along a circle.
fn reached(arrows: &Arrows, room: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![room.to_owned()];
    while let Some(room) = open.pop() {
        for next in arrows.from(&room) {
            if reached.insert(next.to_owned()) {
                open.push(next.to_owned());
            }
        }
    }
    reached
}

fn edges(arrows: &Arrows, rooms: &BTreeSet<String>) -> Vec<CycleEdge> {
    let inside = arrows
        .lines
        .iter()
        .filter(|((from, to), _)| rooms.contains(from) && rooms.contains(to));
    let mut edges: Vec<_> = inside
        .filter_map(|((from, to), lines)| {
            Some(CycleEdge {
                from: from.clone(),
                to: to.clone(),
                lines: lines.len(),
                first: lines.first()?.clone(),
            })
        })
        .collect();
    edges.sort_by_key(|edge| edge.lines);
    edges
}

#[cfg(test)]
mod tests {
    use super::super::arrows::tests::arrows;
    use super::*;

    #[test]
    fn a_chain_is_no_circle() {
        let arrows = arrows(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use crate::b; use crate::c;"),
            ("b.rs", "use crate::c;"),
            ("c.rs", ""),
        ]);
        assert!(cycles(&arrows).is_empty());
    }

    #[test]
    fn cycles_are_separate_and_list_their_edges() {
        let arrows = arrows(&[
            ("lib.rs", "mod a; mod b; mod c; mod x; mod y;"),
            ("a.rs", "use crate::b::One;\nuse crate::b::Two;"),
            ("b.rs", "\nuse crate::c;"),
            ("c.rs", "use crate::a; use crate::x;"),
            ("x.rs", "use crate::y;"),
            ("y.rs", "use crate::x;"),
        ]);
        let cycles = cycles(&arrows);
        let rooms: Vec<_> = cycles
            .iter()
            .map(|cycle| cycle.rooms.iter().cloned().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(rooms, ["a b c", "x y"]);
        let edges: Vec<_> = cycles[0]
            .edges
            .iter()
            .map(|edge| format!("{}->{} {} {}", edge.from, edge.to, edge.lines, edge.first.1))
            .collect();
        assert_eq!(edges, ["b->c 1 2", "c->a 1 1", "a->b 2 1"]);
    }
}
