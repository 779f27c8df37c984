//! The network of a lab (the fabric): a bridge in the network namespace of the control plane with a port per node, and
//! an interface on the host. The functions create only missing parts, so they can be called repeatedly.
//!
//! No packet of a lab may leave the host: a firewall table (the guard) drops packets with addresses of the lab on all
//! other interfaces. The guard is installed before the first route is created and removed after the last one.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::addresses::MAX_NODES;
use crate::command::Cmd;
use crate::state::{CONTROL_PLANE, Lab, LabName, Node};

/// The name of the bridge in the network namespace of the control plane.
const BRIDGE: &str = "fabric";

/// Returns the name of the network namespace of a machine, as `ip netns` shows it.
pub fn netns(lab: &LabName, machine: &str) -> String {
    format!("ek-{lab}-{machine}")
}

/// Returns the path of the file that represents the network namespace of a machine.
pub fn netns_path(lab: &LabName, machine: &str) -> PathBuf {
    Path::new("/run/netns").join(netns(lab, machine))
}

/// Returns the name of the interface that connects the host to the lab.
fn host_interface(lab: &Lab) -> String {
    format!("ek{}", lab.number())
}

/// Returns the name of the nftables table of the guard.
fn guard_table(lab: &LabName) -> String {
    format!("evenkeel_lab_{}", lab.to_string().replace('-', "_"))
}

/// Installs the guard and connects the host with the network namespace of the control plane.
pub fn create_fabric(lab: &Lab) -> Result<()> {
    install_guard(lab)?;
    let (addresses, ns, host) = (
        lab.addresses()?,
        netns(lab.name(), CONTROL_PLANE),
        host_interface(lab),
    );
    add_netns(lab, CONTROL_PLANE)?;
    let bridge_commands = format!(
        "link add {BRIDGE} type bridge\naddr add {}/24 dev {BRIDGE}\nlink set {BRIDGE} up\n",
        addresses.control()
    );
    // Bringing an interface up is the last command of its setup, so an interface that is down is incomplete and is
    // recreated.
    if !is_up(Some(&ns), BRIDGE)? {
        remove_interface(Some(&ns), BRIDGE)?;
        ip_batch(Some(&ns), &bridge_commands)?;
    }
    if !is_up(None, &host)? {
        remove_interface(None, &host)?;
        let port = format!("{host}-port");
        ip_batch(
            None,
            &format!("link add {host} type veth peer name {port} netns {ns}\n"),
        )?;
        ip_batch(
            Some(&ns),
            &format!("link set {port} master {BRIDGE}\nlink set {port} up\n"),
        )?;
        ip_batch(
            None,
            &format!(
                "addr add {}/24 dev {host}\nlink set {host} up\n",
                addresses.host()
            ),
        )?;
    }
    let control = addresses.control();
    ip_batch(
        None,
        &format!(
            "route replace {} via {control} dev {host}\nroute replace unreachable {} metric 4000\n",
            addresses.services(),
            addresses.all()
        ),
    )?;
    ip_batch(Some(&ns), &machine_routes(lab, BRIDGE, None)?)?;
    enable_forwarding(&ns)
}

/// Creates the network namespace of a node, its port on the bridge and its routes.
pub fn attach(lab: &Lab, node: &Node) -> Result<()> {
    let (addresses, control) = (lab.addresses()?, netns(lab.name(), CONTROL_PLANE));
    let ns = netns(lab.name(), &node.name);
    add_netns(lab, &node.name)?;
    if !is_up(Some(&ns), "eth0")? {
        let port = port_name(node);
        remove_interface(Some(&ns), "eth0")?;
        remove_interface(Some(&control), &port)?;
        ip_batch(
            Some(&control),
            &format!("link add {port} type veth peer name eth0 netns {ns}\n"),
        )?;
        ip_batch(
            Some(&control),
            &format!("link set {port} master {BRIDGE}\nlink set {port} up\n"),
        )?;
        ip_batch(
            Some(&ns),
            &format!(
                "addr add {}/24 dev eth0\nlink set eth0 up\n",
                addresses.node(node.number)
            ),
        )?;
    }
    ip_batch(Some(&ns), &machine_routes(lab, "eth0", Some(node.number))?)?;
    let route = format!(
        "route replace {} via {} dev {}\n",
        addresses.node_pods(node.number),
        addresses.node(node.number),
        host_interface(lab)
    );
    ip_batch(None, &route)?;
    enable_forwarding(&ns)
}

/// Removes the network namespace and the port of a node.
pub fn detach(lab: &Lab, node: &Node) -> Result<()> {
    let route = lab.addresses()?.node_pods(node.number).to_string();
    // An error means that the interface was removed, and its routes with it.
    let _ = Cmd::new("ip")
        .args(["route", "del", &route, "dev", &host_interface(lab)])
        .attempt()?;
    // The kernel may destroy the namespace after its name is removed. The port is removed explicitly, so that its name
    // is free at once.
    let control = netns(lab.name(), CONTROL_PLANE);
    remove_interface(Some(&control), &port_name(node))?;
    delete_netns(&netns(lab.name(), &node.name))
}

/// Disconnects a node from the network or connects it again, by setting its port down or up.
pub fn set_cut(lab: &Lab, node: &Node, is_cut: bool) -> Result<()> {
    let state = if is_cut { "down" } else { "up" };
    ip_batch(
        Some(&netns(lab.name(), CONTROL_PLANE)),
        &format!("link set {} {state}\n", port_name(node)),
    )
}

/// Returns whether a node is disconnected from the network.
pub fn is_cut(lab: &Lab, node: &Node) -> Result<bool> {
    let link = Cmd::new("ip")
        .args([
            "-n",
            &netns(lab.name(), CONTROL_PLANE),
            "-br",
            "link",
            "show",
            &port_name(node),
        ])
        .run()?;
    Ok(!link.split(['<', '>', ',']).any(|word| word.trim() == "UP"))
}

/// Removes everything that [`create_fabric`] and [`attach`] create. Does not need the record of the lab: without
/// `number`, the number is read from the guard.
pub fn remove(name: &LabName, number: Option<u8>) -> Result<()> {
    if let Some(number) = number.or_else(|| number_in_guard(name)) {
        remove_interface(None, &format!("ek{number}"))?;
        if let Some(addresses) = crate::addresses::Addresses::of(number) {
            let all = addresses.all().to_string();
            let _ = Cmd::new("ip")
                .args(["route", "del", "unreachable", &all, "metric", "4000"])
                .attempt()?;
        }
    }
    let prefix = netns(name, "");
    for line in Cmd::new("ip").args(["netns", "list"]).run()?.lines() {
        let ns = line.split_whitespace().next().unwrap_or_default();
        // The rest must be the name of a machine: the lab `dev` must not remove namespaces of the lab `dev-2`.
        let machine = ns.strip_prefix(&prefix).unwrap_or_default();
        if machine == CONTROL_PLANE
            || machine
                .strip_prefix("node-")
                .is_some_and(|n| n.parse::<u8>().is_ok())
        {
            delete_netns(ns)?;
        }
    }
    remove_netns_dir()?;
    remove_guard(name)
}

/// Runs `ip` commands, one per line, in a network namespace or on the host.
pub fn ip_batch(netns: Option<&str>, lines: &str) -> Result<()> {
    ip(netns)
        .args(["-batch", "-"])
        .input(lines)
        .run()
        .with_context(|| format!("cannot run the ip commands: {lines}"))
        .map(drop)
}

/// Returns an `ip` command for a network namespace or for the host.
fn ip(netns: Option<&str>) -> Cmd {
    Cmd::new("ip").args(netns.into_iter().flat_map(|ns| ["-n", ns]))
}

/// Returns the name of the bridge port of a node.
fn port_name(node: &Node) -> String {
    format!("port-{}", node.name)
}

/// Returns `ip` commands for the routes of a machine. They cover every possible node, so that a new node needs no change
/// on the others. The service range needs a route as well: the kernel routes a packet before it translates its address.
fn machine_routes(lab: &Lab, device: &str, own_number: Option<u8>) -> Result<String> {
    let addresses = lab.addresses()?;
    let mut lines = format!(
        "link set lo up\nroute replace {} dev {device}\nroute replace unreachable {} metric 4000\n",
        addresses.services(),
        addresses.all()
    );
    for number in (1..=MAX_NODES).filter(|number| Some(*number) != own_number) {
        let (pods, node) = (addresses.node_pods(number), addresses.node(number));
        lines.push_str(&format!("route replace {pods} via {node} dev {device}\n"));
    }
    Ok(lines)
}

/// Enables IPv4 forwarding in a namespace: to its pods, and from the host to services.
fn enable_forwarding(ns: &str) -> Result<()> {
    let settings = "net.ipv4.ip_forward=1 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0";
    let mut command = Cmd::new("nsenter")
        .arg(format!("--net=/run/netns/{ns}"))
        .args(["sysctl", "-qw"]);
    for setting in settings.split(' ') {
        command = command.arg(setting);
    }
    command.run().map(drop)
}

fn has_interface(netns: Option<&str>, name: &str) -> Result<bool> {
    Ok(ip(netns).args(["link", "show", name]).attempt()?.0)
}

fn is_up(netns: Option<&str>, name: &str) -> Result<bool> {
    let (exists, link) = ip(netns)
        .args(["link", "show", "up", "dev", name])
        .attempt()?;
    Ok(exists && !link.trim().is_empty())
}

fn remove_interface(netns: Option<&str>, name: &str) -> Result<()> {
    if has_interface(netns, name)? {
        ip_batch(netns, &format!("link del {name}\n"))
    } else {
        Ok(())
    }
}

fn add_netns(lab: &Lab, machine: &str) -> Result<()> {
    // After a crash, the file may exist without a namespace. The file is valid when `ip` can enter the namespace.
    let (name, path) = (netns(lab.name(), machine), netns_path(lab.name(), machine));
    if path.exists()
        && Cmd::new("ip")
            .args(["-n", &name, "link", "show", "lo"])
            .attempt()?
            .0
    {
        return Ok(());
    }
    if path.exists() {
        std::fs::remove_file(&path)
            .with_context(|| format!("cannot remove the stale file {}", path.display()))?;
    }
    let _shared_lock = Lab::lock_shared()?;
    Cmd::new("ip").args(["netns", "add", &name]).run().map(drop)
}

fn delete_netns(name: &str) -> Result<()> {
    let path = Path::new("/run/netns").join(name);
    if !path.exists() {
        return Ok(());
    }
    // `ip netns del` fails for a file without a namespace, which a crash may leave; the file is removed directly.
    if !Cmd::new("ip").args(["netns", "del", name]).attempt()?.0 && path.exists() {
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Removes the directory of the namespaces when it is empty. `ip netns add` bind-mounts the directory on itself.
fn remove_netns_dir() -> Result<()> {
    let _shared_lock = Lab::lock_shared()?;
    let dir = Path::new("/run/netns");
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none()) {
        // A directory that is not a mount point was not created by `ip netns add` and is kept.
        if nix::mount::umount(dir).is_ok() {
            let _ = std::fs::remove_dir(dir);
        }
    }
    Ok(())
}

/// Opens the network namespace of a machine for `setns`.
pub fn open_netns(path: &Path) -> Result<File> {
    File::open(path)
        .with_context(|| format!("cannot open the network namespace {}", path.display()))
}

/// Returns the number of a lab without a record, read from the interface name in its guard.
fn number_in_guard(name: &LabName) -> Option<u8> {
    let rules = Cmd::new("nft")
        .args(["list", "table", "inet", &guard_table(name)])
        .run()
        .ok()?;
    rules
        .split('"')
        .find_map(|word| word.strip_prefix("ek")?.parse().ok())
}

fn install_guard(lab: &Lab) -> Result<()> {
    let (table, all, interface) = (
        guard_table(lab.name()),
        lab.addresses()?.all(),
        host_interface(lab),
    );
    // All packets that leave the host, sent or forwarded, pass the postrouting hook. The empty declaration comes first,
    // so that deleting a missing table does not fail and the table is replaced in one transaction.
    let rules = format!(
        "table inet {table} {{}}
delete table inet {table}
table inet {table} {{
    chain leaving {{
        type filter hook postrouting priority -5
        oifname != {{ \"{interface}\", \"lo\" }} ip daddr {all} drop
        oifname != {{ \"{interface}\", \"lo\" }} ip saddr {all} drop
    }}
}}
"
    );
    Cmd::new("nft")
        .args(["-f", "-"])
        .input(rules)
        .run()
        .map(drop)
}

fn remove_guard(name: &LabName) -> Result<()> {
    let table = guard_table(name);
    let rules = format!("table inet {table} {{}}\ndelete table inet {table}\n");
    Cmd::new("nft")
        .args(["-f", "-"])
        .input(rules)
        .run()
        .map(drop)
}
