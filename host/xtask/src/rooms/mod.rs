//! `cargo xtask rooms`: checks the structure of the workspace. There is no circle between the rooms of a crate,
//! which are its top-level modules; crates follow the order of [`order`], and some lack certain dependencies; at
//! most two types have the same name, in two crates.

mod arrows;
mod cycles;
mod order;
mod table;
mod type_names;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;

use crate::workspace::{self, Crate};
use crate::{narrate, project, source};
use arrows::Arrows;
use cycles::ModuleCycle;
use type_names::TypeNames;

#[derive(Args, Debug)]
#[command(
    after_help = "An arrow is a path that begins with crate::ROOM, or with as many super:: as lead to the \
    crate's root, outside of tests. A name that the root re-exports counts as its room."
)]
pub struct RoomsArguments {
    /// Check only these crates, by folder, without order, table and type names (default: all of host/)
    crates: Vec<String>,
    /// Write the table of crates into host/ARCHITECTURE.md
    #[arg(long, conflicts_with = "crates")]
    write: bool,
}

/// Most edges of a cycle that are printed, the rarest first: they are the easiest to remove.
const MAX_EDGES_SHOWN: usize = 12;

pub fn run(arguments: &RoomsArguments) -> Result<ExitCode> {
    let root = project::root();
    let crates = workspace::crates(&root)?;
    if let Some(unknown) = arguments
        .crates
        .iter()
        .find(|name| !crates.iter().any(|each| each.name == **name))
    {
        bail!("no crate {unknown:?} under host/");
    }
    let mut problems = Vec::new();
    let mut plans = Vec::new();
    let mut names = TypeNames::default();
    for each in crates {
        if arguments.crates.is_empty() || arguments.crates.contains(&each.name) {
            plans.push(CrateRooms::of(each, &mut names)?);
        }
    }
    for plan in &plans {
        narrate::answer(plan.describe(&root).trim_end());
        if !plan.cycles.is_empty() {
            problems.push(format!("host/{} has a circle of rooms", plan.krate.name));
        }
    }
    if arguments.crates.is_empty() {
        problems.extend(order::violations(plans.iter().map(|plan| &plan.krate)));
        for plan in &plans {
            problems.extend(order::forbidden(&plan.krate)?);
        }
        problems.extend(names.violations(&root));
        problems.extend(table::check(&root, &plans, arguments.write)?);
    }
    if problems.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for problem in &problems {
        narrate::line(problem);
    }
    bail!("{} of the rules of the house broken", problems.len())
}

/// A crate, and the uses between its rooms.
struct CrateRooms {
    krate: Crate,
    arrows: Arrows,
    cycles: Vec<ModuleCycle>,
    /// Lines of product code.
    lines: usize,
}

impl CrateRooms {
    fn of(krate: Crate, names: &mut TypeNames) -> Result<Self> {
        let sources = source::of_crate(&krate.roots)?;
        for source in &sources {
            names.add(source);
        }
        let arrows = Arrows::between(&sources);
        let cycles = cycles::cycles(&arrows);
        Ok(Self {
            lines: sources.iter().map(source::SourceFile::lines).sum(),
            krate,
            arrows,
            cycles,
        })
    }

    fn describe(&self, root: &Path) -> String {
        let mut text = format!(
            "host/{}: {}, {}, {}, {}\n",
            self.krate.name,
            counted(self.arrows.rooms.len(), "room"),
            counted(self.lines, "line"),
            counted(self.arrows.lines.len(), "arrow"),
            counted(self.cycles.len(), "circle"),
        );
        for cycle in &self.cycles {
            let rooms: Vec<_> = cycle.rooms.iter().map(String::as_str).collect();
            let _ = writeln!(text, "  circle: {}", rooms.join(" "));
            for edge in cycle.edges.iter().take(MAX_EDGES_SHOWN) {
                let (path, line) = &edge.first;
                let path = path.strip_prefix(root).unwrap_or(path);
                let _ = writeln!(
                    text,
                    "    {} -> {}: {}, such as {}:{line}",
                    edge.from,
                    edge.to,
                    counted(edge.lines, "line"),
                    path.display()
                );
            }
            if cycle.edges.len() > MAX_EDGES_SHOWN {
                let more = counted(cycle.edges.len() - MAX_EDGES_SHOWN, "more arrow");
                let _ = writeln!(text, "    and {more}");
            }
        }
        text
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {what}"),
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
