//! Edits one leaf: set, change, unset, set to invalid values, restore. After each edit the cluster must equal a new
//! cluster with the same spec.

use std::collections::BTreeMap;

use evenkeel_api::EtcdCluster;
use serde_json::{Value, json};

use crate::cases::{ChangeKind, LeafCase};
use crate::schema::{ApiServerAnswer, Schema};
use crate::simulation::{EditResult, Rollout, SimulatedCluster};

/// Descriptions of problems.
pub(crate) type Problems = Vec<String>;

/// The schema and a cache of converged clusters.
pub(crate) struct Harness {
    pub(crate) schema: Schema,
    /// Converged clusters by their manifest.
    fresh: BTreeMap<String, SimulatedCluster>,
}

/// The operator's answer to a stored spec.
enum OperatorAnswer {
    /// The operator cannot parse the spec.
    Unreadable(String),
    /// Accepted.
    Accepted(Box<EtcdCluster>),
    /// Rejected for this reason.
    Rejected(Box<EtcdCluster>, String),
}

/// Returns a resource with these fields in its spec.
pub(crate) fn manifest(spec: &Value) -> Value {
    let mut whole = json!({ "version": "3.6.16" });
    whole
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "evenkeel.dev/v1alpha1",
        "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop", "uid": "00000000-0000-0000-0000-000000000001", "generation": 1 },
        "spec": whole,
    })
}

/// Returns the manifest with the leaf set or unset.
pub(crate) fn edited(manifest: &Value, leaf: &str, value: Option<&Value>) -> Value {
    let mut edited = manifest.clone();
    let path: Vec<&str> = leaf.split('.').collect();
    let (last, parents) = path.split_last().unwrap();
    let mut at = &mut edited;
    for name in parents {
        let list = name.strip_suffix("[]");
        at = at
            .as_object_mut()
            .unwrap()
            .entry(list.unwrap_or(name))
            .or_insert_with(|| json!({}));
        if list.is_some() {
            at = &mut at[0];
        }
    }
    match value {
        Some(value) => at[*last] = value.clone(),
        None => drop(at.as_object_mut().unwrap().remove(*last)),
    }
    edited
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self {
            schema: Schema::from_crd(),
            fresh: BTreeMap::new(),
        }
    }

    /// Returns a converged cluster that was created with this manifest.
    pub(crate) fn fresh(&mut self, manifest: &Value) -> Result<SimulatedCluster, String> {
        let whole = self.schema.defaulted(manifest);
        if let Some(there) = self.fresh.get(&whole.to_string()) {
            return Ok(there.clone());
        }
        if whole["spec"]["paused"] == true {
            // The operator creates no objects for a paused resource, so the resource is paused
            // after convergence.
            let mut paused = self.fresh(&edited(manifest, "spec.paused", None))?;
            paused.edit(serde_json::from_value(whole.clone()).unwrap());
            paused.converge()?;
            return Ok(paused);
        }
        if let ApiServerAnswer::Malformed(why) | ApiServerAnswer::Rejected(why) =
            self.schema.api_answer(&whole, None)
        {
            return Err(format!("rejected at creation: {why:?}"));
        }
        let mut cluster = SimulatedCluster::new(serde_json::from_value(whole.clone()).unwrap());
        cluster.converge()?;
        if let Some(why) = cluster.problem() {
            return Err(format!("a new cluster is not healthy: {why}"));
        }
        self.fresh.insert(whole.to_string(), cluster.clone());
        Ok(cluster)
    }

    /// Returns the API server's answer to an edit.
    fn api_answer(&self, cluster: &SimulatedCluster, new: &Value) -> ApiServerAnswer {
        let old = serde_json::to_value(&cluster.kube.resource).unwrap();
        let mut new = self.schema.defaulted(new);
        new["status"] = json!(cluster.status());
        self.schema.api_answer(&new, Some(&old))
    }

    /// Returns the operator's answer to an edit.
    fn operator_answer(&self, cluster: &SimulatedCluster, new: &Value) -> OperatorAnswer {
        let whole = self.schema.defaulted(new);
        let resource: EtcdCluster = match serde_json::from_value(whole) {
            Ok(resource) => resource,
            Err(why) => return OperatorAnswer::Unreadable(why.to_string()),
        };
        let mut then = cluster.clone();
        then.edit(resource.clone());
        match then.observe() {
            Ok((observed, _)) => match observed.rejection {
                None => OperatorAnswer::Accepted(Box::new(resource)),
                Some(rejection) => {
                    OperatorAnswer::Rejected(Box::new(resource), rejection.to_string())
                }
            },
            Err(why) => OperatorAnswer::Rejected(Box::new(resource), why),
        }
    }

    /// Applies an edit that the API server and the operator must accept.
    pub(crate) fn edit(&self, cluster: &mut SimulatedCluster, to: &Value) {
        let api_answer = self.api_answer(cluster, to);
        assert!(
            matches!(api_answer, ApiServerAnswer::Stored),
            "{to}: {api_answer:?}"
        );
        let OperatorAnswer::Accepted(resource) = self.operator_answer(cluster, to) else {
            panic!("the operator rejects {to}")
        };
        cluster.edit(*resource);
    }

    /// Runs all edits of a case.
    pub(crate) fn walk(&mut self, case: &LeafCase, ephemeral: bool) -> Problems {
        let mut base = manifest(&case.base);
        if ephemeral {
            base = edited(&base, "spec.storage.ephemeral", Some(&json!(true)));
        }
        let cluster = match self.fresh(&base) {
            Ok(cluster) => cluster,
            Err(why) => return vec![format!("initial spec: {why}")],
        };
        let mut walk = Walk {
            harness: self,
            case,
            ephemeral,
            cluster,
            now: base.clone(),
            wrong: Vec::new(),
        };
        let (set, change) = (
            edited(&base, case.leaf, Some(&case.set)),
            edited(&base, case.leaf, Some(&case.change)),
        );
        match case.kind {
            ChangeKind::OperatorOnly
            | ChangeKind::ObjectsOnly
            | ChangeKind::Restart
            | ChangeKind::Replace
            | ChangeKind::Scale => {
                // A volume cannot shrink.
                if case.leaf != "spec.storage.size" || ephemeral {
                    walk.expect_reverted(&set);
                }
                walk.expect_accepted("set", &set);
                walk.expect_accepted("changed", &change);
                let unset = edited(&base, case.leaf, None);
                if case.rejects(ephemeral).0 {
                    walk.expect_rejected("unset", &unset);
                } else {
                    walk.expect_accepted("unset", &unset);
                }
            }
            // A value that the other storage kind rejects cannot be tested.
            ChangeKind::FixedOnceCreated => walk.expect_fixed(&set),
        }
        for bad in &case.bad {
            walk.expect_rejected(
                &format!("{bad}"),
                &edited(&walk.now.clone(), case.leaf, Some(bad)),
            );
        }
        if case.rejects(ephemeral).1 {
            walk.expect_rejected("restored", &base);
        } else {
            walk.expect_accepted("restored", &base);
        }
        walk.wrong
    }
}

struct Walk<'l> {
    harness: &'l mut Harness,
    case: &'l LeafCase,
    ephemeral: bool,
    cluster: SimulatedCluster,
    /// The last accepted manifest.
    now: Value,
    wrong: Problems,
}

impl Walk<'_> {
    fn report(&mut self, how: &str, what: String) {
        self.wrong.push(format!("{how}: {what}"));
    }

    fn is_the_same(&self, to: &Value) -> bool {
        let whole = |manifest: &Value| self.harness.schema.defaulted(manifest);
        let spec = |manifest: &Value| {
            serde_json::from_value::<EtcdCluster>(whole(manifest))
                .unwrap()
                .spec
        };
        spec(to) == spec(&self.now)
    }

    /// Returns the expected rollout.
    fn rollout(&self, to: &Value) -> Rollout {
        let same = self.is_the_same(to);
        match self.case.kind {
            _ if same => Rollout::Unchanged,
            ChangeKind::Replace => Rollout::Replaced,
            ChangeKind::Restart if self.ephemeral => Rollout::Replaced,
            ChangeKind::Restart => Rollout::Restarted,
            ChangeKind::Scale => Rollout::Scaled,
            ChangeKind::OperatorOnly | ChangeKind::ObjectsOnly | ChangeKind::FixedOnceCreated => {
                Rollout::Unchanged
            }
        }
    }

    /// Applies an edit that must be accepted and rolled out.
    fn expect_accepted(&mut self, how: &str, to: &Value) {
        if let ApiServerAnswer::Malformed(why) | ApiServerAnswer::Rejected(why) =
            self.harness.api_answer(&self.cluster, to)
        {
            return self.report(how, format!("the schema rejects the value: {why:?}"));
        }
        match self.harness.operator_answer(&self.cluster, to) {
            OperatorAnswer::Unreadable(why) => self.report(
                how,
                format!("stored, but the operator cannot parse the value: {why}"),
            ),
            OperatorAnswer::Rejected(_, why) => self.report(
                how,
                format!("stored, but the operator rejects the value: {why}"),
            ),
            OperatorAnswer::Accepted(resource) => {
                let (expected, before) = (self.rollout(to), self.cluster.built_state());
                let kind = if self.ephemeral {
                    self.case.kind_when_ephemeral()
                } else {
                    self.case.kind
                };
                let has_effect = !self.is_the_same(to) && kind != ChangeKind::OperatorOnly;
                let problems_before = self.wrong.len();
                self.cluster.edit(*resource);
                self.now = to.clone();
                match self.cluster.converge() {
                    Ok(result) => self.check_result(how, expected, &result),
                    Err(why) => return self.report(how, why),
                }
                match self.harness.fresh(to) {
                    Ok(fresh) => self.expect_same_state(how, "a new cluster", &fresh.state()),
                    Err(why) => self.report(how, why),
                }
                // Otherwise a leaf without any effect would pass.
                if self.wrong.len() == problems_before
                    && has_effect != (self.cluster.built_state() != before)
                {
                    self.report(
                        how,
                        format!(
                            "the edit has {} effect",
                            if has_effect { "no" } else { "an unexpected" }
                        ),
                    );
                }
            }
        }
    }

    /// Reverts an edit in the middle of its rollout.
    fn expect_reverted(&mut self, to: &Value) {
        let how = "set and reverted half-way";
        let OperatorAnswer::Accepted(there) = self.harness.operator_answer(&self.cluster, to)
        else {
            return;
        };
        let (mut whole, mut half) = (self.cluster.clone(), self.cluster.clone());
        whole.edit((*there).clone());
        let events = whole.converge().map_or(0, |result| result.events);
        half.edit(*there);
        if let Err(why) = half.run(events / 2) {
            return self.report(how, why);
        }
        half.kube.resource.status = Some(half.status());
        if let ApiServerAnswer::Malformed(why) | ApiServerAnswer::Rejected(why) =
            self.harness.api_answer(&half, &self.now)
        {
            return self.report(how, format!("the schema rejects the value: {why:?}"));
        }
        let OperatorAnswer::Accepted(back) = self.harness.operator_answer(&half, &self.now) else {
            return self.report(how, "the operator rejects the reverted spec".to_owned());
        };
        half.edit(*back);
        let before = self.cluster.state();
        match half.converge() {
            Ok(result) if result.unavailable > 1 => self.report(
                how,
                format!("{} members were unavailable at once", result.unavailable),
            ),
            Ok(_) => {}
            Err(why) => return self.report(how, why),
        }
        if let Some(why) = half.problem() {
            self.report(how, format!("converged, but {why}"));
        }
        let mut other = Walk {
            harness: &mut *self.harness,
            case: self.case,
            ephemeral: self.ephemeral,
            cluster: half,
            now: self.now.clone(),
            wrong: Vec::new(),
        };
        other.expect_same_state(how, "before the edit", &before);
        self.wrong.extend(other.wrong);
    }

    fn check_result(&mut self, how: &str, expected: Rollout, result: &EditResult) {
        if result.rollout() != expected {
            self.report(how, format!("expected {expected:?}, got {result}"));
        }
        let most = if result.rollout() == Rollout::Unchanged {
            0
        } else {
            1
        };
        if result.unavailable > most {
            self.report(
                how,
                format!("{} members were unavailable at once", result.unavailable),
            );
        }
        if let Some(why) = self.cluster.problem() {
            self.report(how, format!("converged, but {why}"));
        }
        match self.cluster.clone().converge() {
            Ok(again) if again.writes == 0 => {}
            Ok(again) => self.report(how, format!("writes after convergence: {again}")),
            Err(why) => self.report(how, why),
        }
    }

    fn expect_same_state(&mut self, how: &str, what: &str, other: &str) {
        let own = self.cluster.state();
        if own == other {
            return;
        }
        let differ: Vec<_> = own
            .lines()
            .filter(|line| !other.lines().any(|other| other == *line))
            .collect();
        let lacks: Vec<_> = other
            .lines()
            .filter(|line| !own.lines().any(|own| own == *line))
            .collect();
        self.report(
            how,
            format!("the state differs from {what}: only here {differ:?}, only there {lacks:?}"),
        );
    }

    /// Applies an edit that must be rejected with a reason and change nothing.
    fn expect_rejected(&mut self, how: &str, to: &Value) {
        let (api_answer, operator_answer) = (
            self.harness.api_answer(&self.cluster, to),
            self.harness.operator_answer(&self.cluster, to),
        );
        if let ApiServerAnswer::Malformed(why) | ApiServerAnswer::Rejected(why) = &api_answer
            && (why.is_empty() || why.iter().any(String::is_empty))
        {
            self.report(how, "rejected without a reason".to_owned());
        }
        match (api_answer, operator_answer) {
            // Only the API server checks the structure.
            (ApiServerAnswer::Malformed(_), _) => {}
            (_, OperatorAnswer::Unreadable(why)) => {
                self.report(
                    how,
                    format!("structurally valid, but the operator cannot parse the value: {why}"),
                );
            }
            (ApiServerAnswer::Stored, OperatorAnswer::Accepted(_)) => self.report(
                how,
                "neither the schema nor the operator rejects the value".to_owned(),
            ),
            (ApiServerAnswer::Rejected(why), OperatorAnswer::Accepted(resource)) => {
                let mut then = self.cluster.clone();
                then.edit(*resource);
                let result = then
                    .converge()
                    .map_or_else(|why| why, |result| result.to_string());
                self.report(
                    how,
                    format!(
                        "the schema rejects the value ({why:?}), the operator does not; result: {result}"
                    ),
                );
            }
            (api_answer, OperatorAnswer::Rejected(resource, why)) => {
                let former = self.cluster.clone();
                self.expect_ignored(how, *resource, &why);
                // Otherwise the edit would not have been stored.
                if !matches!(api_answer, ApiServerAnswer::Stored) {
                    self.cluster = former;
                }
            }
        }
    }

    /// Applies an edit that only an older schema would store and that the operator must reject.
    fn expect_ignored(&mut self, how: &str, resource: EtcdCluster, why: &str) {
        let (before, accepted) = (self.cluster.state(), self.cluster.kube.resource.clone());
        self.cluster.edit(resource);
        match self.cluster.converge() {
            Ok(result) => self.check_result(how, Rollout::Unchanged, &result),
            Err(why) => {
                return self.report(
                    how,
                    format!("no spec is in force, so failures are not repaired: {why}"),
                );
            }
        }
        self.expect_same_state(how, "before the edit", &before);
        let status = json!(self.cluster.status()).to_string();
        let (field, why) = why.split_once(": ").unwrap_or_default();
        let quoted_reason = json!(why).to_string();
        if why.is_empty()
            || !status.contains(field)
            || !status.contains(quoted_reason.trim_matches('"'))
        {
            self.report(
                how,
                format!("the status does not report that {field} is rejected, {why:?}: {status}"),
            );
        }
        // Reverting it must change nothing either.
        let mut then = self.cluster.clone();
        then.edit(accepted);
        match then.converge() {
            Ok(result) if result.rollout() == Rollout::Unchanged && then.state() == before => {}
            Ok(result) => self.report(how, format!("reverted: {result}")),
            Err(why) => self.report(how, format!("reverted: {why}")),
        }
    }

    /// Checks a leaf that can be chosen at creation only.
    fn expect_fixed(&mut self, to: &Value) {
        if self.harness.schema.defaulted(to) == self.harness.schema.defaulted(&self.now) {
            return self.expect_rejected(
                "changed",
                &edited(&self.now.clone(), self.case.leaf, Some(&self.case.change)),
            );
        }
        self.expect_rejected("set", to);
        let Ok(chosen) = self.harness.fresh(to) else {
            // Ephemeral members have no such choice.
            if !self.ephemeral {
                self.report(
                    "set",
                    "no cluster can be created with this value".to_owned(),
                );
            }
            return;
        };
        let base = self.now.clone();
        let mut other = Walk {
            harness: &mut *self.harness,
            case: self.case,
            ephemeral: self.ephemeral,
            cluster: chosen,
            now: to.clone(),
            wrong: Vec::new(),
        };
        other.expect_rejected(
            "changed",
            &edited(to, self.case.leaf, Some(&self.case.change)),
        );
        other.expect_rejected("unset", &base);
        self.wrong.extend(
            other
                .wrong
                .into_iter()
                .map(|wrong| format!("chosen at creation, {wrong}")),
        );
    }
}
