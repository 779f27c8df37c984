//! Tests of the layout of the status screen: what is shown where, and how it fits into 80 columns.

use serde_json::json;

use super::tests::assert_has;
use crate::args::ColorMode;
use crate::error::EXIT_DEGRADED;
use crate::scene::{Scene, names};
use crate::terminal::Terminal;

#[test]
fn a_healthy_cluster_fits_on_one_screen() {
    let mut scene = Scene::healthy();
    scene.event(
        "2026-11-16T11:58:10Z",
        true,
        "MemberDown",
        "Member orders-69mbp is not healthy: its pod is Terminating.",
    );
    scene.event(
        "2026-11-16T11:58:12Z",
        false,
        "MemberRecovered",
        "Member orders-69mbp is healthy again after 2s",
    );
    let screen = scene.screen();
    assert!(screen.lines().count() <= 24, "{screen}");
    assert!(
        screen.starts_with(
            "Cluster      shop/orders                etcd 3.6.16 (cluster ID 26937bbebc2c7cf)\n\
             Health       OK       reads and writes are served; checked now\n\
             Tolerates    1 member failure, 1 node failure (3 members on 3 nodes)\n\
             Operation    none     spec generation 4 is applied\n\
             Operator     running  namespace evenkeel-system, renewed its Lease 2s ago\n\n\
             MEMBER        ROLE      HEALTH  POD      AGE  RESTARTS  LAG  DB SIZE  NODE\n\
             orders-gv2z5  follower  ok      Running  27m  0         0    232 KiB  node-1\n\
             orders-qhgqk  leader    ok      Running  27m  0         0    232 KiB  node-2\n"
        ),
        "{screen}"
    );
    assert_has(
        &screen,
        &[
            "Storage 232 KiB of 3 GiB quota (0 %); volumes 3 × 4Gi lab-disk",
            "Certificates valid; next renewal of orders-etcd-peer-tls in 243d; CAs until 2036-11-14",
            "Disruptions 1 eviction allowed now; maintenance: any time",
            "Backup none no backups are taken; see kubectl evenkeel backup --help",
            "Connect https://orders-etcd-client.shop.svc:2379, Secret orders-etcd-client-tls",
        ],
    );
    assert!(
        screen.contains("Last events  11:58:10Z Warning MemberDown: Member orders-69mbp"),
        "{screen}"
    );
    assert!(
        screen.contains("             11:58:12Z MemberRecovered: Member orders-69mbp is"),
        "{screen}"
    );
}

#[test]
fn a_node_whose_loss_loses_the_quorum_is_named() {
    let mut scene = Scene::healthy();
    scene.pod(names()[1], "node-1");
    assert_has(
        &scene.screen(),
        &[
            "Tolerates 1 member failure, 0 node failures (3 members on 2 nodes). Losing node node-1 loses the quorum: 2 \
             members share it",
        ],
    );
    scene.pod(names()[2], "node-1");
    assert_has(
        &scene.screen(),
        &["(3 members on 1 node). Losing node node-1 loses the quorum: 3 members share it"],
    );
}

#[test]
fn retained_volumes_are_shown_with_their_deletion() {
    let mut scene = Scene::healthy();
    scene.status(
        "retainedVolumes",
        json!([{ "claim": "orders-x2k4q", "size": "4Gi", "deleteTime": "2026-11-18T14:38:00Z" }]),
    );
    assert_has(
        &scene.screen(),
        &[
            "volumes 3 × 4Gi lab-disk; 1 retained volume (orders-x2k4q), deleted from 2026-11-18T14:38Z",
        ],
    );
    scene.status(
        "retainedVolumes",
        json!([{ "claim": "orders-x2k4q", "size": "4Gi" }]),
    );
    assert_has(
        &scene.screen(),
        &["1 retained volume (orders-x2k4q), kept until you delete it"],
    );
}

#[test]
fn a_scheduler_message_is_shortened_and_a_wait_does_not_repeat_it() {
    let mut scene = Scene::healthy();
    scene.resource["spec"]["members"] = json!(5);
    let problem = "0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints. preemption: 0/3 nodes are \
        available: 3 No preemption victims found for incoming pod.";
    scene.problem(
        "Unschedulable",
        "orders-new12",
        &format!("Member orders-new12 cannot start: no node can run its pod: {problem}"),
        "Add or uncordon a node, free resources on one, or change spec.resources or spec.scheduling.",
    );
    scene.status(
        "waitingFor",
        json!([format!("member orders-new12 to join: {problem}")]),
    );
    let report = scene.report();
    assert_eq!(report.exit_code, EXIT_DEGRADED);
    let screen = super::text(&report, false, Terminal::new(ColorMode::Never));
    assert_has(
        &screen,
        &[
            "spread constraints. Since 11:59:08Z (52s).",
            "Operation waiting for member orders-new12 to join",
        ],
    );
    assert_eq!(screen.matches("nodes are").count(), 1, "{screen}");
}

#[test]
fn an_edit_that_the_operator_has_not_seen_is_pending() {
    let mut scene = Scene::healthy();
    scene.resource["metadata"]["generation"] = json!(5);
    assert_has(
        &scene.screen(),
        &["Operation pending the operator has not reconciled generation 5 of the spec yet"],
    );
    scene.resource["metadata"]["generation"] = json!(4);
    scene.status(
        "waitingFor",
        json!(["a valid spec.version: 3.5.35 is lower than 3.6.16"]),
    );
    scene.problem("InvalidSpec", "", "spec.version is invalid: 3.5.35 is lower than 3.6.16. The last accepted value stays in effect.", "Correct spec.version.");
    assert_has(
        &scene.screen(),
        &[
            "Operation waiting for a valid spec.version",
            "You can Correct spec.version.",
        ],
    );
}

#[test]
fn maintenance_windows_and_evictions_are_shown() {
    let mut scene = Scene::healthy();
    scene.resource["spec"]["maintenance"] =
        json!({ "windows": [{ "start": "02:00", "duration": "3h" }] });
    scene.live.disruptions_allowed = Ok(Some(0));
    assert_has(
        &scene.screen(),
        &["Disruptions no eviction allowed now; maintenance: next window at 2026-11-17T02:00Z"],
    );
    scene.resource["spec"]["maintenance"] =
        json!({ "windows": [{ "start": "11:00", "duration": "3h" }] });
    scene.live.disruptions_allowed = Err(Scene::forbidden("get on poddisruptionbudgets"));
    assert_has(
        &scene.screen(),
        &[
            "evictions unknown (needs get on poddisruptionbudgets in namespace shop); maintenance: window open until 14:00:00Z",
        ],
    );
}

#[test]
fn the_wide_table_has_all_columns_and_the_narrow_one_the_interesting_ones() {
    let mut scene = Scene::healthy();
    let wide = super::text(&scene.report(), true, Terminal::new(ColorMode::Never));
    for column in [
        "VERSION",
        "ZONE",
        "POD IP",
        "ID",
        "RAFT INDEX",
        "IMAGE",
        "mirror.example/etcd:v3.6.16",
        "10.0.0.7",
    ] {
        assert!(wide.contains(column), "{column}:\n{wide}");
    }
    assert!(
        wide.contains("evenkeel-operator-689f4c5d7b-ds4t9-5c8e2209"),
        "{wide}"
    );
    for (name, node) in names()
        .into_iter()
        .zip(["ip-10-0-1-23", "ip-10-0-1-24", "ip-10-0-1-25"])
    {
        scene.pod(name, &format!("{node}.eu-west-1.compute.internal"));
        scene.edit_pod(name, |pod| {
            let status = pod.status.as_mut().unwrap();
            status.container_statuses.as_mut().unwrap()[0].restart_count = 2;
        });
    }
    let screen = scene.screen();
    assert_has(&screen, &["POD AGE RESTARTS", "ip-10-0-1-23"]);
    assert!(!screen.contains("compute.internal"), "{screen}");
}

#[test]
fn long_member_names_are_abbreviated() {
    let mut scene = Scene::healthy();
    let cluster = "o".repeat(40);
    scene.resource["metadata"]["name"] = json!(cluster);
    let long = format!("{cluster}-k7f2x");
    scene.resource["status"]["memberList"][0]["name"] = json!(long);
    let mut report = scene.report();
    report.problems.clear();
    let screen = super::text(&report, false, Terminal::new(ColorMode::Never));
    assert!(screen.contains("\n…-k7f2x  "), "{screen}");
}

#[test]
fn zones_count_if_every_member_has_one() {
    let mut scene = Scene::healthy();
    for (index, zone) in ["zone-a", "zone-a", "zone-b"].into_iter().enumerate() {
        scene.resource["status"]["memberList"][index]["zone"] = json!(zone);
    }
    assert_has(
        &scene.screen(),
        &[
            "Tolerates 1 member failure, 1 node failure, 0 zone failures (3 members on 3 nodes, 2 zones). Losing zone zone-a \
             loses the quorum: 2 members share it",
        ],
    );
}

#[test]
fn the_report_says_its_version_and_where_its_facts_come_from() {
    let mut scene = Scene::healthy();
    scene.no_answer(names()[2]);
    let report = serde_json::to_value(scene.report()).unwrap();
    assert_eq!(report["apiVersion"], "plugin.evenkeel.dev/v1alpha1");
    assert_eq!(report["kind"], "ClusterReport");
    assert_eq!(report["health"]["state"], "Degraded");
    assert_eq!(report["health"]["writes"], true);
    assert_eq!(report["members"][2]["health"], "NoAnswer");
    assert_eq!(report["problems"][0]["source"], "Live");
    assert_eq!(report["failureTolerance"]["members"], 0);
    assert_eq!(report["operatorStatus"]["ageSeconds"], 9);
}
