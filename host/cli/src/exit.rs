//! How the process ends.

use std::process::ExitCode;

/// How a command ended, as a process says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Ok,
    /// Something did not work, and stderr says what; or what was compared or checked is not as it should be, and
    /// stdout says how.
    Failed,
    /// The endpoint failed, did not answer, or its model wrote nothing that could be used.
    Endpoint,
    /// A limit of the run was reached before there was an output.
    Limit,
    /// The tool said no, or hit a limit of its own.
    Tool,
    /// A shield blocked the input or the output.
    Blocked,
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        // 2 is clap's, for a command line it does not understand.
        ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Endpoint => 3,
            Exit::Limit => 4,
            Exit::Tool => 5,
            Exit::Blocked => 6,
            Exit::Interrupted => 130,
        })
    }
}
