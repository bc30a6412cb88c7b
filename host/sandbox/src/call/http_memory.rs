//! What the host keeps of one call's HTTP: its fields, and what went into its requests.

use super::meter::{Gauge, KeptBytes, KeptTooMuch};
use std::collections::HashMap;

/// Memory of fields and requests that one call made.
#[derive(Debug, Default)]
pub struct HttpMemory {
    /// By the number of their handle.
    fields: HashMap<u32, KeptBytes>,
    /// Until the call ends: what is part of a request. A call makes few.
    spent: Option<KeptBytes>,
}

impl HttpMemory {
    /// Counts new fields. A number is used again when its fields have become part of a request.
    pub fn made(&mut self, gauge: &Gauge, handle: u32, bytes: u64) -> Result<(), KeptTooMuch> {
        if let Some(moved) = self.fields.insert(handle, gauge.keep(bytes)?) {
            self.spend(moved);
        }
        Ok(())
    }

    /// Counts more for these fields, up to `most` altogether.
    pub fn grown(&mut self, handle: u32, bytes: u64, most: u64) -> Result<(), KeptTooMuch> {
        match self.fields.get_mut(&handle) {
            Some(kept) => kept.grow(bytes.min(most.saturating_sub(kept.bytes()))),
            None => Ok(()),
        }
    }

    /// These fields are gone.
    pub fn dropped(&mut self, handle: u32) {
        self.fields.remove(&handle);
    }

    /// Counts what stays until the call ends.
    pub fn spent(&mut self, gauge: &Gauge, bytes: u64) -> Result<(), KeptTooMuch> {
        let kept = gauge.keep(bytes)?;
        self.spend(kept);
        Ok(())
    }

    fn spend(&mut self, kept: KeptBytes) {
        match &mut self.spent {
            Some(spent) => spent.join(kept),
            None => self.spent = Some(kept),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolhold_admission::MemoryCeiling;
    use toolhold_policy::limits::Limits;

    #[test]
    fn what_became_part_of_a_request_stays_counted() {
        let ceiling = MemoryCeiling::new(1_000);
        let limits = Limits {
            kept_bytes: 100,
            ..Limits::default()
        };
        let gauge = Gauge::new(&limits, ceiling.of(""));
        let mut memory = HttpMemory::default();
        memory.made(&gauge, 1, 10).unwrap();
        memory.grown(1, 100, 30).unwrap();
        memory.grown(7, 100, 30).unwrap();
        assert_eq!(ceiling.taken(), 30);
        // Handle 1 moved, and its number is another's now.
        memory.made(&gauge, 1, 10).unwrap();
        memory.spent(&gauge, 5).unwrap();
        assert_eq!(ceiling.taken(), 45);
        memory.dropped(1);
        memory.dropped(1);
        assert_eq!(ceiling.taken(), 35);
        let full = KeptTooMuch::Call { limit: 100 };
        assert_eq!(memory.spent(&gauge, 66), Err(full));
        assert_eq!(memory.made(&gauge, 2, 66), Err(full));
        drop(memory);
        assert_eq!(ceiling.taken(), 0);
    }
}
