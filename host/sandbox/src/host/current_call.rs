//! The call that a guest serves, for a guest that asks.

use crate::bindings::current_call;
use crate::call::CallState;

impl current_call::Host for CallState {
    fn reserved_properties(&mut self) -> wasmtime::Result<String> {
        self.told(self.current.reserved_properties())
    }

    fn tool_schema(&mut self) -> wasmtime::Result<String> {
        self.told(self.current.tool_schema())
    }
}

impl CallState {
    fn told(&mut self, text: String) -> wasmtime::Result<String> {
        self.gauge.moved(text.len() as u64)?;
        let kept = self.gauge.keep(text.len() as u64)?;
        self.answers(kept);
        Ok(text)
    }
}
