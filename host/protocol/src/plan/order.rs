//! The order of steps: Kahn's algorithm, layer by layer, where a step that has alternatives waits for
//! all of them as long as none of them waits for the step itself.

use super::flow::Flow;
use std::collections::BTreeSet;

/// Steps that can run at the same time, in order. Links that no step waits for become late.
///
/// # Errors
/// The links of a cycle, each from a step that the one before leads to.
pub(super) fn layers(flow: &mut Flow) -> Result<Vec<Vec<usize>>, Vec<usize>> {
    let mut progress = Progress::new(flow);
    let mut layers = Vec::new();
    let mut layer = progress.free();
    loop {
        if layer.is_empty() {
            // Every step left is in a cycle or behind one. One that has another way goes on without
            // what needs it first.
            match progress.yielding.pop_first() {
                Some(step) => layer.push(progress.release(step)),
                None => break,
            }
        }
        let next = progress.finish(&layer);
        layers.push(layer);
        layer = next;
    }
    if let Some(cycle) = progress.stuck_cycle() {
        return Err(cycle);
    }
    let Progress { late, .. } = progress;
    for link in late {
        flow.links[link].is_late = true;
    }
    Ok(layers)
}

/// How far the steps are.
struct Progress<'a> {
    flow: &'a Flow,
    /// Links out of each step.
    links_from: Vec<Vec<usize>>,
    /// Steps that lead to each other have the same component.
    component: Vec<usize>,
    is_released: Vec<bool>,
    is_done: Vec<bool>,
    /// Steps that come after each step although they read nothing of it.
    orders_from: Vec<Vec<usize>>,
    /// The number of steps that each step comes after in this way, and that are not done.
    ordered: Vec<usize>,
    /// Links into each step whose writers are not done.
    waiting: Vec<usize>,
    /// Those of them that come from the step's own component.
    waiting_own: Vec<usize>,
    /// Needs of each step that no way meets yet.
    unmet: Vec<usize>,
    is_met: Vec<bool>,
    /// Links of each way whose writers are not done.
    open: Vec<usize>,
    /// Steps whose needs are met, and that still wait for one that waits for them.
    yielding: BTreeSet<usize>,
    late: Vec<usize>,
}

impl<'a> Progress<'a> {
    fn new(flow: &'a Flow) -> Self {
        let steps = flow.steps.len();
        let mut links_from = vec![Vec::new(); steps];
        for (index, link) in flow.links.iter().enumerate() {
            links_from[link.writer].push(index);
        }
        let (mut orders_from, mut ordered) = (vec![Vec::new(); steps], vec![0; steps]);
        for (first, second) in &flow.orders {
            orders_from[*first].push(*second);
            ordered[*second] += 1;
        }
        let component = components(&links_from, |link| flow.reader(link));
        let open: Vec<_> = flow.ways.iter().map(|way| way.links.len()).collect();
        let is_met: Vec<_> = flow
            .needs
            .iter()
            .map(|need| open[need.ways.clone()].contains(&0))
            .collect();
        let mut progress = Self {
            flow,
            links_from,
            component,
            is_released: vec![false; steps],
            is_done: vec![false; steps],
            orders_from,
            ordered,
            waiting: vec![0; steps],
            waiting_own: vec![0; steps],
            unmet: vec![0; steps],
            is_met,
            open,
            yielding: BTreeSet::new(),
            late: Vec::new(),
        };
        for step in 0..steps {
            let links = &flow.links[flow.links_into(step)];
            let own = |link: &&super::flow::Link| {
                progress.component[link.writer] == progress.component[step]
            };
            progress.waiting[step] = links.len();
            progress.waiting_own[step] = links.iter().filter(own).count();
            let needs = &progress.is_met[flow.steps[step].clone()];
            progress.unmet[step] = needs.iter().filter(|is_met| !**is_met).count();
            progress.consider(step);
        }
        progress
    }

    /// The steps that wait for nothing.
    fn free(&mut self) -> Vec<usize> {
        let steps = 0..self.waiting.len();
        let free: Vec<_> = steps.filter(|step| self.waits_for_none(*step)).collect();
        for &step in &free {
            self.release(step);
        }
        free
    }

    fn waits_for_none(&self, step: usize) -> bool {
        self.waiting[step] == 0 && self.ordered[step] == 0
    }

    fn release(&mut self, step: usize) -> usize {
        self.is_released[step] = true;
        self.yielding.remove(&step);
        let undone = |link: &usize| !self.is_done[self.flow.links[*link].writer];
        self.late.extend(self.flow.links_into(step).filter(undone));
        step
    }

    /// Finishes all of `layer` and returns the steps that waited for nothing else.
    fn finish(&mut self, layer: &[usize]) -> Vec<usize> {
        let mut next = Vec::new();
        for &step in layer {
            self.is_done[step] = true;
        }
        for &step in layer {
            for link in std::mem::take(&mut self.links_from[step]) {
                let reader = self.flow.reader(link);
                self.arrive(link, reader, step);
                if self.waits_for_none(reader) && !self.is_released[reader] {
                    next.push(self.release(reader));
                }
            }
            for after in std::mem::take(&mut self.orders_from[step]) {
                self.ordered[after] -= 1;
                self.consider(after);
                if self.waits_for_none(after) && !self.is_released[after] {
                    next.push(self.release(after));
                }
            }
        }
        next.sort_unstable();
        next
    }

    fn arrive(&mut self, link: usize, reader: usize, writer: usize) {
        let way = self.flow.links[link].way;
        let need = self.flow.ways[way].need;
        self.waiting[reader] -= 1;
        if self.component[reader] == self.component[writer] {
            self.waiting_own[reader] -= 1;
        }
        self.open[way] -= 1;
        if self.open[way] == 0 && !self.is_met[need] {
            self.is_met[need] = true;
            self.unmet[reader] -= 1;
        }
        self.consider(reader);
    }

    fn consider(&mut self, step: usize) {
        let is_next = !self.is_released[step] && self.ordered[step] == 0;
        if is_next && self.unmet[step] == 0 && self.waiting_own[step] > 0 {
            self.yielding.insert(step);
        } else {
            self.yielding.remove(&step);
        }
    }

    /// The links of the cycle that holds up the steps which are left. A step may only come after one that is in it, so
    /// not every walk leads there. Absent: no step is left.
    fn stuck_cycle(&self) -> Option<Vec<usize>> {
        let steps = 0..self.is_released.len();
        let mut stuck = steps.filter(|step| !self.is_released[*step]).peekable();
        stuck.peek()?;
        let mut cycles = stuck.map(|step| self.cycle(step));
        Some(cycles.find(|links| !links.is_empty()).unwrap_or_default())
    }

    /// Walks from a stuck step to what it waits for, which is stuck too, until it meets itself.
    fn cycle(&self, stuck: usize) -> Vec<usize> {
        let mut trail = Vec::new();
        let mut seen = vec![None; self.flow.steps.len()];
        let mut step = stuck;
        while seen[step].is_none() {
            seen[step] = Some(trail.len());
            let Some(link) = self.blocking(step) else {
                break;
            };
            trail.push(link);
            step = self.flow.links[link].writer;
        }
        let mut links = trail.split_off(seen[step].unwrap_or_default());
        links.reverse();
        let writer = |link: &usize| self.flow.links[*link].writer;
        let lowest = (0..links.len()).min_by_key(|at| writer(&links[*at]));
        links.rotate_left(lowest.unwrap_or_default());
        links
    }

    /// A link into `step` that it cannot do without.
    fn blocking(&self, step: usize) -> Option<usize> {
        let need = self.flow.steps[step]
            .clone()
            .find(|need| !self.is_met[*need])?;
        let ways = &self.flow.ways[self.flow.needs[need].ways.clone()];
        ways.iter()
            .flat_map(|way| way.links.clone())
            .find(|link| !self.is_done[self.flow.links[*link].writer])
    }
}

/// Tarjan's strongly connected components of the graph whose node `n` has the edges `edges[n]`,
/// which lead to `end(edge)`: for each node a number that its component shares. Without recursion,
/// because a chain of steps is as long as a plan.
pub(super) fn components(edges: &[Vec<usize>], end: impl Fn(usize) -> usize) -> Vec<usize> {
    const NONE: usize = usize::MAX;
    let mut visited = 0;
    let mut number = vec![NONE; edges.len()];
    let mut lowest = vec![NONE; edges.len()];
    let mut component = vec![NONE; edges.len()];
    let mut open = Vec::new();
    let mut path: Vec<(usize, usize)> = Vec::new();
    for root in 0..edges.len() {
        if number[root] == NONE {
            path.push((root, 0));
        }
        while let Some((node, edge)) = path.last_mut() {
            let node = *node;
            if number[node] == NONE {
                number[node] = visited;
                lowest[node] = visited;
                visited += 1;
                open.push(node);
            }
            if let Some(next) = edges[node].get(*edge).map(|edge| end(*edge)) {
                *edge += 1;
                if number[next] == NONE {
                    path.push((next, 0));
                } else if component[next] == NONE {
                    lowest[node] = lowest[node].min(number[next]);
                }
                continue;
            }
            path.pop();
            if let Some((parent, _)) = path.last() {
                lowest[*parent] = lowest[*parent].min(lowest[node]);
            }
            if lowest[node] == number[node] {
                while let Some(member) = open.pop() {
                    component[member] = node;
                    if member == node {
                        break;
                    }
                }
            }
        }
    }
    component
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_lead_to_each_other_are_one_component() {
        // 0 → 1 ⇄ 2 → 3, 4 alone with itself.
        let edges = [vec![1], vec![2], vec![1, 3], vec![], vec![4]];
        let component = components(&edges, |end| end);
        assert_eq!(component[1], component[2]);
        let mut distinct = component.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 4, "{component:?}");
    }
}
