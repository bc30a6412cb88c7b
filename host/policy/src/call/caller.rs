//! On whose behalf a call is made.

/// On whose behalf a call is made. Tenants share nothing; a tenant's sessions share what was granted
/// to be kept for longer than a session. An empty name stands for the only tenant or session that exists.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Caller<'a> {
    pub tenant: &'a str,
    pub session: &'a str,
}

/// A [`Caller`] that outlives its call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct OwnedCaller {
    pub tenant: String,
    pub session: String,
}

impl Caller<'_> {
    /// A copy that owns its names.
    pub fn to_owned(self) -> OwnedCaller {
        OwnedCaller {
            tenant: self.tenant.to_owned(),
            session: self.session.to_owned(),
        }
    }
}

impl OwnedCaller {
    /// The caller, borrowed.
    pub fn borrowed(&self) -> Caller<'_> {
        Caller {
            tenant: &self.tenant,
            session: &self.session,
        }
    }
}
