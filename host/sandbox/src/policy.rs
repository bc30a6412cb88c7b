//! What the operator decided: limits, trust, grants.

use crate::approval::Trust;
use crate::egress::{Resolve, SystemResolver};
use crate::grant::{Grant, Storage};
use crate::limits::{Limits, LimitsRequest};
use std::collections::HashMap;
use std::sync::Arc;

/// What the operator decided about modules.
#[derive(Debug, Clone)]
pub struct Policy {
    /// What a module gets that asks for nothing.
    pub limits: Limits,
    /// The most a module can get by asking.
    pub ceiling: Limits,
    /// Whether modules need approval.
    pub trust: Trust,
    pub storage: Storage,
    /// Who is asked for the addresses of the hosts that modules send to.
    pub resolver: Arc<dyn Resolve>,
    /// Decisions for single modules, by name.
    pub modules: HashMap<String, ModulePolicy>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            ceiling: Limits::default_ceiling(),
            trust: Trust::All,
            storage: Storage::default(),
            resolver: Arc::new(SystemResolver),
            modules: HashMap::new(),
        }
    }
}

impl Policy {
    /// Whether anything was given to modules of this name, or should have been.
    pub fn grants(&self, name: &str) -> bool {
        let own = self.modules.get(name);
        own.is_some_and(|own| own.fault.is_some() || !own.grant.is_empty())
    }

    /// The most bytes that a component may have which becomes the module `name` and asks for nothing.
    pub fn component_bytes(&self, name: &str) -> u64 {
        self.limits_of(name, &LimitsRequest::default())
            .component_bytes
    }

    /// What the module of this name gets that asks for `request`.
    pub(crate) fn limits_of(&self, name: &str, request: &LimitsRequest) -> Limits {
        let granted = self.limits.granted(request, &self.ceiling);
        match self.modules.get(name) {
            Some(own) => granted.overridden(&own.limits),
            None => granted,
        }
    }
}

/// What the operator decided about one module.
#[derive(Debug, Clone, Default)]
pub struct ModulePolicy {
    /// Limits that replace the defaults and what the module asked for; not bound by the ceiling.
    pub limits: LimitsRequest,
    pub grant: Grant,
    /// The grant was given for this process only, by the person who started it: it is not compared
    /// with what was approved.
    pub one_off: bool,
    /// Why what was granted cannot be given, such as a secret that is not there. The module is then
    /// refused with this reason; the others are none the worse for it.
    pub fault: Option<String>,
}
