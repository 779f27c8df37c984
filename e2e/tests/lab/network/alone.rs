//! The stories of this topic that other stories would disturb.

use super::*;

/// Counters of packets that leave the machine, in an nftables table of the test, before and after the lab's guard.
struct Counters {
    table: String,
}

/// The counts so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    /// Packets for the lab's addresses, into the lab.
    into_lab: u64,
    /// Packets for the lab's addresses, through any other interface, before the guard.
    astray: u64,
    /// The same, after the guard.
    left: u64,
    /// Packets for the test's own outside address, after the guard.
    elsewhere: u64,
}

impl Counters {
    fn begin(story: &Story) -> Self {
        let table = format!("evenkeel_e2e_{}", story.lab().number());
        let (all, run_in_store) = (
            story.lab().addresses().unwrap().all(),
            format!("ek{}", story.lab().number()),
        );
        // The guard has priority -5.
        let rules = format!(
            "table inet {table} {{}}
delete table inet {table}
table inet {table} {{
    counter into_lab {{ }}
    counter astray {{ }}
    counter left {{ }}
    counter elsewhere {{ }}
    chain before {{
        type filter hook postrouting priority -10
        oifname != {{ \"{run_in_store}\", \"lo\" }} ip daddr {all} counter name astray
    }}
    chain after {{
        type filter hook postrouting priority 100
        oifname \"{run_in_store}\" ip daddr {all} counter name into_lab
        oifname != {{ \"{run_in_store}\", \"lo\" }} ip daddr {all} counter name left
        ip daddr {ELSEWHERE} counter name elsewhere
    }}
}}
"
        );
        Cmd::new("nft")
            .args(["-f", "-"])
            .input(rules)
            .run()
            .unwrap();
        Self { table }
    }

    fn read(&self) -> Counted {
        let output = Cmd::new("nft")
            .args(["-j", "list", "counters", "table", "inet", &self.table])
            .run()
            .unwrap();
        let output: Value = serde_json::from_str(&output).unwrap();
        let packets = |name: &str| {
            let all = output["nftables"].as_array().unwrap().iter();
            let named = all
                .map(|entry| &entry["counter"])
                .find(|counter| counter["name"] == name);
            named
                .and_then(|counter| counter["packets"].as_u64())
                .unwrap()
        };
        Counted {
            into_lab: packets("into_lab"),
            astray: packets("astray"),
            left: packets("left"),
            elsewhere: packets("elsewhere"),
        }
    }
}

impl Drop for Counters {
    fn drop(&mut self) {
        let _ = Cmd::new("nft")
            .args(["delete", "table", "inet", &self.table])
            .attempt();
    }
}

/// An address reserved for documentation.
const ELSEWHERE: &str = "203.0.113.1";

/// A route out of the machine's network that ends in an empty namespace: packets on it are counted and reach no host.
struct OutsideRoute {
    name: String,
}

impl OutsideRoute {
    fn to(story: &Story, address: &str) -> Self {
        let way = Self {
            name: format!("ekt{}", story.lab().number()),
        };
        let name = &way.name;
        for command in [
            format!("netns add {name}"),
            format!("link add {name} type veth peer name there netns {name}"),
            format!("-n {name} link set there up"),
            format!("link set {name} up"),
            format!("route add {address}/32 dev {name}"),
            format!("route add {ELSEWHERE}/32 dev {name}"),
        ] {
            Cmd::new("ip").args(command.split(' ')).run().unwrap();
        }
        way
    }
}

impl Drop for OutsideRoute {
    fn drop(&mut self) {
        // The routes are deleted with the interface.
        let _ = Cmd::new("ip").args(["link", "del", &self.name]).attempt();
        let _ = Cmd::new("ip").args(["netns", "del", &self.name]).attempt();
    }
}

/// Sends UDP and TCP packets to an address from this machine. Only the counters matter.
fn send_packets(address: &str) {
    let target = format!("{address}:8080");
    if let Ok(socket) = UdpSocket::bind("0.0.0.0:0") {
        let _ = socket.send_to(b"knock", &target);
    }
    let _ = TcpStream::connect_timeout(&target.parse().unwrap(), Duration::from_millis(300));
}

/// Returns a script that does the same in a shell with `nc` (a pod) or with bash (a node).
fn packet_script(addresses: &[String], with: &str) -> String {
    let each = addresses.iter().map(|address| match with {
        "nc" => format!("echo knock | timeout 1 nc {address} 8080"),
        _ => format!(
            "echo knock > /dev/udp/{address}/8080; timeout 1 {with} -c 'echo > /dev/tcp/{address}/8080'"
        ),
    });
    // All in parallel; rejections count as answers.
    each.map(|one| format!("({one}) & ")).collect::<String>() + "wait; true"
}

/// Returns all kinds of addresses: live, dead and unused, of pods and of Services.
fn targets(story: &Story) -> Vec<String> {
    let prefix = story
        .lab()
        .addresses()
        .unwrap()
        .all()
        .to_string()
        .replace(".0.0/16", "");
    let node = story.lab().nodes()[0].number;
    vec![
        story.field(&["pod", "live"], ".status.podIP"),
        story.field(&["service", "live"], ".spec.clusterIP"),
        // Of an existing node, of a node that never existed, and outside of every node's range.
        format!("{prefix}.{}.250", 64 + node),
        format!("{prefix}.{}.7", 64 + 59),
        format!("{prefix}.200.9"),
        format!("{prefix}.0.99"),
        // Unused Service addresses at the begin and at the end of their range.
        format!("{prefix}.129.77"),
        format!("{prefix}.143.254"),
    ]
}

#[test]
fn no_packet_for_an_address_of_the_lab_leaves_the_machine() {
    let story = Story::alone("network-inside");
    for name in ["live", "dead"] {
        story.apply(&pods::server(name, ""));
        story.kubectl(&["expose", "pod", name, "--port=8080"]);
    }
    pods::wait_for(&story, &["live", "dead"]);
    let mut targets = targets(&story);
    targets.push(story.field(&["pod", "dead"], ".status.podIP"));
    targets.push(story.field(&["service", "dead"], ".spec.clusterIP"));
    story.kubectl(&["delete", "pod/dead", "service/dead"]);

    let counters = Counters::begin(&story);
    for address in &targets {
        send_packets(address);
    }
    story.shell("live", &packet_script(&targets, "nc")).unwrap();
    for node in story.lab().nodes() {
        let netns = format!("--net=/run/netns/ek-{}-{}", story.lab().name(), node.name);
        Cmd::new("nsenter")
            .args([&netns, "bash", "-c", &packet_script(&targets, "bash")])
            .run()
            .unwrap();
    }
    story.eventually("the live pod answers", || {
        http_get(&format!("{}:8080", targets[0]), "/").is_some()
    });
    let counted = counters.read();
    assert!(
        counted.into_lab > 4,
        "no packet into the lab was counted: {counted:?}"
    );
    assert_eq!(
        (counted.astray, counted.left),
        (0, 0),
        "packets tried to leave: {counted:?}"
    );
}

#[test]
fn the_guard_stops_packets_on_a_wrong_route() {
    let story = Story::alone("network-guard");
    let astray = story
        .lab()
        .addresses()
        .unwrap()
        .all()
        .to_string()
        .replace(".0.0/16", ".200.1");
    let counters = Counters::begin(&story);
    let _way = OutsideRoute::to(&story, &astray);
    send_packets(&astray);
    send_packets(ELSEWHERE);
    let counted = counters.read();
    assert!(
        counted.astray >= 2,
        "the wrong route was not used: {counted:?}"
    );
    assert!(
        counted.elsewhere >= 2,
        "no packet left through the route: {counted:?}"
    );
    assert_eq!(counted.left, 0, "the guard let packets pass: {counted:?}");
}
