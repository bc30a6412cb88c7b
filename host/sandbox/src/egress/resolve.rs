//! Names become addresses here, and every address is judged before anything connects to it.
//!
//! The client is handed the judged addresses and looks up nothing by itself: there is no second
//! answer that could differ from the first (DNS rebinding).

use futures_util::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolving};
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::time::timeout;
use toolhold_admission::{WorkKind, WorkParty, WorkStop};
use toolhold_policy::egress::is_localhost;
use toolhold_policy::egress::{AddressScope, reach};

/// The system's resolver asks each server twice, five seconds each, which is too long for a call.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);
/// Lookups in the whole process, at most 32 at a time, which modules share. Each holds a thread until the system answers,
/// which no timeout of ours can stop.
const LOOKUPS: WorkKind = WorkKind::new("lookups of names", 32);

/// Finds the addresses of a host name. Tests use a lying resolver.
pub trait Resolve: fmt::Debug + Send + Sync {
    /// All addresses of `host`, in the order to try them, for this party.
    fn resolve<'a>(
        &'a self,
        party: &'a WorkParty,
        host: &'a str,
    ) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The system's own resolver: `/etc/hosts`, then the configured name servers.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve<'a>(
        &'a self,
        party: &'a WorkParty,
        host: &'a str,
    ) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let host = host.to_owned();
            let found = move |_: &WorkStop| (host.as_str(), 0).to_socket_addrs();
            let mut found = LOOKUPS.start_for(party.clone(), found);
            let found = found.done().await.map_err(io::Error::from)??;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Why a name leads nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(super) enum LookupError {
    #[error("the name server did not answer in time")]
    Timeout,
    #[error("the name has no address")]
    NotFound,
    #[error("the name has an address that is not to be reached")]
    Prohibited,
}

/// Whether an address may be connected to under a grant that is `private` or not.
pub(super) fn is_reachable(address: IpAddr, private: bool) -> bool {
    match reach(address) {
        AddressScope::Global => true,
        AddressScope::Private => private,
        AddressScope::Never => false,
    }
}

/// What the client asks instead of the system: resolves, judges, and says no to a name of which one
/// single address is forbidden.
#[derive(Debug, Clone)]
pub(super) struct CheckingResolver {
    pub resolver: Arc<dyn Resolve>,
    /// Looks up the names.
    pub party: WorkParty,
    /// Whether this machine and its network may be reached.
    pub private: bool,
}

impl CheckingResolver {
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, LookupError> {
        // No lookup: a name server with another answer would get requests that are meant for this machine.
        let found = if is_localhost(host) {
            vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        } else {
            timeout(LOOKUP_TIMEOUT, self.resolver.resolve(&self.party, host))
                .await
                .map_err(|_| LookupError::Timeout)?
                .map_err(|_| LookupError::NotFound)?
        };
        if found.is_empty() {
            return Err(LookupError::NotFound);
        }
        if !found
            .iter()
            .all(|address| is_reachable(*address, self.private))
        {
            return Err(LookupError::Prohibited);
        }
        Ok(found)
    }
}

impl reqwest::dns::Resolve for CheckingResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let judge = self.clone();
        Box::pin(async move {
            let found = judge.addresses(name.as_str()).await?;
            // Port 0: the client puts the URL's in its place.
            let found = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(found) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Says(&'static [&'static str]);

    impl Resolve for Says {
        fn resolve<'a>(
            &'a self,
            party: &'a WorkParty,
            _: &'a str,
        ) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            assert_eq!(*party, module(), "the module that sends");
            Box::pin(async { Ok(self.0.iter().map(|text| text.parse().unwrap()).collect()) })
        }
    }

    fn module() -> WorkParty {
        WorkParty::Module("m".into())
    }

    async fn judged(answer: &'static [&'static str], private: bool) -> Result<usize, LookupError> {
        let judge = CheckingResolver {
            resolver: Arc::new(Says(answer)),
            party: module(),
            private,
        };
        judge.addresses("host.test").await.map(|found| found.len())
    }

    #[tokio::test]
    async fn one_forbidden_address_refuses_the_name() {
        assert_eq!(judged(&["1.1.1.1", "2606:4700::1111"], false).await, Ok(2));
        for answer in [
            &["127.0.0.1"][..],
            &["1.1.1.1", "10.0.0.1"],
            &["1.1.1.1", "::1"],
            &["::ffff:1.1.1.1"],
        ] {
            assert_eq!(
                judged(answer, false).await,
                Err(LookupError::Prohibited),
                "{answer:?}"
            );
        }
        assert_eq!(judged(&["10.0.0.1", "fd00::1"], true).await, Ok(2));
        assert_eq!(
            judged(&["10.0.0.1", "169.254.169.254"], true).await,
            Err(LookupError::Prohibited)
        );
        assert_eq!(judged(&[], false).await, Err(LookupError::NotFound));
    }

    #[tokio::test]
    async fn localhost_is_this_machine_whatever_the_resolver_says() {
        let judge = |private| CheckingResolver {
            resolver: Arc::new(Says(&["1.1.1.1"])),
            party: module(),
            private,
        };
        let found = judge(true).addresses("localhost").await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback));
        assert_eq!(
            judge(false).addresses("a.localhost").await,
            Err(LookupError::Prohibited)
        );
    }
}
