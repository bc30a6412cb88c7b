//! Which modules may run: judged by the approvals, again and again, because another process writes them.

use super::Shared;
use crate::approval::{Approval, ApprovedBy, Standing, Trust};
use crate::grant::Grant;
use crate::module::Module;
use std::sync::Arc;

impl Shared {
    pub(super) async fn reconsider(self: &Arc<Self>) {
        self.judge(self.shelf().modules()).await;
    }

    pub(super) async fn judge(self: &Arc<Self>, modules: Vec<Arc<Module>>) {
        let shared = self.clone();
        // Only a panic in there could be lost, and there is none.
        let _ = tokio::task::spawn_blocking(move || {
            for module in modules {
                module.stand(shared.standing(&module));
            }
        })
        .await;
    }

    /// Whether `module` may run, from the approvals as they are now. Blocks on the file system.
    fn standing(&self, module: &Module) -> Standing {
        let Trust::Approved {
            approvals,
            first_sight,
        } = &self.policy.trust
        else {
            return Standing::Trusted;
        };
        let one_off = self
            .policy
            .modules
            .get(&module.name)
            .is_some_and(|own| own.one_off);
        let now = approval(module, ApprovedBy::FirstSight);
        match approvals.get(&module.slot) {
            Some(then) => {
                let changes = then.changes(&now, !one_off);
                if changes.is_empty() {
                    Standing::Approved
                } else {
                    Standing::Pending { changes }
                }
            }
            // A newcomer that takes the name of a module which somebody approved is no newcomer.
            None if *first_sight
                && (module.grant().is_empty() || one_off)
                && !approvals.knows(&module.name) =>
            {
                let pin = Approval {
                    grant: serde_json::to_value(Grant::default()).unwrap_or_default(),
                    ..now
                };
                match approvals.put(&pin) {
                    Ok(()) => Standing::Approved,
                    Err(error) => {
                        tracing::warn!(module = module.slot, %error, "the module could not be pinned");
                        Standing::Pending {
                            changes: Vec::new(),
                        }
                    }
                }
            }
            None => Standing::Pending {
                changes: Vec::new(),
            },
        }
    }
}

pub(super) fn approval(module: &Module, by: ApprovedBy) -> Approval {
    Approval::of(
        &module.slot,
        module.digest,
        &module.tools,
        module.grant(),
        by,
    )
}
