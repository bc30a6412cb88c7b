//! Samples of one call, for its author: which functions of the module ran when the epoch advanced.

use crate::engine::EPOCH_INTERVAL;
use serde::Deserialize;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toolhold_admission::own_work;
use toolhold_policy::{CallProfile, ProfileSlot, ProfileSummary, ProfiledFunction};
use wasmtime::component::Component;
use wasmtime::{AsContext, Engine, GuestProfiler};

/// Samples of one call: more than a minute and a half of computing.
const MAX_SAMPLES: u64 = 100_000;
/// Time that taking samples may take together. A sample takes microseconds, and of a deep recursion milliseconds, in
/// which it keeps some bytes for each function on the stack: so this bounds the memory, too.
const MAX_SAMPLING_TIME: Duration = Duration::from_millis(500);
/// Bytes of the profile as JSON. A minute's is a few MB.
const MAX_JSON_BYTES: usize = 32 << 20;
/// Functions in the summary.
const MAX_FUNCTIONS: usize = 10;
/// Characters of a function's name in the summary.
const MAX_NAME: usize = 100;

/// Takes the samples of a call.
pub(crate) struct Profiler {
    guest: GuestProfiler,
    slot: Arc<ProfileSlot>,
    samples: u64,
    /// Time that the samples took.
    spent: Duration,
    max_samples: u64,
    max_time: Duration,
}

impl Profiler {
    /// `None` if it cannot be made: the slot has the reason then.
    pub fn start(
        engine: &Engine,
        module: &str,
        component: &Component,
        slot: Arc<ProfileSlot>,
    ) -> Option<Box<Self>> {
        let component = component.clone();
        match GuestProfiler::new_component(engine, module, EPOCH_INTERVAL, component, []) {
            Ok(guest) => Some(Box::new(Self {
                guest,
                slot,
                samples: 0,
                spent: Duration::ZERO,
                max_samples: MAX_SAMPLES,
                max_time: MAX_SAMPLING_TIME,
            })),
            Err(error) => {
                slot.put(Err(format!("{error:#}")));
                None
            }
        }
    }

    /// Takes a sample of the guest that the epoch interrupted.
    pub fn sample(&mut self, store: impl AsContext) {
        if self.is_over() {
            return;
        }
        let begun = Instant::now();
        // The time on the processor is not measured: the epoch is no exact clock.
        self.guest.sample(store, Duration::ZERO);
        self.samples += 1;
        self.spent += begun.elapsed();
    }

    fn is_over(&self) -> bool {
        self.samples >= self.max_samples || self.spent >= self.max_time
    }

    /// Leaves the profile in its slot.
    pub async fn finish(self: Box<Self>) {
        let slot = self.slot.clone();
        let written = own_work(move || self.written()).await;
        slot.put(written.unwrap_or_else(|error| Err(error.to_string())));
    }

    /// Blocks.
    fn written(self) -> Result<CallProfile, String> {
        let is_cut = self.is_over();
        let mut json = LimitedBytes(Vec::new());
        self.guest.finish(&mut json).map_err(|error| {
            format!("the profile cannot be written, of which at most {MAX_JSON_BYTES} bytes are kept: {error:#}")
        })?;
        let LimitedBytes(firefox_json) = json;
        let functions = summary(&firefox_json)?;
        Ok(CallProfile {
            firefox_json,
            summary: ProfileSummary {
                samples: self.samples,
                is_cut,
                functions,
            },
        })
    }
}

/// Refuses bytes beyond [`MAX_JSON_BYTES`].
struct LimitedBytes(Vec<u8>);

impl io::Write for LimitedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_JSON_BYTES {
            return Err(io::Error::other("it is too large"));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is read of a profile. Its tables are columns, and refer to each other's rows by their indices.
#[derive(Deserialize)]
struct Firefox {
    threads: Vec<Thread>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    samples: Samples,
    stack_table: Stacks,
    frame_table: Frames,
    func_table: Functions,
    string_array: Vec<String>,
}

#[derive(Deserialize)]
struct Samples {
    /// The stack of each sample; of none where no function of the module ran.
    stack: Vec<Option<usize>>,
}

/// Each stack is another one, its callers, and one frame more. A stack stands after its callers.
#[derive(Deserialize)]
struct Stacks {
    prefix: Vec<Option<usize>>,
    frame: Vec<usize>,
}

#[derive(Deserialize)]
struct Frames {
    func: Vec<usize>,
}

#[derive(Deserialize)]
struct Functions {
    name: Vec<usize>,
}

/// The functions with most samples, of a profile that wasmtime wrote.
fn summary(json: &[u8]) -> Result<Vec<ProfiledFunction>, String> {
    let unknown = || "wasmtime writes profiles in another format".to_owned();
    let profile: Firefox = serde_json::from_slice(json).map_err(|error| error.to_string())?;
    let Some(thread) = profile.threads.into_iter().next() else {
        return Ok(Vec::new());
    };
    counted(&thread).ok_or_else(unknown)
}

fn counted(thread: &Thread) -> Option<Vec<ProfiledFunction>> {
    let Stacks { prefix, frame } = &thread.stack_table;
    // A function has a row for each of its addresses.
    let name_of = |stack: usize| {
        let function = thread.frame_table.func.get(*frame.get(stack)?)?;
        let name = *thread.func_table.name.get(*function)?;
        (name < thread.string_array.len()).then_some(name)
    };
    let mut own = vec![0_u64; prefix.len()];
    for stack in thread.samples.stack.iter().flatten() {
        *own.get_mut(*stack)? += 1;
    }
    let mut total = own.clone();
    let mut callees = vec![Vec::new(); prefix.len()];
    let mut roots = Vec::new();
    for (stack, callers) in prefix.iter().enumerate().rev() {
        match callers {
            Some(callers) if *callers < stack => {
                total[*callers] += total[stack];
                callees[*callers].push(stack);
            }
            Some(_) => return None,
            None => roots.push(stack),
        }
    }
    // Of a function that calls itself, the samples of its outermost call are all.
    let mut by_name = vec![(0_u64, 0_u64); thread.string_array.len()];
    let mut running = vec![0_u32; thread.string_array.len()];
    let mut steps: Vec<_> = roots.into_iter().map(Step::Enter).collect();
    while let Some(step) = steps.pop() {
        match step {
            Step::Leave(name) => running[name] -= 1,
            Step::Enter(stack) => {
                let name = name_of(stack)?;
                by_name[name].0 += own[stack];
                if running[name] == 0 {
                    by_name[name].1 += total[stack];
                }
                running[name] += 1;
                steps.push(Step::Leave(name));
                steps.extend(callees[stack].iter().copied().map(Step::Enter));
            }
        }
    }
    let mut sampled: Vec<_> = by_name.iter().enumerate().collect();
    sampled.retain(|(_, (_, total))| *total > 0);
    sampled.sort_by_key(|(_, counts)| std::cmp::Reverse(**counts));
    sampled.truncate(MAX_FUNCTIONS);
    let function = |(name, (own, total)): (usize, &(u64, u64))| ProfiledFunction {
        name: cut(&thread.string_array[name]).into(),
        own: *own,
        total: *total,
    };
    Some(sampled.into_iter().map(function).collect())
}

/// A step through the stacks.
enum Step {
    Enter(usize),
    /// Of the function with this name.
    Leave(usize),
}

fn cut(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn functions_are_counted_once_however_deep_they_call_themselves() {
        // main → fib → fib → add, and main → add.
        let thread = json!({
            "samples": {"stack": [3, 3, 2, 4, null, 0]},
            "stackTable": {"prefix": [null, 0, 1, 2, 0], "frame": [0, 1, 2, 3, 3]},
            // Two addresses in fib.
            "frameTable": {"func": [0, 1, 1, 2]},
            "funcTable": {"name": [2, 1, 0]},
            "stringArray": ["add", "fib", "main"],
        });
        let counted = |thread| {
            let json = json!({"threads": [thread]}).to_string();
            let functions = summary(json.as_bytes())?;
            let row = |it: ProfiledFunction| (it.name.to_string(), it.own, it.total);
            Ok::<_, String>(functions.into_iter().map(row).collect::<Vec<_>>())
        };
        let expected = [("add", 3, 3), ("main", 1, 5), ("fib", 1, 3)];
        assert_eq!(
            counted(thread.clone()).unwrap(),
            expected.map(|(name, own, total)| (name.to_owned(), own, total))
        );
        for (table, column, row) in [
            ("samples", "stack", json!([9])),
            ("stackTable", "prefix", json!([null, 3, 1, 2, 0])),
            ("stackTable", "frame", json!([0, 1, 2, 3, 9])),
            ("frameTable", "func", json!([0, 1, 1, 9])),
            ("funcTable", "name", json!([2, 1, 9])),
        ] {
            let mut odd = thread.clone();
            odd[table][column] = row;
            assert!(counted(odd).is_err(), "{table}.{column}");
        }
        assert_eq!(summary(br#"{"threads": []}"#), Ok(Vec::new()));
    }

    #[tokio::test]
    async fn samples_and_their_time_are_bounded() {
        let engine = Engine::default();
        let component = wat::parse_str("(component)").unwrap();
        let component = Component::new(&engine, component).unwrap();
        let store = wasmtime::Store::new(&engine, ());
        let profiled = async |max_samples, max_time| {
            let slot = Arc::<ProfileSlot>::default();
            let mut profiler = Profiler::start(&engine, "m", &component, slot.clone()).unwrap();
            assert_eq!(
                (profiler.max_samples, profiler.max_time),
                (MAX_SAMPLES, MAX_SAMPLING_TIME)
            );
            (profiler.max_samples, profiler.max_time) = (max_samples, max_time);
            for _ in 0..3 {
                profiler.sample(&store);
            }
            profiler.finish().await;
            let summary = slot.take().unwrap().unwrap().summary;
            (summary.samples, summary.is_cut)
        };
        let long = Duration::from_secs(1_000);
        assert_eq!(profiled(4, long).await, (3, false));
        assert_eq!(profiled(2, long).await, (2, true));
        assert_eq!(profiled(4, Duration::ZERO).await, (0, true));
        assert_eq!(profiled(4, Duration::from_nanos(1)).await, (1, true));
    }

    #[test]
    fn a_profile_has_a_largest_size() {
        use std::io::Write as _;
        let mut json = LimitedBytes(vec![0; MAX_JSON_BYTES - 1]);
        json.write_all(b"a").unwrap();
        assert!(json.write_all(b"a").is_err());
    }
}
