//! Which advisors take part in which iteration, and how often each speaks.

use crate::advisor::{Advisor, Attendance};
use std::collections::HashSet;

/// Where the loop stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// The first Request of the run.
    pub first: bool,
    /// The loop is about to end: the Request that is made once more for this.
    pub finishing: bool,
}

/// One opinion that is due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DueOpinion<'a> {
    pub advisor: &'a Advisor,
    /// The instance that it speaks for; absent: all instances.
    pub instance: Option<&'a str>,
}

/// The advisors that are asked without being called, in the context's order.
pub fn taking_part<'a>(
    advisors: impl IntoIterator<Item = &'a Advisor>,
    moment: Moment,
) -> Vec<&'a Advisor> {
    let mut present = latest(advisors);
    present.retain(|advisor| match advisor.on {
        Some(Attendance::Start) => moment.first,
        Some(Attendance::Finish) => moment.finishing,
        Some(Attendance::Request) => true,
        None => false,
    });
    present
}

/// The last definition of each id, where it stands.
pub fn latest<'a>(advisors: impl IntoIterator<Item = &'a Advisor>) -> Vec<&'a Advisor> {
    let mut advisors: Vec<_> = advisors.into_iter().collect();
    let mut seen = HashSet::new();
    advisors.reverse();
    advisors.retain(|advisor| seen.insert(advisor.id.as_str()));
    advisors.reverse();
    advisors
}

/// One seat for each advisor, or for each of its instances. In a context without instances an
/// instanced advisor speaks once, for the only data there is.
pub fn seats<'a>(advisors: &[&'a Advisor], instances: &'a [String]) -> Vec<DueOpinion<'a>> {
    let mut seats = Vec::new();
    for advisor in advisors {
        if advisor.is_instanced && !instances.is_empty() {
            let each = instances.iter().map(|instance| Some(instance.as_str()));
            seats.extend(each.map(|instance| DueOpinion { advisor, instance }));
        } else {
            seats.push(DueOpinion {
                advisor,
                instance: None,
            });
        }
    }
    seats
}
