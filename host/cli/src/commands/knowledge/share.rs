//! `toolhold knowledge share` and `unshare`.

use crate::exit::Exit;
use crate::terminal::{output, style};
use anyhow::{Result, bail};
use clap::Args;
use toolhold_policy::is_name;
use toolhold_runtime::config::Configuration;
use toolhold_runtime::host;
use toolhold_storage::{Access, MAX_ACCEPTED_SHARES, MembershipState};

/// What is shared, and with whom.
#[derive(Debug, Args)]
pub struct ShareArgs {
    #[arg(value_name = "COLLECTION")]
    collection: String,
    /// Name of the key; without one, the keys that the collection is shared with are listed.
    #[arg(value_name = "KEY")]
    key: Option<String>,
    /// Let the key add and delete documents, too.
    #[arg(long, requires = "key")]
    write: bool,
}

#[derive(Debug, Args)]
pub struct UnshareArgs {
    #[arg(value_name = "COLLECTION")]
    collection: String,
    /// Name of the key.
    #[arg(value_name = "KEY")]
    key: String,
}

pub async fn share(config: &Configuration, args: &ShareArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    let collection = super::collection(&store, &args.collection).await?;
    let Some(key) = &args.key else {
        let shared = store.shared_with(&collection).await?;
        for it in &shared {
            let state = if it.is_accepted { "" } else { ", not accepted" };
            let access = format!("{}{state}", it.access.name());
            output::tell(&format!("{}  {}", it.grantee, style::dim(&access)));
        }
        if shared.is_empty() {
            output::remark("it is shared with no key");
        }
        return Ok(Exit::Ok);
    };
    let keys = store.keys().await?;
    if !keys.iter().any(|it| it.name == *key && it.is_valid()) {
        bail!("there is no key {key:?} that is valid; `toolhold keys list` shows them");
    }
    let access = if args.write {
        Access::Write
    } else {
        Access::Read
    };
    let state = store.share_collection(&collection, key, access).await?;
    let name = &collection.name;
    output::tell(&format!(
        "{} {key} may {} {name}, and names it ~/{name}",
        style::good("shared:"),
        access.name()
    ));
    if state == MembershipState::Offered {
        output::remark(&format!(
            "{key} has accepted {MAX_ACCEPTED_SHARES} shared collections, so its searches look in this one only by its \
             name until it leaves one and accepts this"
        ));
    }
    Ok(Exit::Ok)
}

pub async fn unshare(config: &Configuration, args: &UnshareArgs) -> Result<Exit> {
    let store = host::store(config).await?;
    let collection = super::collection(&store, &args.collection).await?;
    let key = &args.key;
    let is_shared = is_name(key) && store.unshare_collection(&collection, key).await?;
    if !is_shared {
        bail!(
            "{} is not shared with {key:?}; `toolhold knowledge share {}` shows the keys",
            collection.name,
            collection.name
        );
    }
    output::tell(&format!(
        "{} {key} may use {} no more",
        style::good("done:"),
        collection.name
    ));
    Ok(Exit::Ok)
}
