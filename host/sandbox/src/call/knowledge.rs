//! What one call may ask of documents and facts, and how often.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use toolhold_policy::call::{KnowledgeCall, KnowledgeError};
use toolhold_policy::{Grant, Invocation, KnowledgeAccess, KnowledgeGrant};

/// Questions of one call: each costs the host a search.
pub const MAX_QUESTIONS: u32 = 100;

/// The knowledge that one call reaches. The default is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct GrantedKnowledge(Option<Arc<KnowledgeRights>>);

#[derive(Debug)]
struct KnowledgeRights {
    /// Absent: this host keeps no knowledge.
    access: Option<Arc<dyn KnowledgeAccess>>,
    call: KnowledgeCall,
    asked: AtomicU32,
}

impl GrantedKnowledge {
    /// For a call of a module with `grant`.
    pub fn new(
        grant: &Grant,
        access: Option<&Arc<dyn KnowledgeAccess>>,
        invocation: &Invocation<'_>,
    ) -> Self {
        Self(grant.knowledge.as_ref().map(|knowledge| {
            Arc::new(KnowledgeRights {
                access: access.cloned(),
                call: KnowledgeCall {
                    id: invocation.id.to_owned(),
                    tool: invocation.tool.to_owned(),
                    caller: invocation.caller.to_owned(),
                    agent: invocation.agent.to_owned(),
                    grant: Arc::new(knowledge.clone()),
                },
                asked: AtomicU32::new(0),
            })
        }))
    }

    /// What was granted.
    pub fn grant(&self) -> Option<Arc<KnowledgeGrant>> {
        self.0.as_ref().map(|granted| granted.call.grant.clone())
    }

    /// Counts one question, and returns what answers it.
    ///
    /// # Errors
    /// The call has asked too often, or nothing answers.
    pub fn question(&self) -> Result<(Arc<dyn KnowledgeAccess>, KnowledgeCall), KnowledgeError> {
        let Some(granted) = &self.0 else {
            let none = "this module was granted no knowledge";
            return Err(KnowledgeError::Denied(none.into()));
        };
        if granted.asked.fetch_add(1, Ordering::Relaxed) >= MAX_QUESTIONS {
            return Err(KnowledgeError::Quota(format!(
                "a call may ask {MAX_QUESTIONS} times, and this one did"
            )));
        }
        match &granted.access {
            Some(access) => Ok((access.clone(), granted.call.clone())),
            None => Err(KnowledgeError::Unavailable(
                "this host keeps no documents and no memory".into(),
            )),
        }
    }
}
