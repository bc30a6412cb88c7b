//! How much memory this process may use by default: a share of the machine's, or of its control group's.

use std::fs;

/// The process also compiles, and keeps the memories of guests, which have limits of their own.
const PARTS: u64 = 4;
/// Less would refuse ordinary calls.
const LEAST: u64 = 256 << 20;
/// Where the system does not say how much it has.
const UNKNOWN: u64 = 4 << 30;

/// A quarter of the memory that this process has.
pub(super) fn share() -> u64 {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    share_of(&read("/proc/meminfo"), &read("/sys/fs/cgroup/memory.max"))
}

fn share_of(machine: &str, group: &str) -> u64 {
    let machine = machine.lines().find_map(|line| {
        let kibibytes = line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?;
        Some(
            kibibytes
                .trim()
                .parse::<u64>()
                .ok()?
                .saturating_mul(1 << 10),
        )
    });
    // "max", where it has no limit of its own.
    let group = group.trim().parse().ok();
    let all = machine.into_iter().chain(group).min().unwrap_or(UNKNOWN);
    (all / PARTS).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::share_of;

    #[test]
    fn the_smaller_of_machine_and_group_is_shared() {
        let machine = "MemFree:  1 kB\nMemTotal:       8388608 kB\nSwapTotal: 0 kB\n";
        for (machine, group, expected) in [
            (machine, "max\n", 2 << 30),
            (machine, "4294967296\n", 1 << 30),
            (machine, "", 2 << 30),
            (machine, "104857600\n", 256 << 20),
            ("", "", 1 << 30),
        ] {
            assert_eq!(share_of(machine, group), expected, "{group}");
        }
    }
}
