//! The stories of this topic that hurt nodes or the control plane: each runs alone.

use super::*;

/// Whose node is lost as the first member is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loses {
    /// The one whose turn it is.
    WhoGoes,
    /// One that was to come later.
    WhoWaits,
}

/// A roll of three in which a node is lost. Its member is replaced when it was waited for long enough, and the roll goes on.
fn loses_a_node(story: &Story, loses: Loses) {
    let operator = Operator::start(story);
    let cluster = formed(
        story,
        &format!("{}\nheal: {{replaceAfter: 30s}}", spec("3.6.16", 3)),
        3,
    );
    let (workload, before) = (cluster.workload(), ids(&cluster));
    let leads = leader(story, &cluster).name;
    let since = workload.now();
    let stops = Stops::before(operator.proxy(), whose_turn);
    cluster.patch(&memory("96Mi"));
    let (turn, stopped) = stops.next();
    let is_lost = |pod: &MemberPod| match loses {
        Loses::WhoGoes => pod.name == turn,
        Loses::WhoWaits => pod.name != turn && pod.name != leads,
    };
    let lost = cluster
        .pods()
        .into_iter()
        .find(is_lost)
        .expect("of three, one goes and one leads");

    let healed = Healed(story);
    story.lab().cut(&lost.node).unwrap();
    operator.proxy().pass();
    stopped.go_on();
    until_lost(story, &lost.node);
    until_right("three that can be reached have what is wanted", || {
        let listed = members(&cluster.try_etcdctl(&["member", "list", "--write-out=json"])?);
        let asked = asked(story);
        let all = listed.iter().all(|one| {
            let has = asked.get(&one.name).is_some_and(|amount| amount == "96Mi");
            has && !one.learner && one.name != lost.name
        });
        if listed.len() == 3 && all {
            Ok(())
        } else {
            Err(format!("{listed:?}: {asked:?}"))
        }
    });
    println!(
        "{}",
        told(
            &format!("a node lost in a roll: {loses:?}"),
            &workload.stats(since)
        )
    );
    drop(healed);
    ends_well(story, &cluster, 3);
    let after = ids(&cluster);
    let stayed: BTreeSet<_> = before
        .iter()
        .filter(|(name, id)| after.get(*name) == Some(*id))
        .collect();
    assert_eq!(
        stayed.len(),
        2,
        "only {} was replaced: {before:?} became {after:?}",
        lost.name
    );
    assert_eq!(how_many_ask(story, "96Mi"), 3);
    comes_to_rest(&operator);
    workload.finish();
    cluster.holds_the_same_everywhere();
}

#[test]
fn a_member_whose_node_is_lost_as_it_is_restarted_is_replaced_and_the_roll_goes_on() {
    loses_a_node(&Story::alone("roll-lost"), Loses::WhoGoes);
}

#[test]
fn a_member_whose_node_is_lost_while_another_is_restarted_is_replaced_and_the_roll_goes_on() {
    loses_a_node(&Story::alone("roll-lost-next"), Loses::WhoWaits);
}
