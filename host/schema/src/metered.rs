//! JSON values whose reading is counted, so that a validation stops when its budget is spent.
//!
//! jsonschema reads a value only through these traits. Each read costs steps; when none are left, a
//! value has no children, no text and no equal, so what is still on the stack ends in the time that
//! [`crate::cost`] bounds. The budget is the thread's, because `propertyNames` makes nodes out of nothing
//! but a name.

use crate::bounds::CheckTooCostly;
use crate::unique::is_unique;
use crate::weights::Weights;
use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::cell::Cell;

/// Bytes of a text that cost one step where nothing but their number or equality matters.
const BYTES_A_STEP: u64 = 32;
/// Bytes of a text whose characters are counted, for one step.
const COUNTED_BYTES_A_STEP: u64 = 8;
/// Steps of what is remembered about one container: about 100 bytes.
const STEPS_TO_REMEMBER: u64 = 40;
/// Steps to find out whether an item is unique, for each value in it: it is hashed and compared.
const STEPS_TO_COMPARE: u64 = 16;
/// Numbers beyond this are divided bit by bit where `multipleOf` is a fraction.
pub(crate) const FAR: f64 = 1e15;
/// How many times the steps of other numbers these cost.
const STEPS_OF_FAR: u64 = 40;
/// Values within a value that a fault quotes, for one step.
const VALUES_A_STEP: u64 = 4;
/// Bytes of stack that one validation may take: a quarter of what a worker thread has.
const MAX_STACK: usize = 512 << 10;

/// What one validation may still read.
#[derive(Clone, Copy)]
struct Budget {
    left: u64,
    weights: Weights,
    /// An address in the frame that started the validation.
    stack: usize,
}

thread_local! {
    static BUDGET: Cell<Budget> = const { Cell::new(Budget { left: 0, weights: Weights::NONE, stack: 0 }) };
    /// Steps that all checks of brief work may still take together. Absent outside of such work.
    static ALLOWANCE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs `work`, which reads values, with a budget of `steps`. Its result holds only if the budget sufficed.
pub(crate) fn within<T>(
    steps: u64,
    weights: Weights,
    work: impl FnOnce() -> T,
) -> Result<T, CheckTooCostly> {
    let here = 0_u8;
    let steps = steps.min(allowance());
    let outer = BUDGET.replace(Budget {
        left: steps,
        weights,
        stack: std::ptr::from_ref(&here).addr(),
    });
    let restore = Restore(outer);
    let result = work();
    let left = BUDGET.get().left;
    drop(restore);
    spend(steps - left);
    if left == 0 {
        Err(CheckTooCostly)
    } else {
        Ok(result)
    }
}

/// Runs `work`, all checks of which together may take this many steps. `None`: they would take more, and what came of it
/// says nothing. Work that ends in time comes to what it comes to without this bound.
pub fn briefly<T>(steps: u64, work: impl FnOnce() -> T) -> Option<T> {
    let outer = ALLOWANCE.get();
    let own = outer.map_or(steps, |outer| outer.min(steps));
    let restore = RestoreAllowance(outer);
    ALLOWANCE.set(Some(own));
    let result = work();
    let left = allowance();
    drop(restore);
    spend(own - left);
    (left > 0).then_some(result)
}

/// Steps that are left to [brief](briefly) work, for work beside checks that counts steps of its own.
pub fn allowance() -> u64 {
    ALLOWANCE.get().unwrap_or(u64::MAX)
}

/// Takes steps from those of [brief](briefly) work.
pub fn spend(steps: u64) {
    ALLOWANCE.set(ALLOWANCE.get().map(|left| left.saturating_sub(steps)));
}

/// Puts the outer allowance back, also when the work panics.
struct RestoreAllowance(Option<u64>);

impl Drop for RestoreAllowance {
    fn drop(&mut self) {
        ALLOWANCE.set(self.0);
    }
}

/// Puts the outer budget back, also when `work` panics.
struct Restore(Budget);

impl Drop for Restore {
    fn drop(&mut self) {
        BUDGET.set(self.0);
    }
}

/// Takes what `price` asks for; `false` if that is more than there is, now and from now on.
fn pays(price: impl FnOnce(&Weights) -> u64) -> bool {
    let mut budget = BUDGET.get();
    if budget.left == 0 {
        return false;
    }
    let here = 0_u8;
    let depth = budget.stack.abs_diff(std::ptr::from_ref(&here).addr());
    let price = price(&budget.weights);
    budget.left = if depth > MAX_STACK {
        0
    } else {
        budget.left.saturating_sub(price)
    };
    BUDGET.set(budget);
    budget.left > 0
}

fn steps(bytes: usize) -> u64 {
    1 + bytes as u64 / BYTES_A_STEP
}

/// The values of serde_json, counted.
pub(crate) struct Metered;

/// A value; reading it costs steps.
#[derive(Clone, Copy)]
pub(crate) struct Read<'a>(pub(crate) &'a Value);

#[derive(Clone, Copy)]
pub(crate) struct ReadObject<'a>(&'a Map<String, Value>);

#[derive(Clone, Copy)]
pub(crate) struct ReadArray<'a>(&'a [Value]);

pub(crate) struct Members<'a>(serde_json::map::Iter<'a>);

pub(crate) struct Elements<'a>(std::slice::Iter<'a, Value>);

/// What is reported in the place of a value once the budget is spent.
static NOTHING: Value = Value::Null;

/// A child of a value that was read, with what its schemas do without reading it.
fn child(value: &Value) -> Option<Read<'_>> {
    pays(|weights| weights.child).then_some(Read(value))
}

impl Json for Metered {
    type Node<'a> = Read<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, name: &str, f: impl FnOnce(Read<'_>) -> T) -> T {
        *buffer = Value::String(name.to_owned());
        pays(|weights| weights.child + steps(name.len()));
        f(Read(buffer))
    }
}

impl<'a> Node<'a, Metered> for Read<'a> {
    type Object = ReadObject<'a>;
    type Array = ReadArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<ReadObject<'a>> {
        pays(|_| 1);
        self.0.as_object().map(ReadObject)
    }

    fn as_array(&self) -> Option<ReadArray<'a>> {
        pays(|_| 1);
        self.0.as_array().map(|items| ReadArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_str();
        let length = text.map_or(0, str::len) as u64;
        let is_paid = pays(|weights| 1 + weights.text.saturating_mul(length) / BYTES_A_STEP);
        Some(Cow::Borrowed(if is_paid { text? } else { "" }))
    }

    fn as_number(&self) -> Option<&'a Number> {
        let Value::Number(number) = self.0 else {
            pays(|_| 1);
            return None;
        };
        pays(|weights| {
            let is_far = number.as_f64().is_some_and(|number| number.abs() > FAR);
            weights.number * if is_far { STEPS_OF_FAR } else { 1 }
        });
        Some(number)
    }

    fn as_boolean(&self) -> Option<bool> {
        pays(|_| 1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        pays(|_| 1);
        self.0.is_null()
    }

    fn is_number(&self) -> bool {
        pays(|_| 1);
        self.0.is_number()
    }

    fn is_string(&self) -> bool {
        pays(|_| 1);
        self.0.is_string()
    }

    fn json_type(&self) -> JsonType {
        pays(|_| 1);
        JsonType::from(self.0)
    }

    fn string_length(&self) -> Option<u64> {
        let length = self.0.as_str().map_or(0, str::len) as u64;
        if pays(|_| 1 + length / COUNTED_BYTES_A_STEP) {
            Node::<SerdeJson>::string_length(&self.0)
        } else {
            Some(0)
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        let is_paid = pays(|weights| match (self.0, expected) {
            (Value::String(one), Value::String(other)) if one.len() == other.len() => {
                steps(one.len())
            }
            (Value::Array(one), Value::Array(other)) if one.len() == other.len() => {
                weights.constant
            }
            (Value::Object(one), Value::Object(other)) if one.len() == other.len() => {
                weights.constant
            }
            _ => 1,
        });
        is_paid && Node::<SerdeJson>::equals_value(&self.0, expected)
    }

    /// A fault is being written down, which may quote all of the value.
    fn to_value(&self) -> Cow<'a, Value> {
        let is_paid = pays(|weights| weights.fault + size(self.0) / VALUES_A_STEP);
        Cow::Borrowed(if is_paid { self.0 } else { &NOTHING })
    }

    fn identity(&self) -> Option<NodeIdentity> {
        pays(|_| STEPS_TO_REMEMBER);
        Some(NodeIdentity::new(std::ptr::from_ref(self.0).addr()))
    }
}

impl<'a> Object<'a, Metered> for ReadObject<'a> {
    type Node = Read<'a>;
    type MemberName = &'a str;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Read<'a>> {
        let is_paid = pays(|_| steps(key.len()));
        let value = self.0.get(key.as_str()).filter(|_| is_paid)?;
        child(value)
    }

    fn members(&self) -> Members<'a> {
        Members(self.0.iter())
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, Read<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        let is_paid =
            pays(|weights| 1 + weights.name.saturating_mul(name.len() as u64 + 1) / BYTES_A_STEP);
        let value = child(value).filter(|_| is_paid)?;
        Some((name.as_str(), value))
    }
}

impl<'a> Array<'a, Metered> for ReadArray<'a> {
    type Node = Read<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> Elements<'a> {
        Elements(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        let compared: u64 = self.0.iter().map(size).sum();
        let is_paid = pays(|_| compared.saturating_mul(STEPS_TO_COMPARE));
        !is_paid || is_unique(self.0)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Read<'a>;

    fn next(&mut self) -> Option<Read<'a>> {
        child(self.0.next()?)
    }
}

/// Steps to look at all of `value`.
pub fn size(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::Object(fields) => {
            1 + fields
                .iter()
                .map(|(name, value)| steps(name.len()) + size(value))
                .sum::<u64>()
        }
        Value::String(text) => steps(text.len()),
        _ => 1,
    }
}
