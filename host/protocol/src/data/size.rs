//! What values take in memory, and how deep they are, without walking further than the limits.

use super::{MAX_LEVELS, Refusal, Write};
use crate::reference::Segment;
use serde_json::Value;

/// Which limit was passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeLimit {
    Levels,
    Bytes,
}

/// Size of a log entry in bytes, if it is at most `bytes`.
pub fn entry(write: &Write, bytes: usize) -> Result<usize, Refusal> {
    let levels = MAX_LEVELS
        .checked_sub(write.path.segments.len())
        .ok_or(Refusal::Levels)?;
    let value = of(&write.value, levels, bytes).map_err(|excess| match excess {
        SizeLimit::Levels => Refusal::Levels,
        SizeLimit::Bytes => Refusal::Size,
    })?;
    let path = write.path.segments.iter().map(|segment| {
        size_of::<Segment>()
            + match segment {
                Segment::Key(key) => key.len(),
                Segment::Index(_) => 0,
            }
    });
    let names = write.path.kind.len() + write.instance.as_ref().map_or(0, String::len);
    Ok(size_of::<Write>() + names + path.sum::<usize>() + value)
}

/// What `value` takes, if it has no more than `levels` of containers and takes no more than `bytes`.
pub fn of(value: &Value, levels: usize, bytes: usize) -> Result<usize, SizeLimit> {
    let mut left = bytes;
    spend(value, levels, &mut left)?;
    Ok(bytes - left)
}

fn spend(value: &Value, levels: usize, left: &mut usize) -> Result<(), SizeLimit> {
    let text = match value {
        Value::String(text) => text.len(),
        _ => 0,
    };
    take(left, size_of::<Value>() + text)?;
    let below = levels.checked_sub(1).ok_or(SizeLimit::Levels);
    match value {
        Value::Array(items) => {
            let below = below?;
            items.iter().try_for_each(|item| spend(item, below, left))
        }
        Value::Object(fields) => {
            let below = below?;
            fields.iter().try_for_each(|(key, field)| {
                take(left, size_of::<String>() + key.len())?;
                spend(field, below, left)
            })
        }
        _ => Ok(()),
    }
}

fn take(left: &mut usize, bytes: usize) -> Result<(), SizeLimit> {
    *left = left.checked_sub(bytes).ok_or(SizeLimit::Bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_counted_to_the_byte_and_no_further() {
        let node = size_of::<Value>();
        let key = size_of::<String>();
        for (value, bytes) in [
            (json!(null), node),
            (json!("four"), node + 4),
            (json!([1, 2]), 3 * node),
            (json!({"ab": "x"}), 2 * node + key + 3),
        ] {
            assert_eq!(of(&value, 9, bytes), Ok(bytes), "{value}");
            assert_eq!(of(&value, 9, bytes - 1), Err(SizeLimit::Bytes), "{value}");
        }
    }

    #[test]
    fn levels_are_those_of_containers() {
        for (value, levels) in [
            (json!(1), 0),
            (json!([]), 1),
            (json!({"a": [1]}), 2),
            (json!([[], [{}]]), 3),
        ] {
            assert!(of(&value, levels, usize::MAX).is_ok(), "{value}");
            if levels > 0 {
                let excess = of(&value, levels - 1, usize::MAX);
                assert_eq!(excess, Err(SizeLimit::Levels), "{value}");
            }
        }
    }
}
