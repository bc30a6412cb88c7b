//! Rows of the audit log for calls that are refused before the pipeline is asked, which would record them.
//!
//! A refusal costs a client nothing, and no limit of calls counts it: so the rows have a rate of their own, which
//! addresses share. What is refused beyond it is counted, and the next row says how many those were.

use super::seams::{CallRecords, RecordedCaller};
use serde_json::Value;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use toolhold_admission::FairRate;
use toolhold_agent::calls::{CallEnd, NewCall};
use toolhold_protocol::failure::ToolFailure;
use uuid::Uuid;

/// Rows in a minute, of all addresses.
const ROWS_PER_MINUTE: u64 = 600;
/// The property of a row that says how many calls were refused without one since the row before it.
const WITHOUT_ROW: &str = "refused_without_row";

#[derive(Debug)]
pub struct Refusals {
    records: Arc<dyn CallRecords>,
    rows: FairRate<IpAddr>,
    /// Since the last row.
    without_row: AtomicU64,
}

impl Refusals {
    pub fn new(records: Arc<dyn CallRecords>) -> Self {
        Self {
            records,
            rows: FairRate::per_minute(ROWS_PER_MINUTE),
            without_row: AtomicU64::new(0),
        }
    }

    /// Records a call of a client at `source`, as far as there may be rows.
    pub async fn record(
        &self,
        source: IpAddr,
        mut caller: RecordedCaller,
        tool: &str,
        arguments: &Value,
        reason: &str,
    ) {
        if self.rows.take(&source).is_err() {
            if self.without_row.fetch_add(1, Ordering::Relaxed) == 0 {
                tracing::warn!(
                    %source,
                    "more calls are refused than {ROWS_PER_MINUTE} in a minute, which the audit log takes; the next \
                     row says how many are left out ({WITHOUT_ROW})"
                );
            }
            return;
        }
        let left_out = self.without_row.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            caller.way.insert(WITHOUT_ROW.to_owned(), left_out.into());
        }
        let (recorder, id) = (self.records.of(caller), Uuid::now_v7().to_string());
        let recording = recorder.begin(NewCall {
            id: &id,
            tool,
            arguments,
            may_be_repeated: true,
            gives_bytes: false,
        });
        let recording = recording.await;
        let failure = ToolFailure::correctable("arguments", reason);
        if recording.ended(&CallEnd::refused(failure)).await.is_err() {
            tracing::error!(tool, "a refused call is not in the audit log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::BoxFuture;
    use std::io;
    use std::sync::Mutex;
    use std::time::Duration;
    use toolhold_agent::calls::{CallRecorder, CallRecording};
    use toolhold_protocol::event::EventKind;

    /// Keeps what each row says of its caller.
    #[derive(Debug, Clone, Default)]
    struct Rows(Arc<Mutex<Vec<RecordedCaller>>>);

    impl CallRecords for Rows {
        fn of(&self, caller: RecordedCaller) -> Arc<dyn CallRecorder> {
            self.0.lock().unwrap().push(caller);
            Arc::new(self.clone())
        }
    }

    impl CallRecorder for Rows {
        fn ready(&self) -> Result<(), ToolFailure> {
            Ok(())
        }

        fn begin<'a>(&'a self, _: NewCall<'a>) -> BoxFuture<'a, Box<dyn CallRecording>> {
            let recording: Box<dyn CallRecording> = Box::new(self.clone());
            Box::pin(std::future::ready(recording))
        }

        fn within(&self, _: &str) -> Arc<dyn CallRecorder> {
            Arc::new(self.clone())
        }
    }

    impl CallRecording for Rows {
        fn event(&mut self, _: EventKind) -> BoxFuture<'_, ()> {
            Box::pin(std::future::ready(()))
        }

        fn started<'a>(
            &'a mut self,
            _: Option<&'a Value>,
        ) -> BoxFuture<'a, Result<(), ToolFailure>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn ended(self: Box<Self>, _: &CallEnd) -> BoxFuture<'_, io::Result<()>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn forget(self: Box<Self>) {}
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_refused_calls_leaves_a_bounded_number_of_rows_and_says_how_many_it_was() {
        let rows = Rows::default();
        let refusals = Refusals::new(Arc::new(rows.clone()));
        let refuse = async |last: u8| {
            let source = [192, 0, 2, last].into();
            let caller = RecordedCaller::default();
            let refused = refusals.record(source, caller, "x", &Value::Null, "Unknown tool: x");
            refused.await;
        };
        for _ in 0..10_000 {
            refuse(1).await;
        }
        let flood = rows.0.lock().unwrap().len();
        assert!(flood <= 600, "{flood} rows");
        // One of another address has its row meanwhile, which counts the others.
        refuse(2).await;
        {
            let rows = rows.0.lock().unwrap();
            assert_eq!(rows.len(), flood + 1);
            assert_eq!(rows[flood].way[WITHOUT_ROW], 10_000 - flood);
        }
        tokio::time::advance(Duration::from_mins(1)).await;
        refuse(1).await;
        let rows = rows.0.lock().unwrap();
        assert_eq!(rows.len(), flood + 2);
        assert!(rows[flood + 1].way.is_empty(), "nothing was left out");
    }
}
