//! Loading, checking and removal of rules by `nft` and `ip`.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use oncewire_host::threads;

use super::bridge::{self, Links};
use super::cgroups;
use super::commands::nft;
use super::commands::{LoadError, Programs};
use super::services;
use super::set::RuleSet;
use super::{hold, icmp};

/// Fits the rules to this machine: to its bridges, its control groups, and its way of queueing packets.
#[must_use]
pub(super) fn on_this_machine(ruleset: RuleSet) -> RuleSet {
    // Without an answer it is a machine without bridges.
    on_machine_with(ruleset, &Links::of_this_machine().unwrap_or_default())
}

pub(super) fn on_machine_with(ruleset: RuleSet, links: &Links) -> RuleSet {
    let cgroups = cgroups::groups_in(&ruleset, Path::new(cgroups::ROOT));
    let ruleset = RuleSet { cgroups, ..bridge::on(ruleset, links) };
    icmp::with_quoted_keys(hold::with_queue(ruleset))
}

impl Programs<'_> {
    /// Loads the rules, in place of older ones of the same gateway.
    ///
    /// # Errors
    /// If a program is missing or refuses; nothing is loaded then.
    pub fn install(&self) -> Result<(), LoadError> {
        // First the routes: without them marked packets would go astray.
        let routed = self.install_routes();
        let done = routed.and_then(|()| self.install_queue()).and_then(|()| nft(&["-f", "-"], &self.0.nft()));
        done.inspect_err(|_| self.remove_unused_routes())?;
        Ok(())
    }

    /// Removes routes unless older rules need them.
    fn remove_unused_routes(&self) {
        if !matches!(self.installed_tables(), Ok(Some(_))) {
            self.remove_routes();
            // The reason of the failed load is reported.
            let _ = self.remove_queue();
        }
    }

    /// Removes the rules; returns whether there were any.
    ///
    /// # Errors
    /// If `nft` is missing or refuses. [`LoadError::Locked`] if only rules without effect stay.
    pub fn remove(&self) -> Result<bool, LoadError> {
        let table = self.0.table();
        let there = self.installed_tables()?.is_some();
        if there {
            nft(&["delete", "table", "inet", &table], "")?;
        }
        self.remove_bridge_table();
        self.remove_services();
        self.remove_routes();
        self.remove_queue()?;
        Ok(there)
    }

    /// Removes the rules in their form for this machine ([`Programs::remove`]), and waits no longer than
    /// `limit`; none on a time-out, or without a thread.
    pub fn remove_within(&self, limit: Duration) -> Option<Result<bool, LoadError>> {
        let rules = self.0.clone();
        within(limit, move || Programs(&rules.on_this_machine()).remove())
    }

    /// Returns the loaded table, with its queueing rules; none if it is not loaded.
    ///
    /// # Errors
    /// If `nft` is missing or forbidden, or the queueing rules cannot be read.
    pub fn installed(&self) -> Result<Option<String>, LoadError> {
        let Some(tables) = self.installed_tables()? else { return Ok(None) };
        Ok(Some(tables + &self.installed_queue()?))
    }

    pub(super) fn installed_tables(&self) -> Result<Option<String>, LoadError> {
        let table = self.listed(INET, &self.0.table())?;
        let more = |family, table: String| self.listed(family, &table).ok().flatten().unwrap_or_default();
        // Not every kernel has tables for bridges.
        let others = || more(INET, services::service_table(self.0)) + &more(BRIDGE, self.0.table());
        Ok(table.map(|text| text + &others()))
    }

    /// Returns a loaded table, without its sets' elements; none if it is not loaded.
    ///
    /// Of one table, `nft` reads all elements, printed or not (1.0.6), and there are two for each connection
    /// carried by a bridge, and one for each handshake of a flood; of all tables, in short, it reads none.
    /// Versions older than 2019 cannot.
    fn listed(&self, family: &str, table: &str) -> Result<Option<String>, LoadError> {
        if let Ok(all) = nft(&["--terse", "list", "ruleset", family], "") {
            let found = bridge::table_in(&all, family, table);
            return Ok((!found.is_empty()).then(|| found.to_owned()));
        }
        match nft(&["list", "table", family, table], "") {
            Ok(text) => Ok(Some(text)),
            Err(LoadError::Refused { said, .. }) if said.contains("No such file") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lets no new connection in from now on; carried ones go on.
    pub(super) fn quiesce(&self) -> Result<(), LoadError> {
        let table = self.0.table();
        let mut sets = format!("flush set inet {table} alive\n");
        if self.0.bridged {
            sets.push_str(&format!("flush set bridge {table} alive\n"));
        }
        nft(&["-f", "-"], &sets).map(drop)
    }

    /// Not every kernel has tables for bridges; then there is none.
    pub(super) fn remove_bridge_table(&self) {
        let _ = nft(&["delete", "table", BRIDGE, &self.0.table()], "");
    }
}

/// Runs work blocked on a program on a thread of its own; none if it takes longer than `limit`, or has
/// panicked.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, result) = mpsc::channel();
    // The waiter may have gone.
    let started = threads::start("rules", move || done.send(work()).unwrap_or_default());
    started.ok().and_then(|_| result.recv_timeout(limit).ok())
}

const INET: &str = "inet";
const BRIDGE: &str = "bridge";
