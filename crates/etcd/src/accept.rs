//! Which spec is in force. A field that cannot be accepted keeps the value that was accepted last, as it is noted beside the
//! identity, and everything else goes on: a spec may come by an older schema, which let it pass.

use evenkeel_api::{EtcdCluster, EtcdClusterSpec, Refusal, labels};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use serde_json::Value;

use crate::build::SPEC_KEY;
use crate::facts::GoesWith;
use crate::observe::{find, goes_with};
use crate::wanted::{self, Wanted};

/// How many fields may be refused at once.
const FIELDS: usize = 16;

/// What was accepted last.
#[derive(Clone, Debug)]
pub struct Noted {
    spec: EtcdClusterSpec,
    /// Whether a resource that is no more said so.
    former: bool,
    /// Whether there is data that it stands for.
    sealed: bool,
}

impl Noted {
    /// As it stands beside the identity, if that is this cluster's and stays.
    pub fn beside(identity: &ConfigMap, resource: &EtcdCluster) -> Option<Self> {
        let (name, uid) = (resource.name_any(), wanted::uid(resource));
        if identity.labels().get(labels::CLUSTER) != Some(&name)
            || goes_with(&name, uid, &identity.metadata) == GoesWith::Former
        {
            return None;
        }
        let spec = serde_json::from_str(noted_spec(identity)?).ok()?;
        let (_, identity) = find::identity(identity.clone()).ok()?;
        Some(Self { spec, former: identity.resource != uid, sealed: identity.sealed })
    }

    /// A field that cannot be changed while there is data: etcd would not start on what another version wrote, or on nothing.
    fn kept(&self, spec: &EtcdClusterSpec) -> Option<Refusal> {
        let refusal = |field, why| Some(Refusal { field, why });
        match &self.spec {
            _ if !self.sealed => None,
            noted if noted.version != spec.version => {
                let why = format!("the data is of {}, and versions cannot be changed yet", noted.version);
                refusal("spec.version", why)
            }
            noted if noted.storage.ephemeral != spec.storage.ephemeral => {
                refusal("spec.storage.ephemeral", "data cannot be moved".to_owned())
            }
            _ => None,
        }
    }
}

/// The spec that is noted beside the identity, as text.
pub fn noted_spec(identity: &ConfigMap) -> Option<&str> {
    Some(identity.data.as_ref()?.get(SPEC_KEY)?.as_str())
}

/// What is in force, and the first field of the resource that is not, if there is one. Nothing is in force if a field cannot be
/// accepted of which no value is noted.
pub fn in_force(resource: &EtcdCluster, noted: Option<&Noted>) -> Result<(Wanted, Option<Refusal>), Refusal> {
    let mut tried = resource.clone();
    let mut first: Option<Refusal> = None;
    for _ in 0..FIELDS {
        let kept = noted.and_then(|noted| noted.kept(&tried.spec));
        let refusal = match (kept, Wanted::of(&tried)) {
            (None, Ok(wanted)) => return Ok((wanted, first)),
            (Some(refusal), _) => refusal,
            // What a former resource wanted stands nowhere that people could see.
            (None, Err(refusal)) if noted.is_none_or(|noted| noted.former) => return Err(refusal),
            (None, Err(refusal)) => refusal,
        };
        let field = refusal.field;
        first.get_or_insert(refusal);
        match noted.and_then(|noted| with_field(&tried.spec, &noted.spec, field)) {
            Some(spec) => tried.spec = spec,
            None => break,
        }
    }
    Err(first.unwrap_or_else(|| Refusal { field: "spec", why: "it cannot be accepted".to_owned() }))
}

/// A spec with one field as another has it; nothing if it has it so already.
fn with_field(spec: &EtcdClusterSpec, other: &EtcdClusterSpec, field: &str) -> Option<EtcdClusterSpec> {
    let (mut changed, other) = (serde_json::to_value(spec).ok()?, serde_json::to_value(other).ok()?);
    let mut path: Vec<&str> = field.strip_prefix("spec.")?.split('.').collect();
    let last = path.pop()?;
    let from = path.iter().try_fold(&other, |at, key| at.get(key)).and_then(|at| at.get(last));
    let mut into = &mut changed;
    for key in path {
        into = into.as_object_mut()?.entry(key).or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    let into = into.as_object_mut()?;
    match from {
        Some(from) => into.insert(last.to_owned(), from.clone()),
        None => into.remove(last),
    };
    serde_json::from_value(changed).ok().filter(|changed| changed != spec)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testing::resource;

    fn noted(spec: Value) -> Noted {
        Noted { spec: resource(spec).spec, former: false, sealed: true }
    }

    fn fields(resource: &EtcdCluster, noted: &Noted) -> (Wanted, Option<&'static str>) {
        let (wanted, refused) = in_force(resource, Some(noted)).unwrap();
        (wanted, refused.map(|refusal| refusal.field))
    }

    #[test]
    fn what_can_be_accepted_is_in_force_as_it_is() {
        let (wanted, refused) = in_force(&resource(json!({ "members": 5 })), None).unwrap();
        assert_eq!((wanted.members, refused), (5, None));
        let (wanted, refused) = fields(&resource(json!({ "members": 5 })), &noted(json!({ "members": 3 })));
        assert_eq!((wanted.members, refused), (5, None));
    }

    #[test]
    fn fields_that_cannot_be_accepted_keep_their_last_values_and_all_else_goes_on() {
        let bad = json!({ "members": 5, "version": "3.9.9", "paused": true, "heal": { "replaceAfter": "soon" },
            "storage": { "onDelete": "Keep" } });
        let known = noted(json!({ "members": 3, "storage": { "onDelete": "Delete" } }));
        let (wanted, refused) = fields(&resource(bad), &known);
        assert_eq!(refused, Some("spec.version"), "the first");
        assert_eq!(wanted.version.to_string(), "3.6.16");
        assert_eq!(wanted.replace_after.as_secs(), 300);
        assert!(wanted.members == 5 && wanted.paused && !wanted.owns_data());
        // Noted anew, it is the same again: nothing is written twice.
        let again = Noted { spec: serde_json::from_str(&wanted.spec).unwrap(), ..known };
        let bad = resource(json!({ "members": 9 }));
        assert_eq!(
            fields(&bad, &again),
            (fields(&resource(json!({ "members": 5 })), &again).0, Some("spec.members"))
        );
    }

    #[test]
    fn a_field_of_which_nothing_better_is_noted_leaves_nothing_in_force() {
        let bad = resource(json!({ "version": "3.9.9" }));
        assert_eq!(in_force(&bad, None).unwrap_err().field, "spec.version");
        let as_bad = Noted { spec: bad.spec.clone(), former: false, sealed: true };
        assert_eq!(in_force(&bad, Some(&as_bad)).unwrap_err().field, "spec.version");
        let former = Noted { former: true, ..noted(json!({})) };
        let unheard_of = resource(json!({ "members": 9 }));
        assert_eq!(in_force(&unheard_of, Some(&former)).unwrap_err().field, "spec.members");
    }

    #[test]
    fn a_version_does_not_change_over_data_that_is_there_whoever_wants_it() {
        for former in [false, true] {
            let known = Noted { former, ..noted(json!({ "version": "3.6.16" })) };
            let (wanted, refused) = fields(&resource(json!({ "version": "3.5.35" })), &known);
            assert_eq!((wanted.version.to_string().as_str(), refused), ("3.6.16", Some("spec.version")));
            let before_the_seal = Noted { sealed: false, ..known };
            let (wanted, refused) = fields(&resource(json!({ "version": "3.5.35" })), &before_the_seal);
            assert_eq!((wanted.version.to_string().as_str(), refused), ("3.5.35", None));
        }
    }
}
