//! `spec.resources`: requests and limits of members. There is no CPU limit: a throttled leader misses its heartbeats,
//! and the members elect a new one.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

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
const REQUEST_ABOVE_LIMIT: &str =
    "requests.memory must not exceed limits.memory. Raise limits.memory, or remove it";
const NO_CPU_LIMIT: &str = "limits.cpu is not supported: a throttled leader misses its heartbeats, \
    and the members elect another. Remove limits.cpu, and set requests.cpu to reserve CPU time";
const MUST_BE_CPUS: &str = "must be a number of CPUs above zero, such as 2 or 500m";

/// The resources of each member.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(REQUESTS_WITHIN_LIMITS)
    .message(REQUEST_ABOVE_LIMIT)
    .field_path(".limits"))]
pub struct Resources {
    /// The CPU and memory that are reserved for each member on its node. Defaults: 100m of CPU, 256Mi of memory.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    pub requests: ResourceAmounts,
    /// The memory that each member may use at most. Default: 2Gi, or the request if that is larger. A CPU limit is not
    /// supported: a throttled leader misses its heartbeats and loses its leadership.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    #[x_kube(validation = Rule::new("!has(self.cpu)")
        .message(NO_CPU_LIMIT)
        .field_path(".cpu"))]
    pub limits: ResourceAmounts,
}

const REQUESTS_WITHIN_LIMITS: &str = "!has(self.requests) || !has(self.limits) || \
    !has(self.requests.memory) || !has(self.limits.memory) || \
    !isQuantity(string(self.requests.memory)) || !isQuantity(string(self.limits.memory)) || \
    quantity(string(self.requests.memory)).compareTo(quantity(string(self.limits.memory))) <= 0";

/// Quantities of CPU and memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceAmounts {
    /// The number of CPUs, such as 2 or 500m (half a CPU). Not supported in limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantity")]
    #[x_kube(
        validation = Rule::new("isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))")
            .message(MUST_BE_CPUS),
    )]
    pub cpu: Option<Quantity>,
    /// The amount of memory, such as 512Mi or 2Gi. Minimum 32Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantity")]
    #[x_kube(validation = cel::quantity(), validation = cel::quantity_at_least(MIN_MEMORY, MEMORY_TOO_SMALL))]
    pub memory: Option<Quantity>,
}

/// The resources of a member's container, defaults included.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectiveResources {
    /// The CPU request.
    pub cpu_request: Quantity,
    /// The memory request.
    pub memory_request: Quantity,
    /// The memory limit.
    pub memory_limit: Quantity,
}

impl Resources {
    /// Validates the quantities and fills in the defaults. The user's quantities are kept as written. A default is adjusted
    /// where needed, so that no request exceeds its limit.
    pub fn validate(&self) -> Result<EffectiveResources, Rejection> {
        if self.limits.cpu.is_some() {
            return Err(Rejection::new("spec.resources.limits.cpu", NO_CPU_LIMIT));
        }
        let request = self.requests.memory.as_ref();
        let limit = self.limits.memory.as_ref();
        let request_bytes = request
            .map(|quantity| validate_memory("spec.resources.requests.memory", quantity))
            .transpose()?;
        let limit_bytes = limit
            .map(|quantity| validate_memory("spec.resources.limits.memory", quantity))
            .transpose()?;
        if let (Some(request_bytes), Some(limit_bytes)) = (request_bytes, limit_bytes)
            && request_bytes > limit_bytes
        {
            return Err(Rejection::new("spec.resources.limits", REQUEST_ABOVE_LIMIT));
        }
        if let Some(cpu) = &self.requests.cpu
            && !matches!(millis(cpu), Ok(1..))
        {
            return Err(Rejection::invalid(
                "spec.resources.requests.cpu",
                &cpu.0,
                MUST_BE_CPUS,
            ));
        }
        let limit_below_default =
            limit.filter(|_| limit_bytes < constant_bytes(DEFAULT_MEMORY_REQUEST));
        let request_above_default =
            request.filter(|_| request_bytes > constant_bytes(DEFAULT_MEMORY_LIMIT));
        Ok(EffectiveResources {
            cpu_request: self
                .requests
                .cpu
                .clone()
                .unwrap_or_else(|| Quantity(DEFAULT_CPU_REQUEST.to_owned())),
            memory_request: request
                .or(limit_below_default)
                .cloned()
                .unwrap_or_else(|| Quantity(DEFAULT_MEMORY_REQUEST.to_owned())),
            memory_limit: limit
                .or(request_above_default)
                .cloned()
                .unwrap_or_else(|| Quantity(DEFAULT_MEMORY_LIMIT.to_owned())),
        })
    }
}

/// Returns one of the constants of this module in bytes.
fn constant_bytes(quantity: &str) -> Option<u64> {
    bytes(&Quantity(quantity.to_owned())).ok()
}

fn validate_memory(field: &'static str, quantity: &Quantity) -> Result<u64, Rejection> {
    let reject = |rule: &str| Rejection::invalid(field, &quantity.0, rule);
    let bytes = bytes(quantity).map_err(|error| reject(&error.to_string()))?;
    if Some(bytes) < constant_bytes(MIN_MEMORY) {
        return Err(reject(MEMORY_TOO_SMALL));
    }
    Ok(bytes)
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
    fn invalid_quantities_are_rejected_with_their_field() {
        for (json, field) in [
            (r#"{"limits":{"cpu":"1"}}"#, "spec.resources.limits.cpu"),
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
