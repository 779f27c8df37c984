//! The stories of this topic that `make test-all` runs.

use super::*;

#[test]
fn a_member_whose_data_went_with_its_pod_is_replaced_under_a_new_name() {
    let story = Story::begin("missing-lost");
    let _operator = Operator::start(&story);
    let cluster = of_three(&story, "{ephemeral: true}");
    let mut names: BTreeSet<String> = ids(&cluster).into_keys().collect();
    let clients = cluster.workload();
    for blow in Blow::ALL {
        let victim = blow.victim(&story, &cluster);
        let before = ids(&cluster);
        let since = clients.now();
        blow.strike(&story, &cluster, &victim);
        until_whole(&story, &cluster, 3);
        is_replaced(&cluster, &before, &victim, &mut names);
        clients_went_on(&format!("without volumes, {blow:?}"), &clients, since);
    }
    clients.finish();
    cluster.holds_the_same_everywhere();
}
