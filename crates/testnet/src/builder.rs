//! Descriptions of networks.

use std::time::Instant;

use oncewire_netem::LinkParams;

use crate::assembly::{Assembly, MOST_SITES};
use crate::missing::skip;
use crate::{Error, Line, Network};

/// The description of a network; from [`Network::builder`].
///
/// The default is one of each, joined by a perfect emulated line.
#[derive(Clone, Debug)]
pub struct Builder {
    branches: Fleet,
    hubs: Fleet,
    congestion: Option<String>,
    bridged: bool,
}

/// All branches, or all hubs.
#[derive(Clone, Debug)]
struct Fleet {
    sites: u8,
    hosts_each: u8,
    line: Line,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            branches: Fleet { sites: 1, hosts_each: 1, line: Line::emulated(&LinkParams::default()) },
            hubs: Fleet { sites: 1, hosts_each: 1, line: Line::Plain },
            congestion: None,
            bridged: false,
        }
    }
}

impl Builder {
    /// Sets how many branches there are: `branch`, `branch2`, … 1 to 100, default 1.
    #[must_use]
    pub fn branches(mut self, sites: u8) -> Self {
        self.branches.sites = sites;
        self
    }

    /// Sets how many hubs there are: `hub`, `hub2`, … 1 to 100, default 1.
    #[must_use]
    pub fn hubs(mut self, sites: u8) -> Self {
        self.hubs.sites = sites;
        self
    }

    /// Sets how many clients each branch has, 1 to 200, default 1. They are numbered throughout: with two each, `client`
    /// and `client2` are at `branch`, `client3` and `client4` at `branch2`.
    #[must_use]
    pub fn clients_each(mut self, hosts: u8) -> Self {
        self.branches.hosts_each = hosts;
        self
    }

    /// Sets how many servers each hub has, 1 to 200, default 1, numbered as clients are.
    #[must_use]
    pub fn servers_each(mut self, hosts: u8) -> Self {
        self.hubs.hosts_each = hosts;
        self
    }

    /// Sets the line of each branch. Default: a perfect emulated one.
    #[must_use]
    pub fn line(mut self, line: Line) -> Self {
        self.branches.line = line;
        self
    }

    /// Sets the line of each hub. Default [`Line::Plain`]: the branch's side is the one of interest. An emulated line
    /// can be cut.
    #[must_use]
    pub fn hub_line(mut self, line: Line) -> Self {
        self.hubs.line = line;
        self
    }

    /// Sets the congestion control of all connections of clients and servers. Default: the system's.
    #[must_use]
    pub fn congestion(mut self, name: &str) -> Self {
        self.congestion = Some(name.into());
        self
    }

    /// Puts all hosts into one network; its gateways and core are bridges. The bridges of gateways are named `br0`,
    /// join `lan0` and `wan0`, and have addresses of their own; nobody routes. Default: gateways and the core route.
    ///
    /// The lines must carry frames: not [`Shell::Tun`](crate::Shell::Tun). There can be 100 branches and hubs together.
    #[must_use]
    pub fn bridged(mut self) -> Self {
        self.bridged = true;
        self
    }

    /// Builds the network.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] without a necessary privilege or program, [`Error::Failed`] otherwise.
    pub fn build(&self) -> Result<Network, Error> {
        let start = Instant::now();
        self.check()?;
        let mut assembly = Assembly::new(self.congestion.clone(), self.bridged)?;
        self.branches.add_to(&mut assembly, ["branch", "client"])?;
        self.hubs.add_to(&mut assembly, ["hub", "server"])?;
        let network = assembly.build()?;
        Ok(network.built_in(start.elapsed()))
    }

    /// Checks the numbers against the available addresses.
    fn check(&self) -> Result<(), Error> {
        self.branches.check("branch")?;
        self.hubs.check("hub")?;
        let sites = u16::from(self.branches.sites) + u16::from(self.hubs.sites);
        if self.bridged && sites > u16::from(MOST_SITES) {
            return Err(Error::Failed(format!(
                "{sites} branches and hubs; a bridged network has addresses for {MOST_SITES} together"
            )));
        }
        Ok(())
    }

    /// Builds the network, or says why the test is left out.
    ///
    /// # Panics
    ///
    /// On failure; with `CI=true` also for a missing privilege or program.
    #[track_caller]
    pub fn build_or_skip(&self) -> Option<Network> {
        match self.build() {
            Ok(network) => Some(network),
            Err(error @ Error::Missing(_)) => {
                skip(&error.to_string());
                None
            }
            Err(error) => panic!("cannot build the network: {error}"),
        }
    }
}

impl Fleet {
    fn check(&self, gateway: &str) -> Result<(), Error> {
        match (1..=100).contains(&self.sites) && (1..=200).contains(&self.hosts_each) {
            true => Ok(()),
            false => Err(Error::Failed(format!(
                "{} {gateway} gateways with {} hosts each; there can be 1 to 100, with 1 to 200 each",
                self.sites, self.hosts_each
            ))),
        }
    }

    fn add_to(&self, assembly: &mut Assembly, [gateway, host]: [&str; 2]) -> Result<(), Error> {
        let mut number = 0;
        for site in 1..=u32::from(self.sites) {
            let hosts = (0..self.hosts_each).map(|_| {
                number += 1;
                numbered(host, number)
            });
            assembly.add_site(&numbered(gateway, site), hosts.collect(), &self.line)?;
        }
        Ok(())
    }
}

/// The first has no number.
fn numbered(name: &str, number: u32) -> String {
    if number == 1 { name.into() } else { format!("{name}{number}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(builder: &Builder) -> String {
        match builder.build() {
            Err(Error::Failed(why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn more_sites_than_there_are_addresses_for_are_refused() {
        let many = Network::builder().branches(60).hubs(41);
        assert!(refused(&many.clone().bridged()).contains("101 branches and hubs"));
        assert_eq!(many.check().ok(), Some(()), "routed, each site has a network of its own");
        assert_eq!(Network::builder().branches(60).hubs(40).bridged().check().ok(), Some(()));
        assert!(refused(&Network::builder().branches(101)).contains("101 branch gateways"));
        assert!(refused(&Network::builder().servers_each(0)).contains("0 hosts each"));
    }
}
