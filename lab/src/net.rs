//! The fabric that joins a lab's machines: a bridge in the control plane's own network namespace with a port per
//! node, and one interface of the host's. Everything is made only where it is missing, so making it twice is fine.
//!
//! Nothing may leave the machine: a guard drops the lab's addresses on every other interface. It is raised before
//! the first route and lowered after the last.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::addresses::NODES;
use crate::command::Cmd;
use crate::state::{CONTROL, Lab, LabName, Node};

const BRIDGE: &str = "fabric";

/// The name of a machine's network namespace, as `ip netns` shows it.
pub fn netns(lab: &LabName, machine: &str) -> String {
    format!("ek-{lab}-{machine}")
}

/// The file that stands for a machine's network namespace.
pub fn netns_path(lab: &LabName, machine: &str) -> PathBuf {
    Path::new("/run/netns").join(netns(lab, machine))
}

/// The host's interface into the lab.
fn host_interface(lab: &Lab) -> String {
    format!("ek{}", lab.number())
}

fn guard_table(lab: &LabName) -> String {
    format!("evenkeel_lab_{}", lab.to_string().replace('-', "_"))
}

/// Raises the guard and joins the host and the control plane's namespace.
pub fn make_fabric(lab: &Lab) -> Result<()> {
    raise_guard(lab)?;
    let (addresses, ns, host) = (
        lab.addresses()?,
        netns(lab.name(), CONTROL),
        host_interface(lab),
    );
    add_netns(lab, CONTROL)?;
    let inside = format!(
        "link add {BRIDGE} type bridge\naddr add {}/24 dev {BRIDGE}\nlink set {BRIDGE} up\n",
        addresses.control()
    );
    // Each is up only when it was made to its end: one that a kill caught half-way is made anew.
    if !is_up(Some(&ns), BRIDGE)? {
        remove_interface(Some(&ns), BRIDGE)?;
        batch(Some(&ns), &inside)?;
    }
    if !is_up(None, &host)? {
        remove_interface(None, &host)?;
        let port = format!("{host}-port");
        batch(
            None,
            &format!("link add {host} type veth peer name {port} netns {ns}\n"),
        )?;
        batch(
            Some(&ns),
            &format!("link set {port} master {BRIDGE}\nlink set {port} up\n"),
        )?;
        batch(
            None,
            &format!(
                "addr add {}/24 dev {host}\nlink set {host} up\n",
                addresses.host()
            ),
        )?;
    }
    let control = addresses.control();
    batch(
        None,
        &format!(
            "route replace {} via {control} dev {host}\nroute replace unreachable {} metric 4000\n",
            addresses.services(),
            addresses.all()
        ),
    )?;
    batch(Some(&ns), &routes_inside(lab, BRIDGE, None)?)?;
    forward(&ns)
}

/// Gives a node its namespace, its port on the fabric and its routes.
pub fn attach(lab: &Lab, node: &Node) -> Result<()> {
    let (addresses, control) = (lab.addresses()?, netns(lab.name(), CONTROL));
    let ns = netns(lab.name(), &node.name);
    add_netns(lab, &node.name)?;
    if !is_up(Some(&ns), "eth0")? {
        let port = port(node);
        remove_interface(Some(&ns), "eth0")?;
        remove_interface(Some(&control), &port)?;
        batch(
            Some(&control),
            &format!("link add {port} type veth peer name eth0 netns {ns}\n"),
        )?;
        batch(
            Some(&control),
            &format!("link set {port} master {BRIDGE}\nlink set {port} up\n"),
        )?;
        batch(
            Some(&ns),
            &format!(
                "addr add {}/24 dev eth0\nlink set eth0 up\n",
                addresses.node(node.number)
            ),
        )?;
    }
    batch(Some(&ns), &routes_inside(lab, "eth0", Some(node.number))?)?;
    let route = format!(
        "route replace {} via {} dev {}\n",
        addresses.node_pods(node.number),
        addresses.node(node.number),
        host_interface(lab)
    );
    batch(None, &route)?;
    forward(&ns)
}

/// Takes a node's namespace and port away.
pub fn detach(lab: &Lab, node: &Node) -> Result<()> {
    let route = lab.addresses()?.node_pods(node.number).to_string();
    // Where the interface is gone already, so is the route.
    let _ = Cmd::new("ip")
        .args(["route", "del", &route, "dev", &host_interface(lab)])
        .attempt()?;
    // The namespace may outlive its name for a moment; its port would then still be there for a node of its number.
    let control = netns(lab.name(), CONTROL);
    remove_interface(Some(&control), &port(node))?;
    delete_netns(&netns(lab.name(), &node.name))
}

/// Takes a node's port down, or up again: as pulling its cable and putting it back.
pub fn cut(lab: &Lab, node: &Node, cut: bool) -> Result<()> {
    let state = if cut { "down" } else { "up" };
    batch(
        Some(&netns(lab.name(), CONTROL)),
        &format!("link set {} {state}\n", port(node)),
    )
}

/// Whether a node's cable is pulled.
pub fn is_cut(lab: &Lab, node: &Node) -> Result<bool> {
    let shown = Cmd::new("ip")
        .args([
            "-n",
            &netns(lab.name(), CONTROL),
            "-br",
            "link",
            "show",
            &port(node),
        ])
        .run()?;
    Ok(!shown.split(['<', '>', ',']).any(|word| word.trim() == "UP"))
}

/// Takes everything away that [`make_fabric`] and [`attach`] made, for any lab of this name, recorded or not.
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
        // `dev` must not take `dev-2` down: what follows the prefix is a machine's name.
        let machine = ns.strip_prefix(&prefix).unwrap_or_default();
        if machine == CONTROL
            || machine
                .strip_prefix("node-")
                .is_some_and(|n| n.parse::<u8>().is_ok())
        {
            delete_netns(ns)?;
        }
    }
    release_netns_dir()?;
    lower_guard(name)
}

/// Runs `ip` commands, one a line, inside a network namespace or outside.
pub fn batch(netns: Option<&str>, lines: &str) -> Result<()> {
    ip(netns)
        .args(["-batch", "-"])
        .input(lines)
        .run()
        .with_context(|| format!("in {lines}"))
        .map(drop)
}

/// `ip` inside a network namespace or outside.
fn ip(netns: Option<&str>) -> Cmd {
    Cmd::new("ip").args(netns.into_iter().flat_map(|ns| ["-n", ns]))
}

fn port(node: &Node) -> String {
    format!("port-{}", node.name)
}

/// Routes to every node there may ever be, so that a node that comes later needs no change on the others. A service
/// address is translated before it would be used, but routing comes first, so the range needs a way, too.
fn routes_inside(lab: &Lab, device: &str, own: Option<u8>) -> Result<String> {
    let addresses = lab.addresses()?;
    let mut lines = format!(
        "link set lo up\nroute replace {} dev {device}\nroute replace unreachable {} metric 4000\n",
        addresses.services(),
        addresses.all()
    );
    for number in (1..=NODES).filter(|number| Some(*number) != own) {
        let (pods, node) = (addresses.node_pods(number), addresses.node(number));
        lines.push_str(&format!("route replace {pods} via {node} dev {device}\n"));
    }
    Ok(lines)
}

/// Lets a namespace pass packets on: to its pods, or from the host to a service.
fn forward(ns: &str) -> Result<()> {
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
    let (exists, shown) = ip(netns)
        .args(["link", "show", "up", "dev", name])
        .attempt()?;
    Ok(exists && !shown.trim().is_empty())
}

fn remove_interface(netns: Option<&str>, name: &str) -> Result<()> {
    if has_interface(netns, name)? {
        batch(netns, &format!("link del {name}\n"))
    } else {
        Ok(())
    }
}

fn add_netns(lab: &Lab, machine: &str) -> Result<()> {
    // After a crash a file may be left that stands for nothing: opening it as a namespace is the test.
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
            .with_context(|| format!("cannot remove the stale {}", path.display()))?;
    }
    let _one_at_a_time = Lab::hold_shared()?;
    Cmd::new("ip").args(["netns", "add", &name]).run().map(drop)
}

fn delete_netns(name: &str) -> Result<()> {
    let path = Path::new("/run/netns").join(name);
    if !path.exists() {
        return Ok(());
    }
    // A frozen or half-made one may refuse: the plain file left by an unclean end is removed like the rest.
    if !Cmd::new("ip").args(["netns", "del", name]).attempt()?.0 && path.exists() {
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// `ip netns add` mounts its directory onto itself, once for all; with the last namespace that goes, too.
fn release_netns_dir() -> Result<()> {
    let _one_at_a_time = Lab::hold_shared()?;
    let dir = Path::new("/run/netns");
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none()) {
        // Where it is no mount of its own, it is not ours.
        if nix::mount::umount(dir).is_ok() {
            let _ = std::fs::remove_dir(dir);
        }
    }
    Ok(())
}

/// Opens a machine's network namespace, to enter it.
pub fn open_netns(path: &Path) -> Result<File> {
    File::open(path)
        .with_context(|| format!("cannot open the network namespace {}", path.display()))
}

/// The number of a lab whose record is gone: its guard lets packets through on the lab's interface only.
fn number_in_guard(name: &LabName) -> Option<u8> {
    let rules = Cmd::new("nft")
        .args(["list", "table", "inet", &guard_table(name)])
        .run()
        .ok()?;
    rules
        .split('"')
        .find_map(|word| word.strip_prefix("ek")?.parse().ok())
}

fn raise_guard(lab: &Lab) -> Result<()> {
    let (table, all, interface) = (
        guard_table(lab.name()),
        lab.addresses()?.all(),
        host_interface(lab),
    );
    // Whatever leaves the machine, sent or forwarded, passes here. The table is declared first so that deleting it
    // cannot fail: it is always replaced whole.
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

fn lower_guard(name: &LabName) -> Result<()> {
    let table = guard_table(name);
    let rules = format!("table inet {table} {{}}\ndelete table inet {table}\n");
    Cmd::new("nft")
        .args(["-f", "-"])
        .input(rules)
        .run()
        .map(drop)
}
