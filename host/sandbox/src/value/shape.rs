//! A WIT type as JSON sees it: read once when a module is loaded, then a plan for every call.
//!
//! Types of a component are handles whose parts are looked up one by one; a [`Shape`] owns its
//! names and parts. It exists only for types that have a JSON form, so code that has one never meets
//! a resource again. [`crate::value::schema`] says what a shape accepts, [`crate::value`] converts it.

pub use super::named_parts::NamedParts;
use toolhold_policy::text;
use wasmtime::component::{ResourceType, Type};

/// What a signature of nested types may be: deeper ones are refused rather than shown to a model.
const MAX_TYPE_DEPTH: usize = 16;
/// Parts of one function's types, named ones counted at every use. Types are a graph in a component
/// and a tree in a schema: a few bytes of nested tuples would unfold to gigabytes.
const MAX_TYPE_PARTS: usize = 2_000;

/// Parts of the types of all functions of a component together: so many are read in a fraction of a second.
const MAX_COMPONENT_PARTS: usize = 50_000;
/// Characters of a name in a reason.
const MAX_NAME_CHARS: usize = 64;

/// A type with a JSON form. The comments say which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    Bool,
    S8,
    U8,
    S16,
    U16,
    S32,
    U32,
    /// A number, or a string of digits beyond 2^53, where many JSON readers lose digits.
    S64,
    /// As [`Shape::S64`].
    U64,
    /// A finite number. JSON has no NaN and no infinity, and a string in their place would make
    /// every number in every schema ambiguous to a model: both directions refuse them by path.
    F32,
    /// As [`Shape::F32`].
    F64,
    /// A string of one character.
    Char,
    String,
    /// `list<u8>`: a string in base64.
    Bytes,
    /// A list.
    List(Box<Shape>),
    /// A list of exactly so many items.
    Fixed(Box<Shape>, usize),
    /// A list of `{"key": …, "value": …}`: keys of any type, order and duplicates kept.
    Map(Box<Shape>, Box<Shape>),
    /// An object. A field whose value is [`Shape::Option`] may be left out.
    Record(Vec<ShapeMember>),
    /// A list of exactly these items.
    Tuple(Vec<Shape>),
    /// `"case"`, or `{"case": payload}`.
    Variant(NamedParts<Case>),
    /// One of these strings.
    Enum(NamedParts<String>),
    /// `null` or the value. Directly within another option the value is `{"some": …}`, so that
    /// `some(none)` and `none` differ.
    Option(Box<Shape>),
    /// `{"ok": …}` or `{"err": …}`, with `null` for a side without a payload.
    Result(Option<Box<Shape>>, Option<Box<Shape>>),
    /// A list of the names that are set.
    Flags(NamedParts<String>),
}

/// A parameter of a function or a field of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShapeMember {
    pub name: String,
    pub shape: Shape,
}

/// A case of a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    pub shape: Option<Shape>,
}

impl AsRef<str> for Case {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl Shape {
    /// The shape of `ty`.
    ///
    /// # Errors
    /// The reason, for resources, streams, futures, error contexts and types too deep or too large.
    pub fn of(ty: &Type) -> Result<Self, String> {
        ShapeReader::new(&[], &mut PartsBudget::default()).shape(ty)
    }

    /// Whether a record may leave out a field of this shape.
    pub(crate) fn is_optional(&self) -> bool {
        matches!(self, Self::Option(_))
    }
}

/// The parts of types that may still be read of one component.
#[derive(Debug)]
pub(crate) struct PartsBudget {
    left: usize,
}

impl Default for PartsBudget {
    fn default() -> Self {
        Self {
            left: MAX_COMPONENT_PARTS,
        }
    }
}

/// Reads the types of one function.
pub(crate) struct ShapeReader<'a> {
    /// The names under which the component exports its resources.
    resources: &'a [(ResourceType, String)],
    left: usize,
    component: &'a mut PartsBudget,
}

impl<'a> ShapeReader<'a> {
    pub fn new(resources: &'a [(ResourceType, String)], component: &'a mut PartsBudget) -> Self {
        Self {
            resources,
            left: MAX_TYPE_PARTS,
            component,
        }
    }

    pub fn shape(&mut self, ty: &Type) -> Result<Shape, String> {
        self.nested(ty, 0)
    }

    fn nested(&mut self, ty: &Type, depth: usize) -> Result<Shape, String> {
        if depth > MAX_TYPE_DEPTH {
            return Err(format!(
                "its type is nested deeper than {MAX_TYPE_DEPTH} levels"
            ));
        }
        self.count(1)?;
        let deeper = depth + 1;
        Ok(match ty {
            Type::Bool => Shape::Bool,
            Type::S8 => Shape::S8,
            Type::U8 => Shape::U8,
            Type::S16 => Shape::S16,
            Type::U16 => Shape::U16,
            Type::S32 => Shape::S32,
            Type::U32 => Shape::U32,
            Type::S64 => Shape::S64,
            Type::U64 => Shape::U64,
            Type::Float32 => Shape::F32,
            Type::Float64 => Shape::F64,
            Type::Char => Shape::Char,
            Type::String => Shape::String,
            Type::List(list) if matches!(list.ty(), Type::U8) => Shape::Bytes,
            Type::List(list) => Shape::List(Box::new(self.nested(&list.ty(), deeper)?)),
            Type::FixedLengthList(list) => Shape::Fixed(
                Box::new(self.nested(&list.ty(), deeper)?),
                list.len() as usize,
            ),
            Type::Map(map) => Shape::Map(
                Box::new(self.nested(&map.key(), deeper)?),
                Box::new(self.nested(&map.value(), deeper)?),
            ),
            Type::Record(record) => Shape::Record(
                record
                    .fields()
                    .map(|field| {
                        let shape = self.nested(&field.ty, deeper);
                        Ok(ShapeMember {
                            name: field.name.to_owned(),
                            shape: shape.map_err(|reason| within(field.name, &reason))?,
                        })
                    })
                    .collect::<Result<_, String>>()?,
            ),
            Type::Tuple(tuple) => Shape::Tuple(
                tuple
                    .types()
                    .map(|ty| self.nested(&ty, deeper))
                    .collect::<Result<_, _>>()?,
            ),
            Type::Variant(variant) => Shape::Variant(
                variant
                    .cases()
                    .map(|case| {
                        self.count(1)?;
                        let shape = case.ty.map(|ty| self.nested(&ty, deeper)).transpose();
                        Ok(Case {
                            name: case.name.to_owned(),
                            shape: shape.map_err(|reason| within(case.name, &reason))?,
                        })
                    })
                    .collect::<Result<_, String>>()?,
            ),
            Type::Enum(names) => {
                self.count(names.names().len())?;
                Shape::Enum(names.names().map(str::to_owned).collect())
            }
            Type::Option(option) => Shape::Option(Box::new(self.nested(&option.ty(), deeper)?)),
            Type::Result(result) => {
                let mut side = |ty: Option<Type>| {
                    ty.map(|ty| self.nested(&ty, deeper).map(Box::new))
                        .transpose()
                };
                Shape::Result(side(result.ok())?, side(result.err())?)
            }
            Type::Flags(flags) => {
                self.count(flags.names().len())?;
                Shape::Flags(flags.names().map(str::to_owned).collect())
            }
            Type::Own(resource) | Type::Borrow(resource) => {
                let name = self.resources.iter().find(|(ty, _)| ty == resource);
                let name = name.map_or(String::new(), |(_, name)| format!(" {name}"));
                return Err(format!(
                    "the resource{name} lives only inside one instance and has no JSON form"
                ));
            }
            Type::Future(_) => return Err("a future has no JSON form".into()),
            Type::Stream(_) => return Err("a stream has no JSON form".into()),
            Type::ErrorContext => return Err("an error context has no JSON form".into()),
        })
    }

    fn count(&mut self, parts: usize) -> Result<(), String> {
        self.left = self
            .left
            .checked_sub(parts)
            .ok_or_else(|| format!("its types have more than {MAX_TYPE_PARTS} parts"))?;
        self.component.left = self.component.left.checked_sub(parts).ok_or_else(|| {
            format!(
                "the types of the component's functions have more than {MAX_COMPONENT_PARTS} parts"
            )
        })?;
        Ok(())
    }
}

/// A reason that is about the part `name` of a type. The component's author chose the name's length.
fn within(name: &str, reason: &str) -> String {
    format!("{}: {reason}", text::visible(name, MAX_NAME_CHARS))
}
