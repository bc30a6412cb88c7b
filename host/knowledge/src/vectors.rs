//! Vectors of a collection in memory, and the exact search among them.
//!
//! Numbers have 16 bits: half the memory, and a cosine that differs in its fourth digit.

use half::f16;
use half::slice::HalfFloatSliceExt as _;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashSet};
use uuid::Uuid;

/// Vectors that are converted at a time: 256 numbers each stay in the nearest cache.
const BLOCK: usize = 16;

/// The vectors of the visible passages of one collection.
#[derive(Debug, Clone, Default)]
pub struct VectorTable {
    dimensions: usize,
    passages: Vec<i64>,
    documents: Vec<Uuid>,
    /// `dimensions` numbers for each passage.
    numbers: Vec<f16>,
}

/// A vector has not the length of its collection's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a vector has {has} numbers instead of {expected}")]
pub struct WrongDimensions {
    pub has: usize,
    pub expected: usize,
}

/// A vector as the database holds it: numbers of 16 bits, little-endian.
pub fn encode(vector: &[f32]) -> Vec<u8> {
    let numbers = vector
        .iter()
        .map(|number| f16::from_f32(*number).to_le_bytes());
    numbers.flatten().collect()
}

impl VectorTable {
    /// An empty table for vectors of `dimensions` numbers.
    pub fn new(dimensions: usize) -> Self {
        Self {
            dimensions,
            ..Self::default()
        }
    }

    /// Adds a vector as [`encode`] made it.
    pub fn push(
        &mut self,
        passage: i64,
        document: Uuid,
        vector: &[u8],
    ) -> Result<(), WrongDimensions> {
        if vector.len() != self.dimensions * 2 {
            return Err(WrongDimensions {
                has: vector.len() / 2,
                expected: self.dimensions,
            });
        }
        self.passages.push(passage);
        self.documents.push(document);
        let numbers = vector.chunks_exact(2);
        let number = |bytes: &[u8]| f16::from_le_bytes([bytes[0], bytes[1]]);
        self.numbers.extend(numbers.map(number));
        Ok(())
    }

    /// Removes the vectors of documents that are not in `documents`, and returns those that it has none of.
    pub fn retain(&mut self, documents: &[Uuid]) -> Vec<Uuid> {
        let visible: HashSet<Uuid> = documents.iter().copied().collect();
        let known: HashSet<Uuid> = self.documents.iter().copied().collect();
        if !known.is_subset(&visible) {
            let mut kept = Self::new(self.dimensions);
            for (place, document) in self.documents.iter().enumerate() {
                if visible.contains(document) {
                    kept.passages.push(self.passages[place]);
                    kept.documents.push(*document);
                    let from = place * self.dimensions;
                    kept.numbers
                        .extend_from_slice(&self.numbers[from..from + self.dimensions]);
                }
            }
            *self = kept;
        }
        let is_new = |document: &&Uuid| !known.contains(document);
        documents.iter().filter(is_new).copied().collect()
    }

    /// Bytes that it keeps.
    pub fn bytes(&self) -> usize {
        self.numbers.capacity() * 2 + self.passages.capacity() * 8 + self.documents.capacity() * 16
    }

    /// The passages whose vectors have the largest dot product with `query`, best first, at most `most`. `goes_on` is
    /// asked every few thousand vectors; with `false` the search ends with what it has found.
    pub fn nearest(
        &self,
        query: &[f32],
        most: usize,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Vec<(i64, f32)>, WrongDimensions> {
        if query.len() != self.dimensions {
            return Err(WrongDimensions {
                has: query.len(),
                expected: self.dimensions,
            });
        }
        let mut best = BinaryHeap::with_capacity(most + 1);
        let mut block = vec![0.0; BLOCK * self.dimensions];
        let rows = self.numbers.chunks(BLOCK * self.dimensions.max(1));
        for (number, (rows, passages)) in rows.zip(self.passages.chunks(BLOCK)).enumerate() {
            if number % 512 == 511 && !goes_on() {
                break;
            }
            let block = &mut block[..rows.len()];
            rows.convert_to_f32_slice(block);
            for (row, passage) in block.chunks_exact(self.dimensions).zip(passages) {
                let found = Near {
                    score: dot(row, query),
                    passage: *passage,
                };
                if best.len() < most {
                    best.push(found);
                } else if let Some(mut worst) = best.peek_mut()
                    && found < *worst
                {
                    *worst = found;
                }
            }
        }
        let best = best.into_sorted_vec();
        Ok(best.into_iter().map(|it| (it.passage, it.score)).collect())
    }
}

/// The dot product in eight sums, which the compiler computes side by side.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f32 = a
        .remainder()
        .iter()
        .zip(b.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a.zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// The largest is the farthest, so that the heap's top is the one to be replaced.
struct Near {
    score: f32,
    passage: i64,
}

impl Ord for Near {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .score
            .total_cmp(&self.score)
            .then(self.passage.cmp(&other.passage))
    }
}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Near {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Near {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::embed::normalize;

    fn table(vectors: &[(Uuid, [f32; 3])]) -> VectorTable {
        let mut table = VectorTable::new(3);
        for (passage, (document, vector)) in (1..).zip(vectors) {
            table.push(passage, *document, &encode(vector)).unwrap();
        }
        table
    }

    #[test]
    fn the_nearest_come_first() {
        let a = Uuid::now_v7();
        let table = table(&[
            (a, [1.0, 0.0, 0.0]),
            (a, [0.0, 1.0, 0.0]),
            (a, [0.6, 0.8, 0.0]),
            (a, [0.6, 0.8, 0.0]),
        ]);
        let found = table.nearest(&[0.0, 1.0, 0.0], 3, &|| true).unwrap();
        let passages: Vec<i64> = found.iter().map(|(passage, _)| *passage).collect();
        assert_eq!(passages, [2, 3, 4]);
        assert!((found[1].1 - 0.8).abs() < 1e-3);
        let wrong = table.nearest(&[1.0], 3, &|| true).unwrap_err();
        assert_eq!(
            wrong,
            WrongDimensions {
                has: 1,
                expected: 3
            }
        );
    }

    #[test]
    fn it_follows_the_documents() {
        let (a, b, c) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7());
        let mut table = table(&[(a, [1.0, 0.0, 0.0]), (b, [0.0, 1.0, 0.0])]);
        assert_eq!(table.retain(&[b, c]), [c]);
        let found = table.nearest(&[1.0, 0.0, 0.0], 9, &|| true).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, 2);
        assert!(table.push(9, c, &[0; 4]).is_err());
    }

    #[test]
    fn a_search_can_be_ended() {
        let a = Uuid::now_v7();
        let mut table = VectorTable::new(1);
        for passage in 0..20_000 {
            table.push(passage, a, &encode(&[1.0])).unwrap();
        }
        table.push(20_000, a, &encode(&[2.0])).unwrap();
        let all = table.nearest(&[1.0], 1, &|| true).unwrap();
        assert_eq!(all[0].0, 20_000);
        let ended = table.nearest(&[1.0], 1, &|| false).unwrap();
        assert_eq!(ended[0].0, 0);
    }

    #[test]
    fn a_vector_without_direction_stays_zero() {
        for mut vector in [[0.0, 0.0], [f32::NAN, 1.0], [f32::INFINITY, 1.0]] {
            normalize(&mut vector);
            assert!(vector.iter().all(|number| *number == 0.0), "{vector:?}");
        }
        let mut vector = [3.0, 4.0];
        normalize(&mut vector);
        assert!((vector[0] - 0.6).abs() < 1e-6 && (vector[1] - 0.8).abs() < 1e-6);
    }

    proptest::proptest! {
        #[test]
        fn it_finds_what_a_plain_scan_finds(
            vectors in proptest::collection::vec(proptest::array::uniform9(-1.0_f32..1.0), 1..60),
            query in proptest::array::uniform9(-1.0_f32..1.0),
            most in 1_usize..10,
        ) {
            let document = Uuid::nil();
            let mut table = VectorTable::new(9);
            for (passage, vector) in (0..).zip(&vectors) {
                table.push(passage, document, &encode(vector)).unwrap();
            }
            let found = table.nearest(&query, most, &|| true).unwrap();
            let exact = |vector: &[f32; 9]| -> f32 { vector.iter().zip(&query).map(|(a, b)| a * b).sum() };
            proptest::prop_assert_eq!(found.len(), most.min(vectors.len()));
            let worst = found.last().unwrap().1;
            for (passage, vector) in (0..).zip(&vectors) {
                let is_found = found.iter().any(|(it, _)| *it == passage);
                proptest::prop_assert!(is_found || exact(vector) <= worst + 0.02);
            }
        }
    }
}
