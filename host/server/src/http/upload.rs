//! Components that a client uploads: checked by loading them, then written to the modules folder and loaded
//! from there.

use crate::http::App;
use crate::http::auth::Client;
use crate::http::error::ApiError;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, header};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Mutex;
use toolhold_admission::{MemoryReservation, MemoryShare, WorkKind};
use toolhold_connections::{KeptBody, KeptBodyError};
use toolhold_files::Links;
use toolhold_policy::Digest;
use toolhold_runtime::install;
use toolhold_runtime::install::InstallPlace;
use toolhold_sandbox::{LoadError, LoadEvent, Module, is_slot};
use toolhold_storage::Draft;

/// Looks into the modules folder, and writes of components into it.
const UPLOADS: WorkKind = WorkKind::new("uploads of components", 8);

/// An upload.
#[derive(Debug)]
pub struct Upload {
    /// `NAME` or `NAME@VERSION`
    slot: String,
    component: Bytes,
    /// The memory of the component.
    kept: MemoryReservation,
    /// Digest (hex) of the component that the upload replaces.
    replaces: Option<String>,
}

const TYPES: [&str; 2] = ["application/wasm", "application/octet-stream"];

/// # Errors
/// The module name is invalid, the body is too large or has a wrong content type, or If-Match is not a
/// digest.
pub async fn read(
    app: &App,
    slot: &str,
    headers: &HeaderMap,
    body: Body,
    share: &MemoryShare,
) -> Result<Upload, ApiError> {
    if !is_slot(slot) {
        return Err(ApiError::invalid(
            "a module's name is lower case letters, digits and _, at most 48, starting with a letter; a version may follow, as in clock@1.2",
        ));
    }
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or(""));
    let kind = text(header::CONTENT_TYPE).unwrap_or_default();
    if !TYPES.contains(&kind) {
        return Err(ApiError::unsupported_media_type(
            "Content-Type: a component is application/wasm",
        ));
    }
    let replaces = text(header::IF_MATCH).map(digest).transpose()?;
    let name = slot.split('@').next().unwrap_or_default();
    let most = app
        .dispatcher
        .agents()
        .registry()
        .policy()
        .component_bytes(name);
    let read = KeptBody::read(body, most, share).await;
    let KeptBody { bytes, kept } = read.map_err(|error| match error {
        KeptBodyError::TooLong { most } => ApiError::payload_too_large(format!(
            "a component may have {most} bytes; the operator may raise component_bytes under [limits] or [module.{name}.limits]"
        )),
        error => error.into(),
    })?;
    Ok(Upload {
        slot: slot.to_owned(),
        component: bytes,
        kept,
        replaces,
    })
}

/// The digest of an If-Match: an entity tag, or the hex digits that `GET /v1/modules/{module}` returns.
fn digest(tag: &str) -> Result<String, ApiError> {
    let tag = tag.trim().trim_matches('"');
    let hex = tag.strip_prefix("sha256:").unwrap_or(tag);
    if hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(hex.to_ascii_lowercase());
    }
    Err(ApiError::invalid(
        "If-Match: the digest of the component that is replaced, as GET /v1/modules/{module} gives it",
    ))
}

/// Stores components in the modules folder, one at a time.
#[derive(Debug)]
pub struct Uploads {
    folder: PathBuf,
    turn: Mutex<()>,
}

impl Uploads {
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            turn: Mutex::new(()),
        }
    }

    /// Loads the component, and returns its module and whether the name is new. Completes even if the client
    /// disconnects.
    pub async fn take(
        self: &Arc<Self>,
        app: &App,
        client: &Client,
        upload: Upload,
    ) -> Result<(Arc<Module>, bool), ApiError> {
        let (this, app, client) = (self.clone(), app.clone(), client.clone());
        let taken = tokio::spawn(async move { this.put(&app, &client, upload).await });
        taken.await.map_err(|error| ApiError::internal(&error))?
    }

    async fn put(
        &self,
        app: &App,
        client: &Client,
        upload: Upload,
    ) -> Result<(Arc<Module>, bool), ApiError> {
        let Upload {
            slot,
            component,
            mut kept,
            replaces,
        } = upload;
        let _turn = self.turn.lock().await;
        let (folder, name, named) = (self.folder.clone(), slot.clone(), replaces.clone());
        let found = UPLOADS
            .run(Some(&client.name), move || {
                free(&folder, &name, named.as_deref())
            })
            .await;
        found.map_err(|error| ApiError::internal(&error))??;

        let registry = app.dispatcher.agents().registry();
        let log = |event: LoadEvent| tracing::info!(?event, "modules");
        // Loading keeps the component that it is given.
        kept.grow(component.len() as u64)
            .map_err(KeptBodyError::Full)?;
        let examined = registry.examine(&self.folder, &slot, component.to_vec(), &log);
        let digest = examined.await.map_err(refused)?.digest;
        // The body, the wait for other uploads and the compilation may each have taken minutes.
        client.right.look().await?;
        let (owner, named) = (&client.name, digest.to_string());
        let draft = Draft::module_uploaded(owner, &slot, &named, replaces.as_deref());
        // Logged first: the audit log has every stored component.
        app.dispatcher.store().audit(draft).await?;
        let (folder, name, named) = (self.folder.clone(), slot.clone(), replaces.clone());
        // Compiling takes time, so the file may have been replaced meanwhile.
        let written = UPLOADS.run(Some(&client.name), move || {
            put(&folder, &name, named.as_deref(), &component)
        });
        written
            .await
            .map_err(|error| ApiError::internal(&error))??;

        let only = [slot.split('@').next().unwrap_or_default().to_owned()];
        let loaded = registry.load_folder(&self.folder, Some(&only), &log).await;
        loaded.map_err(|error| ApiError::internal(&error))?;
        let mut modules = registry.modules().into_iter();
        let module = modules.find(|module| module.slot == slot && module.digest == digest);
        let module = module.ok_or_else(|| {
            ApiError::conflict(
                "the component is in the modules folder, and was changed there meanwhile",
            )
        })?;
        Ok((module, replaces.is_none()))
    }
}

/// Writes the component if its target is free or the client named its digest.
fn put(
    folder: &Path,
    slot: &str,
    replaces: Option<&str>,
    component: &[u8],
) -> Result<(), ApiError> {
    let place = free(folder, slot, replaces)?;
    install::put(&place, component, replaces.is_some()).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            ApiError::conflict("a component of that name came meanwhile; look at it again")
        }
        _ => ApiError::internal(&error),
    })
}

/// The target of the component, if it may be written.
fn free(folder: &Path, slot: &str, replaces: Option<&str>) -> Result<PathBuf, ApiError> {
    let (place, there) = found(folder, slot)?;
    may_take(there.as_ref(), replaces)?;
    Ok(place)
}

/// Maximum bytes of a component that is replaced: its digest is that of all of it. Much larger than one that loads.
const MAX_REPLACED_BYTES: u64 = 1 << 30;

/// The digest of a file, of which a piece at a time is in memory.
fn digest_of(path: &Path) -> io::Result<Digest> {
    let file = toolhold_files::open(path, Links::Refuse)?;
    if file.metadata()?.len() > MAX_REPLACED_BYTES {
        let reason = format!("it has more than {MAX_REPLACED_BYTES} bytes");
        return Err(io::Error::other(reason));
    }
    Digest::of_reader(file.take(MAX_REPLACED_BYTES))
}

/// The target of the component, and the digest of the present file.
fn found(folder: &Path, slot: &str) -> Result<(PathBuf, Option<Digest>), ApiError> {
    match install::place(folder, slot) {
        InstallPlace::Free(place) => Ok((place, None)),
        InstallPlace::Folder(_) => Err(ApiError::conflict(format!(
            "{slot} is a folder of the modules folder, with a manifest or sources of its own; only {slot}.wasm could be replaced"
        ))),
        InstallPlace::Taken(place) => {
            let is_file = place.symlink_metadata().is_ok_and(|it| it.is_file());
            let digest = is_file.then(|| digest_of(&place)).transpose();
            match digest.map_err(|error| ApiError::internal(&error))? {
                Some(digest) => Ok((place, Some(digest))),
                None => Err(ApiError::conflict(format!(
                    "{slot}.wasm of the modules folder is no plain file, and is not replaced"
                ))),
            }
        }
    }
}

/// Refuses to replace a component whose digest the client did not name.
fn may_take(there: Option<&Digest>, replaces: Option<&str>) -> Result<(), ApiError> {
    match (there, replaces) {
        (None, None) => Ok(()),
        (Some(there), Some(named)) if there.to_string() == named => Ok(()),
        (Some(_), Some(_)) => Err(ApiError::precondition_failed(
            "If-Match names another component than the one that is there; look at it again",
        )),
        (None, Some(_)) => Err(ApiError::precondition_failed(
            "If-Match names a component, and there is none of that name; leave it away",
        )),
        (Some(_), None) => Err(ApiError::precondition_required(
            "there is a component of that name; to replace it, give its digest as If-Match",
        )),
    }
}

fn refused(error: LoadError) -> ApiError {
    let message = error.to_string();
    match error {
        LoadError::TooLarge { .. } => ApiError::payload_too_large(message),
        LoadError::Duplicate { .. } => ApiError::conflict(message),
        LoadError::Read { .. } | LoadError::Changing => ApiError::internal(&message),
        _ => ApiError::unprocessable(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_in_every_form_that_it_is_given_in() {
        let hex = "a".repeat(64);
        for tag in [
            hex.clone(),
            format!("\"{hex}\""),
            format!("sha256:{hex}"),
            format!(" \"sha256:{}\" ", hex.to_uppercase()),
        ] {
            assert_eq!(digest(&tag).ok(), Some(hex.clone()), "{tag}");
        }
        for tag in [
            "",
            "*",
            "\"\"",
            "sha256:",
            &hex[1..],
            &format!("W/\"{hex}\""),
        ] {
            assert!(digest(tag).is_err(), "{tag}");
        }
    }

    #[test]
    fn nothing_is_replaced_unseen() {
        let there = Digest::of(b"there");
        let named = there.to_string();
        let other = Digest::of(b"other").to_string();
        for (there, replaces, may) in [
            (None, None, true),
            (Some(&there), Some(&*named), true),
            (Some(&there), Some(&*other), false),
            (Some(&there), None, false),
            (None, Some(&*named), false),
        ] {
            assert_eq!(may_take(there, replaces).is_ok(), may, "{replaces:?}");
        }
    }

    #[test]
    fn a_module_that_appeared_during_compilation_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        put(folder, "a", None, b"first").unwrap();
        let seen = Digest::of(b"first").to_string();
        assert!(free(folder, "a", Some(&seen)).is_ok());
        std::fs::write(folder.join("a.wasm"), b"unseen").unwrap();
        assert!(put(folder, "a", Some(&seen), b"second").is_err());
        assert!(put(folder, "a", None, b"second").is_err());
        assert_eq!(std::fs::read(folder.join("a.wasm")).unwrap(), b"unseen");
        let seen = Digest::of(b"unseen").to_string();
        put(folder, "a", Some(&seen), b"second").unwrap();
        assert_eq!(std::fs::read(folder.join("a.wasm")).unwrap(), b"second");
    }
}
