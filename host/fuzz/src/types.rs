//! Components with a function of any type, as WAT.

use arbitrary::{Result, Unstructured};
use std::fmt::Write as _;

/// Deeper nesting comes only from [`tower`]s; more declarations only slow the compiler down.
const MAX_DEPTH: usize = 5;
const MAX_DECLARATIONS: usize = 40;

const PRIMITIVES: [&str; 13] = [
    "bool", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "f32", "f64", "char", "string",
];
const NAMES: [&str; 8] = [
    "a",
    "ok",
    "err",
    "key",
    "some-value",
    "URL",
    "is-2d",
    "type",
];

/// A component that imports one function with parameters of any types.
pub fn importing(u: &mut Unstructured) -> Result<String> {
    let mut types = Types::within(DeclarationPlace::Interface);
    let mut params = String::new();
    for i in 0..u.int_in_range(0..=4)? {
        let ty = types.any(u, 0)?;
        let _ = write!(params, " (param \"p{i}\" {ty})");
    }
    Ok(format!(
        "(component (import \"i\" (instance\n{}(export \"f\" (func{params})))))",
        types.text
    ))
}

/// A component that exports `echo(x, pad…) -> tuple<x, u8>` and gives `x` back as it came.
///
/// With more than 16 flat parameters they come in memory, `x` first, and so does the result: the
/// pointer that came in is the answer, whatever the type.
pub fn echoing(u: &mut Unstructured) -> Result<String> {
    let mut types = Types::within(DeclarationPlace::Component);
    let ty = types.any(u, 0)?;
    let mut pads = String::new();
    for i in 0..17 {
        let _ = write!(pads, " (param \"pad{i}\" u8)");
    }
    Ok(format!(
        r#"(component
{types}(core module $m
  (memory (export "memory") 16)
  (global $free (mut i32) (i32.const 8))
  (func (export "realloc") (param i32 i32 i32 i32) (result i32) (local $at i32)
    (local.set $at (i32.and
      (i32.add (global.get $free) (i32.sub (local.get 2) (i32.const 1)))
      (i32.sub (i32.const 0) (local.get 2))))
    (global.set $free (i32.add (local.get $at) (local.get 3)))
    (local.get $at))
  (func (export "echo") (param i32) (result i32) (local.get 0)))
(core instance $i (instantiate $m))
(func (export "echo") (param "x" {ty}){pads} (result (tuple {ty} u8))
  (canon lift (core func $i "echo") (memory $i "memory") (realloc (func $i "realloc")))))"#,
        types = types.text,
    ))
}

/// Where types are declared: an imported interface and a component name theirs differently.
#[derive(Clone, Copy)]
enum DeclarationPlace {
    Interface,
    Component,
}

struct Types {
    text: String,
    count: usize,
    place: DeclarationPlace,
}

impl Types {
    fn within(place: DeclarationPlace) -> Self {
        Self {
            text: String::new(),
            count: 0,
            place,
        }
    }

    /// Declares a type and everything in it; returns what refers to it.
    fn any(&mut self, u: &mut Unstructured, depth: usize) -> Result<String> {
        if depth == MAX_DEPTH || self.count >= MAX_DECLARATIONS {
            return Ok((*u.choose(&PRIMITIVES)?).to_owned());
        }
        Ok(match u.int_in_range(0..=12)? {
            0..=2 => (*u.choose(&PRIMITIVES)?).to_owned(),
            3 => "(list u8)".to_owned(),
            4 => self.wrapped("list", u, depth)?,
            5 => self.wrapped("option", u, depth)?,
            6 => self.tower(u)?,
            7 => {
                let (ok, error) = (self.side(u, depth)?, self.side(u, depth)?);
                let ok = ok.unwrap_or_default();
                let error = error.map_or(String::new(), |ty| format!("(error {ty})"));
                self.plain(&format!("(result {ok} {error})"))
            }
            8 => {
                let items = self.several(u, depth, |_, ty| format!(" {ty}"))?;
                self.plain(&format!("(tuple{items})"))
            }
            9 => {
                let fields =
                    self.several(u, depth, |name, ty| format!(" (field \"{name}\" {ty})"))?;
                self.named(&format!("(record{fields})"))
            }
            10 => {
                let mut cases = String::new();
                for i in 0..u.int_in_range(1..=4)? {
                    let name = name(u, i)?;
                    let ty = self.side(u, depth)?.unwrap_or_default();
                    let _ = write!(cases, " (case \"{name}\" {ty})");
                }
                self.named(&format!("(variant{cases})"))
            }
            11 => {
                let names = names(u, 40)?;
                self.named(&format!("(enum{names})"))
            }
            _ => {
                let names = names(u, 32)?;
                self.named(&format!("(flags{names})"))
            }
        })
    }

    fn wrapped(&mut self, kind: &str, u: &mut Unstructured, depth: usize) -> Result<String> {
        let inner = self.any(u, depth + 1)?;
        Ok(self.plain(&format!("({kind} {inner})")))
    }

    /// Up to twenty lists of lists, beyond what a schema may nest and within what a component may.
    fn tower(&mut self, u: &mut Unstructured) -> Result<String> {
        let mut ty = (*u.choose(&PRIMITIVES)?).to_owned();
        for _ in 0..u.int_in_range(1..=20)? {
            ty = self.plain(&format!("(list {ty})"));
        }
        Ok(ty)
    }

    fn side(&mut self, u: &mut Unstructured, depth: usize) -> Result<Option<String>> {
        if u.arbitrary()? {
            self.any(u, depth + 1).map(Some)
        } else {
            Ok(None)
        }
    }

    fn several(
        &mut self,
        u: &mut Unstructured,
        depth: usize,
        write: impl Fn(&str, &str) -> String,
    ) -> Result<String> {
        let mut text = String::new();
        for i in 0..u.int_in_range(1..=5)? {
            let name = name(u, i)?;
            text += &write(&name, &self.any(u, depth + 1)?);
        }
        Ok(text)
    }

    fn plain(&mut self, definition: &str) -> String {
        self.count += 1;
        let name = format!("$t{}", self.count);
        let _ = writeln!(self.text, "(type {name} {definition})");
        name
    }

    /// Records, variants, enums and flags must have a public name before a function may use them.
    fn named(&mut self, definition: &str) -> String {
        let inner = self.plain(definition);
        let n = self.count;
        let _ = match self.place {
            DeclarationPlace::Interface => {
                writeln!(self.text, "(export \"t{n}\" (type $n{n} (eq {inner})))")
            }
            DeclarationPlace::Component => {
                writeln!(self.text, "(export $n{n} \"t{n}\" (type {inner}))")
            }
        };
        format!("$n{n}")
    }
}

/// Unlike all others with other numbers, whatever the case.
fn name(u: &mut Unstructured, number: usize) -> Result<String> {
    let stem = u.choose(&NAMES)?;
    Ok(if number == 0 {
        (*stem).to_owned()
    } else {
        format!("{stem}-x{number}")
    })
}

fn names(u: &mut Unstructured, most: usize) -> Result<String> {
    let mut text = String::new();
    for i in 0..u.int_in_range(1..=most)? {
        let _ = write!(text, " \"{}\"", name(u, i)?);
    }
    Ok(text)
}
