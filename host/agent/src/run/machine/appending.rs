//! Places that the author of a tool message opened to the tool: it appends its message there although the call names
//! no place (docs/protocol.md, 5.5). Elsewhere only the call decides where data goes.

use super::Machine;
use super::results::place;
use crate::run::schedule::Appends;
use toolhold_protocol::bound::Runner;
use toolhold_protocol::reference::Path;
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::OutputPath;

/// Places that no author names: a restriction that allows one of them opens none.
const ANY_PLACES: [&str; 3] = ["†zzzz", "†zz9.zz9", "†zzzz.zzzz.zzzz"];

impl Machine {
    /// Where the tool appends the message for which it picked a place; nowhere, if no place is open to it.
    ///
    /// # Errors
    /// The place is none, or none that is open.
    pub(super) fn append(&self, call: &Call, picked: &str) -> Result<Option<Path>, String> {
        if self.opened(call).is_none() {
            return Ok(None);
        }
        let path = place(picked)?;
        self.allows_place(call, path.to_string())
            .map_err(|reason| {
                format!("the tool chose {path}, which its definition does not allow: {reason}")
            })?;
        Ok(Some(path))
    }

    /// Where the call, which says no place, may append: known before it is made, unlike the place itself.
    pub(super) fn appends(&self, call: &Call) -> Appends {
        let bound = self.tools.find(&call.tool);
        // Others return no messages.
        let returns_messages = bound
            .is_some_and(|bound| matches!(bound.runner, Runner::Module(_) | Runner::Activity(_)));
        match self.opened(call) {
            Some(opened) if returns_messages => match opened.kind() {
                Some(kind) => Appends::InKind(kind.to_owned()),
                None => Appends::Anywhere,
            },
            _ => Appends::Nowhere,
        }
    }

    /// The restriction that opens places to the tool. One that any place satisfies, such as a length, names no place that
    /// the tool may write to.
    fn opened(&self, call: &Call) -> Option<&OutputPath> {
        let opened = self.tools.find(&call.tool)?.tool.output_path.as_ref()?;
        let allows_any = || {
            let mut any = ANY_PLACES.iter();
            any.any(|place| self.allows_place(call, (*place).to_owned()).is_ok())
        };
        (matches!(opened, OutputPath::Matching(_)) && !allows_any()).then_some(opened)
    }

    fn allows_place(&self, call: &Call, place: String) -> Result<(), String> {
        let call = Call {
            output_path: Some(place),
            ..call.clone()
        };
        let checked = self.tools.checks.place(&call);
        checked.map_err(|failure| failure.message)
    }
}
