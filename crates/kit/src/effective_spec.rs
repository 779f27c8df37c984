//! The effective spec: the resource's spec with every rejected field replaced by the value that was
//! accepted last. A rejected field blocks neither other changes nor recovery. The engine records
//! the accepted spec (see [`identity_object`](crate::identity_object)) and defines by [`SpecRules`]
//! which fields are rejected.

use evenkeel_api::{Rejection, RejectionEffect};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::spec_fields::with_field;

/// The largest number of fields that are replaced before the whole accepted spec is used.
const MAX_REJECTED_FIELDS: usize = 16;

/// The desired state according to the effective spec.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveSpec<D> {
    /// The desired state.
    pub desired: D,
    /// The first field of the resource that was rejected.
    pub rejection: Option<Rejection>,
}

/// The spec that was accepted last, and the state of the cluster that it describes.
#[derive(Clone, Debug)]
pub struct AcceptedSpec<S> {
    /// The spec.
    pub spec: S,
    /// Whether the spec is of a deleted resource of the same name.
    pub is_previous_resource: bool,
    /// Whether bootstrap is finished: there is data to protect.
    pub is_bootstrapped: bool,
}

impl<S> AcceptedSpec<S> {
    /// Returns true if the spec is of this resource and there is data to protect.
    pub fn has_data(&self) -> bool {
        self.is_bootstrapped && !self.is_previous_resource
    }
}

/// The rules by which an engine accepts a spec for one cluster.
pub trait SpecRules {
    /// The fields that are in force as the resource has them, even if the whole accepted spec is in force otherwise.
    const ALWAYS_ACCEPTED: &'static [&'static str] = &["spec.paused"];
    /// The spec of the resource.
    type Spec: Clone + PartialEq + Serialize + DeserializeOwned;
    /// The desired state that follows from a valid spec.
    type Desired;

    /// Returns the spec that was accepted last.
    fn accepted(&self) -> Option<&AcceptedSpec<Self::Spec>>;

    /// Returns the first field whose change is rejected because of the cluster's history, such as a smaller volume.
    fn rejected_change(&self, spec: &Self::Spec) -> Option<Rejection>;

    /// Returns the desired state, or the first field that is invalid in itself.
    fn validate(&self, spec: &Self::Spec) -> Result<Self::Desired, Rejection>;

    /// Returns the desired state if the whole accepted spec is in force, or the first field that is no longer valid.
    fn validate_accepted(&self, spec: &Self::Spec) -> Result<Self::Desired, Rejection> {
        self.validate(spec)
    }

    /// Returns the desired state without the value of an invalid field; `None` if the cluster needs the field. It is asked
    /// if no value of the field was accepted. The desired state must be as cautious as any value of the field could make
    /// it: the effect of the rejection is [`RejectionEffect::DelaysDisruptions`].
    fn validate_without(&self, _spec: &Self::Spec, _field: &str) -> Option<Self::Desired> {
        None
    }

    /// Returns the spec with one field as it was accepted last; `None` if the field has that value already, or no value was
    /// accepted.
    fn with_accepted_field(&self, spec: &Self::Spec, field: &str) -> Option<Self::Spec> {
        with_field(spec, &self.accepted()?.spec, field)
    }
}

/// Returns the effective spec and the first rejected field, or the rejection if no spec can be in force.
///
/// The algorithm, with `candidate` as the spec to try, initially `spec`:
/// 1. Repeat: if `candidate` is valid and its changes are allowed, it is in force. Otherwise the rejected field gets its
///    accepted value. If there is none, or the field has it already, and the cluster can do without the field, `candidate`
///    is in force without it; otherwise go on with 2.
/// 2. The whole accepted spec is in force, apart from [`SpecRules::ALWAYS_ACCEPTED`]: where several fields depend on each
///    other, replacing one of them does not help.
/// 3. Otherwise no spec is in force. This is the case for a new cluster, and for a resource that was created again: the
///    accepted spec of the deleted resource is not visible anywhere.
pub fn effective_spec<R: SpecRules>(
    rules: &R,
    spec: &R::Spec,
) -> Result<EffectiveSpec<R::Desired>, Rejection> {
    let accepted = rules.accepted();
    let has_visible_fallback = accepted.is_some_and(|accepted| !accepted.is_previous_resource);
    let mut candidate = spec.clone();
    let mut first_rejection: Option<Rejection> = None;
    for _ in 0..MAX_REJECTED_FIELDS {
        let rejection = match (
            rules.rejected_change(&candidate),
            rules.validate(&candidate),
        ) {
            (None, Ok(desired)) => {
                return Ok(EffectiveSpec {
                    desired,
                    rejection: first_rejection,
                });
            }
            (Some(rejection), _) => rejection,
            (None, Err(rejection)) => {
                let replaced = rules
                    .with_accepted_field(&candidate, rejection.field)
                    .filter(|_| has_visible_fallback);
                if replaced.is_none()
                    && let Some(desired) = rules.validate_without(&candidate, rejection.field)
                {
                    let rejection = first_rejection.unwrap_or_else(|| {
                        with_effect(rejection, RejectionEffect::DelaysDisruptions)
                    });
                    return Ok(EffectiveSpec {
                        desired,
                        rejection: Some(rejection),
                    });
                }
                if !has_visible_fallback {
                    return Err(with_effect(rejection, RejectionEffect::NotCreated));
                }
                rejection
            }
        };
        let field = rejection.field;
        first_rejection.get_or_insert(rejection);
        match rules.with_accepted_field(&candidate, field) {
            Some(replaced) => candidate = replaced,
            None => break,
        }
    }
    if let Some(accepted) = accepted.filter(|accepted| accepted.has_data()) {
        let whole = R::ALWAYS_ACCEPTED
            .iter()
            .fold(accepted.spec.clone(), |whole, field| {
                with_field(&whole, spec, field).unwrap_or(whole)
            });
        if let Ok(desired) = rules.validate_accepted(&whole) {
            return Ok(EffectiveSpec {
                desired,
                rejection: first_rejection,
            });
        }
    }
    let rejection =
        first_rejection.unwrap_or_else(|| Rejection::new("spec", "the spec is invalid"));
    let has_data = accepted.is_some_and(AcceptedSpec::has_data);
    let effect = if has_data {
        RejectionEffect::Unmanaged
    } else {
        RejectionEffect::NotCreated
    };
    Err(with_effect(rejection, effect))
}

fn with_effect(rejection: Rejection, effect: RejectionEffect) -> Rejection {
    Rejection {
        effect,
        ..rejection
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Accepts up to five members, volumes that do not shrink, no `a` without `b`, and only valid windows, without which a
    /// cluster is never restarted.
    struct Rules(Option<AcceptedSpec<Value>>);

    impl SpecRules for Rules {
        type Spec = Value;
        type Desired = Value;

        fn accepted(&self) -> Option<&AcceptedSpec<Value>> {
            self.0.as_ref()
        }

        fn rejected_change(&self, spec: &Value) -> Option<Rejection> {
            let accepted = self.accepted()?;
            let shrinks = spec["size"].as_u64() < accepted.spec["size"].as_u64();
            shrinks.then(|| rejection("spec.size"))
        }

        fn validate(&self, spec: &Value) -> Result<Value, Rejection> {
            if spec["members"].as_u64() > Some(5) {
                return Err(rejection("spec.members"));
            }
            if spec["a"] != spec["b"] {
                return Err(rejection("spec.a"));
            }
            if spec["windows"] == "invalid" {
                return Err(rejection("spec.windows"));
            }
            Ok(spec.clone())
        }

        fn validate_without(&self, spec: &Value, field: &str) -> Option<Value> {
            let mut without = spec.clone();
            without["windows"] = json!("never");
            (field == "spec.windows").then(|| self.validate(&without).ok())?
        }
    }

    fn rejection(field: &'static str) -> Rejection {
        Rejection::new(field, "rejected")
    }

    fn rules(spec: Value) -> Rules {
        Rules(Some(AcceptedSpec {
            spec,
            is_previous_resource: false,
            is_bootstrapped: true,
        }))
    }

    /// Returns the spec in force and the first rejected field, or the rejected field alone.
    fn in_force(rules: &Rules, spec: Value) -> (Option<Value>, Option<&'static str>) {
        match effective_spec(rules, &spec) {
            Ok(effective) => (
                Some(effective.desired),
                effective.rejection.map(|rejection| rejection.field),
            ),
            Err(rejection) => (None, Some(rejection.field)),
        }
    }

    #[test]
    fn rejected_fields_keep_their_accepted_values_and_the_others_are_in_force() {
        let rules = rules(json!({ "members": 3, "size": 2 }));
        assert_eq!(
            in_force(&rules, json!({ "members": 9, "size": 1, "note": "new" })),
            (
                Some(json!({ "members": 3, "size": 2, "note": "new" })),
                Some("spec.size")
            )
        );
        let valid = json!({ "members": 5, "size": 4 });
        assert_eq!(in_force(&rules, valid.clone()), (Some(valid), None));
    }

    #[test]
    fn the_whole_accepted_spec_is_in_force_if_one_field_does_not_help() {
        let rules = rules(json!({ "a": 1, "b": 1, "paused": false }));
        let spec = json!({ "a": 1, "b": 2, "paused": true });
        assert_eq!(
            in_force(&rules, spec),
            (
                Some(json!({ "a": 1, "b": 1, "paused": true })),
                Some("spec.a")
            )
        );
    }

    #[test]
    fn no_spec_is_in_force_without_an_accepted_spec_of_this_resource() {
        let invalid = json!({ "members": 9, "size": 2 });
        assert_eq!(
            in_force(&Rules(None), invalid.clone()),
            (None, Some("spec.members"))
        );
        let mut previous = rules(json!({ "members": 3, "size": 2 }));
        previous.0.as_mut().unwrap().is_previous_resource = true;
        assert_eq!(in_force(&previous, invalid), (None, Some("spec.members")));
        assert_eq!(
            in_force(&previous, json!({ "members": 3, "size": 1 })),
            (Some(json!({ "members": 3, "size": 2 })), Some("spec.size")),
            "the data of the deleted resource still limits changes"
        );
    }

    #[test]
    fn a_new_cluster_does_without_a_field_that_it_does_not_need() {
        let invalid = json!({ "members": 3, "windows": "invalid" });
        let without = json!({ "members": 3, "windows": "never" });
        let effect = |rules: &Rules, spec: &Value| match effective_spec(rules, spec) {
            Ok(effective) => effective.rejection.map(|rejection| rejection.effect),
            Err(rejection) => Some(rejection.effect),
        };
        let delays = Some(RejectionEffect::DelaysDisruptions);
        assert_eq!(
            in_force(&Rules(None), invalid.clone()),
            (Some(without.clone()), Some("spec.windows"))
        );
        assert_eq!(effect(&Rules(None), &invalid), delays);
        // The accepted spec has the invalid value as well, since the cluster was created with it.
        let created = rules(json!({ "members": 5, "windows": "invalid" }));
        assert_eq!(
            in_force(&created, invalid.clone()),
            (Some(without), Some("spec.windows"))
        );
        assert_eq!(effect(&created, &invalid), delays);
        // A value that was accepted stays in force.
        let accepted = rules(json!({ "members": 3, "windows": "nightly" }));
        assert_eq!(
            in_force(&accepted, invalid.clone()),
            (
                Some(json!({ "members": 3, "windows": "nightly" })),
                Some("spec.windows")
            )
        );
        assert_eq!(
            effect(&accepted, &invalid),
            Some(RejectionEffect::KeepsAccepted)
        );
        // Another invalid field is still an error.
        let other = json!({ "members": 9, "windows": "invalid" });
        assert_eq!(
            in_force(&Rules(None), other.clone()),
            (None, Some("spec.members"))
        );
        assert_eq!(
            effect(&Rules(None), &other),
            Some(RejectionEffect::NotCreated)
        );
    }

    #[test]
    fn a_spec_that_is_no_longer_valid_is_not_in_force_because_it_was_accepted() {
        let rules = rules(json!({ "members": 9 }));
        assert_eq!(
            in_force(&rules, json!({ "members": 9 })),
            (None, Some("spec.members"))
        );
        let rejection = effective_spec(&rules, &json!({ "members": 9 })).unwrap_err();
        assert_eq!(rejection.effect, RejectionEffect::Unmanaged);
    }
}
