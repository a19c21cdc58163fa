//! Two gateways and the relay between them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::gateway::{Gateway, keygen};
use super::relay::CuttingRelay;
use super::wait::{LIMIT, free_address};

/// The setup of a pair; the default intercepts by socks5 and http only.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// One `forward` for each.
    pub(crate) targets: Vec<SocketAddr>,
    /// TOML for each `forward`.
    pub(crate) forward_keys: String,
    /// TOML for both `[gateway]` tables.
    pub(crate) gateway_keys: String,
    /// TOML for both `[[peer]]` tables.
    pub(crate) peer_keys: String,
    /// A folder with keys and states of an earlier pair; its files are copied.
    pub(crate) stored: Option<PathBuf>,
    /// TOML for the end of both configurations, such as a `[link]` table.
    pub(crate) both: String,
    /// TOML for the end of the branch's configuration.
    pub(crate) branch: String,
    /// Users of the socks5 and http proxies, as `name:password`.
    pub(crate) users: Vec<String>,
    /// Whether lanes go straight to the hub, without the relay.
    pub(crate) straight: bool,
    /// The relay's limit each way, all lanes together; none by default.
    pub(crate) rate_bytes_per_s: Option<u64>,
}

impl Options {
    /// A pair with `target` behind its `forward`.
    pub(crate) fn to(target: SocketAddr) -> Self {
        Self { targets: vec![target], ..Self::default() }
    }

    /// The same with blocks coded as configured under any load: for tests with byte counts.
    pub(crate) fn without_adapting(self) -> Self {
        self.with("[codec]\nadapt = false\n")
    }

    /// The same with `toml` at the end of both configurations.
    pub(crate) fn with(mut self, toml: &str) -> Self {
        self.both.push_str(toml);
        self
    }
}

/// A running pair: clients use the branch, servers stand behind the hub, and the branch dials.
pub(crate) struct Pair {
    /// The intercepting gateway.
    pub(crate) branch: Gateway,
    /// The gateway in front of the servers.
    pub(crate) hub: Gateway,
    /// The relay between them.
    pub(crate) relay: CuttingRelay,
    /// Listening addresses of the `forward` intercepts, in the order of the targets.
    pub(crate) forwards: Vec<SocketAddr>,
    /// The branch's SOCKS5 proxy.
    pub(crate) socks: SocketAddr,
    /// The branch's HTTP proxy.
    pub(crate) http: SocketAddr,
    /// The hub's address for lanes.
    pub(crate) tunnel: SocketAddr,
    /// Keys, configurations, states and logs.
    pub(crate) dir: TempDir,
}

impl Pair {
    /// Starts both gateways of `binary` and waits until the link between them is up.
    pub(crate) fn start_with(binary: &Path, options: &Options) -> Self {
        for _ in 0..PORT_TRIES {
            let mut pair = Self::configure(binary, options);
            pair.hub.start();
            pair.branch.start();
            if pair.ready() {
                return pair;
            }
        }
        panic!("no free ports after {PORT_TRIES} tries");
    }

    /// The first `forward`'s address.
    pub(crate) fn forward(&self) -> SocketAddr {
        self.forwards[0]
    }

    /// Waits until both ends report the link as up.
    pub(crate) fn wait_until_up(&self) {
        self.branch.wait_until_up(LIMIT);
        self.hub.wait_until_up(LIMIT);
    }

    /// Waits for the link; `false` when another process had taken one of the ports.
    fn ready(&mut self) -> bool {
        let mut taken = false;
        super::wait::eventually("both gateways are up", LIMIT, || {
            for gateway in [&mut self.branch, &mut self.hub] {
                if let Some(status) = gateway.ended() {
                    taken = gateway.log().contains("in use");
                    assert!(taken, "a gateway ended ({status}):\n{}", gateway.log());
                    return Some(());
                }
            }
            let up = |gateway: &Gateway| Some(gateway.ask("status")?["peers"][0]["state"] == "up");
            (up(&self.branch)? && up(&self.hub)?).then_some(())
        });
        !taken
    }

    fn configure(binary: &Path, options: &Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        if let Some(stored) = &options.stored {
            copy_folder(stored, dir.path());
        }
        let branch_key = keygen(binary, &dir.path().join("branch.key"));
        let hub_key = keygen(binary, &dir.path().join("hub.key"));
        let tunnel = free_address();
        let relay = CuttingRelay::start(tunnel, options.rate_bytes_per_s);
        let (socks, http) = (free_address(), free_address());
        let (branch_admin, hub_admin) = (free_address(), free_address());
        let forwards: Vec<_> = options.targets.iter().map(|_| free_address()).collect();

        let dialled = if options.straight { tunnel } else { relay.address() };
        let (gateway_keys, peer_keys) = (&options.gateway_keys, &options.peer_keys);
        let mut branch = gateway_table("branch", branch_admin) + gateway_keys;
        let _ = writeln!(
            branch,
            "[[peer]]\nname = \"hub\"\npublic_key = \"{hub_key}\"\naddress = \"{dialled}\"\n{peer_keys}"
        );
        for (listen, target) in forwards.iter().zip(&options.targets) {
            let _ = writeln!(
                branch,
                "[[intercept]]\nmode = \"forward\"\nlisten = \"{listen}\"\ntarget = \"{target}\"\npeer = \"hub\"\n{}",
                options.forward_keys
            );
        }
        for (mode, listen) in [("socks5", socks), ("http", http)] {
            let _ =
                writeln!(branch, "[[intercept]]\nmode = \"{mode}\"\nlisten = \"{listen}\"\npeer = \"hub\"");
            if !options.users.is_empty() {
                let _ = writeln!(branch, "users = {:?}", options.users);
            }
        }
        let mut hub = gateway_table("hub", hub_admin) + gateway_keys;
        hub = hub.replace("[gateway]", &format!("[gateway]\nlisten = [\"{tunnel}\"]"));
        let _ = writeln!(hub, "[[peer]]\nname = \"branch\"\npublic_key = \"{branch_key}\"\n{peer_keys}");
        for config in [&mut branch, &mut hub] {
            config.push_str(if options.both.contains("[cache]") { "" } else { CACHE });
            config.push_str(&options.both);
        }
        branch.push_str(&options.branch);
        Self {
            branch: Gateway::new(binary, dir.path(), "branch", branch_admin, &branch),
            hub: Gateway::new(binary, dir.path(), "hub", hub_admin, &hub),
            relay,
            forwards,
            socks,
            http,
            tunnel,
            dir,
        }
    }
}

fn gateway_table(name: &str, admin: SocketAddr) -> String {
    format!(
        "[gateway]\nname = \"{name}\"\nkey_file = \"{name}.key\"\nadmin = \"{admin}\"\nstate = \"{name}-state\"\n"
    )
}

/// Copies the files of a folder and of the folders in it, for their owner alone.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (from, to) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            std::fs::copy(&from, &to).unwrap();
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
    }
}

/// Small enough for many pairs on one machine, large enough to forget nothing here.
const CACHE: &str = "[cache]\nmemory = \"512 MiB\"\nlog_memory = \"64 MiB\"\n";
const PORT_TRIES: usize = 5;
