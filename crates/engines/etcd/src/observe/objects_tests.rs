//! What cannot be read.

use serde_json::json;

use super::*;
use crate::testing::Scene;

#[test]
fn an_identity_that_cannot_be_read_is_an_error_and_not_absent() {
    let (object, there) = Scene::converged(1).observed.identity.unwrap();
    assert_eq!(parse_identity(object.clone()).unwrap().1, there);
    for data in [
        json!(null),
        json!({ IDENTITY_KEY: "" }),
        json!({ IDENTITY_KEY: "{\"lineage\": 7}" }),
    ] {
        let mut garbled = object.clone();
        garbled.data = serde_json::from_value(data).unwrap();
        let said = parse_identity(garbled).unwrap_err().to_string();
        assert!(
            said.starts_with("cannot read the identity in the ConfigMap orders-etcd-identity: "),
            "{said}"
        );
    }
}
