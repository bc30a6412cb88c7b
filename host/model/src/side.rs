//! Requests made in addition to the run's own: to a shield's model for a verdict, to the router's model for a
//! class, and hedged requests that lost the race. They cost money, so they are reported.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::chat::ChatRequest;
use crate::error::ModelError;
use crate::model::{CompletionObserver, Model, RunContext};
use crate::tokenizer::Counter;
use toolhold_protocol::completion::{Completion, Delta};
use toolhold_protocol::cost::Price;
use toolhold_protocol::routing::Routing;
use toolhold_protocol::side_request::{SideRequest, SideRole};

/// A model that is asked in addition to the run's own, and reports its usage.
#[derive(Clone, Debug)]
pub struct SideModel {
    pub role: SideRole,
    /// What `model` is called in the configuration.
    pub endpoint: String,
    pub model: Arc<dyn Model>,
    pub price: Option<Price>,
}

impl Model for SideModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a ChatRequest,
        watch: &'a mut dyn CompletionObserver,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        async move {
            let completion = self.model.complete(request, watch).await?;
            let usage = completion.usage;
            let price = self.price.as_ref();
            watch.side_request(SideRequest {
                role: self.role,
                endpoint: self.endpoint.clone(),
                model: self.model.name().to_owned(),
                usage,
                duration_ms: millis(completion.duration),
                cost_nano: price.and_then(|price| price.of(usage.as_ref(), completion.duration)),
            });
            Ok(completion)
        }
        .boxed()
    }

    fn session(&self, session: &RunContext<'_>) -> Option<Arc<dyn Model>> {
        let model = self.model.session(session)?;
        Some(Arc::new(Self {
            model,
            ..self.clone()
        }))
    }

    fn counter(&self) -> Option<Arc<dyn Counter>> {
        self.model.counter()
    }
}

/// A hedged request that lost the race, from its sending to its cancellation.
#[derive(Clone, Debug)]
pub(crate) struct CancelledHedge {
    pub endpoint: String,
    pub model: String,
    pub price: Option<Price>,
    pub sent: Instant,
}

impl CancelledHedge {
    /// Its usage until now, as far as it is known.
    pub fn told(self) -> SideRequest {
        let duration = self.sent.elapsed();
        SideRequest {
            role: SideRole::Hedge,
            endpoint: self.endpoint,
            model: self.model,
            usage: None,
            duration_ms: millis(duration),
            cost_nano: self.price.and_then(|price| price.of(None, duration)),
        }
    }
}

/// Forwards routing decisions and usage to the run, and drops the text of the other model.
#[expect(
    missing_debug_implementations,
    reason = "it holds a `CompletionObserver`, which has none"
)]
pub struct SideObserver<'a>(pub &'a mut dyn CompletionObserver);

impl CompletionObserver for SideObserver<'_> {
    fn delta(&mut self, _: Delta) {}

    fn routing(&mut self, routing: Routing) {
        self.0.routing(routing);
    }

    fn side_request(&mut self, request: SideRequest) {
        self.0.side_request(request);
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
