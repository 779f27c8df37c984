//! The network of the lab: every pod reaches every other one, names are resolved, and no packet for an address of the lab leaves the
//! machine.

mod alone;
mod full;

use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use evenkeel_e2e::{Story, http_get};
use evenkeel_lab::command::Cmd;
use serde_json::Value;

use crate::pods;
use crate::stateless::web;

#[test]
fn pods_reach_each_other_across_nodes() {
    let story = Story::begin("network-pods");
    let nodes: Vec<_> = story
        .lab()
        .nodes()
        .iter()
        .map(|node| node.name.clone())
        .collect();
    let servers: Vec<_> = nodes.iter().map(|node| format!("on-{node}")).collect();
    for (server, node) in servers.iter().zip(&nodes) {
        story.apply(&pods::server(server, &pods::on(node)));
    }
    pods::wait_for(
        &story,
        &servers.iter().map(String::as_str).collect::<Vec<_>>(),
    );
    for from in &servers {
        for to in &servers {
            let page = format!("http://{}/", pods::address(&story, to, 8080));
            story.eventually(&format!("{from} reaches {to}"), || {
                story
                    .shell(from, &format!("timeout 3 wget -qO- {page}"))
                    .is_ok_and(|output| output.trim() == to)
            });
        }
    }
}
