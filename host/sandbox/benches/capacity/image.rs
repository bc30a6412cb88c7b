//! "Run a one-line Python program": with the pool and its copy-on-write images of memory, and on
//! demand without them. Bare engines, and ours beside them.

use crate::bare::{self, Bare};
use crate::measure::{self, component, percentile, ratio, row, times};
use serde_json::json;
use wasmtime::InstanceAllocationStrategy;

pub fn run() {
    let Some(bytes) = component("python") else {
        return row("python", "not built (toolhold build modules/python)");
    };
    let runtime = measure::runtime();
    let arguments = json!({"code": "1+2"});
    let mut on_demand = bare::config();
    on_demand
        .allocation_strategy(InstanceAllocationStrategy::OnDemand)
        .memory_init_cow(false);
    let of_bare = |config| {
        let bare = Bare::new(config, &bytes);
        let times = times(200, || {
            runtime.block_on(bare.call("run", &arguments));
        });
        percentile(&times, 50)
    };
    let without = of_bare(&on_demand);
    let with = of_bare(&bare::config());
    let registry = measure::registry(&runtime, &measure::engine(8), "python", bytes.clone());
    let ours = times(200, || {
        let report = runtime.block_on(measure::call(&registry, "python.run", &arguments));
        assert!(report.result.is_ok(), "{:?}", report.result);
    });
    let ours = percentile(&ours, 50);
    row("Python, without images, p50", &format!("{without:.2?}"));
    row(
        "Python, with images, p50",
        &format!("{with:.2?}, {:.2} times without", ratio(with, without)),
    );
    row(
        "Python in Toolhold, p50",
        &format!(
            "{ours:.2?}, {:.2} times bare with images",
            ratio(ours, with)
        ),
    );
}
