//! Ends of words in scripts without spaces, by ICU's dictionaries.

use icu_segmenter::WordSegmenter;
use icu_segmenter::options::WordBreakInvariantOptions;
use unicode_normalization::char::is_combining_mark;

/// Maximum bytes that are divided at a time. ICU keeps the places of a piece in memory.
const PIECE_BYTES: usize = 4 << 10;

/// Returns the ends of the words of `run` in bytes, ascending; the last one is the end of the run. One word in 4 KiB may be divided where a
/// piece ends.
pub(super) fn word_ends(run: &str) -> Vec<usize> {
    // It only refers to constants.
    let segmenter = WordSegmenter::new_dictionary(WordBreakInvariantOptions::default());
    let mut ends = Vec::new();
    let mut start = 0;
    while start < run.len() {
        let end = piece_end(run, start);
        let piece = run.get(start..end).unwrap_or_default();
        // The first boundary is the begin of the piece.
        let boundaries = segmenter.segment_str(piece).skip(1);
        ends.extend(boundaries.map(|at| start + at));
        start = end;
    }
    ends
}

/// Returns the end of the piece that begins at `start`. A letter and its marks stay in one piece.
fn piece_end(run: &str, start: usize) -> usize {
    let mut end = run.floor_char_boundary(start + PIECE_BYTES);
    let marks = run.get(end..).unwrap_or_default().chars();
    for mark in marks.take_while(|c| is_combining_mark(*c)) {
        end += mark.len_utf8();
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(run: &str) -> Vec<&str> {
        let mut start = 0;
        let ends = word_ends(run).into_iter();
        ends.map(|end| &run[std::mem::replace(&mut start, end)..end])
            .collect()
    }

    #[test]
    fn words_of_scripts_without_spaces_are_told_apart() {
        for (run, expected) in [
            ("こんにちは世界", &["こんにちは", "世界"][..]),
            ("龟山岛龟山岛", &["龟山岛", "龟山岛"]),
            ("ทุกสองสัปดาห์", &["ทุก", "สอง", "สัปดาห์"]),
            ("ພາສາລາວພາສາລາວ", &["ພາສາ", "ລາວ", "ພາສາ", "ລາວ"]),
            ("ភាសាខ្មែរភាសាខ្មែរ", &["ភាសាខ្មែរ", "ភាសាខ្មែរ"]),
            ("မြန်မာစာမြန်မာစာ", &["မြန်မာ", "စာ", "မြန်မာ", "စာ"]),
            ("", &[]),
        ] {
            assert_eq!(words(run), expected);
        }
    }

    #[test]
    fn a_long_run_is_divided_in_pieces_to_its_end() {
        for word in ["龟山岛", "ภาษา", "สัปดาห์", "\u{e48}"] {
            let run = word.repeat(5_000);
            let ends = word_ends(&run);
            assert!(ends.is_sorted());
            assert_eq!(ends.last(), Some(&run.len()));
            assert!(ends.iter().all(|end| run.is_char_boundary(*end)));
        }
    }
}
