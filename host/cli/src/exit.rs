//! Exit codes of the process.

use std::process::ExitCode;

/// The outcome of a command as an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Ok,
    /// An error, which stderr describes; or a failed comparison or check, which stdout describes.
    Failed,
    /// The endpoint failed or did not answer, or its model's replies could not be used.
    Endpoint,
    /// A limit of the run was reached before there was an output.
    Limit,
    /// The tool failed, or reached a limit of its own.
    Tool,
    /// A shield blocked the input or the output.
    Blocked,
    Interrupted,
}

impl Exit {
    /// [`Exit::Ok`], or [`Exit::Failed`].
    pub fn of(is_fine: bool) -> Self {
        if is_fine { Self::Ok } else { Self::Failed }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        // 2 is clap's code for an invalid command line.
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
