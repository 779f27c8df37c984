//! Whether an object is as it should be: all that we say of it is so. What others add, and what Kubernetes fills in, is
//! theirs.

use serde_json::Value;

/// Whether `there` has everything that `wanted` says. Lists must be equal in length, element by element: a port or an owner
/// too many is not ours to accept.
pub fn covers(there: &Value, wanted: &Value) -> bool {
    match (there, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| there.get(key).is_some_and(|there| covers(there, value)))
        }
        (Value::Array(there), Value::Array(wanted)) => {
            there.len() == wanted.len()
                && there.iter().zip(wanted).all(|(there, wanted)| covers(there, wanted))
        }
        (there, wanted) => there == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_add_is_theirs_and_what_they_change_is_seen() {
        let wanted = json!({"spec": {"ports": [{"port": 2379}], "type": "ClusterIP"}});
        let filled_in = json!({"spec": {"ports": [{"port": 2379, "nodePort": 0}], "type": "ClusterIP", "clusterIP": "x"}});
        assert!(covers(&filled_in, &wanted));
        let edited = json!({"spec": {"ports": [{"port": 80}], "type": "ClusterIP"}});
        let one_more = json!({"spec": {"ports": [{"port": 2379}, {"port": 80}], "type": "ClusterIP"}});
        assert!(!covers(&edited, &wanted) && !covers(&one_more, &wanted) && !covers(&json!({}), &wanted));
    }
}
