//! The machine of a node: containerd, the CSI driver, the kubelet and kube-proxy, with their default paths.

use std::path::Path;

use anyhow::Result;
use serde_json::json;

use crate::control::{self, KUBERNETES_CA, component_kubeconfig, flag, service};
use crate::files;
use crate::machine::{Machine, MachineService};
use crate::net;
use crate::pki::{Holder, Pki};
use crate::state::{Lab, Node};

/// The image of the pause container, which holds the namespaces of a pod.
pub const PAUSE_IMAGE: &str = "registry.k8s.io/pause:3.10.1";
/// The socket of containerd, as a path inside the machine.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";

/// Writes the configuration files of a node and starts its machine; does not restart a running machine.
pub fn start(lab: &Lab, node: &Node) -> Result<()> {
    net::attach(lab, node)?;
    let pki = Pki::at(&lab.pki());
    let services = vec![
        containerd(lab, node)?,
        csi(lab, &pki, node)?,
        kubelet(lab, &pki, node)?,
        control::kube_proxy(lab, &pki, &node.name)?,
    ];
    Machine::of(lab, &node.name)?.start(services, &[])
}

/// Returns the directory of the files that back the volumes of a node.
pub fn volumes_dir(lab: &Lab, node: &str) -> std::path::PathBuf {
    lab.machine_dir(node).join("volumes")
}

fn containerd(lab: &Lab, node: &Node) -> Result<MachineService> {
    let programs = lab.programs();
    let programs = programs.display();
    let snapshotter = if supports_overlayfs(&lab.machine_dir(&node.name))? {
        "overlayfs"
    } else {
        "native"
    };
    let config = format!(
        "version = 2
root = \"/var/lib/containerd\"
state = \"/run/containerd\"
[grpc]
  address = \"{CONTAINERD_SOCKET}\"
# The default is in /opt of the host.
[plugins.\"io.containerd.internal.v1.opt\"]
  path = \"/var/lib/containerd/opt\"
[plugins.\"io.containerd.grpc.v1.cri\"]
  sandbox_image = \"{PAUSE_IMAGE}\"
  # Without CAP_SYS_RESOURCE, a container cannot get a lower OOM score than containerd.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins.\"io.containerd.grpc.v1.cri\".cni]
    bin_dir = \"{programs}/cni\"
    conf_dir = \"/var/lib/cni/net.d\"
  [plugins.\"io.containerd.grpc.v1.cri\".containerd]
    snapshotter = \"{snapshotter}\"
    default_runtime_name = \"runc\"
    [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]
      runtime_type = \"io.containerd.runc.v2\"
      [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]
        BinaryName = \"{programs}/runc\"
"
    );
    let dir = lab.machine_dir(&node.name);
    files::write(&dir.join("containerd.toml"), &config)?;
    let cni = json!({
        "cniVersion": "0.4.0",
        "name": "lab",
        "plugins": [{
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": true,
            "isDefaultGateway": true,
            "hairpinMode": true,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": lab.addresses()?.node_pods(node.number).to_string()}]]},
        }],
    });
    files::write(
        &dir.join("var/lib/cni/net.d/10-lab.conflist"),
        &serde_json::to_string_pretty(&cni)?,
    )?;
    Ok(service(
        lab,
        "containerd",
        vec![flag("config", dir.join("containerd.toml").display())],
    ))
}

fn csi(lab: &Lab, pki: &Pki, node: &Node) -> Result<MachineService> {
    let user = format!("lab-csi:{}", node.name);
    let holder = Holder::client(&user, Some("lab-csi"));
    let kubeconfig = component_kubeconfig(lab, pki, &format!("csi-{}", node.name), &holder)?;
    let args = vec![
        flag("node", &node.name),
        flag("kubeconfig", kubeconfig),
        flag("volumes", volumes_dir(lab, &node.name).display()),
        flag("overcommit", lab.overcommit()),
    ];
    Ok(service(lab, "lab-csi", args))
}

fn kubelet(lab: &Lab, pki: &Pki, node: &Node) -> Result<MachineService> {
    let addresses = lab.addresses()?;
    let address = addresses.node(node.number);
    let user = format!("system:node:{}", node.name);
    let kubeconfig = component_kubeconfig(
        lab,
        pki,
        &node.name,
        &Holder::client(&user, Some("system:nodes")),
    )?;
    let serving = Holder {
        name: &user,
        group: Some("system:nodes"),
        names: vec![node.name.clone()],
        addresses: vec![address],
    };
    let serving = pki.issue(KUBERNETES_CA, &format!("{}-serving", node.name), &serving)?;
    let dir = lab.machine_dir(&node.name);
    files::write(&dir.join("resolv.conf"), "")?;
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": pki.ca(KUBERNETES_CA)?.cert},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": serving.cert,
        "tlsPrivateKeyFile": serving.key,
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "cgroupDriver": "cgroupfs",
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "clusterDNS": [addresses.dns()],
        "clusterDomain": "cluster.local",
        "resolvConf": dir.join("resolv.conf"),
        // The disk belongs to the host: low disk space must neither evict pods nor remove images, which the node cannot
        // pull again.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageMaximumGCAge": "0s",
        // The kubelet renews the lease at each quarter of this duration.
        "nodeLeaseDurationSeconds": lab.patience().seconds(control::NODE_LEASE_SECONDS),
        // The default is in /usr/libexec of the host.
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "healthzBindAddress": "127.0.0.1",
    });
    files::write(
        &dir.join("kubelet.json"),
        &serde_json::to_string_pretty(&config)?,
    )?;
    let args = vec![
        flag("config", dir.join("kubelet.json").display()),
        flag("kubeconfig", kubeconfig),
        flag("hostname-override", &node.name),
        flag("node-ip", address),
        flag(
            "node-labels",
            format!(
                "topology.kubernetes.io/region=lab,topology.kubernetes.io/zone=zone-{}",
                node.number
            ),
        ),
    ];
    Ok(service(lab, "kubelet", args))
}

/// Returns whether overlayfs works on the file system of the lab; it does not work on top of another overlayfs.
fn supports_overlayfs(dir: &Path) -> Result<bool> {
    use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, statfs};
    std::fs::create_dir_all(dir)?;
    Ok(statfs(dir)?.filesystem_type() != OVERLAYFS_SUPER_MAGIC)
}
