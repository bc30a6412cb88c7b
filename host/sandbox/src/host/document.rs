//! The document that an extractor reads.

use crate::bindings::extractor::document;
use crate::call::CallState;

/// Most bytes of one `read`: the host keeps them until the guest has them.
const MAX_READ_BYTES: usize = 1 << 20;
/// What a `read` counts beside its bytes, so that reads of nothing are bounded, too.
const READ_OVERHEAD_BYTES: u64 = 64;

impl document::Host for CallState {
    fn size(&mut self) -> wasmtime::Result<u64> {
        Ok(self.document.len() as u64)
    }

    fn read(&mut self, offset: u64, length: u32) -> wasmtime::Result<Vec<u8>> {
        let size = self.document.len();
        let start = usize::try_from(offset).map_or(size, |offset| offset.min(size));
        let length =
            usize::try_from(length).map_or(MAX_READ_BYTES, |asked| asked.min(MAX_READ_BYTES));
        let end = start.saturating_add(length).min(size);
        let bytes = (end - start) as u64;
        self.gauge
            .moved(bytes.saturating_add(READ_OVERHEAD_BYTES))?;
        let kept = self.gauge.keep(bytes)?;
        self.answers(kept);
        Ok(self.document[start..end].to_vec())
    }
}
