//! The end of a call that a text begins with.

use super::body::CallableNames;
use super::marks::Mark;
use super::{LeakedCalls, MAX_CLOSES, inside};
use toolhold_json::repair::TextEnd;

/// The search for the mark that closes a call. When the text has grown, it resumes at its last position: each byte is
/// compared with marks once, and the text before a mark is read as a call once for each of [`MAX_CLOSES`] marks.
#[derive(Debug, Clone)]
pub(super) struct ClosingMark {
    mark: &'static Mark,
    /// Position of the search, in bytes behind the mark that opens the call.
    from: usize,
    /// Marks before which no call could be read.
    tried: usize,
}

impl ClosingMark {
    /// The search behind `mark`, which opens the call.
    pub(super) fn of(mark: &'static Mark) -> Self {
        Self {
            mark,
            from: 0,
            tried: 0,
        }
    }

    /// The mark that opens the call.
    pub(super) fn mark(&self) -> &'static Mark {
        self.mark
    }

    /// Whether [`MAX_CLOSES`] marks did not close the call: no further one does.
    pub(super) fn is_missing(&self) -> bool {
        self.tried >= MAX_CLOSES
    }

    /// The call that `start` begins with, and where it ends, in bytes of `start`: at the first mark before which a call
    /// can be read.
    pub(super) fn find(
        &mut self,
        start: &str,
        offer: &CallableNames,
    ) -> Option<(LeakedCalls, usize)> {
        let mark = self.mark;
        let close = mark.end();
        let inner = &start[mark.open.len()..];
        while !self.is_missing() {
            let Some(at) = inner[self.from..].find(close).map(|at| self.from + at) else {
                // The end of the text may be the beginning of the mark.
                let seen = (inner.len() + 1).saturating_sub(close.len());
                self.from = self.from.max(inner.floor_char_boundary(seen));
                return None;
            };
            self.tried += 1;
            let end = at + mark.close.len();
            // A named mark is a call with both of its ends.
            let body = mark.body(start, if mark.is_named { end } else { at });
            if let Some(leaked) = inside(mark, body, offer, TextEnd::Own) {
                let end = mark.open.len() + end;
                return Some((leaked.written_as(&start[..end]), end));
            }
            self.from = inner.ceil_char_boundary(at + mark.close.len().max(1));
        }
        None
    }
}
