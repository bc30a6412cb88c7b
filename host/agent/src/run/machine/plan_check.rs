//! Whether a plan can be run as a whole (docs/protocol.md, 8): known tools, arguments that fit, an order, and
//! nothing missing.
//!
//! In a plan a call without an instance is made for each of them, where there are any: one plan
//! serves all, each at its own pace (9).

use super::plan_progress::PlanProgress;
use super::scopes::{guidance, scopes};
use super::tools::ToolTable;
use super::wiring::known_instance;
use crate::run::rules::LoopRules;
use serde_json::{Value, json};
use toolhold_protocol::bound::Runner;
use toolhold_protocol::context::Context;
use toolhold_protocol::plan::{self, Graph, GraphError, MAX_STEPS, MissingReference};
use toolhold_protocol::reference::{Path, Source, Target};
use toolhold_protocol::solution::Call;
use toolhold_protocol::tool::OutputPath;

/// Maximum faults reported at once.
pub(super) const MAX_REPORTED_FAULTS: usize = 8;
/// Where a consultation reads what its advisor should look at; no parameter is called so.
const GUIDANCE: &str = "/scopes";

/// What plans are checked against.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanCheck<'a> {
    pub rules: LoopRules,
    pub tools: &'a ToolTable,
    pub context: &'a Context,
    /// The plan is not run now: it may be made for inputs that come later.
    pub is_dry_run: bool,
    /// Of a lazy plan: what became of the one before it, whose latent steps may be answered.
    pub accepted: Option<&'a PlanProgress>,
}

/// A plan that can be run.
#[derive(Debug)]
pub(super) struct CheckedPlan {
    /// In an order in which each comes after those that it reads from.
    pub calls: Vec<Call>,
    /// How many of them, from the first on, can be made at the same time; and so on.
    layers: Vec<usize>,
    /// Inputs that have to be given first.
    needs: Vec<MissingReference>,
}

impl PlanCheck<'_> {
    /// # Errors
    /// Why these calls cannot be run.
    pub fn check(self, calls: &[Call]) -> Result<CheckedPlan, String> {
        let mut steps = Vec::new();
        let mut faults = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            match self.step(index, call) {
                Ok(step) => steps.push(step),
                Err(fault) => faults.push(fault),
            }
        }
        if faults.len() > MAX_REPORTED_FAULTS {
            let more = faults.len() - MAX_REPORTED_FAULTS;
            faults.truncate(MAX_REPORTED_FAULTS);
            faults.push(format!("and {more} more steps have faults"));
        }
        if !faults.is_empty() {
            return Err(faults.join("; "));
        }
        let graph = self.guided(steps, calls)?;
        let is_given = self.context.data.contains(&Path::root("input"), None);
        let (needs, missing): (Vec<_>, Vec<_>) = graph
            .missing(|path, instance| self.is_there(path, instance))
            .into_iter()
            .filter(|missing| missing.place.pointer != GUIDANCE)
            .partition(|missing| {
                let is_input = missing.paths.iter().any(|path| path.kind == "input");
                self.is_dry_run && !is_given && is_input
            });
        if let Some(first) = missing.first() {
            return Err(first.to_string());
        }
        self.check_instances(calls)?;
        let ordered = graph.order().filter_map(|index| calls.get(index).cloned());
        Ok(CheckedPlan {
            calls: ordered.collect(),
            layers: graph.layers().iter().map(Vec::len).collect(),
            needs,
        })
    }

    /// The calls of a saved plan, in the order in which they can be made.
    ///
    /// # Errors
    /// Why it cannot be run; a call that only a model, an advisor or a client can answer.
    pub fn saved(self, plan: Vec<Value>) -> Result<Vec<Call>, String> {
        let calls = self.named(read(plan)?);
        if calls.is_empty() {
            return Err("it holds no calls".into());
        }
        for (index, call) in calls.iter().enumerate() {
            let who = match self.tools.find(&call.tool).map(|bound| &bound.runner) {
                Some(Runner::Model) => "a model writes its result (it is latent)",
                Some(Runner::Request(_) | Runner::CleanRoom) => "a sub-agent answers it",
                Some(Runner::Advisor) => "an advisor answers it",
                Some(Runner::Client) => "the client makes it itself",
                Some(Runner::Module(_) | Runner::Activity(_)) | None => continue,
            };
            return Err(format!(
                "plan[{index}] calls {:?}, and {who}; a saved plan is run without a model, so leave the step \
                 out, or give the plan to a model with toolhold run --context",
                call.tool
            ));
        }
        self.check(&calls).map(|checked| checked.calls)
    }

    /// The plan as a person edited it: a list of calls, or a plan message.
    ///
    /// # Errors
    /// Why it cannot be run.
    pub fn edited(self, plan: &Value) -> Result<Vec<Call>, String> {
        let plan = plan::Plan::parse(plan).map_err(|error| error.to_string())?;
        let calls = self.named(read(
            plan.steps.into_iter().map(|step| step.call).collect(),
        )?);
        if calls.is_empty() {
            return Err("it holds no calls; refuse it instead".into());
        }
        self.check(&calls).map(|checked| checked.calls)
    }

    /// The calls under Toolhold's own names: of parameters that begin with `_`, too.
    fn named(self, calls: Vec<Call>) -> Vec<Call> {
        if !self.rules.are_from_4() {
            return calls;
        }
        let names = self.tools.catalogue().names();
        calls.into_iter().map(|call| names.own_call(call)).collect()
    }

    /// The calls, with one for each instance in the place of a call without any.
    pub fn served(self, calls: Vec<Call>) -> Vec<Call> {
        let instances = &self.context.instances;
        let mut all = Vec::with_capacity(calls.len());
        for call in calls {
            if call.instance.is_some() || instances.is_empty() {
                all.push(call);
            } else {
                all.extend(instances.iter().map(|instance| Call {
                    instance: Some(instance.clone()),
                    ..call.clone()
                }));
            }
        }
        all
    }

    /// The call with the place where its result really goes: a tool's author may have fixed it.
    pub fn placed(self, call: Call) -> Call {
        let bound = self.tools.find(&call.tool);
        let Some(tool) = bound.map(|bound| &bound.tool) else {
            return call;
        };
        let is_open = tool.is_latent() && call.output.is_none() && call.output_path.is_none();
        let alternatives = tool.output_path.as_ref().filter(|_| is_open);
        let alternatives = alternatives.and_then(OutputPath::alternatives);
        let alternatives = alternatives.map(Target::Outcome);
        match tool.fixed_output_path().or(alternatives.as_ref()) {
            Some(target) => Call {
                output_path: Some(target.to_string()),
                ..call
            },
            None => call,
        }
    }

    /// The plan in an order in which advisors are asked after what they should look at was written. That is
    /// guidance (10): where no order allows it, or no step writes it, the plan stands without.
    fn guided(self, steps: Vec<plan::Step>, calls: &[Call]) -> Result<Graph, String> {
        let mut guided = steps.clone();
        for (step, call) in guided.iter_mut().zip(calls) {
            let looks_at = guidance(self.context, self.tools.find(&call.tool), call);
            step.reads
                .extend(looks_at.into_iter().map(|path| read_at(GUIDANCE, path)));
        }
        self.graph(guided)
            .or_else(|_| self.graph(steps))
            .map_err(|error| error.to_string())
    }

    /// A call of the plan, checked on its own.
    fn step(self, index: usize, call: &Call) -> Result<plan::Step, String> {
        let at = |message: String| format!("plan[{index}]: {message}");
        let checks = &self.tools.checks;
        checks
            .known(&call.tool)
            .and_then(|()| known_instance(call, &self.context.instances))
            .map_err(|failure| at(failure.message))?;
        let mut step = self.placed_step(index, call.clone())?;
        let Some(bound) = self.tools.find(&call.tool) else {
            return Ok(step);
        };
        checks.place(call).map_err(|failure| at(failure.message))?;
        if bound.tool.is_latent() && call.output.is_some() {
            self.may_answer(call).map_err(at)?;
        }
        let sees = scopes(&bound.tool, call).map_err(|failure| at(failure.message))?;
        if !bound.tool.is_latent() {
            let reads = step.reads.iter();
            let open: Vec<&str> = reads.map(|read| read.pointer.as_str()).collect();
            let faults = checks.faults(&call.tool, &call.arguments, &open);
            if let Some(fault) = faults.first() {
                return Err(format!("plan[{index}]{}: {}", fault.pointer, fault.reason));
            }
        }
        // The parts of the context that a call sees must exist before it, like its references.
        step.reads
            .extend(sees.into_iter().map(|path| read_at("/_scopes", path)));
        Ok(step)
    }

    /// A lazy plan holds no answers: what they rest on was not done yet, and the plan was not accepted. A
    /// latent step of the plan before it that was run without one is asked for its answer.
    fn may_answer(self, call: &Call) -> Result<(), String> {
        let is_asked = |progress: &PlanProgress| progress.has_failed(|tool| tool == call.tool);
        if self.accepted.is_none_or(is_asked) {
            return Ok(());
        }
        Err(format!(
            "{:?} is answered when the plan was accepted and its step is due; plan it without \"_output\"",
            call.tool
        ))
    }

    fn placed_step(self, index: usize, call: Call) -> Result<plan::Step, String> {
        let object = self.placed(call).object(true);
        plan::Step::new(index, &object.into()).map_err(|error| error.to_string())
    }

    /// The order may be another where some steps are of one instance and others of all.
    fn check_instances(self, calls: &[Call]) -> Result<(), String> {
        let all = self.served(calls.to_vec());
        if all.len() > MAX_STEPS {
            return Err(format!(
                "{} steps for {} instances are {} calls; {MAX_STEPS} are the most, so split it",
                calls.len(),
                self.context.instances.len(),
                all.len()
            ));
        }
        if calls.iter().all(|call| call.instance.is_none()) {
            return Ok(());
        }
        let steps = all.into_iter().enumerate();
        let steps: Result<Vec<_>, _> = steps
            .map(|(index, call)| self.placed_step(index, call))
            .collect();
        self.graph(steps?)
            .map(drop)
            .map_err(|error| error.to_string())
    }

    fn graph(self, steps: Vec<plan::Step>) -> Result<Graph, GraphError> {
        if self.rules.are_from_4() {
            Graph::over(steps, |path, instance| self.is_there(path, instance))
        } else {
            Graph::by_reads(steps)
        }
    }

    /// Whether there is something at `path`, for each that a step serves.
    fn is_there(self, path: &Path, instance: Option<&str>) -> bool {
        let data = &self.context.data;
        if instance.is_some() || self.context.instances.is_empty() {
            return data.contains(path, instance);
        }
        let mut instances = self.context.instances.iter();
        instances.all(|instance| data.contains(path, Some(instance)))
    }
}

impl CheckedPlan {
    /// The plan as a message that can be saved, with its order: `layers` are the calls, by their
    /// index, that can be made at the same time; `needs` the inputs that have to be given.
    pub fn report(&self) -> Value {
        let mut next = 0;
        let layers = self.layers.iter().map(|count| {
            let layer: Vec<usize> = (next..next + count).collect();
            next += count;
            layer
        });
        let layers: Vec<Vec<usize>> = layers.collect();
        let needs = self.needs.iter().map(|missing| {
            let paths: Vec<_> = missing.paths.iter().map(ToString::to_string).collect();
            json!({"paths": paths, "tool": missing.tool})
        });
        let needs: Vec<Value> = needs.collect();
        json!({
            "type": "plan",
            "mode": "lazy",
            "plan": objects(&self.calls),
            "layers": layers,
            "needs": needs,
        })
    }
}

fn read_at(pointer: &str, path: Path) -> plan::Read {
    plan::Read {
        pointer: pointer.into(),
        source: Source::First(vec![path]),
    }
}

/// Calls of a plan, as they were written.
///
/// # Errors
/// What is no plan.
pub(super) fn read(plan: Vec<Value>) -> Result<Vec<Call>, String> {
    let plan = plan::Plan::parse(&plan.into()).map_err(|error| error.to_string())?;
    let calls = plan.steps.into_iter().map(|step| Call::read(step.call));
    calls.collect()
}

pub(super) fn objects(calls: &[Call]) -> Vec<Value> {
    calls.iter().map(|call| call.object(true).into()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::ToolCatalogue;
    use toolhold_json::rules::ReadingRules;
    use toolhold_protocol::bound::Bound;
    use toolhold_protocol::context::Message;
    use toolhold_protocol::tool::{Execution, Tool};

    fn tools() -> ToolTable {
        let run = |name: &str| Tool {
            execution: Execution::Activity(name.into()),
            ..Tool::new(name)
        };
        let fixed = Tool {
            output_path: Some(OutputPath::Fixed("†fixed".parse().unwrap())),
            ..run("fixed")
        };
        let counts = Tool {
            parameters: json!({"type": "object", "properties": {"n": {"type": "integer"}}}),
            ..run("counts")
        };
        let bound = [fixed, counts, Tool::new("thinks")].map(|tool| Bound {
            runner: if tool.is_latent() {
                Runner::Model
            } else {
                Runner::Activity(tool.name.clone())
            },
            tool: tool.into(),
        });
        ToolTable::under(ReadingRules::Current, ToolCatalogue::new(bound).unwrap())
    }

    fn context(messages: Value) -> Context {
        Context::new(Message::parse_all(&messages).unwrap()).unwrap()
    }

    /// The tools of a plan in the order in which they can be called, or why they cannot be.
    fn checked(context: &Context, is_dry_run: bool, plan: Value) -> Result<Value, String> {
        let (tools, calls) = (tools(), read(serde_json::from_value(plan).unwrap())?);
        let check = PlanCheck {
            rules: LoopRules::default(),
            tools: &tools,
            context,
            is_dry_run,
            accepted: None,
        };
        check.check(&calls).map(|checked| checked.report())
    }

    #[test]
    fn a_plan_is_put_in_an_order_in_which_it_can_be_run() {
        let plan = json!([
            {"_tool": "counts", "n": "†fixed"},
            {"_tool": "fixed"},
            {"_tool": "counts", "n": 1},
        ]);
        let report = checked(&Context::default(), false, plan).unwrap();
        assert_eq!(
            report["plan"][2]["n"], "†fixed",
            "after the one that writes it"
        );
        assert_eq!(report["layers"], json!([[0, 1], [2]]));
        assert_eq!(report["needs"], json!([]));
    }

    #[test]
    fn steps_that_cannot_run_are_reported_one_by_one() {
        for (plan, part) in [
            (json!([{"_tool": "none"}]), "plan[0]: there is no tool"),
            (
                json!([{"_tool": "fixed"}, {"_tool": "counts", "n": "x"}]),
                "plan[1]/n: ",
            ),
            (
                json!([{"_tool": "counts", "_instance": "x"}]),
                "there is no instance",
            ),
            (json!([{"_tool": "counts", "n": "†nothing"}]), "†nothing"),
            (
                json!(vec![json!({"_tool": "none"}); MAX_REPORTED_FAULTS + 2]),
                "and 2 more steps have faults",
            ),
        ] {
            let reason = checked(&Context::default(), false, plan.clone()).unwrap_err();
            assert!(reason.contains(part), "{plan}: {reason}");
        }
    }

    #[test]
    fn inputs_may_come_later_than_a_dry_run() {
        let plan = json!([{"_tool": "counts", "n": "†input.n"}]);
        let report = checked(&Context::default(), true, plan.clone()).unwrap();
        assert_eq!(report["needs"][0]["paths"], json!(["†input.n"]));
        assert!(checked(&Context::default(), false, plan).is_err());
    }

    #[test]
    fn a_call_without_an_instance_is_made_for_each() {
        let context = context(json!([
            {"type": "data", "kind": "user", "data": 1, "_instance": "one"},
            {"type": "data", "kind": "user", "data": 2, "_instance": "two"},
        ]));
        let tools = tools();
        let check = PlanCheck {
            rules: LoopRules::default(),
            tools: &tools,
            context: &context,
            is_dry_run: false,
            accepted: None,
        };
        let calls = read(vec![
            json!({"_tool": "fixed"}),
            json!({"_tool": "counts", "_instance": "two"}),
        ]);
        let served = check.served(calls.unwrap());
        let instances: Vec<_> = served.iter().map(|call| call.instance.as_deref()).collect();
        assert_eq!(instances, [Some("one"), Some("two"), Some("two")]);
        let placed = check.placed(served[0].clone());
        assert_eq!(placed.output_path.as_deref(), Some("†fixed"));
        let one_lacks_it = json!([{"_tool": "counts", "n": "†other"}]);
        assert!(checked(&context, false, one_lacks_it).is_err());
        assert!(checked(&context, false, json!([{"_tool": "counts", "n": "†user"}])).is_ok());
    }

    #[test]
    fn a_saved_plan_holds_only_what_a_tool_answers() {
        let (tools, context) = (tools(), Context::default());
        let check = PlanCheck {
            rules: LoopRules::default(),
            tools: &tools,
            context: &context,
            is_dry_run: false,
            accepted: None,
        };
        let reason = check.saved(vec![json!({"_tool": "thinks"})]).unwrap_err();
        assert!(reason.contains("a model writes its result"), "{reason}");
        assert_eq!(
            check.saved(vec![json!({"_tool": "fixed"})]).unwrap().len(),
            1
        );
        assert!(check.saved(Vec::new()).is_err() && check.edited(&json!([])).is_err());
    }
}
