//! How many files the process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than a server needs. Some programs that are started from here go through all numbers up to the limit.
const MOST: u64 = 1 << 20;

/// Raises the soft limit to the hard one. The soft one is 1 024 on many systems, for programs that use `select`, and
/// connections, guests and the host share what there is (`docs/security.md`, "How they are kept").
pub fn raise() {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.unwrap_or(MOST).min(MOST);
    if now.current.is_none_or(|current| current >= most) {
        return;
    }
    let raised = Rlimit {
        current: Some(most),
        maximum: now.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        // Each test is a process of its own.
        let maximum = Some(100);
        let low = Rlimit {
            current: Some(50),
            maximum,
        };
        setrlimit(Resource::Nofile, low).unwrap();
        raise();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
        raise();
        assert_eq!(getrlimit(Resource::Nofile).current, maximum);
    }
}
