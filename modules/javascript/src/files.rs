//! What the code can do with files, as functions that the prelude wraps. Without a scratch directory
//! they say how to get one.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rquickjs::function::Func;
use rquickjs::{Ctx, Exception, Object, Result, TypedArray};

use crate::scratch;

/// Sets `read`, `readText`, `writeText`, `writeBytes`, `remove`, `exists` and `list` on `host`.
pub fn lend<'js>(host: &Object<'js>, root: Option<&Path>) -> Result<()> {
    let place = Rc::new(Place(root.map(Path::to_owned)));

    let at = place.clone();
    let read = move |ctx: Ctx<'js>, path: String| -> Result<TypedArray<'js, u8>> {
        let bytes = fs::read(at.resolve(&ctx, &path)?);
        TypedArray::new(ctx.clone(), or_throw(&ctx, "read", &path, bytes)?)
    };
    host.set("read", Func::from(read))?;

    let at = place.clone();
    let read_text = move |ctx: Ctx<'js>, path: String| {
        let bytes = fs::read(at.resolve(&ctx, &path)?);
        let bytes = or_throw(&ctx, "read", &path, bytes)?;
        Ok::<_, rquickjs::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    host.set("readText", Func::from(read_text))?;

    let at = place.clone();
    let write_text = move |ctx: Ctx<'js>, path: String, text: String, append: bool| {
        let written = scratch::write(&at.resolve(&ctx, &path)?, text.as_bytes(), append);
        or_throw(&ctx, "write", &path, written)
    };
    host.set("writeText", Func::from(write_text))?;

    let at = place.clone();
    // Bytes come as a list: a view of the engine's memory would be `unsafe`.
    let write = move |ctx: Ctx<'js>, path: String, bytes: Vec<u8>, append: bool| {
        let written = scratch::write(&at.resolve(&ctx, &path)?, &bytes, append);
        or_throw(&ctx, "write", &path, written)
    };
    host.set("writeBytes", Func::from(write))?;

    let at = place.clone();
    let remove = move |ctx: Ctx<'js>, path: String| {
        let removed = fs::remove_file(at.resolve(&ctx, &path)?);
        or_throw(&ctx, "remove", &path, removed)
    };
    host.set("remove", Func::from(remove))?;

    let at = place.clone();
    let exists = move |ctx: Ctx<'js>, path: String| {
        Ok::<_, rquickjs::Error>(at.resolve(&ctx, &path)?.exists())
    };
    host.set("exists", Func::from(exists))?;

    let list = move |ctx: Ctx<'js>| -> Result<Vec<String>> {
        let root = place.resolve(&ctx, "")?;
        Ok(scratch::walk(&root)
            .into_iter()
            .map(|(name, _)| name)
            .collect())
    };
    host.set("list", Func::from(list))
}

struct Place(Option<PathBuf>);

impl Place {
    fn resolve(&self, ctx: &Ctx<'_>, path: &str) -> Result<PathBuf> {
        let found = self.0.as_ref().map_or_else(
            || {
                Err(
                    "this module has no scratch directory: use `input` and the result in place of \
                     files, or ask the operator to grant one (toolhold modules grant javascript \
                     --scratch)"
                        .to_owned(),
                )
            },
            |root| scratch::resolve(root, path),
        );
        found.map_err(|message| Exception::throw_message(ctx, &message))
    }
}

fn or_throw<T>(ctx: &Ctx<'_>, action: &str, path: &str, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|error| {
        Exception::throw_message(ctx, &format!("cannot {action} {path:?}: {error}"))
    })
}
