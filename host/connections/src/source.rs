//! Where requests come from, as far as clients can be told apart before they say who they are.

use std::net::{IpAddr, Ipv6Addr};

/// The address of a client, or that of its network: a client that has one IPv6 address has 2⁶⁴ of them.
pub fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> 64 << 64;
            Ipv6Addr::from_bits(network).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn addresses_of_one_network_are_one() {
        let of = |network: u128, host: u128| {
            self::network(Ipv6Addr::from_bits(network << 64 | host).into())
        };
        assert_eq!(of(1, 1), of(1, 2));
        assert_ne!(of(1, 1), of(2, 1));
        let one = Ipv4Addr::LOCALHOST;
        assert_eq!(network(one.to_ipv6_mapped().into()), IpAddr::from(one));
        assert_ne!(network(one.into()), network(Ipv4Addr::BROADCAST.into()));
    }
}
