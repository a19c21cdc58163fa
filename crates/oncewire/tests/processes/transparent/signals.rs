//! Signals during the loading or removal of rules by slow programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use oncewire_testnet::{Host, Line, Network, isolated};
use tempfile::TempDir;

use super::LIMIT;
use super::deployment::ADMIN;
use crate::binary;
use crate::common::gateway::{Gateway, keygen};
use crate::common::wait::eventually;

/// A lone gateway with an `nft` that only keeps a list, and waits when told to.
struct Slow {
    gateway: Gateway,
    dir: TempDir,
}

impl Slow {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        keygen(binary(), &path("slow.key"));
        let peer = keygen(binary(), &path("peer.key"));
        let fifo = Command::new("mkfifo").arg(path("go")).status().unwrap();
        assert!(fifo.success());
        script(&path("nft"), &NFT.replace("DIR", dir.path().to_str().unwrap()));
        let run = format!("PATH={}:$PATH exec {} \"$@\"\n", dir.path().display(), binary().display());
        script(&path("run"), &run);
        let config = format!(
            "[gateway]\nname = \"slow\"\nkey_file = \"slow.key\"\nadmin = \"{ADMIN}\"\n\
             [[peer]]\nname = \"peer\"\npublic_key = \"{peer}\"\naddress = \"127.0.0.1:9\"\n{REDIRECT}"
        );
        let gateway = Gateway::new(&path("run"), dir.path(), "slow", ADMIN, &config);
        Self { gateway, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&mut self, host: &Host) {
        let gateway = &mut self.gateway;
        host.launch(|| gateway.start());
    }

    /// From now on `nft` waits before it loads anything.
    fn block(&self) {
        fs::write(self.path("block"), "").unwrap();
    }

    /// Waits until `nft` does.
    fn wait_for_nft(&self) {
        eventually("nft waits", LIMIT, || self.path("waits").exists().then_some(()));
    }

    /// Lets every waiting `nft` go on.
    fn go(&self) {
        // A late opener is waited for.
        fs::write(self.path("go"), "go\n").unwrap();
    }

    fn logs(&self, line: &str) {
        eventually(line, LIMIT, || self.gateway.whole_log().contains(line).then_some(()));
    }

    /// The arguments of `nft`'s calls.
    fn calls(&self) -> String {
        fs::read_to_string(self.path("calls")).unwrap_or_default()
    }

    fn has_rules(&self) -> bool {
        self.path("loaded").exists()
    }
}

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}")).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// The usual network, for one of its hosts.
fn network() -> Option<Network> {
    Network::builder().line(Line::Plain).build_or_skip()
}

#[test]
fn gateway_stopped_during_its_start_leaves_no_rules() {
    isolated(|| {
        let Some(network) = network() else { return };
        let mut slow = Slow::new();
        slow.block();
        slow.start(network.host("branch"));
        slow.wait_for_nft();
        slow.gateway.terminate();
        slow.logs("stops: flows may finish");
        // Only now does the program go on, and load them.
        slow.go();
        assert!(slow.gateway.wait(LIMIT).success());
        assert!(
            !slow.has_rules() && slow.calls().contains("delete table inet oncewire-slow"),
            "{}",
            slow.calls()
        );
        assert!(!slow.gateway.whole_log().contains("gateway started"));
    });
}

#[test]
fn gateway_stopped_during_a_reload_leaves_no_rules() {
    isolated(|| {
        let Some(network) = network() else { return };
        let mut slow = Slow::new();
        slow.start(network.host("branch"));
        slow.logs("gateway started");
        slow.block();
        let config = fs::read_to_string(slow.gateway.config()).unwrap();
        slow.gateway.write_config(&config.replace("[9090]", "[9091]"));
        slow.gateway.reload();
        slow.wait_for_nft();
        slow.gateway.terminate();
        slow.logs("the reload that was under way is given up");
        fs::remove_file(slow.path("block")).unwrap();
        slow.go();
        assert!(slow.gateway.wait(LIMIT).success());
        assert!(!slow.has_rules(), "{}", slow.calls());
    });
}

#[test]
fn endless_program_does_not_keep_a_gateway_from_ending() {
    isolated(|| {
        let Some(network) = network() else { return };
        let mut slow = Slow::new();
        slow.start(network.host("branch"));
        slow.logs("gateway started");
        slow.block();
        slow.gateway.terminate();
        slow.wait_for_nft();
        slow.logs("shutting down; flows may finish");
        assert!(slow.gateway.wait(LIMIT).success());
        slow.logs("rules may stay, without effect");
        slow.go();
    });
}

#[test]
fn a_second_signal_removes_rules_and_waits_for_nothing_else() {
    isolated(|| {
        let Some(network) = network() else { return };
        let mut slow = Slow::new();
        slow.start(network.host("branch"));
        slow.logs("gateway started");
        // It is to have the signs of life forgotten.
        slow.block();
        slow.gateway.terminate();
        slow.wait_for_nft();
        assert!(slow.has_rules());
        slow.gateway.terminate();
        assert_eq!(slow.gateway.wait(LIMIT).code(), Some(1));
        assert!(!slow.has_rules(), "{}", slow.calls());
        // Waiting calls are let go.
        slow.go();
    });
}

#[test]
fn a_second_signal_waits_for_no_program_either() {
    isolated(|| {
        let Some(network) = network() else { return };
        let mut slow = Slow::new();
        slow.block();
        slow.start(network.host("branch"));
        slow.wait_for_nft();
        fs::write(slow.path("block-all"), "").unwrap();
        slow.gateway.terminate();
        slow.logs("stops: flows may finish");
        slow.gateway.terminate();
        assert_eq!(slow.gateway.wait(LIMIT).code(), Some(1));
        slow.logs("rules may stay, without effect");
        slow.go();
    });
}

const REDIRECT: &str =
    "[[intercept]]\nmode = \"redirect\"\nlisten = \"127.0.0.1:15002\"\nports = [9090]\npeer = \"auto\"\n";

const NFT: &str = r#"
wait_for_go() {
    echo waits >> DIR/waits
    read go < DIR/go
}
echo "$*" >> DIR/calls
[ -e DIR/block-all ] && wait_for_go
case "$*" in
    "-f -")
        cat > DIR/said
        [ -e DIR/block ] && wait_for_go
        grep -q "flush set" DIR/said || echo there > DIR/loaded
        ;;
    "--terse list ruleset inet")
        [ -e DIR/loaded ] && printf 'table inet oncewire-slow {\n}\n'
        exit 0
        ;;
    "delete table inet "*) rm DIR/loaded ;;
esac
exit 0
"#;
