//! The stories of this topic that harm nodes.

use super::*;

#[test]
fn commands_inject_faults_into_nodes_and_the_api_server() {
    let story = Story::alone("typed-node");
    let added = lab(&story, &["node", "add"]).trim().to_owned();
    assert!(nodes(&story).contains(&added), "{added} does not exist");
    let kubelet = format!(
        "{}:10250",
        story.field(&["node", &added], ".status.addresses[0].address")
    );
    assert!(accepts_connections(&kubelet));

    lab(&story, &["node", "cut", &added]);
    assert!(
        !accepts_connections(&kubelet),
        "the kubelet is reachable although its node is cut off"
    );
    lab(&story, &["node", "mend", &added]);
    story.eventually("the kubelet is reachable again", || {
        accepts_connections(&kubelet)
    });
    lab(&story, &["node", "freeze", &added]);
    story.eventually("the node is not Ready", || ready(&story, &added) != "True");
    lab(&story, &["node", "thaw", &added]);
    story.eventually("the node is Ready again", || {
        ready(&story, &added) == "True"
    });

    lab(&story, &["api", "stop"]);
    assert!(
        story
            .try_kubectl(&["get", "nodes", "--request-timeout=5s"])
            .is_err(),
        "the API server answers"
    );
    lab(&story, &["api", "start"]);
    lab(&story, &["node", "delete", &added]);
    assert!(!nodes(&story).contains(&added), "{added} still exists");
}
