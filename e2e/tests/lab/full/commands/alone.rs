//! The stories of this topic that hurt nodes or the control plane: each runs alone.

use super::*;

#[test]
fn what_is_done_to_nodes_and_the_api_server_can_be_typed() {
    let story = Story::alone("typed-node");
    let added = lab(&story, &["node", "add"]).trim().to_owned();
    assert!(nodes(&story).contains(&added), "{added} is not there");
    let kubelet = format!(
        "{}:10250",
        story.field(&["node", &added], ".status.addresses[0].address")
    );
    assert!(accepts(&kubelet));

    lab(&story, &["node", "cut", &added]);
    assert!(
        !accepts(&kubelet),
        "its kubelet is reached although its cable is pulled"
    );
    lab(&story, &["node", "mend", &added]);
    story.eventually("its kubelet is reached again", || accepts(&kubelet));
    lab(&story, &["node", "freeze", &added]);
    story.eventually("it is taken for lost", || ready(&story, &added) != "True");
    lab(&story, &["node", "thaw", &added]);
    story.eventually("it is Ready again", || ready(&story, &added) == "True");

    lab(&story, &["api", "stop"]);
    assert!(
        story
            .try_kubectl(&["get", "nodes", "--request-timeout=5s"])
            .is_err(),
        "the API server answers"
    );
    lab(&story, &["api", "start"]);
    lab(&story, &["node", "delete", &added]);
    assert!(!nodes(&story).contains(&added), "{added} is still there");
}
