//! A running network.

use std::sync::Arc;
use std::time::Duration;

use crate::builder::Builder;
use crate::driver::Wan;
use crate::host::Host;
use crate::namespace::Namespace;

/// A running network; dropping it ends everything in it.
#[derive(Debug)]
pub struct Network {
    /// First, so nothing is sent into vanished interfaces.
    lines: Vec<(String, Wan)>,
    hosts: Vec<Host>,
    /// Also those of no host; nothing else keeps them.
    _namespaces: Vec<Arc<Namespace>>,
    built_in: Duration,
}

impl Network {
    /// Begins the description of a network.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(hosts: Vec<Host>, lines: Vec<(String, Wan)>, namespaces: Vec<Arc<Namespace>>) -> Self {
        Self { lines, hosts, _namespaces: namespaces, built_in: Duration::ZERO }
    }

    pub(crate) fn built_in(self, built_in: Duration) -> Self {
        Self { built_in, ..self }
    }

    /// Returns a host by its name: `client`, `client2`, …, `branch`, `core`, `hub`, `server`, …
    ///
    /// # Panics
    ///
    /// If there is none of this name.
    pub fn host(&self, name: &str) -> &Host {
        match self.hosts.iter().find(|host| host.name() == name) {
            Some(host) => host,
            None => panic!("there is no host {name}, only {:?}", self.names()),
        }
    }

    /// Returns all hosts, from the first client to the last server.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// Returns the emulated line of the first branch.
    ///
    /// # Panics
    ///
    /// If it is not emulated.
    pub fn wan(&self) -> &Wan {
        self.line("branch")
    }

    /// Returns the emulated line of a site by the name of its gateway.
    ///
    /// # Panics
    ///
    /// If there is no such site, or its line is not emulated.
    pub fn line(&self, gateway: &str) -> &Wan {
        match self.lines.iter().find(|(name, _)| name == gateway) {
            Some((_, line)) => line,
            None => panic!("{gateway} has no emulated line"),
        }
    }

    /// Returns the emulated lines, each with the name of its site's gateway.
    pub fn lines(&self) -> &[(String, Wan)] {
        &self.lines
    }

    /// Returns how long it took to build.
    pub fn time_to_build(&self) -> Duration {
        self.built_in
    }

    fn names(&self) -> Vec<&str> {
        self.hosts.iter().map(Host::name).collect()
    }
}
