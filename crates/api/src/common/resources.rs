//! What a member may use of its node. Memory has a limit; the CPU never has one: a throttled leader misses its
//! heartbeats, and the others elect a new one.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use crate::common::cel::{amount, at_least};
use crate::common::quantity::{bytes, millis};
use crate::etcd::validation::Refusal;

/// What each member asks for of its node's CPU, unless the user says otherwise.
const CPU: &str = "100m";
/// What each member asks for of its node's memory, unless the user says otherwise.
const MEMORY: &str = "256Mi";
/// How much memory each member may take, unless the user says otherwise.
const MEMORY_LIMIT: &str = "2Gi";
/// Less than this is hardly meant.
const LEAST_MEMORY: &str = "32Mi";

const TOO_LITTLE_MEMORY: &str = "at least 32Mi: less is likely a slip. In amounts m means thousandths, so for mebibytes write Mi";

/// What each member may use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(REQUESTS_WITHIN_LIMITS)
    .message("requests.memory is more than limits.memory: raise the limit, or leave it out")
    .field_path(".limits"))]
pub struct Resources {
    /// What is set aside for each member on its node. Without it, 100m of CPU and 256Mi of memory.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    pub requests: Amounts,
    /// What each member may use at most. Without it, 2Gi of memory, or as much as is requested if that is more. There
    /// is no limit on CPU: a throttled leader misses its heartbeats and loses its leadership.
    #[serde(default, skip_serializing_if = "crate::common::is_default")]
    #[x_kube(validation = Rule::new("!has(self.cpu)")
        .message("leave out limits.cpu: a throttled leader misses its heartbeats, and each time the cluster stops to \
            elect another. Use requests.cpu to set CPU time aside")
        .field_path(".cpu"))]
    pub limits: Amounts,
}

const REQUESTS_WITHIN_LIMITS: &str = "!has(self.requests) || !has(self.limits) || \
    !has(self.requests.memory) || !has(self.limits.memory) || \
    !isQuantity(string(self.requests.memory)) || !isQuantity(string(self.limits.memory)) || \
    quantity(string(self.requests.memory)).compareTo(quantity(string(self.limits.memory))) <= 0";

/// Amounts of CPU and memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Amounts {
    /// CPUs, such as 2 or 500m (half a CPU).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantity")]
    #[x_kube(
        validation = Rule::new("isQuantity(string(self)) && quantity(string(self)).isGreaterThan(quantity('0'))")
            .message("write an amount of CPUs above zero, such as 2 or 500m"),
    )]
    pub cpu: Option<Quantity>,
    /// Memory, such as 512Mi or 2Gi; at least 32Mi.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Quantity")]
    #[x_kube(validation = amount(), validation = at_least(LEAST_MEMORY, TOO_LITTLE_MEMORY))]
    pub memory: Option<Quantity>,
}

/// What a member's container is given, defaults included.
#[derive(Clone, Debug, PartialEq)]
pub struct SettledResources {
    /// CPU set aside.
    pub cpu_request: Quantity,
    /// Memory set aside.
    pub memory_request: Quantity,
    /// Memory it may take.
    pub memory_limit: Quantity,
}

impl Resources {
    /// What holds once everything that was left out is filled in. The user's own amounts are kept as written; a
    /// default gives way to them, so that requests never exceed limits.
    pub fn settled(&self) -> Result<SettledResources, Refusal> {
        if self.limits.cpu.is_some() {
            return Err(Refusal::of(
                "spec.resources.limits.cpu",
                "leave it out: throttling causes elections",
            ));
        }
        let request = self.requests.memory.as_ref();
        let limit = self.limits.memory.as_ref();
        let requested = request
            .map(|it| memory("spec.resources.requests.memory", it))
            .transpose()?;
        let limited = limit
            .map(|it| memory("spec.resources.limits.memory", it))
            .transpose()?;
        if let (Some(requested), Some(limited)) = (requested, limited)
            && requested > limited
        {
            return Err(Refusal::of(
                "spec.resources.limits",
                "requests.memory is more than limits.memory",
            ));
        }
        if let Some(cpu) = &self.requests.cpu
            && !matches!(millis(cpu), Ok(1..))
        {
            let why = format!("{} is no amount of CPUs above zero", cpu.0);
            return Err(Refusal::of("spec.resources.requests.cpu", why));
        }
        let smaller = limit.filter(|_| limited < known(MEMORY));
        let larger = request.filter(|_| requested > known(MEMORY_LIMIT));
        Ok(SettledResources {
            cpu_request: self
                .requests
                .cpu
                .clone()
                .unwrap_or_else(|| Quantity(CPU.to_owned())),
            memory_request: request
                .or(smaller)
                .cloned()
                .unwrap_or_else(|| Quantity(MEMORY.to_owned())),
            memory_limit: limit
                .or(larger)
                .cloned()
                .unwrap_or_else(|| Quantity(MEMORY_LIMIT.to_owned())),
        })
    }
}

/// One of the amounts above, in bytes.
fn known(amount: &str) -> Option<u64> {
    bytes(&Quantity(amount.to_owned())).ok()
}

fn memory(field: &'static str, amount: &Quantity) -> Result<u64, Refusal> {
    let bytes = bytes(amount).map_err(|why| Refusal::of(field, why.to_string()))?;
    if Some(bytes) < known(LEAST_MEMORY) {
        return Err(Refusal::of(field, TOO_LITTLE_MEMORY));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(json: &str) -> Result<(String, String, String), String> {
        let resources: Resources = serde_json::from_str(json).unwrap();
        let settled = resources.settled().map_err(|it| it.to_string())?;
        Ok((
            settled.cpu_request.0,
            settled.memory_request.0,
            settled.memory_limit.0,
        ))
    }

    fn amounts(cpu: &str, request: &str, limit: &str) -> Result<(String, String, String), String> {
        Ok((cpu.to_owned(), request.to_owned(), limit.to_owned()))
    }

    #[test]
    fn nothing_said_is_a_tenth_of_a_cpu_and_between_a_quarter_and_two_gibibytes() {
        assert_eq!(settled("{}"), amounts("100m", "256Mi", "2Gi"));
    }

    #[test]
    fn a_default_gives_way_so_that_no_request_exceeds_its_limit() {
        assert_eq!(
            settled(r#"{"requests":{"cpu":2,"memory":"4Gi"}}"#),
            amounts("2", "4Gi", "4Gi")
        );
        assert_eq!(
            settled(r#"{"limits":{"memory":"128Mi"}}"#),
            amounts("100m", "128Mi", "128Mi")
        );
        assert_eq!(
            settled(r#"{"requests":{"memory":"1Gi"}}"#),
            amounts("100m", "1Gi", "2Gi")
        );
        assert_eq!(
            settled(r#"{"limits":{"memory":"8Gi"}}"#),
            amounts("100m", "256Mi", "8Gi")
        );
    }

    #[test]
    fn what_cannot_work_is_refused_and_names_its_field() {
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
            let refused = settled(json).unwrap_err();
            assert!(
                refused.starts_with(&format!("{field}: ")),
                "{json}: {refused}"
            );
        }
    }
}
