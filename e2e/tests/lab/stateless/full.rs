//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn a_web_server_is_scaled_and_a_deleted_pod_is_replaced() {
    let story = Story::begin("stateless");
    story.apply(&web(1));
    story.eventually("one replica is ready", || ready_pods(&story).len() == 1);
    story.kubectl(&["scale", "deployment/web", "--replicas=3"]);
    story.eventually("three replicas are ready", || ready_pods(&story).len() == 3);

    let before = ready_pods(&story);
    let victim = before.first().unwrap();
    story.kubectl(&["delete", "pod", victim]);
    story.eventually("a new pod has replaced the deleted one", || {
        let now = ready_pods(&story);
        now.len() == 3 && !now.contains(victim)
    });

    let all = ready_pods(&story);
    let asker = all.first().unwrap();
    let name = format!("http://web.{}.svc.cluster.local/", story.namespace());
    let mut answered = BTreeSet::new();
    story.eventually(
        "every replica has answered through the service's name",
        || {
            let answer = story.shell(
                asker,
                &format!("for i in 1 2 3 4 5 6; do wget -qO- {name}; done"),
            );
            answered.extend(answer.unwrap_or_default().lines().map(str::to_owned));
            all.is_subset(&answered)
        },
    );
}

#[test]
fn service_and_pod_addresses_are_reachable_from_the_machine() {
    let story = Story::begin("from-host");
    story.apply(&web(2));
    story.eventually("two replicas are ready", || ready_pods(&story).len() == 2);
    let service = story.field(&["service", "web"], ".spec.clusterIP");
    let mut answered = BTreeSet::new();
    story.eventually("both replicas have answered at the cluster address", || {
        answered.extend(http_get(&format!("{service}:80"), "/"));
        answered.len() == 2
    });
    for pod in ready_pods(&story) {
        let address = story.field(&["pod", &pod], ".status.podIP");
        story.eventually(&format!("{pod} answers at its own address"), || {
            http_get(&format!("{address}:8080"), "/").as_ref() == Some(&pod)
        });
    }
}
