use super::*;

const STRICT: AddressPolicy = AddressPolicy {
    allow_private: false,
    allow_loopback: false,
};
const PRIVATE: AddressPolicy = AddressPolicy {
    allow_private: true,
    allow_loopback: false,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn loopback_and_link_local_are_never_allowed() {
    for address in [
        "127.0.0.1",
        "127.8.9.10",
        "0.0.0.0",
        "0.1.2.3",
        "169.254.169.254",
        "100.100.100.200",
        "224.0.0.1",
        "255.255.255.255",
        "192.0.0.192",
        "::",
        "::1",
        "fe80::1",
        "ff02::1",
        "fd00:ec2::254",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::",
    ] {
        assert!(!STRICT.allows(ip(address)), "{address}");
        assert!(!PRIVATE.allows(ip(address)), "{address}");
    }
}

#[test]
fn private_addresses_need_permission() {
    for address in [
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "100.64.0.1",
        "100.127.255.255",
        "198.18.0.1",
        "fc00::1",
        "fd12:3456::1",
        "fec0::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
    ] {
        assert!(!STRICT.allows(ip(address)), "{address}");
        assert!(PRIVATE.allows(ip(address)), "{address}");
    }
}

#[test]
fn public_addresses_are_allowed() {
    for address in [
        "1.1.1.1",
        "172.15.0.1",
        "172.32.0.1",
        "100.63.255.255",
        "100.128.0.1",
        "192.167.1.1",
        "192.0.1.1",
        "223.255.255.255",
        "2606:4700::1111",
        "64:ff9b::101:101",
    ] {
        assert!(STRICT.allows(ip(address)), "{address}");
    }
}

#[test]
fn only_allowed_ones_of_several_addresses_are_used() {
    let mixed = vec![ip("127.0.0.1"), ip("1.1.1.1"), ip("10.0.0.1")];
    assert_eq!(STRICT.filter("s3.example", mixed).unwrap(), [ip("1.1.1.1")]);
    let error = STRICT
        .filter("s3.example", vec![ip("10.0.0.1")])
        .unwrap_err();
    assert_eq!(error.reason, FailureReason::AddressNotAllowed);
    assert!(
        error.message.contains("allowPrivateAddresses: true"),
        "{error}"
    );
    let error = PRIVATE.filter("s3.example", vec![ip("::1")]).unwrap_err();
    assert!(error.message.contains("never allowed"), "{error}");
    assert_eq!(
        STRICT.filter("s3.example", Vec::new()).unwrap(),
        Vec::<IpAddr>::new()
    );
}
