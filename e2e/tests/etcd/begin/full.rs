//! The stories of this topic that `make test-all` runs.

mod unplaced;

use super::*;

#[test]
fn members_edited_in_the_middle_end_as_exactly_so_many_with_nothing_left_over() {
    let story = Story::begin("edited");
    let operator = Operator::start(&story);
    // Each has two members by then, the second as a rule without a vote, and a third that is about to be added.
    let stops = Stops::before(operator.proxy(), |write| {
        let all = ["fewer", "more", "less"].into_iter();
        all.filter(|name| notes(write, name, "Add", 2))
            .map(str::to_owned)
            .next()
    });
    let edits = [("fewer", 3, 1), ("more", 3, 5), ("less", 5, 3)];
    let clusters = edits.map(|(name, members, _)| Cluster::apply(&story, name, &spec(members)));
    for _ in &edits {
        let (name, stopped) = stops.next();
        let (_, _, members) = edits.into_iter().find(|edit| edit.0 == name).unwrap();
        Cluster::named(&story, &name).patch(&json!({"members": members}));
        // What was decided before the edit lands after it.
        stops.let_go(&name);
        stopped.go_on();
    }
    for (cluster, (_, _, members)) in clusters.iter().zip(edits) {
        ends_well(&story, cluster, members);
        assert_eq!(
            identity(&story, cluster.name())["epoch"],
            1,
            "nothing was lost, nothing begins again"
        );
    }
    comes_to_rest(&operator);
    serve_clients(&clusters);
}

#[test]
fn an_intent_that_is_noted_and_not_yet_done_has_nobody_prepared_beyond_those_who_are_wanted() {
    let story = Story::begin("noted");
    let operator = Operator::start(&story);
    // Noted, and the operator does not know: it looks again, and finds the intent open.
    operator
        .proxy()
        .once(Verdict::FailAfter(500), |write| notes(write, "a", "Add", 1));
    let cluster = Cluster::apply(&story, "a", &spec(3));
    ends_well(&story, &cluster, 3);
    let lives = lives(&operator.proxy().writes());
    let claims: Vec<_> = lives
        .iter()
        .filter(|(object, _)| object.starts_with("persistentvolumeclaims/"))
        .collect();
    // A learner that did not start in time is removed, and another one prepared in its stead.
    let removals =
        |it: &&Written| intent_in(&it.write, "a").is_some_and(|intent| intent.kind == "Remove");
    let removed = operator
        .proxy()
        .writes()
        .iter()
        .filter(removals)
        .filter(|it| it.is_applied())
        .count();
    assert!(
        claims.len() <= 3 + removed,
        "more were prepared than are wanted: {claims:?}"
    );
}

#[test]
fn a_seed_whose_claim_is_lost_in_the_middle_makes_way_for_a_new_epoch_and_nothing_of_the_old_is_left()
 {
    let story = Story::begin("seed-lost");
    let operator = Operator::start(&story);
    // One before anybody else is a member, the other with a learner that has joined.
    let stops = Stops::before(operator.proxy(), |write| {
        let at = [("early", 1), ("late", 2)]
            .into_iter()
            .find(|(name, nth)| notes(write, name, "Add", *nth))?;
        Some(at.0.to_owned())
    });
    let clusters = ["early", "late"].map(|name| Cluster::apply(&story, name, &spec(3)));
    let mut before = BTreeSet::new();
    for _ in &clusters {
        let (name, stopped) = stops.next();
        before.extend(names(&story, &name, "pods"));
        let seed = pod_of(&story, &name, 0);
        // Pods and claims are called alike.
        story.kubectl(&["delete", &format!("pod/{seed}"), &format!("pvc/{seed}")]);
        stops.let_go(&name);
        if name == "early" {
            // It never lands.
            drop(stopped);
        } else {
            // It lands, and the call that it announces finds nobody.
            stopped.go_on();
        }
    }
    for cluster in &clusters {
        has_begun_again(&story, cluster, 3, &before);
    }
    comes_to_rest(&operator);
    serve_clients(&clusters);
}
