//! What no module is given, or what it may find empty: sockets, names of hosts, variables. The answers are wasmtime's;
//! that they were asked for is noted, for the author.

use super::files::Store;
use crate::call::CallState;
use wasmtime::Result;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::cli::WasiCliView as _;
use wasmtime_wasi::p2::bindings::cli::environment::Host as _;
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::ResolveAddressStream;
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddressFamily, Network};
use wasmtime_wasi::p2::{TcpSocket, UdpSocket};

/// Puts the noting functions over wasmtime's.
pub fn add_to_linker(linker: &mut Linker<CallState>) -> Result<()> {
    linker.allow_shadowing(true);
    linker.instance("wasi:cli/environment@0.2.12")?.func_wrap(
        "get-environment",
        |mut store: Store<'_>, (): ()| {
            let state = store.data_mut();
            let variables = state.cli().get_environment()?;
            state.denials.variables_listed(variables.len());
            Ok((variables,))
        },
    )?;
    linker
        .instance("wasi:sockets/tcp-create-socket@0.2.12")?
        .func_wrap(
            "create-tcp-socket",
            |store: Store<'_>, (_,): (IpAddressFamily,)| {
                store.data().denials.socket("a TCP socket");
                Ok((Err::<Resource<TcpSocket>, _>(ErrorCode::AccessDenied),))
            },
        )?;
    linker
        .instance("wasi:sockets/udp-create-socket@0.2.12")?
        .func_wrap(
            "create-udp-socket",
            |store: Store<'_>, (_,): (IpAddressFamily,)| {
                store.data().denials.socket("a UDP socket");
                Ok((Err::<Resource<UdpSocket>, _>(ErrorCode::AccessDenied),))
            },
        )?;
    linker
        .instance("wasi:sockets/ip-name-lookup@0.2.12")?
        .func_wrap(
            "resolve-addresses",
            |store: Store<'_>, (_, name): (Resource<Network>, String)| {
                store.data().denials.lookup(&name);
                let refused = ErrorCode::PermanentResolverFailure;
                Ok((Err::<Resource<ResolveAddressStream>, _>(refused),))
            },
        )?;
    linker.allow_shadowing(false);
    Ok(())
}
