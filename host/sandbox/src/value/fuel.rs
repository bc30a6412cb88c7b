//! The memory of a component's value in the host, before it is JSON.
//!
//! wasmtime counts what it lifts from a guest in fuel of its own, about a unit a byte. For flags it counts the
//! characters of the names, of which each is a string: a few units become a hundred bytes.

use super::shape::Shape;

/// Bytes of memory that one unit of fuel may become in any type but flags. Most in a record of short names: 40 units
/// and the name, for a name and a value in a list that grows.
pub const BYTES_PER_FUEL: u64 = 4;
/// The fuel of a value's place in the list, record or tuple around it, and the bytes that it may take.
const PLACE_FUEL: u64 = 40;
const PLACE_BYTES: u64 = PLACE_FUEL * BYTES_PER_FUEL;
/// A name that is set, besides its characters: two places in a list that grows, and an allocation.
const NAME_BYTES: u64 = 80;

/// Bytes of memory that one unit of fuel may become in a value of this shape, at least [`BYTES_PER_FUEL`].
pub fn bytes_per_fuel(shape: &Shape) -> u64 {
    let most = |shapes: &mut dyn Iterator<Item = &Shape>| shapes.map(bytes_per_fuel).max();
    let inner = match shape {
        Shape::Flags(names) => Some(flags(names)),
        Shape::List(of) | Shape::Fixed(of, _) | Shape::Option(of) => Some(bytes_per_fuel(of)),
        Shape::Map(key, of) => most(&mut [&**key, &**of].into_iter()),
        Shape::Record(fields) => most(&mut fields.iter().map(|field| &field.shape)),
        Shape::Tuple(shapes) => most(&mut shapes.iter()),
        Shape::Variant(cases) => most(&mut cases.iter().filter_map(|case| case.shape.as_ref())),
        Shape::Result(ok, err) => most(&mut [ok, err].into_iter().filter_map(|of| of.as_deref())),
        _ => None,
    };
    inner.unwrap_or_default().max(BYTES_PER_FUEL)
}

/// The worst that a guest can do is to set the shortest names.
fn flags(names: &[String]) -> u64 {
    let mut lengths: Vec<_> = names.iter().map(|name| name.len() as u64).collect();
    lengths.sort_unstable();
    let (mut bytes, mut fuel) = (PLACE_BYTES, PLACE_FUEL);
    let ratios = lengths.into_iter().map(|length| {
        bytes += NAME_BYTES + length;
        fuel += length;
        bytes.div_ceil(fuel)
    });
    ratios.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::shape::ShapeMember;

    #[test]
    fn flags_of_short_names_take_more_than_their_fuel() {
        let letters = Shape::Flags((b'a'..=b'z').map(|c| char::from(c).to_string()).collect());
        assert_eq!(bytes_per_fuel(&letters), 35);
        let words = Shape::Flags(vec!["read".to_owned(), "write".into(), "execute".into()].into());
        assert_eq!(bytes_per_fuel(&words), 8);
        let name = "flags".to_owned();
        let record = Shape::Record(vec![ShapeMember {
            name,
            shape: letters,
        }]);
        let inside = Shape::List(Box::new(Shape::Result(None, Some(Box::new(record)))));
        assert_eq!(bytes_per_fuel(&inside), 35);
    }

    #[test]
    fn other_types_take_what_their_fuel_allows() {
        for shape in [
            Shape::Bytes,
            Shape::List(Box::new(Shape::String)),
            Shape::Record(Vec::new()),
            Shape::Flags(Vec::<String>::new().into()),
        ] {
            assert_eq!(bytes_per_fuel(&shape), BYTES_PER_FUEL, "{shape:?}");
        }
    }
}
