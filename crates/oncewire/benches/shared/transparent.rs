//! A pair of gateways on a test network, with a transparent router as the branch.

use std::path::Path;

use oncewire_testnet::{Family, Network};

use crate::common::gateway::{Gateway, keygen};
use crate::common::wait::{LIMIT, eventually};

/// The settings of a pair beyond identities.
pub(crate) struct Told<'a> {
    /// The ports intercepted by the branch, in its configuration's form.
    pub(crate) ports: &'a str,
    /// The peer of its interception.
    pub(crate) peer: &'a str,
    /// Policies of the branch.
    pub(crate) policies: &'a str,
    /// The settings of both.
    pub(crate) both: &'a str,
}

/// Starts the hub and the branch and waits until they have met.
pub(crate) fn gateways(network: &Network, dir: &Path, told: &Told<'_>) -> [Gateway; 2] {
    let binary = env!("CARGO_BIN_EXE_oncewire").as_ref();
    let [hub_key, branch_key] =
        ["hub", "branch"].map(|name| keygen(binary, &dir.join(format!("{name}.key"))));
    let hub = network.host("hub").ip(Family::V4);
    let Told { ports, peer, policies, both } = told;
    let configs = [
        (
            "hub",
            format!(
                "[gateway]\nname = \"hub\"\nkey_file = \"hub.key\"\nlisten = [\"0.0.0.0:7400\"]\n\
                 [[peer]]\nname = \"branch\"\npublic_key = \"{branch_key}\"\n{both}"
            ),
        ),
        (
            "branch",
            format!(
                "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nadmin = \"{ADMIN}\"\n\
                 [[peer]]\nname = \"hub\"\npublic_key = \"{hub_key}\"\naddress = \"{hub}:7400\"\n\
                 [[intercept]]\nmode = \"tproxy\"\nlisten = \"127.0.0.1:15001\"\ninterfaces = [\"lan0\"]\n\
                 ports = {ports}\npeer = \"{peer}\"\n{policies}{both}"
            ),
        ),
    ];
    let gateways = configs.map(|(name, config)| {
        let mut gateway = Gateway::new(binary, dir, name, ADMIN.parse().unwrap(), &config);
        network.host(name).launch(|| gateway.start());
        gateway
    });
    eventually("the link", LIMIT, || {
        let status = network.host("branch").launch(|| gateways[1].ask("status"))?;
        (status["peers"][0]["state"] == "up").then_some(())
    });
    gateways
}

/// Of the branch; each host has a loopback interface of its own.
const ADMIN: &str = "127.0.0.1:7411";
