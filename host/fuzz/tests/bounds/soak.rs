//! Some seconds of the chaos soak; `cargo xtask soak` runs it for minutes.

use crate::process_alone;
use std::time::Duration;
use tokio::runtime::Builder;
use toolhold_fuzz::soak::{self, SoakPlan};
use toolhold_sandbox::Compiler;

#[test]
fn a_short_soak_holds() {
    let _alone = process_alone();
    let plan = SoakPlan {
        duration: Duration::from_secs(8),
        seed: 1,
        components: Vec::new(),
        compiler: Compiler::InProcess,
        every: Duration::from_secs(4),
        settle: Duration::from_secs(3),
    };
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .thread_keep_alive(Duration::from_secs(1))
        .enable_all()
        .build()
        .unwrap();
    let mut samples = 0;
    let verdict = runtime
        .block_on(soak::run(&plan, |_| samples += 1))
        .unwrap();
    assert_eq!(verdict.faults, Vec::<String>::new());
    assert!(samples >= 2);
}
