//! What answers as a Secret Service on the session bus.

use super::bus::Bus;
use super::{KeyringError, MAX_ITEMS, SERVICE, secret};
use secrecy::{ExposeSecret as _, SecretString};
use secret_service::{Collection, EncryptionType, Error, Item, SearchItemsResult, SecretService};
use std::collections::HashMap;
use std::time::Duration;
use tokio::runtime::Runtime;
use zbus::fdo;

/// The attributes that secrets are found by. `secret-tool` finds them by the same:
/// `secret-tool lookup service toolhold variable NAME`.
const SERVICE_KEY: &str = "service";
const NAME_KEY: &str = "variable";
/// As libsecret says it.
const CONTENT_TYPE: &str = "text/plain; charset=utf8";

#[derive(Default)]
pub struct ServiceKeyring {
    open: Option<Open>,
    // Dropped last: connections close on it.
    runtime: Option<Runtime>,
}

/// A connection with an agreed key, by which secrets are encrypted on the bus.
struct Open {
    service: SecretService<'static>,
    bus: Bus,
}

type Found<'s> = SearchItemsResult<Item<'s>>;

impl ServiceKeyring {
    pub fn get(
        &mut self,
        name: &str,
        within: Duration,
    ) -> Result<Option<SecretString>, KeyringError> {
        self.with(within, async |service| {
            let found = find(service, attributes(name)).await?;
            match (found.unlocked.as_slice(), found.locked.as_slice()) {
                ([], []) => finds_all(service).await.map(|()| None),
                ([one], []) => secret(one.get_secret().await.map_err(failed)?).map(Some),
                (_, []) => Err(KeyringError::Several(found.unlocked.len())),
                (_, [_, ..]) => Err(KeyringError::Locked),
            }
        })
    }

    pub fn set(
        &mut self,
        name: &str,
        value: &SecretString,
        within: Duration,
    ) -> Result<(), KeyringError> {
        self.with(within, async |service| {
            let found = find(service, attributes(name)).await?;
            let collection = usual(service).await?;
            // Anything else would have the keyring ask for a password.
            if !found.locked.is_empty() || collection.is_locked().await.map_err(failed)? {
                return Err(KeyringError::Locked);
            }
            let value = value.expose_secret().as_bytes();
            let Some((first, others)) = found.unlocked.split_first() else {
                let label = format!("{SERVICE} {name}");
                let made =
                    collection.create_item(&label, attributes(name), value, true, CONTENT_TYPE);
                return made.await.map(drop).map_err(failed);
            };
            first
                .set_secret(value, CONTENT_TYPE)
                .await
                .map_err(failed)?;
            delete(others).await
        })
    }

    pub fn remove(&mut self, name: &str, within: Duration) -> Result<bool, KeyringError> {
        self.with(within, async |service| {
            let found = find(service, attributes(name)).await?;
            if !found.locked.is_empty() {
                return Err(KeyringError::Locked);
            }
            if found.unlocked.is_empty() {
                return finds_all(service).await.map(|()| false);
            }
            delete(&found.unlocked).await?;
            Ok(true)
        })
    }

    pub fn names(&mut self, within: Duration) -> Result<Vec<String>, KeyringError> {
        self.with(within, async |service| {
            let all = HashMap::from([(SERVICE_KEY, SERVICE)]);
            let found = find(service, all).await?;
            if found.unlocked.is_empty() && found.locked.is_empty() {
                finds_all(service).await?;
            }
            let mut names = Vec::new();
            for item in found.unlocked.iter().chain(&found.locked) {
                let attributes = item.get_attributes().await.map_err(failed)?;
                let name = attributes.into_iter().find(|(key, _)| key == NAME_KEY);
                names.extend(name.map(|(_, name)| name));
            }
            names.retain(|name| super::super::is_valid_name(name));
            names.sort();
            names.dedup();
            Ok(names)
        })
    }

    pub fn is_locked(&mut self, within: Duration) -> Result<bool, KeyringError> {
        self.with(within, async |service| {
            let collection = usual(service).await?;
            collection.is_locked().await.map_err(failed)
        })
    }

    /// Also the secret itself, which some keyrings lock for each program.
    pub fn unlock(&mut self, name: &str, within: Duration) -> Result<(), KeyringError> {
        self.with(within, async |service| {
            let collection = usual(service).await?;
            if collection.is_locked().await.map_err(failed)? {
                collection.unlock().await.map_err(failed)?;
                collection.ensure_unlocked().await.map_err(failed)?;
            }
            let found = find(service, attributes(name)).await?;
            if found.locked.is_empty() {
                return Ok(());
            }
            let locked: Vec<_> = found.locked.iter().collect();
            service.unlock_all(&locked).await.map_err(failed)
        })
    }

    fn with<T>(
        &mut self,
        within: Duration,
        work: impl AsyncFnOnce(&SecretService<'static>) -> Result<T, KeyringError>,
    ) -> Result<T, KeyringError> {
        let Self { open, runtime } = self;
        let runtime = match runtime {
            Some(runtime) => runtime,
            None => {
                let mut builder = tokio::runtime::Builder::new_current_thread();
                runtime.insert(builder.enable_all().build()?)
            }
        };
        let work = async {
            let open = match open {
                Some(open) => open,
                None => open.insert(connect().await?),
            };
            let done = work(&open.service).await;
            done.map_err(|error| open.bus.told(error))
        };
        let work = async { tokio::time::timeout(within, work).await };
        let done = runtime.block_on(work);
        done.map_err(|_| KeyringError::Silent(within))?
    }
}

async fn connect() -> Result<Open, KeyringError> {
    let bus = Bus::connect().await?;
    let connection = bus.connection.clone();
    let service = SecretService::connect_with_existing(EncryptionType::Dh, connection).await;
    match service {
        Ok(service) => Ok(Open { service, bus }),
        Err(error) => Err(bus.told(failed(error))),
    }
}

fn attributes(name: &str) -> HashMap<&str, &str> {
    HashMap::from([(SERVICE_KEY, SERVICE), (NAME_KEY, name)])
}

async fn find<'s>(
    service: &'s SecretService<'static>,
    attributes: HashMap<&str, &str>,
) -> Result<Found<'s>, KeyringError> {
    let found = service.search_items(attributes).await.map_err(failed)?;
    let count = found.unlocked.len() + found.locked.len();
    if count > MAX_ITEMS {
        return Err(KeyringError::Several(count));
    }
    Ok(found)
}

async fn usual<'s>(service: &'s SecretService<'static>) -> Result<Collection<'s>, KeyringError> {
    service.get_default_collection().await.map_err(failed)
}

/// Whether nothing was found because there is nothing: some keyrings do not find what is in them while they are locked.
async fn finds_all(service: &SecretService<'static>) -> Result<(), KeyringError> {
    let collection = usual(service).await?;
    collection.ensure_unlocked().await.map_err(failed)
}

async fn delete(items: &[Item<'_>]) -> Result<(), KeyringError> {
    for item in items {
        item.delete().await.map_err(failed)?;
    }
    Ok(())
}

/// What went wrong, in our words where there is something to do about it.
fn failed(error: Error) -> KeyringError {
    match error {
        Error::Unavailable => KeyringError::NoService,
        Error::NoResult => KeyringError::NoCollection,
        Error::Locked => KeyringError::Locked,
        Error::Prompt => KeyringError::Dismissed,
        Error::Zbus(zbus::Error::MethodError(name, detail, message)) => match name.as_str() {
            "org.freedesktop.DBus.Error.ServiceUnknown"
            | "org.freedesktop.DBus.Error.NameHasNoOwner" => KeyringError::NoService,
            "org.freedesktop.Secret.Error.IsLocked" => KeyringError::Locked,
            _ => {
                let error = zbus::Error::MethodError(name, detail, message);
                KeyringError::Failed(error.into())
            }
        },
        Error::ZbusFdo(fdo::Error::ServiceUnknown(_) | fdo::Error::NameHasNoOwner(_)) => {
            KeyringError::NoService
        }
        error => KeyringError::Failed(error.into()),
    }
}
