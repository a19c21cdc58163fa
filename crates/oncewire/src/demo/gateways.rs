//! The pair of gateways, in this process.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use oncewire_config::Config;
use oncewire_gateway::daemon::Gateway;
use oncewire_keys::Identity;

/// A hub at the far side of the path, and a branch at the near side once it is started.
pub(crate) struct Pair {
    /// Holds the key files, for gateways to read as in any deployment, and the chunk store.
    directory: PathBuf,
    hub: Gateway,
    branch: Option<Gateway>,
    /// The branch's configuration, between its own keys and the address of its SOCKS proxy.
    branch_config: String,
    hub_address: SocketAddr,
    forward_address: SocketAddr,
    socks_address: SocketAddr,
    admin_address: Option<SocketAddr>,
}

/// Flows and bytes of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) flows: u64,
    pub(crate) delivered: u64,
    pub(crate) wire: u64,
}

impl Pair {
    /// Starts the hub, in wait for the branch, with its files in `directory`.
    ///
    /// # Errors
    ///
    /// Unwritable keys, or a gateway without a start.
    pub(crate) async fn start_hub(directory: &Path) -> anyhow::Result<Self> {
        Identity::create(&directory.join("hub.key"))?;
        let branch_key = Identity::create(&directory.join("branch.key"))?;
        let text = format!(
            "[gateway]\nname = \"hub\"\nkey_file = \"hub.key\"\nlisten = [\"127.0.0.1:0\"]\n\
             [[peer]]\nname = \"branch\"\npublic_key = \"{}\"\n",
            branch_key.public_key()
        );
        let hub = start(&text, directory, "hub").await?;
        let hub_address = *hub.local_addrs().tunnel.first().context("the hub listens nowhere")?;
        let unknown = hub_address;
        Ok(Self {
            directory: directory.to_owned(),
            hub,
            branch: None,
            branch_config: String::new(),
            hub_address,
            forward_address: unknown,
            socks_address: unknown,
            admin_address: None,
        })
    }

    /// Returns the hub's address for the branch.
    pub(crate) fn hub_address(&self) -> SocketAddr {
        self.hub_address
    }

    /// Starts the branch; it dials the hub at `hub` and forwards to `origin`.
    ///
    /// # Errors
    ///
    /// A gateway without a start.
    pub(crate) async fn start_branch(&mut self, hub: SocketAddr, origin: SocketAddr) -> anyhow::Result<()> {
        let hub_key = Identity::load(&self.directory.join("hub.key"))?;
        self.branch_config = format!(
            "[cache]\nstore_disk = \"{STORE_DISK}\"\nstore_path = \"store\"\n\
             [[peer]]\nname = \"hub\"\npublic_key = \"{}\"\naddress = \"{hub}\"\n\
             [[intercept]]\nmode = \"forward\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{origin}\"\npeer = \"hub\"\n\
             on_peer_loss = \"refuse\"\n\
             [[intercept]]\nmode = \"socks5\"\npeer = \"hub\"\non_peer_loss = \"refuse\"\n",
            hub_key.public_key()
        );
        self.run_branch(false).await
    }

    /// Ends the branch, with logs in memory alone, and starts it again, with its chunk store's content on disk. To be
    /// kept, it has an admin interface from then on, and the usual ports.
    ///
    /// # Errors
    ///
    /// As [`Self::start_branch`].
    pub(crate) async fn restart_branch(&mut self, kept: bool) -> anyhow::Result<()> {
        if let Some(branch) = self.branch.take() {
            branch.shutdown(DRAIN).await;
        }
        self.run_branch(kept).await
    }

    async fn run_branch(&mut self, kept: bool) -> anyhow::Result<()> {
        let (socks, admin) = match kept {
            true => (usual(SOCKS_PORT), format!("admin = \"{}\"\n", usual(ADMIN_PORT))),
            false => (usual(0), String::new()),
        };
        let text = format!(
            "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\n{admin}{}listen = \"{socks}\"\n",
            self.branch_config
        );
        let branch = start(&text, &self.directory, "branch").await?;
        if let [forward, socks] = branch.local_addrs().intercepts.as_slice() {
            (self.forward_address, self.socks_address) = (*forward, *socks);
        }
        self.admin_address = branch.local_addrs().admin;
        self.branch = Some(branch);
        Ok(())
    }

    /// Waits until the gateways are linked.
    ///
    /// # Errors
    ///
    /// A link still down after [`LINK_LIMIT`].
    pub(crate) async fn wait_linked(&self) -> anyhow::Result<()> {
        let branch = self.branch.as_ref().context("the branch does not run")?;
        ensure!(
            branch.wait_up("hub", LINK_LIMIT).await,
            "the gateways are not linked after {} s; are loss or round trip too high, or is the rate too low?",
            LINK_LIMIT.as_secs()
        );
        Ok(())
    }

    /// Returns the client's address to reach the origin.
    pub(crate) fn forward_address(&self) -> SocketAddr {
        self.forward_address
    }

    /// Returns the SOCKS proxy's address.
    pub(crate) fn socks_address(&self) -> SocketAddr {
        self.socks_address
    }

    /// Returns the address of the branch's admin interface, if it has one.
    pub(crate) fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Returns the branch's counts on its link since its last start.
    pub(crate) fn counted(&self) -> Counted {
        let status = self.branch.as_ref().map(Gateway::status);
        let hub = status.and_then(|status| status.peers.into_iter().next());
        hub.map(|hub| Counted { flows: hub.flows_total, delivered: hub.delivered, wire: hub.wire })
            .unwrap_or_default()
    }

    /// Stops both gateways in order.
    pub(crate) async fn shutdown(self) {
        if let Some(branch) = self.branch {
            branch.shutdown(DRAIN).await;
        }
        self.hub.shutdown(DRAIN).await;
    }
}

/// Returns an address of loopback with this port, or with any port if somebody has it.
pub(crate) fn usual(port: u16) -> SocketAddr {
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match TcpListener::bind(wanted) {
        Ok(_) => wanted,
        Err(_) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
    }
}

async fn start(text: &str, directory: &Path, name: &str) -> anyhow::Result<Gateway> {
    let config = Config::parse(text, &directory.join(format!("{name}.toml")))
        .with_context(|| format!("the demonstration's configuration of the {name} is refused"))?;
    Gateway::start(config).await.with_context(|| format!("the {name} gateway does not start"))
}

/// The SOCKS proxy's port of a kept pair, unless taken.
const SOCKS_PORT: u16 = 11_080;
/// The admin interface's port of its near gateway, unless taken.
const ADMIN_PORT: u16 = 17_411;
/// Time for the first lane to come up; a lost SYN costs a second on any link.
const LINK_LIMIT: Duration = Duration::from_secs(30);
/// Disk for the branch's chunk store.
const STORE_DISK: &str = "4 GiB";
/// Nothing is under way any more when the gateways are stopped.
const DRAIN: Duration = Duration::from_secs(1);
