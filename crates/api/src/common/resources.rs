//! `spec.resources`: requests and limits of members. The schema has a default for each value, so that a stored resource
//! shows what its members get. There is no default for the CPU limit: a throttled leader misses its heartbeats, and the
//! members elect a new one.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::common::cel;
use crate::common::quantity::{bytes, millis};
use crate::common::rejection::Rejection;

const DEFAULT_CPU_REQUEST: &str = "100m";
const DEFAULT_MEMORY_REQUEST: &str = "256Mi";
const DEFAULT_MEMORY_LIMIT: &str = "2Gi";
/// A smaller quantity is probably a mistake, such as `512m` for `512Mi`.
const MIN_MEMORY: &str = "32Mi";

const MEMORY_TOO_SMALL: &str =
    "must be at least 32Mi. The suffix m means thousandths; use Mi for mebibytes";
const REQUEST_ABOVE_LIMIT: &str = "requests.memory must not exceed limits.memory. Set both, since \
    the default of the request is 256Mi and that of the limit 2Gi";
const CPU_REQUEST_ABOVE_LIMIT: &str = "requests.cpu must not exceed limits.cpu. Lower \
    requests.cpu, whose default is 100m, or raise or remove limits.cpu";
const MUST_BE_CPUS: &str = "must be a number of CPUs above zero, such as 2 or 500m";
const IS_CPUS: &str =
    "isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))";

/// The resources of each member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(requests_within_limits("memory"))
    .message(REQUEST_ABOVE_LIMIT)
    .field_path(".limits"))]
#[x_kube(validation = Rule::new(requests_within_limits("cpu"))
    .message(CPU_REQUEST_ABOVE_LIMIT)
    .field_path(".limits"))]
pub struct Resources {
    /// The CPU and memory that are reserved for each member on its node.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    #[schemars(extend("default" = default_requests()))]
    pub requests: ResourceRequests,
    /// The CPU and memory that each member may use at most. A container that exceeds its memory limit is killed.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    #[schemars(extend("default" = default_limits()))]
    pub limits: ResourceLimits,
}

// The schema has the defaults at each level: a parent that is left out, and a value that is.

/// Returns the default of `spec.resources`.
pub(crate) fn default_resources() -> Value {
    json!({ "requests": default_requests(), "limits": default_limits() })
}

fn default_requests() -> Value {
    json!({ "cpu": DEFAULT_CPU_REQUEST, "memory": DEFAULT_MEMORY_REQUEST })
}

fn default_limits() -> Value {
    json!({ "memory": DEFAULT_MEMORY_LIMIT })
}

/// Returns the expression that the request of a resource does not exceed its limit, as far as both are set.
fn requests_within_limits(resource: &str) -> String {
    let (request, limit) = (
        format!("self.requests.{resource}"),
        format!("self.limits.{resource}"),
    );
    format!(
        "!has(self.requests) || !has(self.limits) || !has({request}) || !has({limit}) || \
         !isQuantity(string({request})) || !isQuantity(string({limit})) || \
         quantity(string({request})).compareTo(quantity(string({limit}))) <= 0"
    )
}

/// The reserved CPU and memory. The schema fills in the defaults; a spec that an earlier schema admitted may have none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceRequests {
    /// The number of CPUs, such as 2 or 500m (half a CPU).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantity", extend("default" = DEFAULT_CPU_REQUEST))]
    #[x_kube(validation = Rule::new(IS_CPUS).message(MUST_BE_CPUS))]
    pub cpu: Option<Quantity>,
    /// The amount of memory, such as 512Mi or 2Gi. Minimum 32Mi. Must not exceed limits.memory: for more than 2Gi, set
    /// both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantity", extend("default" = DEFAULT_MEMORY_REQUEST))]
    #[x_kube(validation = cel::quantity(), validation = cel::quantity_at_least(MIN_MEMORY, MEMORY_TOO_SMALL))]
    pub memory: Option<Quantity>,
}

/// The limits of CPU and memory. The schema fills in the default; a spec that an earlier schema admitted may have none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceLimits {
    /// The number of CPUs, such as 2 or 500m (half a CPU). Unset by default. A limit is not recommended: a leader that is
    /// throttled misses its heartbeats, which causes elections and slow responses. Where a policy requires one, set it
    /// well above the usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantity")]
    #[x_kube(validation = Rule::new(IS_CPUS).message(MUST_BE_CPUS))]
    pub cpu: Option<Quantity>,
    /// The amount of memory, such as 512Mi or 2Gi. Minimum 32Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantity", extend("default" = DEFAULT_MEMORY_LIMIT))]
    #[x_kube(validation = cel::quantity(), validation = cel::quantity_at_least(MIN_MEMORY, MEMORY_TOO_SMALL))]
    pub memory: Option<Quantity>,
}

/// The resources of a member's container, defaults included.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveResources {
    /// The CPU request.
    pub cpu_request: Quantity,
    /// The CPU limit, if there is one.
    pub cpu_limit: Option<Quantity>,
    /// The memory request.
    pub memory_request: Quantity,
    /// The memory limit.
    pub memory_limit: Quantity,
}

impl Resources {
    /// Validates the quantities and fills in the defaults of a spec that an earlier schema admitted. The user's quantities
    /// are kept as written. A default is adjusted where needed, so that no request exceeds its limit.
    pub fn validate(&self) -> Result<EffectiveResources, Rejection> {
        let Self { requests, limits } = self;
        let memory = Bounds {
            request: requests
                .memory
                .as_ref()
                .map(|quantity| validate_memory("spec.resources.requests.memory", quantity))
                .transpose()?,
            limit: limits
                .memory
                .as_ref()
                .map(|quantity| validate_memory("spec.resources.limits.memory", quantity))
                .transpose()?,
        };
        let cpu = Bounds {
            request: requests
                .cpu
                .as_ref()
                .map(|quantity| validate_cpus("spec.resources.requests.cpu", quantity))
                .transpose()?,
            limit: limits
                .cpu
                .as_ref()
                .map(|quantity| validate_cpus("spec.resources.limits.cpu", quantity))
                .transpose()?,
        };
        for (bounds, message) in [
            (&memory, REQUEST_ABOVE_LIMIT),
            (&cpu, CPU_REQUEST_ABOVE_LIMIT),
        ] {
            if bounds.is_inverted() {
                return Err(Rejection::new("spec.resources.limits", message));
            }
        }
        let default_cpu = Amount::constant(DEFAULT_CPU_REQUEST, |quantity| millis(quantity).ok());
        let default_request = Amount::constant(DEFAULT_MEMORY_REQUEST, |it| bytes(it).ok());
        let default_limit = Amount::constant(DEFAULT_MEMORY_LIMIT, |it| bytes(it).ok());
        Ok(EffectiveResources {
            cpu_request: cpu.request_or(default_cpu),
            memory_request: memory.request_or(default_request),
            memory_limit: memory.limit_or(default_limit),
            cpu_limit: cpu.limit.map(|limit| limit.quantity),
        })
    }
}

/// A quantity, and its value for comparisons.
#[derive(Clone, Debug)]
struct Amount {
    quantity: Quantity,
    value: u64,
}

impl Amount {
    /// Returns one of the constants of this module.
    fn constant(text: &str, value: impl Fn(&Quantity) -> Option<u64>) -> Self {
        let quantity = Quantity(text.to_owned());
        let value = value(&quantity).unwrap_or_default();
        Self { quantity, value }
    }
}

/// The request and the limit of a resource, as far as they are set.
struct Bounds {
    request: Option<Amount>,
    limit: Option<Amount>,
}

impl Bounds {
    fn is_inverted(&self) -> bool {
        let values = self.request.as_ref().zip(self.limit.as_ref());
        values.is_some_and(|(request, limit)| request.value > limit.value)
    }

    /// Returns the request, or the default as far as the limit allows it.
    fn request_or(&self, default: Amount) -> Quantity {
        let lower_limit = self
            .limit
            .as_ref()
            .filter(|limit| limit.value < default.value);
        let amount = self.request.as_ref().or(lower_limit);
        amount.unwrap_or(&default).quantity.clone()
    }

    /// Returns the limit, or the default if the request does not exceed it.
    fn limit_or(&self, default: Amount) -> Quantity {
        let higher_request = self
            .request
            .as_ref()
            .filter(|request| request.value > default.value);
        let amount = self.limit.as_ref().or(higher_request);
        amount.unwrap_or(&default).quantity.clone()
    }
}

fn validate_memory(field: &'static str, quantity: &Quantity) -> Result<Amount, Rejection> {
    let reject = |rule: &str| Rejection::invalid(field, &quantity.0, rule);
    let value = bytes(quantity).map_err(|error| reject(&error.to_string()))?;
    if Some(value) < bytes(&Quantity(MIN_MEMORY.to_owned())).ok() {
        return Err(reject(MEMORY_TOO_SMALL));
    }
    Ok(Amount {
        quantity: quantity.clone(),
        value,
    })
}

fn validate_cpus(field: &'static str, quantity: &Quantity) -> Result<Amount, Rejection> {
    match millis(quantity) {
        Ok(value @ 1..) => Ok(Amount {
            quantity: quantity.clone(),
            value,
        }),
        _ => Err(Rejection::invalid(field, &quantity.0, MUST_BE_CPUS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective(json: &str) -> Result<(String, String, String), String> {
        let resources: Resources = serde_json::from_str(json).unwrap();
        let effective = resources.validate().map_err(|error| error.to_string())?;
        Ok((
            effective.cpu_request.0,
            effective.memory_request.0,
            effective.memory_limit.0,
        ))
    }

    fn amounts(cpu: &str, request: &str, limit: &str) -> Result<(String, String, String), String> {
        Ok((cpu.to_owned(), request.to_owned(), limit.to_owned()))
    }

    #[test]
    fn defaults_are_100m_cpu_256mi_request_and_2gi_limit() {
        assert_eq!(effective("{}"), amounts("100m", "256Mi", "2Gi"));
    }

    #[test]
    fn a_default_is_adjusted_so_that_no_request_exceeds_its_limit() {
        assert_eq!(
            effective(r#"{"requests":{"cpu":2,"memory":"4Gi"}}"#),
            amounts("2", "4Gi", "4Gi")
        );
        assert_eq!(
            effective(r#"{"limits":{"memory":"128Mi"}}"#),
            amounts("100m", "128Mi", "128Mi")
        );
        assert_eq!(
            effective(r#"{"requests":{"memory":"1Gi"}}"#),
            amounts("100m", "1Gi", "2Gi")
        );
        assert_eq!(
            effective(r#"{"limits":{"memory":"8Gi"}}"#),
            amounts("100m", "256Mi", "8Gi")
        );
    }

    #[test]
    fn a_cpu_limit_is_optional_and_bounds_the_default_request() {
        let with_limit = |limit: Option<&str>| {
            let cpu = limit.map(|limit| Quantity(limit.to_owned()));
            let resources = Resources {
                limits: ResourceLimits { cpu, memory: None },
                ..Resources::default()
            };
            let effective = resources.validate().unwrap();
            let limit = effective.cpu_limit.map(|limit| limit.0);
            (effective.cpu_request.0, limit)
        };
        assert_eq!(with_limit(None), ("100m".to_owned(), None));
        let two = Some("2".to_owned());
        assert_eq!(with_limit(Some("2")), ("100m".to_owned(), two));
        let low = "50m".to_owned();
        assert_eq!(with_limit(Some("50m")), (low.clone(), Some(low)));
    }

    #[test]
    fn invalid_quantities_are_rejected_with_their_field() {
        for (json, field) in [
            (
                r#"{"requests":{"cpu":"2"},"limits":{"cpu":"1"}}"#,
                "spec.resources.limits",
            ),
            (r#"{"limits":{"cpu":"0"}}"#, "spec.resources.limits.cpu"),
            (
                r#"{"requests":{"memory":"2Gi"},"limits":{"memory":"1Gi"}}"#,
                "spec.resources.limits",
            ),
            (
                r#"{"requests":{"memory":"512m"}}"#,
                "spec.resources.requests.memory",
            ),
            (
                r#"{"limits":{"memory":"lots"}}"#,
                "spec.resources.limits.memory",
            ),
            (r#"{"requests":{"cpu":"0"}}"#, "spec.resources.requests.cpu"),
            (
                r#"{"requests":{"cpu":"-1"}}"#,
                "spec.resources.requests.cpu",
            ),
        ] {
            let error = effective(json).unwrap_err();
            assert!(error.starts_with(&format!("{field}: ")), "{json}: {error}");
        }
    }
}
