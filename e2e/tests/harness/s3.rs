//! The S3 server of a story: its answers, its stored objects, and its faults.

mod full;

use evenkeel_e2e::Story;
use evenkeel_e2e::s3::S3Server;

#[test]
fn the_s3_server_stores_objects_and_rejects_a_wrong_secret() {
    let story = Story::begin("s3");
    let server = S3Server::start(&story);
    let right = server.access().credentials.clone();
    let mut wrong = right.clone();
    wrong.secret_access_key.push('x');

    let put = server.request("PUT", "etcd/orders/data", b"ten bytes!", &right);
    assert_eq!(put.unwrap().code, 200);
    let got = server
        .request("GET", "etcd/orders/data", b"", &right)
        .unwrap();
    assert_eq!((got.code, got.body.as_str()), (200, "ten bytes!"));
    let rejected = server
        .request("GET", "etcd/orders/data", b"", &wrong)
        .unwrap();
    assert_eq!(rejected.code, 403, "{}", rejected.body);
    assert!(
        rejected.body.contains("SignatureDoesNotMatch"),
        "{}",
        rejected.body
    );

    assert_eq!(server.keys(), ["etcd/orders/data"]);
    assert_eq!(server.read("etcd/orders/data"), b"ten bytes!");
    server.damage("etcd/orders/data", 3);
    let damaged = server
        .request("GET", "etcd/orders/data", b"", &right)
        .unwrap();
    assert_eq!(damaged.code, 200);
    assert_ne!(damaged.body, "ten bytes!");
    server.delete("etcd/orders/data");
    let gone = server
        .request("GET", "etcd/orders/data", b"", &right)
        .unwrap();
    assert_eq!(gone.code, 404, "{}", gone.body);

    assert_eq!(server.unfinished_uploads(), 0);
    let begun = server.request("POST", "etcd/orders/large?uploads=", b"", &right);
    assert_eq!(begun.unwrap().code, 200);
    assert_eq!(server.unfinished_uploads(), 1);
    assert!(server.keys().is_empty(), "{:?}", server.keys());
}
