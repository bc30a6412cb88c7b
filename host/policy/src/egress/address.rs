//! Which addresses a guest may reach: those that are globally routable, and no other.
//!
//! The ranges are those of IANA's two special-purpose address registries (RFC 6890), read strictly:
//! whatever is not plainly part of the public internet is not reached, even where a registry calls a
//! corner of it routable. An IPv6 address that carries an IPv4 one is judged by what it carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How far an address lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressScope {
    /// The public internet.
    Global,
    /// This machine or its own network: only for a grant that says `private`.
    Private,
    /// Link-local (cloud metadata among it), multicast, reserved, tunnels: for no grant at all.
    Never,
}

pub fn reach(address: IpAddr) -> AddressScope {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> AddressScope {
    // Azure's host agent: public by number, answers to every guest machine, hands out its secrets.
    const AZURE_HOST: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
    // The metadata service of Alibaba Cloud, inside the range of carrier NAT.
    const ALIBABA_METADATA: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);
    if address == AZURE_HOST || address == ALIBABA_METADATA {
        return AddressScope::Never;
    }
    match address.octets() {
        // Loopback, the private ranges (RFC 1918), carrier NAT (RFC 6598).
        [127 | 10, ..] | [192, 168, ..] => AddressScope::Private,
        [172, second, ..] if second & 0xf0 == 16 => AddressScope::Private,
        [100, second, ..] if second & 0xc0 == 64 => AddressScope::Private,
        // "This network", link-local, benchmarks; multicast, reserved, broadcast. Protocol
        // assignments and documentation; 6to4 relays; documentation.
        [0 | 224..=255, ..]
        | [169, 254, ..]
        | [198, 18 | 19, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _] => AddressScope::Never,
        _ => AddressScope::Global,
    }
}

fn reach_v6(address: Ipv6Addr) -> AddressScope {
    // The metadata service of AWS, inside the unique local range.
    const AWS_METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    if address == AWS_METADATA {
        return AddressScope::Never;
    }
    if address.is_loopback() {
        return AddressScope::Private;
    }
    let segments = address.segments();
    let carried = |high: u16, low: u16| {
        let carried = Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
        match reach_v4(carried) {
            AddressScope::Global => AddressScope::Global,
            // A detour to the inside is not what a grant for the inside means.
            AddressScope::Private | AddressScope::Never => AddressScope::Never,
        }
    };
    match segments {
        // NAT64's well-known prefix (RFC 6052): all that IPv6-only networks with DNS64 see of the
        // IPv4 internet.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => carried(high, low),
        // ISATAP (RFC 5214) puts an IPv4 address into any prefix.
        [.., 0 | 0x200, 0x5efe, high, low] if carried(high, low) == AddressScope::Never => {
            AddressScope::Never
        }
        // Unique local (RFC 4193).
        [0xfc00..=0xfdff, ..] => AddressScope::Private,
        // IETF protocol assignments (Teredo, benchmarks, ORCHID) and documentation; 6to4;
        // documentation once more (RFC 9637).
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x2002, ..] | [0x3fff, 0..=0xfff, ..] => {
            AddressScope::Never
        }
        // Global unicast, all that is handed out so far.
        [0x2000..=0x3fff, ..] => AddressScope::Global,
        // Unspecified, mapped and compatible IPv4, NAT64's local prefix, discard-only, segment
        // routing, link-local, site-local, multicast, and unallocated ranges.
        _ => AddressScope::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> AddressScope {
        reach(text.parse().unwrap())
    }

    #[test]
    fn the_internet_is_global() {
        for text in [
            "1.1.1.1",
            "8.8.8.8",
            "93.184.216.34",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.0.1",
            "172.32.0.1",
            "169.253.1.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450:4001::1",
            "2001:4860:4860::8888",
            "2001:200::1",
            "64:ff9b::808:808",
            "2620:fe::fe",
            "2606:4700:0:0:0:5efe:808:808",
        ] {
            assert_eq!(of(text), AddressScope::Global, "{text}");
        }
    }

    #[test]
    fn the_own_network_is_private() {
        for text in [
            "127.0.0.1",
            "127.255.255.254",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "::1",
            "fd12:3456::1",
            "fc00::1",
        ] {
            assert_eq!(of(text), AddressScope::Private, "{text}");
        }
    }

    #[test]
    fn the_rest_is_never_reached() {
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "169.254.169.254",
            "169.254.0.1",
            "192.0.0.1",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "168.63.129.16",
            "100.100.100.200",
            "::",
            "::2",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::8.8.8.8",
            "::ffff:0:7f00:1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "64:ff9b:1::808:808",
            "64:ff9b:0:0:0:1:808:808",
            "100::1",
            "100:0:0:1::1",
            "2001::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
            "2001:2::1",
            "2001:10::1",
            "2001:20::1",
            "2001:1ff::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:808:808::1",
            "3fff::1",
            "3fff:fff::1",
            "5f00::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "feff::1",
            "ff02::1",
            "ff0e::1",
            "fd00:ec2::254",
            "4000::1",
            "e000::1",
            "2606:4700::5efe:7f00:1",
            "2606:4700::200:5efe:a9fe:a9fe",
            "fe80::5efe:808:808",
        ] {
            assert_eq!(of(text), AddressScope::Never, "{text}");
        }
    }
}
