//! Two hubs in front of the same server.

use std::net::SocketAddr;

use oncewire_testnet::{Family, Line, Network, isolated};
use serde_json::Value;

use super::connection::has_nft;
use super::deployment::ADMIN;
use super::{Deployment, LIMIT, Plan, tproxy};
use crate::binary;
use crate::common::gateway::{Gateway, keygen};
use crate::common::wait::eventually;

/// Networks accepted by a branch from the hubs' announcements.
const ACCEPTED: &str = "accept_networks = [\"198.18.0.0/16\", \"fd18::/16\"]\n";

#[test]
fn only_one_of_two_fronting_hubs_uses_clients_names() {
    isolated(|| {
        if !has_nft() {
            return;
        }
        let Some(network) = Network::builder().line(Line::Plain).hubs(2).build_or_skip() else { return };
        let dir = tempfile::tempdir().unwrap();
        let other_key = keygen(binary(), &dir.path().join("hub2.key"));
        let address = SocketAddr::new(network.host("hub2").ip(Family::V4), 7400);
        let intercepts = format!(
            "{ACCEPTED}[[peer]]\nname = \"hub2\"\npublic_key = \"{other_key}\"\naddress = \"{address}\"\n{ACCEPTED}{}",
            tproxy("client")
        );
        let sources = "allow_sources = [\"198.18.1.0/24\", \"fd18:1::/64\"]\n";
        let hub = "announce = [\"198.18.2.0/24\", \"fd18:2::/64\"]\n";
        let plan = Plan { intercepts: &intercepts, hub, peer: sources, ..Plan::default() };
        let mut deployment = Deployment::over(network, &plan);
        let other = format!(
            "[gateway]\nname = \"hub2\"\nkey_file = \"hub2.key\"\nadmin = \"{ADMIN}\"\nlisten = \"0.0.0.0:7400\"\n\
             announce = [\"198.18.0.0/16\", \"fd18::/16\"]\n[cache]\nmemory = \"256 MiB\"\nlog_memory = \"16 MiB\"\n\
             [[peer]]\nname = \"branch\"\npublic_key = \"{}\"\n{sources}",
            deployment.branch_key
        );
        let mut other = Gateway::new(binary(), dir.path(), "hub2", ADMIN, &other);
        deployment.network.host("hub2").launch(|| other.start());
        deployment.start();
        eventually("one hub's announcement is refused, with the other's name", LIMIT, || {
            let status = deployment.status();
            let rows = |peer: usize| status["peers"][peer]["networks"].as_array().cloned();
            let used = |row: &Value| row["announced"] == true && row["used"] == true;
            let refused =
                |row: &Value| row["reason"].as_str().is_some_and(|why| why.starts_with("hub fronts"));
            let (first, second) = (rows(0)?, rows(1)?);
            (first.len() == 2 && first.iter().all(used) && second.len() == 2 && second.iter().all(refused))
                .then_some(())
        });
        for server in deployment.servers() {
            let mut taken = deployment.taken_in(server);
            assert_eq!(taken.seen_as, taken.local());
            taken.say("by way of the first");
        }
        let host = deployment.network.host("hub2");
        let status = eventually("the second hub answers", LIMIT, || host.launch(|| other.ask("status")));
        assert_eq!(status["peers"][0]["flows_total"], 0);
    });
}
