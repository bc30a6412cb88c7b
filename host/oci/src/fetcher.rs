//! Resolves a reference to its component: from the cache, or from the registry into the cache.

use crate::artifact::{Descriptor, ImageManifest, check_component};
use crate::client::{MAX_MANIFEST_BYTES, RegistrySession};
use crate::store::ComponentCache;
use crate::{Digest, FetchError, Reference, Settings};
use toolhold_admission::own_work;

/// Resolves references to components, with a cache on disk.
#[derive(Debug)]
pub struct Fetcher {
    settings: Settings,
    store: ComponentCache,
}

/// A pulled component.
#[derive(Debug)]
pub struct PulledComponent {
    /// The component's binary.
    pub bytes: Vec<u8>,
    /// Digest of `bytes`.
    pub component: Digest,
    /// The requested reference with the digest that was found: it names this content for ever.
    pub pinned: Reference,
    /// Whether the component came from the cache.
    pub from_cache: bool,
    /// The digest that the tag had at its previous pull, if it has moved since.
    pub moved_from: Option<Digest>,
    /// Whether the tag was resolved from the cache because the fetcher is offline.
    pub is_remembered: bool,
}

impl PulledComponent {
    /// A note for the operator if the tag has moved or was resolved offline.
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

/// The manifests that lead to a component, outermost first, and its layer.
struct Path {
    documents: Vec<(Digest, Vec<u8>)>,
    layer: Descriptor,
}

impl Fetcher {
    /// A fetcher with these settings; does no I/O yet.
    pub fn new(settings: Settings) -> Self {
        let store = ComponentCache::new(settings.folder.clone());
        Self { settings, store }
    }

    /// Pulls the component of `reference`. A reference with a digest is served from the cache if it can
    /// be; a tag is resolved at the registry each time, unless offline. Refuses a component of more
    /// than `most` bytes before it pulls it.
    ///
    /// # Errors
    /// The registry refuses or misbehaves, the content does not match its digest or is no component,
    /// the pull exceeds [`Settings::timeout`], or the cache cannot be written.
    pub async fn resolve(
        &self,
        reference: &Reference,
        most: u64,
    ) -> Result<PulledComponent, FetchError> {
        let limit = self.settings.timeout;
        tokio::time::timeout(limit, self.fetch(reference, most))
            .await
            .unwrap_or(Err(FetchError::Deadline { limit }))
    }

    async fn fetch(&self, reference: &Reference, most: u64) -> Result<PulledComponent, FetchError> {
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
            return Ok(PulledComponent {
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
        let mut session = RegistrySession::new(&self.settings.network, reference)?;
        let (digest, path) = walk(&mut session, reference).await?;
        check_size(&path.layer, most)?;
        let (bytes, from_cache) = self.obtain(&mut session, &path).await?;
        if pinned.is_none() && seen != Some(digest) {
            self.store.remember(reference, digest)?;
        }
        Ok(PulledComponent {
            bytes,
            component: path.layer.digest,
            pinned: reference.pinned(digest),
            from_cache,
            moved_from: seen.filter(|seen| pinned.is_none() && *seen != digest),
            is_remembered: false,
        })
    }

    /// The component of a manifest, if the cache holds the manifest and everything it refers to.
    async fn kept(
        &self,
        digest: Digest,
        most: u64,
    ) -> Result<Option<(Vec<u8>, Digest)>, FetchError> {
        let Some(mut manifest) = self.read(digest, MAX_MANIFEST_BYTES).await? else {
            return Ok(None);
        };
        if let ImageManifest::Index(entry) = ImageManifest::parse(&manifest, None)? {
            match self.read(entry.digest, MAX_MANIFEST_BYTES).await? {
                Some(inner) => manifest = inner,
                None => return Ok(None),
            }
        }
        let ImageManifest::Component(layer) = ImageManifest::parse(&manifest, None)? else {
            return Err(nested());
        };
        check_size(&layer, most)?;
        let bytes = self.read(layer.digest, layer.size).await?;
        Ok(bytes.map(|bytes| (bytes, layer.digest)))
    }

    /// The layer from the cache, or from the registry into the cache, together with its manifests; and
    /// whether it came from the cache. Concurrent calls for one layer pull it once.
    async fn obtain(
        &self,
        session: &mut RegistrySession<'_>,
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
            // The write owns the lock: it finishes even if the caller's future is dropped.
            let _lock = lock;
            if !is_kept {
                store.write(layer, &bytes)?;
            }
            for (digest, document) in documents {
                if store.read(digest, MAX_MANIFEST_BYTES)?.is_none() {
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

/// Follows a reference to its layer, through an index if there is one.
async fn walk(
    session: &mut RegistrySession<'_>,
    reference: &Reference,
) -> Result<(Digest, Path), FetchError> {
    let outer = session.manifest(reference.digest()).await?;
    let digest = outer.digest;
    let mut found = ImageManifest::parse(&outer.bytes, outer.content_type.as_deref())?;
    let mut documents = vec![(digest, outer.bytes)];
    if let ImageManifest::Index(entry) = &found {
        let inner = session.manifest(Some(entry.digest)).await?;
        found = ImageManifest::parse(&inner.bytes, inner.content_type.as_deref())?;
        documents.push((inner.digest, inner.bytes));
    }
    match found {
        ImageManifest::Component(layer) => Ok((digest, Path { documents, layer })),
        ImageManifest::Index(_) => Err(nested()),
    }
}

fn nested() -> FetchError {
    FetchError::manifest("it is an index of indexes; name the inner one")
}

/// Runs file I/O and hashing on a blocking thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    match own_work(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(FetchError::store("use", std::path::Path::new("the store"))(
            std::io::Error::from(error),
        )),
    }
}
