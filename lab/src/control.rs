//! The machine of the control plane: etcd as the datastore, the API server, the controller manager, the scheduler,
//! CoreDNS, and a kube-proxy through which the host reaches services.
//!
//! CoreDNS runs here and not in pods, so that the fault of a node does not affect name resolution.

use anyhow::Result;
use serde_json::json;

use crate::machine::{Machine, MachineService};
use crate::pki::{CertificateFiles, Holder, Pki, write_kubeconfig};
use crate::state::{CONTROL_PLANE, Lab};
use crate::{files, net};

/// The CA of all Kubernetes certificates.
pub const KUBERNETES_CA: &str = "kubernetes-ca";
/// Seconds without a lease renewal after which a node is NotReady; multiplied by the patience of the lab.
pub const NODE_LEASE_SECONDS: u64 = 12;
/// The services that only retry until the API server answers. On a slow machine they would take the CPU time that the
/// API server needs to start: its requests to etcd have fixed limits, and it exits when it misses them.
const API_CLIENTS: [&str; 4] = [
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "coredns",
];
/// Seconds after which a pod is evicted from a node that is not ready; multiplied by the patience of the lab.
const EVICTION_TOLERATION_SECONDS: u64 = 10;
/// Seconds between two checks of the nodes by the controller manager; multiplied by the patience of the lab.
const NODE_MONITOR_SECONDS: u64 = 2;
const FRONT_PROXY_CA: &str = "front-proxy-ca";
const DATASTORE_CA: &str = "datastore-ca";

/// Writes the keys and configuration files of the control plane and starts its machine.
pub fn start(lab: &Lab) -> Result<()> {
    net::create_fabric(lab)?;
    let pki = Pki::at(&lab.pki());
    let services = vec![
        datastore(lab, &pki)?,
        api_server(lab, &pki)?,
        controller_manager(lab, &pki)?,
        scheduler(lab, &pki)?,
        kube_proxy(lab, &pki, CONTROL_PLANE)?,
        dns(lab, &pki)?,
    ];
    let admin = pki.issue(
        KUBERNETES_CA,
        "admin",
        &Holder::client("lab-admin", Some("system:masters")),
    )?;
    let ca = pki.ca(KUBERNETES_CA)?;
    write_kubeconfig(
        &lab.kubeconfig(),
        &server(lab)?,
        &ca.cert,
        "lab-admin",
        &admin,
    )?;
    let held: &[&str] = if lab.patience().is_slow() {
        &API_CLIENTS
    } else {
        &[]
    };
    Machine::of(lab, CONTROL_PLANE)?.start(services, held)
}

/// Starts the services that a slow machine holds back until the API server answers.
pub fn start_api_clients(lab: &Lab) -> Result<()> {
    let machine = Machine::of(lab, CONTROL_PLANE)?;
    for service in machine
        .services()
        .iter()
        .filter(|one| one.stopped && API_CLIENTS.contains(&one.name.as_str()))
    {
        machine.set_stopped(&service.name, false)?;
    }
    Ok(())
}

/// Returns the URL of the API server.
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
    let ca = pki.ca(KUBERNETES_CA)?;
    let path = lab.pki().join(format!("{file}.kubeconfig"));
    write_kubeconfig(&path, &server(lab)?, &ca.cert, holder.name, &client)?;
    Ok(path.display().to_string())
}

/// Returns a service that runs a program of the lab.
pub fn service(lab: &Lab, name: &str, args: Vec<String>) -> MachineService {
    let mut argv = vec![lab.programs().join(name).display().to_string()];
    argv.extend(args);
    MachineService {
        name: name.to_owned(),
        argv,
    }
}

/// Formats a command-line flag as `--key=value`.
pub fn flag(key: &str, value: impl std::fmt::Display) -> String {
    format!("--{key}={value}")
}

fn datastore(lab: &Lab, pki: &Pki) -> Result<MachineService> {
    let address = lab.addresses()?.control();
    let ca = pki.ca(DATASTORE_CA)?;
    let holder = Holder {
        name: "datastore",
        group: None,
        names: Vec::new(),
        addresses: vec![address],
    };
    let CertificateFiles { cert, key } = pki.issue(DATASTORE_CA, "datastore", &holder)?;
    let args = vec![
        flag("name", "datastore"),
        flag(
            "data-dir",
            lab.machine_dir(CONTROL_PLANE).join("datastore").display(),
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

fn api_server(lab: &Lab, pki: &Pki) -> Result<MachineService> {
    let addresses = lab.addresses()?;
    let address = addresses.control();
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
        addresses: vec![address, addresses.kubernetes(), [127, 0, 0, 1].into()],
    };
    let serving = pki.issue(KUBERNETES_CA, "apiserver", &serving)?;
    let ca = pki.ca(KUBERNETES_CA)?.cert;
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
    let toleration = lab.patience().seconds(EVICTION_TOLERATION_SECONDS);
    let args = vec![
        flag("advertise-address", address),
        flag("bind-address", address),
        flag("secure-port", 6443),
        flag("service-cluster-ip-range", addresses.services()),
        flag("authorization-mode", "Node,RBAC"),
        flag("enable-admission-plugins", "NodeRestriction"),
        flag("anonymous-auth", false),
        // As on other clusters: Pod Security admission rejects privileged pods per namespace.
        flag("allow-privileged", true),
        flag("tls-cert-file", serving.cert.display()),
        flag("tls-private-key-file", serving.key.display()),
        flag("client-ca-file", ca.display()),
        flag("kubelet-certificate-authority", ca.display()),
        flag("kubelet-client-certificate", kubelet.cert.display()),
        flag("kubelet-client-key", kubelet.key.display()),
        flag("kubelet-preferred-address-types", "InternalIP"),
        flag("etcd-servers", format!("https://{address}:2379")),
        flag("etcd-cafile", pki.ca(DATASTORE_CA)?.cert.display()),
        flag("etcd-certfile", datastore.cert.display()),
        flag("etcd-keyfile", datastore.key.display()),
        flag(
            "requestheader-client-ca-file",
            pki.ca(FRONT_PROXY_CA)?.cert.display(),
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
        // Pods are evicted from a lost node after ten seconds instead of five minutes, to keep tests short.
        flag("default-not-ready-toleration-seconds", toleration),
        flag("default-unreachable-toleration-seconds", toleration),
        flag("profiling", false),
    ];
    Ok(service(lab, "kube-apiserver", args))
}

fn controller_manager(lab: &Lab, pki: &Pki) -> Result<MachineService> {
    let holder = Holder::client("system:kube-controller-manager", None);
    let kubeconfig = component_kubeconfig(lab, pki, "controller-manager", &holder)?;
    let ca = pki.ca(KUBERNETES_CA)?;
    let args = vec![
        flag("kubeconfig", &kubeconfig),
        flag("authentication-kubeconfig", &kubeconfig),
        flag("authorization-kubeconfig", &kubeconfig),
        flag("bind-address", "127.0.0.1"),
        flag(
            "cert-dir",
            lab.machine_dir(CONTROL_PLANE)
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
        // The default is in /usr/libexec of the host.
        flag("flex-volume-plugin-dir", "/var/lib/kubelet/volume-plugins"),
        flag("leader-elect", false),
        flag(
            "node-monitor-period",
            format!("{}s", lab.patience().seconds(NODE_MONITOR_SECONDS)),
        ),
        flag(
            "node-monitor-grace-period",
            format!("{}s", lab.patience().seconds(NODE_LEASE_SECONDS)),
        ),
        flag("profiling", false),
    ];
    Ok(service(lab, "kube-controller-manager", args))
}

fn scheduler(lab: &Lab, pki: &Pki) -> Result<MachineService> {
    let holder = Holder::client("system:kube-scheduler", None);
    let kubeconfig = component_kubeconfig(lab, pki, "scheduler", &holder)?;
    let args = vec![
        flag("kubeconfig", &kubeconfig),
        flag("authentication-kubeconfig", &kubeconfig),
        flag("authorization-kubeconfig", &kubeconfig),
        flag("bind-address", "127.0.0.1"),
        flag(
            "cert-dir",
            lab.machine_dir(CONTROL_PLANE).join("scheduler").display(),
        ),
        flag("leader-elect", false),
        flag("profiling", false),
    ];
    Ok(service(lab, "kube-scheduler", args))
}

/// Returns the kube-proxy of a machine.
pub fn kube_proxy(lab: &Lab, pki: &Pki, machine: &str) -> Result<MachineService> {
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
        // Zero keeps the conntrack settings of the host.
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

/// Returns the node name that a kube-proxy uses. The control plane has no Node object, for which kube-proxy would wait
/// 30 s at each start, so its kube-proxy uses the name of the first node.
fn proxied_node(lab: &Lab, machine: &str) -> String {
    let first = lab.nodes().first().filter(|_| machine == CONTROL_PLANE);
    first.map_or(machine, |node| &node.name).to_owned()
}

/// Restarts the kube-proxy of the control plane with the name of an existing node, after a node was deleted.
pub fn restart_proxy(lab: &Lab) -> Result<()> {
    kube_proxy(lab, &Pki::at(&lab.pki()), CONTROL_PLANE)?;
    Machine::of(lab, CONTROL_PLANE)?.restart("kube-proxy")
}

/// Removes the keys and kubeconfigs of a deleted node.
pub fn remove_node_keys(lab: &Lab, node: &str) -> Result<()> {
    for name in [
        node.to_owned(),
        format!("{node}-serving"),
        format!("csi-{node}"),
    ] {
        for extension in ["crt", "key", "kubeconfig"] {
            files::remove(&lab.pki().join(format!("{name}.{extension}")))?;
        }
    }
    Ok(())
}

fn dns(lab: &Lab, pki: &Pki) -> Result<MachineService> {
    let kubeconfig =
        component_kubeconfig(lab, pki, "dns", &Holder::client("system:coredns", None))?;
    // The configuration of kubeadm, except that external names are answered with NXDOMAIN instead of being forwarded.
    // This is a separate server block, because CoreDNS runs `template` before `kubernetes` regardless of their order.
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
    let path = lab.machine_dir(CONTROL_PLANE).join("Corefile");
    files::write(&path, &config)?;
    Ok(service(
        lab,
        "coredns",
        vec!["-conf".to_owned(), path.display().to_string()],
    ))
}
