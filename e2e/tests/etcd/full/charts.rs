//! The Helm charts and the manifests that are made from them, with the real Helm.

use std::path::{Path, PathBuf};

use evenkeel_e2e::etcd::Cluster;
use evenkeel_e2e::operator::{built, install, load_image};
use evenkeel_e2e::{Story, checkout};
use evenkeel_lab::command::Cmd;
use evenkeel_lab::parts::helm;

use crate::look::{LONG, until_whole};
use crate::plugin::evenkeel;
use crate::upgrade::uids;

pub(crate) const IMAGE: &str = "evenkeel-operator:0.1.0";

pub(crate) fn chart(name: &str) -> PathBuf {
    checkout().join("deploy/helm").join(name)
}

/// Helm, in the story's namespace.
pub(crate) fn helm(story: &Story, args: &[&str]) -> Result<String, String> {
    let program = helm::get().unwrap();
    let home = tempfile::tempdir().unwrap();
    let mut command = Cmd::new(program).env("KUBECONFIG", story.lab().kubeconfig());
    for place in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command = command.env(place, home.path());
    }
    let command = command.args(["--namespace", story.namespace()]).args(args);
    command.run().map_err(|error| format!("{error:#}"))
}

pub(crate) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[test]
fn installed_from_the_chart_it_runs_clusters_and_leaves_them_in_peace_when_it_is_upgraded_or_uninstalled()
 {
    let story = Story::begin("chart");
    load_image(&story, IMAGE, &built());
    install(&story);
    // Other stories have the same definitions and roles: they are taken over as they are.
    let only = format!("namespaces={{{}}}", story.namespace());
    let (operator, cluster) = (shown(&chart("evenkeel")), shown(&chart("etcd-cluster")));
    let deploy = |extra: &[&str]| {
        let args = [
            "upgrade",
            "--install",
            story.namespace(),
            &operator,
            "--set",
            &only,
            "--set",
            "userRoles=false",
        ];
        let wait = ["--take-ownership", "--wait", "--timeout=3m"];
        helm(&story, &[&args[..], &wait[..], extra].concat()).unwrap()
    };
    let said = deploy(&[]);
    assert!(said.contains("looks after the namespaces"), "{said}");
    let make = |members: &str| {
        let members = format!("spec.members={members}");
        let args = [
            "upgrade",
            "--install",
            "orders",
            &cluster,
            "--set",
            &members,
            "--set",
            "spec.storage.size=1Gi",
        ];
        helm(&story, &args).unwrap()
    };
    assert!(make("1").contains("orders-etcd-client"));
    let orders = Cluster::named(&story, "orders");
    orders.wait_ready(LONG);
    until_whole(&story, &orders, 1);
    make("3");
    until_whole(&story, &orders, 3);
    story.eventually("it is told as well", || {
        evenkeel(&story, &["status"]).code == 0
    });

    // Another build, or other settings, of the operator restart nothing of the cluster's.
    let workload = orders.workload();
    let before = uids(&orders);
    deploy(&["--set", "replicas=1", "--set", "log.filter=debug"]);
    assert_eq!(uids(&orders), before);
    helm(&story, &["uninstall", story.namespace(), "--wait"]).unwrap();
    assert_eq!(uids(&orders), before, "without an operator it serves on");
    workload.finish();
    // Back again, it takes up what is there.
    deploy(&[]);
    story.kubectl(&["delete", "pod", &orders.pods().remove(0).name]);
    story.within(LONG, "it is looked after again", || {
        orders.pods().len() == 3
    });
    until_whole(&story, &orders, 3);
    helm(&story, &["uninstall", "orders"]).unwrap();
    story.within(LONG, "the cluster is gone", || orders.pods().is_empty());
    let claims = story.kubectl(&["get", "pvc", "-o", "name"]);
    assert_eq!(claims.lines().count(), 3, "its volumes stay: {claims}");
}

#[test]
fn whoever_may_edit_a_namespace_may_have_clusters_there_and_whoever_may_view_it_sees_them() {
    let story = Story::begin("roles");
    install(&story);
    let users = shown(&checkout().join("deploy/operator/users.yaml"));
    story
        .lab()
        .kubectl()
        .args(["apply", "-f", &users])
        .run()
        .unwrap();
    for role in ["view", "edit"] {
        story.kubectl(&["create", "serviceaccount", role]);
        let account = format!("--serviceaccount={}:{role}", story.namespace());
        story.kubectl(&[
            "create",
            "rolebinding",
            role,
            &format!("--clusterrole={role}"),
            &account,
        ]);
    }
    let may = |role: &str, verb: &str, part: &str| {
        let who = format!("--as=system:serviceaccount:{}:{role}", story.namespace());
        let part = format!("--subresource={part}");
        let asked = story.try_kubectl(&[
            "auth",
            "can-i",
            verb,
            "etcdclusters.evenkeel.dev",
            &part,
            &who,
        ]);
        asked.is_ok_and(|said| said.trim() == "yes")
    };
    story.eventually("the roles are aggregated", || {
        may("view", "list", "") && may("edit", "create", "")
    });
    assert!(
        may("edit", "update", "scale") && may("edit", "get", "") && may("view", "get", "status")
    );
    assert!(
        !may("view", "create", "") && !may("view", "update", "scale"),
        "whoever may look may not change"
    );
    assert!(!may("edit", "update", "status"), "that is the operator's");
}

/// Without a cluster to ask, Helm assumes an older one.
const KUBE: &str = "--kube-version=1.35.0";

#[test]
fn the_charts_are_sound_and_the_plain_manifests_are_made_from_them() {
    let story = Story::begin("rendered");
    install(&story);
    for name in ["evenkeel", "etcd-cluster"] {
        let said = helm(&story, &["lint", "--strict", KUBE, &shown(&chart(name))]).unwrap();
        assert!(said.contains("0 chart(s) failed"), "{said}");
    }
    // `make generate` writes them anew.
    let dir = tempfile::tempdir().unwrap();
    Cmd::new(checkout().join("hack/generate"))
        .args(["manifests"])
        .arg(dir.path())
        .run()
        .unwrap();
    let made = [
        "operator/namespace",
        "operator/rbac",
        "operator/cluster-wide",
        "operator/users",
        "operator/operator",
        "install",
    ];
    for file in made
        .into_iter()
        .chain(["helm/evenkeel/files/crds/etcdclusters.evenkeel.dev"])
    {
        let read =
            |root: &Path| std::fs::read_to_string(root.join(format!("{file}.yaml"))).unwrap();
        assert!(
            read(dir.path()) == read(&checkout().join("deploy")),
            "{file} is old: make generate"
        );
    }
    // Everything that is shipped is accepted as it is.
    let whole = std::fs::read_to_string(checkout().join("deploy/install.yaml")).unwrap();
    let here = whole.replace("evenkeel-system", story.namespace());
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--dry-run=server",
        "-f",
        "-",
    ];
    let said = story.lab().kubectl().args(apply).input(here).run().unwrap();
    assert!(
        said.contains("deployment.apps/evenkeel-operator") && said.contains("clusterrole"),
        "{said}"
    );
    for sample in std::fs::read_dir(checkout().join("deploy/samples")).unwrap() {
        let sample = shown(&sample.unwrap().path());
        story.kubectl(&["apply", "--dry-run=server", "-f", &sample]);
    }
}

#[test]
fn values_that_make_no_sense_are_refused_with_their_names() {
    let story = Story::begin("values");
    let wrong = [
        ("evenkeel", "replicas=0", "replicas"),
        ("evenkeel", "namespaces={Shop_1}", "namespaces"),
        ("evenkeel", "imagee.tag=1", "imagee"),
        ("evenkeel", "image.digest=latest", "digest"),
        ("evenkeel", "log.format=xml", "format"),
        ("etcd-cluster", "spec.version=latest", "version"),
        ("etcd-cluster", "spec.members=8", "members"),
        ("etcd-cluster", "nameOverride=9lives", "nameOverride"),
    ];
    for (name, value, named) in wrong {
        let said = helm(
            &story,
            &["template", "it", KUBE, &shown(&chart(name)), "--set", value],
        )
        .unwrap_err();
        assert!(said.contains(named), "{value}: {said}");
    }
    let values = [
        "--set",
        "image.digest=sha256:0000000000000000000000000000000000000000000000000000000000000000",
    ];
    let said = helm(
        &story,
        &[
            &["template", "it", KUBE, &shown(&chart("evenkeel"))],
            &values[..],
        ]
        .concat(),
    )
    .unwrap();
    assert!(
        said.contains("evenkeel-operator@sha256:0000"),
        "a digest replaces the tag"
    );
    let said = helm(
        &story,
        &[
            "template",
            "it",
            KUBE,
            &shown(&chart("evenkeel")),
            "--set",
            "crds.keep=false",
        ],
    )
    .unwrap();
    assert!(
        !said.contains("helm.sh/resource-policy"),
        "the definitions may go with the release"
    );
    let said = helm(
        &story,
        &[
            "template",
            "it",
            KUBE,
            &shown(&chart("evenkeel")),
            "--set",
            "crds.install=false",
        ],
    )
    .unwrap();
    assert!(
        !said.contains("kind: CustomResourceDefinition"),
        "or be somebody else's"
    );
    assert!(
        said.contains("kind: ClusterRoleBinding") && said.contains("name: it-evenkeel-operator"),
        "{said}"
    );
    let namespaced = [
        "--set",
        "namespaces={a,b}",
        "--show-only",
        "templates/bindings.yaml",
    ];
    let said = helm(
        &story,
        &[
            &["template", "it", KUBE, &shown(&chart("evenkeel"))],
            &namespaced[..],
        ]
        .concat(),
    )
    .unwrap();
    assert!(
        !said.contains("ClusterRoleBinding") && said.matches("kind: RoleBinding").count() == 2,
        "{said}"
    );
}
