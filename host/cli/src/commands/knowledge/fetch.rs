//! Documents that are named by their addresses.

use super::walk::{UnreadFile, WalkedFile};
use std::path::Path;
use std::time::Duration;
use toolhold_runtime::document_addresses::DocumentAddresses;

/// How long one address may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Whether a person named an address, and no file.
pub fn is_address(path: &Path) -> bool {
    let text = path.to_string_lossy();
    ["https://", "http://"]
        .iter()
        .any(|scheme| text.starts_with(scheme))
}

/// What is at an address, as a file that was named.
pub async fn fetch(address: &str, max: u64) -> WalkedFile {
    let fetched = match DocumentAddresses::named(address) {
        Ok(addresses) => addresses.fetch(address, max, PATIENCE).await,
        Err(error) => Err(error),
    };
    let (content, media_type) = match fetched {
        Ok(document) => (Ok(document.bytes), document.media_type),
        Err(error) => (Err(UnreadFile::Fetch(error)), String::new()),
    };
    WalkedFile {
        path: address.into(),
        is_named: true,
        content,
        media_type,
    }
}
