//! The control plane's machine: the datastore, the API server, its controllers and scheduler, the cluster's DNS, and
//! a kube-proxy through which the host reaches services.
//!
//! DNS runs here rather than in pods so that a node's fault takes no name away that it should not.

use anyhow::Result;
use serde_json::json;

use crate::machine::{Machine, Service};
use crate::pki::{Files, Holder, Pki, write_kubeconfig};
use crate::state::{CONTROL, Lab};
use crate::{files, net};

/// The authority that signs everything of Kubernetes.
pub const KUBERNETES_CA: &str = "kubernetes-ca";
/// Seconds without a sign of life after which a node is taken for lost; multiplied by the lab's patience.
pub const NODE_LEASE_SECONDS: u64 = 12;
/// The services that do nothing but retry until the API server answers. On a slow machine they would take the processor
/// that its start needs: its own requests to etcd have fixed limits, and it ends when it misses them.
const CLIENTS: [&str; 4] = [
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "coredns",
];
const FRONT_PROXY_CA: &str = "front-proxy-ca";
const DATASTORE_CA: &str = "datastore-ca";

/// Writes everybody's keys and configuration and powers the control plane on.
pub fn start(lab: &Lab) -> Result<()> {
    net::make_fabric(lab)?;
    let pki = Pki::at(&lab.pki());
    let services = vec![
        datastore(lab, &pki)?,
        api_server(lab, &pki)?,
        controller_manager(lab, &pki)?,
        scheduler(lab, &pki)?,
        proxy(lab, &pki, CONTROL)?,
        dns(lab, &pki)?,
    ];
    let admin = pki.issue(
        KUBERNETES_CA,
        "admin",
        &Holder::client("lab-admin", Some("system:masters")),
    )?;
    let ca = pki.authority(KUBERNETES_CA)?;
    write_kubeconfig(
        &lab.kubeconfig(),
        &server(lab)?,
        &ca.cert,
        "lab-admin",
        &admin,
    )?;
    let held: &[&str] = if lab.patience().is_slow() {
        &CLIENTS
    } else {
        &[]
    };
    Machine::of(lab, CONTROL)?.start(services, held)
}

/// Starts the services that a slow machine holds back until the API server answers.
pub fn start_clients(lab: &Lab) -> Result<()> {
    let machine = Machine::of(lab, CONTROL)?;
    for service in machine
        .services()
        .iter()
        .filter(|one| one.stopped && CLIENTS.contains(&one.name.as_str()))
    {
        machine.set_stopped(&service.name, false)?;
    }
    Ok(())
}

/// The API server's address.
pub fn server(lab: &Lab) -> Result<String> {
    Ok(format!("https://{}:6443", lab.addresses()?.control()))
}

/// Writes the kubeconfig of a component and returns its path.
pub fn component_kubeconfig(
    lab: &Lab,
    pki: &Pki,
    file: &str,
    holder: &Holder<'_>,
) -> Result<String> {
    let client = pki.issue(KUBERNETES_CA, file, holder)?;
    let ca = pki.authority(KUBERNETES_CA)?;
    let path = lab.pki().join(format!("{file}.kubeconfig"));
    write_kubeconfig(&path, &server(lab)?, &ca.cert, holder.name, &client)?;
    Ok(path.display().to_string())
}

/// A service that runs a program of the lab.
pub fn service(lab: &Lab, name: &str, args: Vec<String>) -> Service {
    let mut argv = vec![lab.programs().join(name).display().to_string()];
    argv.extend(args);
    Service {
        name: name.to_owned(),
        argv,
    }
}

/// `--key=value`.
pub fn flag(key: &str, value: impl std::fmt::Display) -> String {
    format!("--{key}={value}")
}

fn datastore(lab: &Lab, pki: &Pki) -> Result<Service> {
    let address = lab.addresses()?.control();
    let ca = pki.authority(DATASTORE_CA)?;
    let holder = Holder {
        name: "datastore",
        group: None,
        names: Vec::new(),
        addresses: vec![address],
    };
    let Files { cert, key } = pki.issue(DATASTORE_CA, "datastore", &holder)?;
    let args = vec![
        flag("name", "datastore"),
        flag(
            "data-dir",
            lab.machine_dir(CONTROL).join("datastore").display(),
        ),
        flag("listen-client-urls", format!("https://{address}:2379")),
        flag("advertise-client-urls", format!("https://{address}:2379")),
        flag("listen-peer-urls", "http://127.0.0.1:2380"),
        flag("initial-advertise-peer-urls", "http://127.0.0.1:2380"),
        flag("initial-cluster", "datastore=http://127.0.0.1:2380"),
        flag("cert-file", cert.display()),
        flag("key-file", key.display()),
        flag("trusted-ca-file", ca.cert.display()),
        flag("client-cert-auth", true),
        flag("log-level", "warn"),
    ];
    Ok(service(lab, "etcd", args))
}

fn api_server(lab: &Lab, pki: &Pki) -> Result<Service> {
    let addresses = lab.addresses()?;
    let own = addresses.control();
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ];
    let serving = Holder {
        name: "kube-apiserver",
        group: None,
        names: names.map(str::to_owned).to_vec(),
        addresses: vec![own, addresses.kubernetes(), [127, 0, 0, 1].into()],
    };
    let serving = pki.issue(KUBERNETES_CA, "apiserver", &serving)?;
    let ca = pki.authority(KUBERNETES_CA)?.cert;
    let kubelet = Holder::client("kube-apiserver-kubelet-client", None);
    let kubelet = pki.issue(KUBERNETES_CA, "apiserver-to-kubelet", &kubelet)?;
    let datastore = pki.issue(
        DATASTORE_CA,
        "apiserver-to-datastore",
        &Holder::client("kube-apiserver", None),
    )?;
    let front = pki.issue(
        FRONT_PROXY_CA,
        "front-proxy",
        &Holder::client("front-proxy-client", None),
    )?;
    let tokens = pki.token_keys()?;
    let toleration = lab.patience().seconds(10);
    let args = vec![
        flag("advertise-address", own),
        flag("bind-address", own),
        flag("secure-port", 6443),
        flag("service-cluster-ip-range", addresses.services()),
        flag("authorization-mode", "Node,RBAC"),
        flag("enable-admission-plugins", "NodeRestriction"),
        flag("anonymous-auth", false),
        // As on other clusters: it is Pod Security that refuses privileged pods, namespace by namespace.
        flag("allow-privileged", true),
        flag("tls-cert-file", serving.cert.display()),
        flag("tls-private-key-file", serving.key.display()),
        flag("client-ca-file", ca.display()),
        flag("kubelet-certificate-authority", ca.display()),
        flag("kubelet-client-certificate", kubelet.cert.display()),
        flag("kubelet-client-key", kubelet.key.display()),
        flag("kubelet-preferred-address-types", "InternalIP"),
        flag("etcd-servers", format!("https://{own}:2379")),
        flag("etcd-cafile", pki.authority(DATASTORE_CA)?.cert.display()),
        flag("etcd-certfile", datastore.cert.display()),
        flag("etcd-keyfile", datastore.key.display()),
        flag(
            "requestheader-client-ca-file",
            pki.authority(FRONT_PROXY_CA)?.cert.display(),
        ),
        flag("requestheader-allowed-names", "front-proxy-client"),
        flag("requestheader-username-headers", "X-Remote-User"),
        flag("requestheader-group-headers", "X-Remote-Group"),
        flag("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        flag("proxy-client-cert-file", front.cert.display()),
        flag("proxy-client-key-file", front.key.display()),
        flag(
            "service-account-issuer",
            "https://kubernetes.default.svc.cluster.local",
        ),
        flag("service-account-key-file", tokens.cert.display()),
        flag("service-account-signing-key-file", tokens.key.display()),
        // A pod leaves a lost node after ten seconds rather than five minutes: tests wait for it.
        flag("default-not-ready-toleration-seconds", toleration),
        flag("default-unreachable-toleration-seconds", toleration),
        flag("profiling", false),
    ];
    Ok(service(lab, "kube-apiserver", args))
}

fn controller_manager(lab: &Lab, pki: &Pki) -> Result<Service> {
    let holder = Holder::client("system:kube-controller-manager", None);
    let kubeconfig = component_kubeconfig(lab, pki, "controller-manager", &holder)?;
    let ca = pki.authority(KUBERNETES_CA)?;
    let args = vec![
        flag("kubeconfig", &kubeconfig),
        flag("authentication-kubeconfig", &kubeconfig),
        flag("authorization-kubeconfig", &kubeconfig),
        flag("bind-address", "127.0.0.1"),
        flag(
            "cert-dir",
            lab.machine_dir(CONTROL)
                .join("controller-manager")
                .display(),
        ),
        flag(
            "service-account-private-key-file",
            pki.token_keys()?.key.display(),
        ),
        flag("root-ca-file", ca.cert.display()),
        flag("cluster-signing-cert-file", ca.cert.display()),
        flag("cluster-signing-key-file", ca.key.display()),
        flag("use-service-account-credentials", true),
        // Would be made in the host's /usr/libexec.
        flag("flex-volume-plugin-dir", "/var/lib/kubelet/volume-plugins"),
        flag("leader-elect", false),
        flag(
            "node-monitor-period",
            format!("{}s", lab.patience().seconds(2)),
        ),
        flag(
            "node-monitor-grace-period",
            format!("{}s", lab.patience().seconds(NODE_LEASE_SECONDS)),
        ),
        flag("profiling", false),
    ];
    Ok(service(lab, "kube-controller-manager", args))
}

fn scheduler(lab: &Lab, pki: &Pki) -> Result<Service> {
    let holder = Holder::client("system:kube-scheduler", None);
    let kubeconfig = component_kubeconfig(lab, pki, "scheduler", &holder)?;
    let args = vec![
        flag("kubeconfig", &kubeconfig),
        flag("authentication-kubeconfig", &kubeconfig),
        flag("authorization-kubeconfig", &kubeconfig),
        flag("bind-address", "127.0.0.1"),
        flag(
            "cert-dir",
            lab.machine_dir(CONTROL).join("scheduler").display(),
        ),
        flag("leader-elect", false),
        flag("profiling", false),
    ];
    Ok(service(lab, "kube-scheduler", args))
}

/// The kube-proxy of a machine.
pub fn proxy(lab: &Lab, pki: &Pki, machine: &str) -> Result<Service> {
    let holder = Holder::client("system:kube-proxy", None);
    let kubeconfig = component_kubeconfig(lab, pki, "proxy", &holder)?;
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig},
        "hostnameOverride": proxied_node(lab, machine),
        "mode": "nftables",
        "detectLocalMode": "ClusterCIDR",
        "clusterCIDR": lab.addresses()?.pods().to_string(),
        "nodePortAddresses": ["primary"],
        // The table of connections is the host's to size.
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    });
    let path = lab.machine_dir(machine).join("proxy.json");
    files::write(&path, &serde_json::to_string_pretty(&config)?)?;
    Ok(service(
        lab,
        "kube-proxy",
        vec![flag("config", path.display())],
    ))
}

/// The node a kube-proxy takes itself to be on. The control plane is none: its kube-proxy would wait 30 s for a node
/// object of its own at each start. It speaks for the first node there is.
fn proxied_node(lab: &Lab, machine: &str) -> String {
    let first = lab.nodes().first().filter(|_| machine == CONTROL);
    first.map_or(machine, |node| &node.name).to_owned()
}

/// Has the control plane's kube-proxy speak for a node that still is, after one was deleted.
pub fn renew_proxy(lab: &Lab) -> Result<()> {
    proxy(lab, &Pki::at(&lab.pki()), CONTROL)?;
    Machine::of(lab, CONTROL)?.restart("kube-proxy")
}

/// Removes the keys of a node that is gone for good.
pub fn forget_node_keys(lab: &Lab, node: &str) -> Result<()> {
    for holder in [
        node.to_owned(),
        format!("{node}-serving"),
        format!("csi-{node}"),
    ] {
        for ending in ["crt", "key", "kubeconfig"] {
            files::remove(&lab.pki().join(format!("{holder}.{ending}")))?;
        }
    }
    Ok(())
}

fn dns(lab: &Lab, pki: &Pki) -> Result<Service> {
    let kubeconfig =
        component_kubeconfig(lab, pki, "dns", &Holder::client("system:coredns", None))?;
    // As kubeadm configures it, but for the names of other places: nobody is asked for them. They have a block of
    // their own because CoreDNS asks `template` before `kubernetes`, in whatever order they are written.
    let config = format!(
        "cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {{
    errors
    health 127.0.0.1:8080
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 30
    }}
    cache 30 {{
        disable success cluster.local
        disable denial cluster.local
    }}
}}
.:53 {{
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"
    );
    let path = lab.machine_dir(CONTROL).join("Corefile");
    files::write(&path, &config)?;
    Ok(service(
        lab,
        "coredns",
        vec!["-conf".to_owned(), path.display().to_string()],
    ))
}
