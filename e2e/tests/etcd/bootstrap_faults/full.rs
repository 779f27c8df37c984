//! The stories of this topic for `make test-all`.

mod unscheduled;

use super::*;

#[test]
fn a_bootstrap_with_edited_members_ends_with_exactly_that_number() {
    let story = Story::begin("edited");
    let operator = Operator::start(&story);
    // At that point each has two members, the second usually a learner, and a third is about to be added.
    let held_writes = HeldWrites::before(operator.proxy(), |write| {
        let all = ["fewer", "more", "less"].into_iter();
        all.filter(|name| records_intent(write, name, "Add", 2))
            .map(str::to_owned)
            .next()
    });
    let edits = [("fewer", 3, 1), ("more", 3, 5), ("less", 5, 3)];
    let clusters = edits.map(|(name, members, _)| Cluster::apply(&story, name, &spec(members)));
    for _ in &edits {
        let (name, held) = held_writes.next();
        let (_, _, members) = edits.into_iter().find(|edit| edit.0 == name).unwrap();
        Cluster::named(&story, &name).patch(&json!({"members": members}));
        // The write that was decided before the edit is applied after it.
        held_writes.release(&name);
        held.resume();
    }
    for (cluster, (_, _, members)) in clusters.iter().zip(edits) {
        wait_converged(&story, cluster, members);
        assert_eq!(
            identity(&story, cluster.name())["epoch"],
            1,
            "the bootstrap began again"
        );
    }
    wait_idle(&operator);
    run_clients(&clusters);
}

#[test]
fn a_recorded_intent_does_not_cause_more_claims_than_members() {
    let story = Story::begin("noted");
    let operator = Operator::start(&story);
    // The intent is recorded, but the operator gets an error: it observes again and finds the open intent.
    operator.proxy().once(Verdict::FailAfter(500), |write| {
        records_intent(write, "a", "Add", 1)
    });
    let cluster = Cluster::apply(&story, "a", &spec(3));
    wait_converged(&story, &cluster, 3);
    let object_counts = object_counts(&operator.proxy().writes());
    let claims: Vec<_> = object_counts
        .iter()
        .filter(|(object, _)| object.starts_with("persistentvolumeclaims/"))
        .collect();
    // A learner that did not start in time is removed, and another one is prepared instead.
    let removals = |it: &&RecordedWrite| {
        intent_written(&it.write, "a").is_some_and(|intent| intent.kind == "Remove")
    };
    let removed = operator
        .proxy()
        .writes()
        .iter()
        .filter(removals)
        .filter(|it| it.is_applied())
        .count();
    assert!(
        claims.len() <= 3 + removed,
        "more PVCs were created than members are desired: {claims:?}"
    );
}

#[test]
fn a_bootstrap_whose_seed_loses_its_claim_begins_a_new_epoch() {
    let story = Story::begin("seed-lost");
    let operator = Operator::start(&story);
    // One cluster before a second member is added, the other with a learner that has joined.
    let held_writes = HeldWrites::before(operator.proxy(), |write| {
        let at = [("early", 1), ("late", 2)]
            .into_iter()
            .find(|(name, nth)| records_intent(write, name, "Add", *nth))?;
        Some(at.0.to_owned())
    });
    let clusters = ["early", "late"].map(|name| Cluster::apply(&story, name, &spec(3)));
    let mut before = BTreeSet::new();
    for _ in &clusters {
        let (name, held) = held_writes.next();
        before.extend(names(&story, &name, "pods"));
        let seed = pod_name(&story, &name, 0);
        // A pod and its PVC have the same name.
        story.kubectl(&["delete", &format!("pod/{seed}"), &format!("pvc/{seed}")]);
        held_writes.release(&name);
        if name == "early" {
            // The write is never applied.
            drop(held);
        } else {
            // The write is applied, and the call that it announces finds no member.
            held.resume();
        }
    }
    for cluster in &clusters {
        assert_new_epoch(&story, cluster, 3, &before);
    }
    wait_idle(&operator);
    run_clients(&clusters);
}
