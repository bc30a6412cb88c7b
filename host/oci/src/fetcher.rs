//! From a reference to its component: out of the store, or from its registry into the store.

use super::artifact::{Descriptor, Manifest, check_component};
use super::client::{MAX_MANIFEST, Session};
use super::store::Store;
use super::{Credentials, Digest, FetchError, Network, Reference};
use std::path::PathBuf;
use std::time::Duration;

/// How components are fetched.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Use only what is in the store; nothing is asked of any network.
    pub offline: bool,
    /// For everything that one reference takes.
    pub timeout: Duration,
    pub network: Network,
    /// Where the store is.
    pub folder: PathBuf,
}

impl Settings {
    /// As the embedded configuration has them, with a store of one's own.
    pub fn new(folder: PathBuf, credentials: Option<Credentials>) -> Self {
        Self {
            offline: false,
            timeout: Duration::from_mins(5),
            network: Network {
                insecure: Vec::new(),
                idle_timeout: Duration::from_secs(30),
                credentials,
            },
            folder,
        }
    }
}

/// Turns references into components.
#[derive(Debug)]
pub struct Fetcher {
    settings: Settings,
    store: Store,
}

/// A component that was fetched, now or before.
#[derive(Debug)]
pub struct Fetched {
    /// The component.
    pub bytes: Vec<u8>,
    /// Of the component.
    pub component: Digest,
    /// What was asked for, with the digest that it means: the same content for ever.
    pub pinned: Reference,
    /// Whether the component came out of the store.
    pub from_cache: bool,
    /// What the tag meant when it was last fetched, if that was something else.
    pub moved_from: Option<Digest>,
    /// Whether the tag means what it meant last, because nobody could be asked.
    pub is_remembered: bool,
}

impl Fetched {
    /// What somebody should know who relies on a tag.
    pub fn note(&self) -> Option<String> {
        let pinned = &self.pinned;
        match self.moved_from {
            Some(before) => Some(format!(
                "the tag of {pinned} has moved; it was {before} before"
            )),
            None if self.is_remembered => Some(format!(
                "offline, so {pinned} is used, which the tag meant last"
            )),
            None => None,
        }
    }
}

/// A manifest's way to its component: the documents, outermost first, and the layer.
struct Path {
    documents: Vec<(Digest, Vec<u8>)>,
    layer: Descriptor,
}

impl Fetcher {
    pub fn new(settings: Settings) -> Self {
        let store = Store::new(settings.folder.clone());
        Self { settings, store }
    }

    /// The component that `reference` means. By digest the registry is asked only for what is not in
    /// the store; a tag is asked for each time, unless offline. One of more than `most` bytes is
    /// refused before it is fetched.
    pub async fn resolve(&self, reference: &Reference, most: u64) -> Result<Fetched, FetchError> {
        let limit = self.settings.timeout;
        tokio::time::timeout(limit, self.fetch(reference, most))
            .await
            .unwrap_or(Err(FetchError::Deadline { limit }))
    }

    async fn fetch(&self, reference: &Reference, most: u64) -> Result<Fetched, FetchError> {
        let seen = self.store.seen(reference);
        let pinned = reference.digest();
        let known = if self.settings.offline {
            pinned.or(seen)
        } else {
            pinned
        };
        if let Some(digest) = known
            && let Some((bytes, component)) = self.kept(digest, most).await?
        {
            return Ok(Fetched {
                bytes,
                component,
                pinned: reference.pinned(digest),
                from_cache: true,
                moved_from: None,
                is_remembered: pinned.is_none(),
            });
        }
        if self.settings.offline {
            let reference = reference.to_string();
            return Err(FetchError::Offline { reference });
        }
        let mut session = Session::new(&self.settings.network, reference)?;
        let (digest, path) = walk(&mut session, reference).await?;
        check_size(&path.layer, most)?;
        let (bytes, from_cache) = self.obtain(&mut session, &path).await?;
        if pinned.is_none() && seen != Some(digest) {
            self.store.remember(reference, digest)?;
        }
        Ok(Fetched {
            bytes,
            component: path.layer.digest,
            pinned: reference.pinned(digest),
            from_cache,
            moved_from: seen.filter(|seen| pinned.is_none() && *seen != digest),
            is_remembered: false,
        })
    }

    /// The component of a manifest that is in the store with all that belongs to it.
    async fn kept(
        &self,
        digest: Digest,
        most: u64,
    ) -> Result<Option<(Vec<u8>, Digest)>, FetchError> {
        let Some(mut manifest) = self.read(digest, MAX_MANIFEST).await? else {
            return Ok(None);
        };
        if let Manifest::Index(entry) = Manifest::parse(&manifest, None)? {
            match self.read(entry.digest, MAX_MANIFEST).await? {
                Some(inner) => manifest = inner,
                None => return Ok(None),
            }
        }
        let Manifest::Component(layer) = Manifest::parse(&manifest, None)? else {
            return Err(nested());
        };
        check_size(&layer, most)?;
        let bytes = self.read(layer.digest, layer.size).await?;
        Ok(bytes.map(|bytes| (bytes, layer.digest)))
    }

    /// The layer from the store, or from the registry into the store, together with its manifests.
    /// Of several who want the same at once, one fetches it and the others wait.
    async fn obtain(
        &self,
        session: &mut Session<'_>,
        path: &Path,
    ) -> Result<(Vec<u8>, bool), FetchError> {
        let lock = self.store.lock(path.layer.digest).await?;
        let (bytes, is_kept) = match self.read(path.layer.digest, path.layer.size).await? {
            Some(bytes) => (bytes, true),
            None => (session.blob(&path.layer).await?, false),
        };
        check_component(&bytes)?;
        let (store, layer) = (self.store.clone(), path.layer.digest);
        let documents = path.documents.clone();
        let bytes = blocking(move || {
            // The lock goes with the writing: who gives up waiting does not stop it.
            let _lock = lock;
            if !is_kept {
                store.write(layer, &bytes)?;
            }
            for (digest, document) in documents {
                if store.read(digest, MAX_MANIFEST)?.is_none() {
                    store.write(digest, &document)?;
                }
            }
            Ok(bytes)
        })
        .await?;
        Ok((bytes, is_kept))
    }

    async fn read(&self, digest: Digest, limit: u64) -> Result<Option<Vec<u8>>, FetchError> {
        let store = self.store.clone();
        blocking(move || store.read(digest, limit)).await
    }
}

fn check_size(layer: &Descriptor, limit: u64) -> Result<(), FetchError> {
    if layer.size <= limit {
        return Ok(());
    }
    Err(FetchError::TooLarge {
        what: "the component".into(),
        size: layer.size.to_string(),
        limit,
        advice: "; raise component_bytes under [limits] or [module.NAME.limits] if it should be that large",
    })
}

/// From the reference to the layer, through an index if there is one.
async fn walk(
    session: &mut Session<'_>,
    reference: &Reference,
) -> Result<(Digest, Path), FetchError> {
    let outer = session.manifest(reference.digest()).await?;
    let digest = outer.digest;
    let mut found = Manifest::parse(&outer.bytes, outer.content_type.as_deref())?;
    let mut documents = vec![(digest, outer.bytes)];
    if let Manifest::Index(entry) = &found {
        let inner = session.manifest(Some(entry.digest)).await?;
        found = Manifest::parse(&inner.bytes, inner.content_type.as_deref())?;
        documents.push((inner.digest, inner.bytes));
    }
    match found {
        Manifest::Component(layer) => Ok((digest, Path { documents, layer })),
        Manifest::Index(_) => Err(nested()),
    }
}

fn nested() -> FetchError {
    FetchError::manifest("it is an index of indexes; name the inner one")
}

/// Files and hashes off the threads that serve others.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(FetchError::store("use", std::path::Path::new("the store"))(
            std::io::Error::other(error),
        )),
    }
}
