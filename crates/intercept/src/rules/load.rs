//! Lifecycle of a running gateway's rules: load, check, refit, remove.

use std::io;
use std::sync::{Arc, Weak};
use std::time::Duration;

use oncewire_config::RulesBy;
use oncewire_host::limits::Shortage;
use oncewire_host::tasks::Tasks;
use oncewire_host::{slow_disk, threads};
use oncewire_tunnel::accounts::TrafficAccounts;
use parking_lot::Mutex;
use tokio::time::timeout;

use super::bridge::Links;
use super::bypass::Bypassed;
use super::cgroups;
use super::commands::{LoadError, Programs};
use super::heartbeat::Heartbeat;
use super::hold;
use super::programs::{self, within};
use super::routes;
use super::services;
use super::set::{RuleSet, beat_mark};
use super::words::LIFE_MS;
use crate::{Entrance, Held};

/// Loaded rules, own or others', with their signs of life.
pub struct Loaded {
    current: Arc<Current>,
    bypassed: Arc<Bypassed>,
    heartbeat: Arc<Heartbeat>,
    held: Arc<Held>,
    beats: Arc<Tasks>,
}

/// Loads the rules of a gateway, if it is to load them itself, and begins to give signs of life. Bypassed
/// connections are counted in `accounts`, every five seconds or so. Dropped at any time, it leaves no rules
/// behind.
///
/// # Errors
/// If rules cannot be loaded or packets not be marked.
pub async fn load(
    gateway: &str,
    rules: Option<RuleSet>,
    entrances: Vec<Weak<Entrance>>,
    accounts: Arc<TrafficAccounts>,
    held: Arc<Held>,
) -> Result<Loaded, LoadError> {
    let heartbeat = Heartbeat::new(beat_mark(gateway), Arc::clone(&held), Arc::clone(&accounts))
        .map_err(LoadError::Mark)?;
    let mut loaded = Loaded {
        current: Arc::default(),
        bypassed: Arc::new(Bypassed::new(accounts)),
        heartbeat: Arc::new(heartbeat),
        held,
        beats: Arc::new(Tasks::new()),
    };
    if let Some(rules) = rules.as_ref().filter(|rules| rules.by() == RulesBy::Install) {
        // Remains of a killed gateway for vanished connections.
        let rules = rules.clone();
        let remove = move || {
            Programs(&rules).remove_bridge_table();
            Programs(&rules).remove_services();
        };
        apart(remove).await?;
    }
    loaded.change(rules, entrances).await?;
    let (current, heartbeat) = (Arc::clone(&loaded.current), Arc::clone(&loaded.heartbeat));
    let beat = move || heartbeat.beat(current.rules.lock().as_deref());
    let (current, heartbeat) = (Arc::clone(&loaded.current), Arc::clone(&loaded.heartbeat));
    loaded.beats.spawn(Heartbeat::run(beat));
    // Apart: programs are slow, and signs of life must not be late.
    loaded.beats.spawn(look_after(current, Arc::clone(&loaded.bypassed), heartbeat));
    Ok(loaded)
}

/// The present rules, and the turn of loading others.
#[derive(Default)]
struct Current {
    rules: Mutex<Option<Arc<RuleSet>>>,
    /// The machine's interfaces by the last query.
    links: Mutex<Links>,
    /// Held by the runner of programs, to their end: started work goes on without a waiter.
    turn: Mutex<Turn>,
}

#[derive(Default)]
struct Turn {
    /// Loading of rules has ended.
    ended: bool,
}

impl Current {
    /// Loads other rules; returns whether they differ from the loaded ones. SYNs read meanwhile, or held by
    /// the old ones, are dropped: the same mark means another interception in each.
    fn change(
        &self,
        rules: Option<RuleSet>,
        entrances: Vec<Weak<Entrance>>,
        bypassed: &Bypassed,
        held: &Held,
    ) -> Result<bool, LoadError> {
        let turn = self.turn.lock();
        let old = self.rules.lock().clone();
        let rules = match &old {
            Some(old) => RuleSet::after(rules, old),
            None => rules,
        };
        let wanted = rules.map(|rules| Arc::new(self.fit(rules, Links::of_this_machine())));
        if turn.ended || old == wanted && !bypassed.has_losses() {
            return Ok(false);
        }
        if let Some(old) = &old
            && let Ok(Some(table)) = Programs(old).installed_tables()
        {
            bypassed.look(old, &table);
        }
        held.rules_change();
        let exchanged = exchange(old.as_deref(), wanted.as_deref());
        held.rules_changed(exchanged.is_ok().then_some(entrances));
        exchanged?;
        bypassed.begin_anew();
        *self.rules.lock() = wanted;
        Ok(true)
    }

    /// Reads the rules' counts of bypassed connections, and ensures that they are present and fit; returns
    /// them, if there are any.
    fn refresh(&self, bypassed: &Bypassed) -> Option<Arc<RuleSet>> {
        let turn = self.turn.lock();
        let rules = self.rules.lock().clone().filter(|_| !turn.ended)?;
        let fitting = refresh(&rules, self.fit(RuleSet::clone(&rules), Links::of_this_machine()), bypassed);
        *self.rules.lock() = Some(Arc::clone(&fitting));
        Some(fitting)
    }

    /// Fits rules to this machine. Without an answer about its interfaces, the old ones count: rules for
    /// bridges must not vanish from under connections by one failure of a program.
    fn fit(&self, rules: RuleSet, told: Option<Links>) -> RuleSet {
        let mut links = self.links.lock();
        if let Some(told) = told {
            *links = told;
        }
        programs::on_machine_with(rules, &links)
    }

    /// Removes the rules, after the end of any running load, and prevents later ones.
    fn end(&self) {
        let mut turn = self.turn.lock();
        turn.ended = true;
        if let Some(rules) = self.rules.lock().take().filter(|rules| rules.by() == RulesBy::Install)
            && let Err(error) = Programs(&rules).remove()
        {
            tracing::warn!(table = rules.table(), "rules stay, without effect: {error}");
        }
    }
}

/// Reads the counts of bypassed connections, and reloads removed rules (a complete firewall reload does
/// that), or rules unfit for the machine's present bridges and control groups. Removed routes and routing
/// rules are added again.
async fn look_after(current: Arc<Current>, bypassed: Arc<Bypassed>, heartbeat: Arc<Heartbeat>) {
    let shortage = Shortage::default();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let (current, bypassed) = (Arc::clone(&current), Arc::clone(&bypassed));
        match apart(move || current.refresh(&bypassed)).await {
            Ok(fitting) => heartbeat.beat(fitting.as_deref()),
            Err(error) => shortage.tell("rules", "rules are not looked after", &io::Error::other(error)),
        }
    }
}

/// Returns the rules fit for the machine now, loaded if they are to be.
fn refresh(rules: &Arc<RuleSet>, fitting: RuleSet, bypassed: &Bypassed) -> Arc<RuleSet> {
    let there = match Programs(rules).installed() {
        Ok(table) => {
            if let Some(table) = &table {
                bypassed.look(rules, table);
                bypassed.look_for_losses(rules, table);
            }
            let queued = |table: &str| hold::queue_rule(rules).is_none_or(|rule| table.contains(&rule));
            let services = format!("table inet {} {{", services::service_table(rules));
            let parts = [("table bridge", rules.bridged), (services.as_str(), rules.leads_back())];
            let has = |table: &str| parts.iter().all(|(part, wanted)| !wanted || table.contains(part));
            table.is_some_and(|table| queued(&table) && has(&table))
        }
        // Without permission to ask, the failure was reported at loading; or somebody holds the lock, and the
        // next look will tell.
        Err(_) => true,
    };
    let table = rules.table();
    if rules.by() == RulesBy::Install && !Programs(rules).has_routes() {
        match Programs(rules).install_routes() {
            Ok(()) => tracing::warn!(table, "somebody removed routing rules or routes; added again"),
            Err(error) => tracing::error!(table, "routing rules or routes are missing, and {error}"),
        }
    }
    let mended = there && bypassed.is_mended(rules);
    if rules.by() != RulesBy::Install || there && fitting == **rules && !mended {
        return Arc::new(fitting);
    }
    match Programs(&fitting).install() {
        Ok(()) if mended => {
            tracing::info!(
                table,
                "what stopped connections that were taken in is gone; rules installed again"
            );
        }
        Ok(()) if there => {
            tracing::info!(table, "this machine's bridges or control groups changed; rules installed again");
        }
        Ok(()) => tracing::warn!(table, "somebody removed the rules; installed again"),
        Err(error) => {
            let what = if there { "rules do not fit this machine any more" } else { "rules are missing" };
            tracing::error!(table, "{what}, and {error}");
            return Arc::clone(rules);
        }
    }
    bypassed.begin_anew();
    let known = cgroups::missing_groups(rules);
    for missing in cgroups::missing_groups(&fitting).iter().filter(|missing| !known.contains(missing)) {
        tracing::warn!("{missing}");
    }
    Arc::new(fitting)
}

impl Loaded {
    /// Loads other rules in place of the present ones; returns whether they differ. With them come
    /// `entrances`, one for each `[[intercept]]`, in order: those of held connections.
    ///
    /// # Errors
    /// As [`load`]; the old ones stay then.
    pub async fn change(
        &mut self,
        rules: Option<RuleSet>,
        entrances: Vec<Weak<Entrance>>,
    ) -> Result<bool, LoadError> {
        let (current, bypassed) = (Arc::clone(&self.current), Arc::clone(&self.bypassed));
        let held = Arc::clone(&self.held);
        let changed = apart(move || current.change(rules, entrances, &bypassed, &held)).await??;
        let rules = self.current.rules.lock().clone().filter(|_| changed);
        if let Some(rules) = rules {
            self.heartbeat.beat(Some(&rules));
            say_who_loads_them(&rules);
            for obstacle in apart(move || rules.obstacles()).await.unwrap_or_default() {
                tracing::warn!("{obstacle}");
            }
        }
        Ok(changed)
    }

    /// Lets new connections go direct from now on; carried ones go on.
    pub async fn quiesce(&self) {
        self.beats.end();
        let Some(rules) = self.current.rules.lock().clone() else { return };
        if rules.by() != RulesBy::Install {
            // They are not ours to change, and hold until the last sign of life has expired.
            return tokio::time::sleep(Duration::from_millis(LIFE_MS)).await;
        }
        let current = Arc::clone(&self.current);
        let quiesced = slow_disk::run("rules-quiesce", move || {
            // An abandoned reload may still load others.
            let _turn = current.turn.lock();
            let rules = current.rules.lock().clone();
            rules.map_or(Ok(()), |rules| Programs(&rules).quiesce())
        });
        match timeout(Duration::from_millis(LIFE_MS), quiesced).await {
            Ok(Ok(Err(error))) => tracing::warn!("rules still hold for a second: {error}"),
            // By then they have died away.
            Err(_) => {
                tracing::warn!("a program that loads rules does not end; they are without effect by now")
            }
            _ => {}
        }
    }
}

/// Logs the loader of the rules.
fn say_who_loads_them(ruleset: &RuleSet) {
    match ruleset.by() {
        RulesBy::Install => tracing::info!(table = ruleset.table(), "rules installed"),
        _ => {
            tracing::info!(table = ruleset.table(), "rules are for you to load; `oncewire rules` prints them")
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.beats.end();
        let current = Arc::clone(&self.current);
        if within(REMOVAL_LIMIT, move || current.end()).is_none() {
            tracing::warn!(
                "a program that loads or removes rules does not end; rules may stay, without effect"
            );
        }
    }
}

/// Replaces rules. Rules to be loaded by hand replace the present ones once they are there.
fn exchange(old: Option<&RuleSet>, new: Option<&RuleSet>) -> Result<(), LoadError> {
    let Some(new) = new else {
        let ours = old.filter(|old| old.by() == RulesBy::Install);
        return match ours.map_or(Ok(false), |old| Programs(old).remove()) {
            Err(locked @ LoadError::Locked { .. }) => {
                say_what_stays(&locked);
                Ok(())
            }
            removed => removed.map(drop),
        };
    };
    if new.by() == RulesBy::Install {
        Programs(new).install()?;
        if let Some(old) = old.filter(|old| routes::other_routes(old, new)) {
            Programs(old).remove_rules(new);
        }
        if old.is_some_and(|old| old.leads_back() && !new.leads_back()) {
            Programs(new).remove_services();
        }
        if old.is_some_and(|old| old.bridged && !new.bridged) {
            Programs(new).remove_bridge_table();
        }
        if let Some(old) = old.filter(|old| hold::queue_rule(old) != hold::queue_rule(new))
            && let Err(locked) = Programs(old).remove_queue()
        {
            say_what_stays(&locked);
        }
    }
    Ok(())
}

fn say_what_stays(locked: &LoadError) {
    tracing::warn!("a rule that queues packets stays, without effect: {locked}");
}

/// Runs work blocked on a program on a thread of its own.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, LoadError> {
    threads::run("oncewire-rules", work).await.map_err(LoadError::Thread)
}

/// Patience of a gateway's end with the removal of rules.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// Maximum delay of an ending gateway by its rules, or by a hanging program.
pub const STOP_LIMIT: Duration = REMOVAL_LIMIT.saturating_add(Duration::from_millis(LIFE_MS));

/// Interval of checks of the rules.
const LOOK_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::set::{How, Taker};
    use oncewire_config::Capture;

    #[test]
    fn one_failed_query_keeps_the_known_bridges() {
        let link = r#"{"ifname": "lan0", "master": "br0", "linkinfo": {"info_slave_kind": "bridge"}}"#;
        let capture = Capture { interfaces: vec!["lan0".to_owned()], ..Capture::default() };
        let takers = vec![Taker::new(How::Tproxy, capture, 15001)];
        let rules = RuleSet { takers, ..RuleSet::empty("branch", RulesBy::Install) };
        let current = Current::default();
        let fit = |told: Option<Links>| current.fit(rules.clone(), told);
        assert!(!fit(None).bridged, "nothing is known");
        let bridged = fit(Links::read(&format!("[{link}]")));
        assert!(bridged.bridged);
        assert_eq!(fit(None), bridged);
        assert!(!fit(Links::read("[]")).bridged, "they are gone");
    }
}
