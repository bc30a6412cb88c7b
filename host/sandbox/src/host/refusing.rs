//! What no module is given, or what it may find empty: sockets, names of hosts, variables. The answers are wasmtime's;
//! that they were asked for is noted, for the author.

use super::files::Store;
use super::replaced::ReplacedInterface;
use crate::call::CallState;
use wasmtime::Result;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::cli::WasiCliView as _;
use wasmtime_wasi::p2::SocketError;
use wasmtime_wasi::p2::bindings::cli::environment::Host as _;
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::Host as _;
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddressFamily, Network};
use wasmtime_wasi::p2::bindings::sockets::tcp_create_socket::Host as _;
use wasmtime_wasi::p2::bindings::sockets::udp_create_socket::Host as _;
use wasmtime_wasi::sockets::WasiSocketsView as _;

/// Puts the noting functions over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    ReplacedInterface::new(linker, "cli/environment").func_wrap(
        "get-environment",
        |mut store: Store<'_>, (): ()| {
            let state = store.data_mut().entered();
            let variables = state.cli().get_environment()?;
            state.denials.variables_listed(variables.len());
            Ok((variables,))
        },
    )?;
    ReplacedInterface::new(linker, "sockets/tcp-create-socket").func_wrap(
        "create-tcp-socket",
        |mut store: Store<'_>, (family,): (IpAddressFamily,)| {
            let state = store.data_mut().entered();
            let made = told(state.sockets().create_tcp_socket(family))?;
            if let Err(ErrorCode::AccessDenied) = made {
                state.denials.socket("a TCP socket");
            }
            Ok((made,))
        },
    )?;
    ReplacedInterface::new(linker, "sockets/udp-create-socket").func_wrap_async(
        "create-udp-socket",
        |mut store: Store<'_>, (family,): (IpAddressFamily,)| {
            Box::new(async move {
                let state = store.data_mut().entered();
                let made = told(state.sockets().create_udp_socket(family).await)?;
                if let Err(ErrorCode::AccessDenied) = made {
                    state.denials.socket("a UDP socket");
                }
                Ok((made,))
            })
        },
    )?;
    ReplacedInterface::new(linker, "sockets/ip-name-lookup").func_wrap(
        "resolve-addresses",
        |mut store: Store<'_>, (network, name): (Resource<Network>, String)| {
            let state = store.data_mut().entered();
            let asked = name.clone();
            let resolved = told(state.sockets().resolve_addresses(network, name))?;
            if let Err(ErrorCode::PermanentResolverFailure) = resolved {
                state.denials.lookup(&asked);
            }
            Ok((resolved,))
        },
    )?;
    Ok(())
}

/// What the guest is told; a trap stays one.
fn told<T>(done: std::result::Result<T, SocketError>) -> Result<std::result::Result<T, ErrorCode>> {
    done.map_or_else(|error| Ok(Err(error.downcast()?)), |value| Ok(Ok(value)))
}
