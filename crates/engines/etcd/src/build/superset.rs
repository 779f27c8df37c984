//! Whether an object is as it should be: all that we say of it is so. What others add, and what Kubernetes fills in, is
//! theirs.

use serde_json::Value;

/// Whether `there` has everything that `wanted` says. Lists must be equal in length, element by element: a port or an owner
/// too many is not ours to accept.
pub fn is_superset(there: &Value, desired: &Value) -> bool {
    match (there, desired) {
        (Value::Object(there), Value::Object(desired)) => desired.iter().all(|(key, value)| {
            there
                .get(key)
                .is_some_and(|there| is_superset(there, value))
        }),
        (Value::Array(there), Value::Array(desired)) => {
            there.len() == desired.len()
                && there
                    .iter()
                    .zip(desired)
                    .all(|(there, desired)| is_superset(there, desired))
        }
        (there, desired) => there == desired,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_add_is_theirs_and_what_they_change_is_seen() {
        let desired = json!({"spec": {"ports": [{"port": 2379}], "type": "ClusterIP"}});
        let filled_in = json!({"spec": {"ports": [{"port": 2379, "nodePort": 0}], "type": "ClusterIP", "clusterIP": "x"}});
        assert!(is_superset(&filled_in, &desired));
        let edited = json!({"spec": {"ports": [{"port": 80}], "type": "ClusterIP"}});
        let one_more =
            json!({"spec": {"ports": [{"port": 2379}, {"port": 80}], "type": "ClusterIP"}});
        assert!(
            !is_superset(&edited, &desired)
                && !is_superset(&one_more, &desired)
                && !is_superset(&json!({}), &desired)
        );
    }
}
