//! Some seconds of the chaos soak; `cargo xtask soak` runs it for minutes.

use std::time::Duration;
use toolhold_fuzz::soak::{self, Plan};
use toolhold_sandbox::Compiler;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_soak_holds() {
    let plan = Plan {
        duration: Duration::from_secs(8),
        seed: 1,
        components: Vec::new(),
        compiler: Compiler::InProcess,
        every: Duration::from_secs(4),
    };
    let mut samples = 0;
    let verdict = soak::run(&plan, |_| samples += 1).await.unwrap();
    assert_eq!(verdict.faults, Vec::<String>::new());
    assert!(samples >= 2);
}
