//! A site with two gateways, whose line to the hub is slow.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use oncewire_testnet::{Family, Line, Network, isolated};
use tempfile::TempDir;

use super::line;
use crate::binary;
use crate::common::data::{assert_same, random};
use crate::common::gateway::{Gateway, keygen};
use crate::common::wait::{LIMIT, eventually};

/// One gateway on the router of the branch, the other on a host of its LAN; both dial the hub, and the second the first.
struct Town {
    hub: Gateway,
    first: Gateway,
    second: Gateway,
    network: Network,
    _dir: TempDir,
}

const ADMIN: &str = "127.0.0.1:7411";
const TUNNEL: u16 = 7400;
/// The server's port, and that at which both gateways of the branch lead there.
const PORT: u16 = 8080;
const LEN: usize = 1_000_000;

impl Town {
    fn start() -> Option<Self> {
        let network = Network::builder().line(Line::emulated(&line(0.0))).build_or_skip()?;
        let dir = tempfile::tempdir().unwrap();
        let keys = ["hub", "first", "second"].map(|name| {
            let file = dir.path().join(name).with_extension("key");
            (name, keygen(binary(), &file).to_string())
        });
        let made = std::process::Command::new(binary())
            .args(["keygen", "--group", "--out"])
            .arg(dir.path().join("group.key"))
            .status();
        assert!(made.unwrap().success());
        let at = |host: &str| SocketAddr::new(network.host(host).ip(Family::V4), TUNNEL);
        let (hub, router) = (at("hub"), SocketAddr::new(network.host("branch").lan_ip(Family::V4), TUNNEL));
        let gateway = |name: &str, site: bool, peers: &[(&str, Option<SocketAddr>)]| {
            let mut text = config(name, site);
            for (peer, address) in peers {
                let key = &keys.iter().find(|(known, _)| known == peer).unwrap().1;
                let _ =
                    writeln!(text, "[[peer]]\nname = \"{peer}\"\npublic_key = \"{key}\"\ngroup = \"all\"");
                let site = if *peer == "hub" { "" } else { "site = \"town\"\n" };
                let address = address.map(|address| format!("address = \"{address}\"\n")).unwrap_or_default();
                text += &format!("{site}{address}");
            }
            if site {
                text += &forwards(&network);
            }
            Gateway::new(binary(), dir.path(), name, ADMIN.parse().unwrap(), &text)
        };
        let mut town = Self {
            hub: gateway("hub", false, &[("first", None), ("second", None)]),
            first: gateway("first", true, &[("hub", Some(hub)), ("second", None)]),
            second: gateway("second", true, &[("hub", Some(hub)), ("first", Some(router))]),
            network,
            _dir: dir,
        };
        town.network.host("hub").launch(|| town.hub.start());
        town.network.host("branch").launch(|| town.first.start());
        town.network.host("client").launch(|| town.second.start());
        eventually("all have met", LIMIT, || {
            let met = |host, gateway| town.group(host, gateway, "neighbours") == Some(1);
            (met("branch", &town.first) && met("client", &town.second)).then_some(())
        });
        Some(town)
    }

    /// A counter of a gateway's group, asked from within its host.
    fn group(&self, host: &str, gateway: &Gateway, key: &str) -> Option<u64> {
        self.network.host(host).launch(|| gateway.ask("status"))?["groups"][0][key].as_u64()
    }

    /// Has the server give a file for each two connections, to both the same.
    fn serve(&self) {
        let address = SocketAddr::new(self.network.host("server").ip(Family::V4), PORT);
        let listener = self.network.host("server").enter(|| TcpListener::bind(address).unwrap());
        std::thread::spawn(move || {
            for (number, stream) in (0..).zip(listener.incoming()) {
                let Ok(mut stream) = stream else { return };
                // Whether it arrived is for the client to say.
                let _ = stream.write_all(&file(number / 2));
            }
        });
    }

    /// Fetches by way of the gateway that runs in a host, and returns also what crossed the line meanwhile.
    fn fetch(&self, host: &str) -> (Vec<u8>, u64) {
        let before = self.network.wan().down.counters().carried_bytes;
        let address = SocketAddr::from(([127, 0, 0, 1], PORT));
        let mut stream = self.network.host(host).enter(|| TcpStream::connect(address).unwrap());
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        (got, self.network.wan().down.counters().carried_bytes - before)
    }

    /// Waits until hub and neighbour have heard of all that the first has stored.
    fn wait_told(&self) {
        eventually("all is told", LIMIT, || {
            let status = self.network.host("branch").launch(|| self.first.ask("status"))?;
            let (store, group) = (&status["store"], &status["groups"][0]);
            let stored = store["waiting_bytes"] == 0;
            let told = group["announced"].as_u64()?;
            let all = told + group["not_announced"].as_u64()? == group["new"].as_u64()? && told > 0;
            let heard = |host, gateway| self.group(host, gateway, "heard") >= Some(told);
            (stored && all && heard("hub", &self.hub) && heard("client", &self.second)).then_some(())
        });
    }
}

fn config(name: &str, site: bool) -> String {
    let site = if site { "site = \"town\"\n" } else { "" };
    format!(
        "[gateway]\nname = \"{name}\"\nkey_file = \"{name}.key\"\nadmin = \"{ADMIN}\"\nstate = \"{name}-state\"\n\
         listen = \"0.0.0.0:{TUNNEL}\"\n{site}[codec]\ncodec = \"wanax\"\nadapt = false\n[link]\ndead_after = \"60 s\"\n\
         [cache]\nmemory = \"256 MiB\"\nlog_memory = \"256 KiB\"\nstore_disk = \"64 MiB\"\n\
         [[group]]\nname = \"all\"\nkey_file = \"group.key\"\n"
    )
}

fn forwards(network: &Network) -> String {
    let server = network.host("server").ip(Family::V4);
    format!(
        "[[intercept]]\nmode = \"forward\"\nlisten = \"127.0.0.1:{PORT}\"\ntarget = \"{server}:{PORT}\"\npeer = \"hub\"\n"
    )
}

fn file(number: u64) -> Vec<u8> {
    random(1000 + number, LEN)
}

#[test]
fn what_one_gateway_of_a_site_fetched_crosses_the_line_once_and_its_loss_stalls_nobody() {
    isolated(|| {
        let Some(mut town) = Town::start() else { return };
        town.serve();
        let mut number = 0;
        let mut fetch_at_first = |town: &Town| {
            let data = file(number);
            let (got, crossed) = town.fetch("branch");
            assert_same(&got, &data, "at the first");
            number += 1;
            town.wait_told();
            (data, crossed)
        };
        // What a busy machine finds too late in stores is asked for over the line, and rightly so.
        eventually("a file crosses once", LIMIT, || {
            let (data, at_first) = fetch_at_first(&town);
            let (got, at_second) = town.fetch("client");
            assert_same(&got, &data, "at the second");
            println!("down the line: {at_first} for the first, then {at_second} for the second");
            (at_second < at_first / 4).then_some(())
        });
        let (data, _) = fetch_at_first(&town);
        // It does not answer, and its link does not break.
        town.first.set_stopped(true);
        assert_same(&town.fetch("client").0, &data, "beside one that hangs");
        town.first.set_stopped(false);
        let (data, _) = fetch_at_first(&town);
        town.first.kill();
        assert_same(&town.fetch("client").0, &data, "beside one that was killed");
        let wrong = town.group("client", &town.second, "wrong");
        assert_eq!(wrong, Some(0));
    });
}
