//! Sockets and names by the raw interface.

use std::net::SocketAddr;
use wasip2::sockets::instance_network::instance_network;
use wasip2::sockets::ip_name_lookup;
use wasip2::sockets::network::{
    ErrorCode, IpAddressFamily, IpSocketAddress, Ipv4SocketAddress, Ipv6SocketAddress,
};
use wasip2::sockets::tcp_create_socket::create_tcp_socket;
use wasip2::sockets::udp::OutgoingDatagram;
use wasip2::sockets::udp_create_socket::create_udp_socket;

pub fn connect(address: &str) -> Result<(), String> {
    let (family, address) = parse(address)?;
    let socket = create_tcp_socket(family).map_err(said)?;
    socket
        .start_connect(&instance_network(), address)
        .map_err(said)?;
    socket.subscribe().block();
    socket.finish_connect().map_err(said).map(drop)
}

pub fn send(address: &str) -> Result<(), String> {
    let (family, address) = parse(address)?;
    let socket = create_udp_socket(family).map_err(said)?;
    let any = match family {
        IpAddressFamily::Ipv4 => "0.0.0.0:0",
        IpAddressFamily::Ipv6 => "[::]:0",
    };
    socket
        .start_bind(&instance_network(), parse(any)?.1)
        .map_err(said)?;
    socket.finish_bind().map_err(said)?;
    let (_incoming, outgoing) = socket.stream(None).map_err(said)?;
    outgoing.subscribe().block();
    outgoing.check_send().map_err(said)?;
    let datagram = OutgoingDatagram {
        data: b"out".to_vec(),
        remote_address: Some(address),
    };
    outgoing.send(&[datagram]).map_err(said).map(drop)
}

pub fn listen(address: &str) -> Result<(), String> {
    let (family, address) = parse(address)?;
    let socket = create_tcp_socket(family).map_err(said)?;
    socket
        .start_bind(&instance_network(), address)
        .map_err(said)?;
    socket.finish_bind().map_err(said)?;
    socket.start_listen().map_err(said)?;
    socket.finish_listen().map_err(said)
}

pub fn lookup(name: &str) -> Result<Vec<String>, String> {
    let found = ip_name_lookup::resolve_addresses(&instance_network(), name).map_err(said)?;
    let mut addresses = Vec::new();
    loop {
        found.subscribe().block();
        match found.resolve_next_address() {
            Ok(Some(address)) => addresses.push(format!("{address:?}")),
            Ok(None) => return Ok(addresses),
            Err(code) => return Err(said(code)),
        }
    }
}

fn parse(address: &str) -> Result<(IpAddressFamily, IpSocketAddress), String> {
    match address.parse() {
        Ok(SocketAddr::V4(v4)) => {
            let [a, b, c, d] = v4.ip().octets();
            let port = v4.port();
            let address = (a, b, c, d);
            Ok((
                IpAddressFamily::Ipv4,
                IpSocketAddress::Ipv4(Ipv4SocketAddress { port, address }),
            ))
        }
        Ok(SocketAddr::V6(v6)) => {
            let s = v6.ip().segments();
            let address = Ipv6SocketAddress {
                port: v6.port(),
                flow_info: 0,
                address: (s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]),
                scope_id: 0,
            };
            Ok((IpAddressFamily::Ipv6, IpSocketAddress::Ipv6(address)))
        }
        Err(error) => Err(error.to_string()),
    }
}

fn said(code: ErrorCode) -> String {
    code.name().to_owned()
}
