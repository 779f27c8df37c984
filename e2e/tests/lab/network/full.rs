//! The stories of this topic for `make test-all`.

use super::*;

#[test]
fn names_of_services_and_pods_resolve_and_others_are_rejected_at_once() {
    let story = Story::begin("network-names");
    story.apply(&web(1));
    let headless = "hostname: first\nsubdomain: crew";
    story.apply(&pods::server("member", headless));
    story.apply(
        "apiVersion: v1
kind: Service
metadata: {name: crew}
spec: {clusterIP: None, selector: {app: member}, ports: [{port: 8080}]}
",
    );
    pods::wait_for(&story, &["member"]);
    let domain = format!("{}.svc.cluster.local", story.namespace());
    let service = story.field(&["service", "web"], ".spec.clusterIP");
    let member = story.field(&["pod", "member"], ".status.podIP");
    for (name, address) in [
        (format!("web.{domain}"), &service),
        (format!("crew.{domain}"), &member),
        (format!("first.crew.{domain}"), &member),
    ] {
        story.eventually(&format!("{name} resolves to {address}"), || {
            let output = story.shell("member", &format!("nslookup {name}"));
            output.is_ok_and(|output| {
                output.contains(&format!("Name:\t{name}\nAddress: {address}\n"))
            })
        });
    }
    // As programs resolve: with the search list, through the C library.
    story.eventually("a program finds the pod by its short name", || {
        let found = story.shell("member", "timeout 3 wget -qO- http://first.crew:8080/");
        found.is_ok_and(|found| found.trim() == "first")
    });
    for outside in ["example.com", "no-such-service.default.svc.cluster.local"] {
        story.eventually(&format!("{outside} is rejected at once"), || {
            let output = story.shell(
                "member",
                &format!("timeout 4 nslookup {outside}; echo ended $?"),
            );
            output.is_ok_and(|output| output.contains("NXDOMAIN") && output.ends_with("ended 1\n"))
        });
    }
}
