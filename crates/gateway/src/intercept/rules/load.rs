//! Loads rules, sees that they stay, and removes them, by way of `nft` and `ip`.

use std::io::{self, Write as _};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;

use super::RuleSet;
use super::bypass::Bypassed;
use super::heartbeat::Heartbeat;
use crate::config::RulesBy;
use crate::ledger::Ledger;
use crate::tunnel::tasks::Tasks;

/// Why rules are not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A program is not installed.
    #[error("`{0}` is missing: install {1}, or set rules = \"print\" and load what `oncewire rules` prints")]
    Missing(&'static str, &'static str),
    /// A program said no.
    #[error("`{program}` failed: {said}")]
    Refused {
        /// The command.
        program: String,
        /// What it said.
        said: String,
    },
    /// Packets cannot be marked.
    #[error("cannot mark this gateway's own packets, which takes CAP_NET_ADMIN: {0}")]
    Mark(io::Error),
}

/// Runs `nft` and `ip` for a set of rules.
#[derive(Clone, Copy, Debug)]
pub struct Programs<'a>(pub &'a RuleSet);

impl Programs<'_> {
    /// Loads the rules, in place of older ones of the same gateway.
    ///
    /// # Errors
    /// If a program is missing or refuses; nothing is loaded then.
    pub fn install(&self) -> Result<(), LoadError> {
        // First the routes, without which marked packets would go astray. Those that are there may be in use.
        for command in self.0.routes() {
            match ip(&command) {
                Err(LoadError::Refused { said, .. }) if said.contains("File exists") => {}
                Err(_) if command.starts_with("-6") && !has_ipv6() => {}
                done => drop(done.inspect_err(|_| self.remove_routes())?),
            }
        }
        nft(&["-f", "-"], &self.0.nft()).inspect_err(|_| self.remove_routes())?;
        Ok(())
    }

    /// Removes the rules; says whether there were any.
    ///
    /// # Errors
    /// If `nft` is missing or refuses.
    pub fn remove(&self) -> Result<bool, LoadError> {
        let there = self.installed()?.is_some();
        if there {
            nft(&["delete", "table", "inet", &self.0.table()], "")?;
        }
        self.remove_routes();
        Ok(there)
    }

    /// Returns the table as it is loaded; none if it is not.
    ///
    /// # Errors
    /// If `nft` is missing, or it may not be asked.
    pub fn installed(&self) -> Result<Option<String>, LoadError> {
        match nft(&["list", "table", "inet", &self.0.table()], "") {
            Ok(text) => Ok(Some(text)),
            Err(LoadError::Refused { said, .. }) if said.contains("No such file") => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lets no new connection in from now on; those that are carried go on.
    fn quiesce(&self) -> Result<(), LoadError> {
        nft(&["flush", "set", "inet", &self.0.table(), "alive"], "").map(drop)
    }

    /// What is not there cannot be removed; without the table no packet is marked, and none goes there.
    fn remove_routes(&self) {
        for command in self.0.routes_undone() {
            let _ = ip(&command);
        }
    }
}

/// Rules that are loaded, or that others loaded, and the signs of life that they depend on.
pub(crate) struct Loaded {
    rules: Arc<Mutex<Option<Arc<RuleSet>>>>,
    bypassed: Arc<Bypassed>,
    beats: Arc<Tasks>,
}

/// Loads the rules of a gateway if that is for it to do, and begins to give signs of life. What they let pass is counted
/// in `ledger`, every five seconds or so.
///
/// # Errors
/// If rules cannot be loaded or packets not be marked.
pub(crate) async fn load(rules: Option<RuleSet>, ledger: Arc<Ledger>) -> Result<Loaded, LoadError> {
    let heartbeat = Heartbeat::new().map_err(LoadError::Mark)?;
    let mut loaded = Loaded {
        rules: Arc::default(),
        bypassed: Arc::new(Bypassed::new(ledger)),
        beats: Arc::new(Tasks::new()),
    };
    loaded.change(rules.clone()).await?;
    if let Some(rules) = &rules {
        match rules.by() {
            RulesBy::Install => tracing::info!(table = rules.table(), "rules installed"),
            _ => tracing::info!(
                table = rules.table(),
                "rules are for you to load; `oncewire rules` prints them"
            ),
        }
    }
    heartbeat.beat();
    let (watched, bypassed) = (Arc::clone(&loaded.rules), Arc::clone(&loaded.bypassed));
    let look = move || look_after(watched.lock().clone(), Arc::clone(&bypassed));
    loaded.beats.spawn(heartbeat.run(look));
    Ok(loaded)
}

/// Reads what rules have let pass, and loads them anew if somebody removed them, as a firewall does that is loaded as a
/// whole.
async fn look_after(rules: Option<Arc<RuleSet>>, bypassed: Arc<Bypassed>) {
    let Some(rules) = rules else { return };
    apart(move || match Programs(&rules).installed() {
        Ok(Some(table)) => bypassed.look(&rules, &table),
        Ok(None) => {
            bypassed.begin_anew();
            match Programs(&rules).install() {
                Ok(()) => {
                    tracing::warn!(table = rules.table(), "somebody removed the rules; installed again")
                }
                Err(error) => {
                    tracing::error!(table = rules.table(), "somebody removed the rules, and {error}")
                }
            }
        }
        Err(_) => {}
    })
    .await;
}

impl Loaded {
    /// Loads other rules in place of those that are loaded; says whether they differ.
    ///
    /// # Errors
    /// As [`load`]; those that were loaded stay then.
    pub(crate) async fn change(&mut self, rules: Option<RuleSet>) -> Result<bool, LoadError> {
        let wanted = rules.filter(|rules| rules.by() == RulesBy::Install).map(Arc::new);
        let old = self.rules.lock().clone();
        if old == wanted {
            return Ok(false);
        }
        let (new, bypassed) = (wanted.clone(), Arc::clone(&self.bypassed));
        apart(move || {
            if let Some(old) = &old
                && let Ok(Some(table)) = Programs(old).installed()
            {
                bypassed.look(old, &table);
            }
            match (&new, &old) {
                (Some(new), _) => Programs(new).install()?,
                (None, Some(old)) => drop(Programs(old).remove()?),
                (None, None) => {}
            }
            bypassed.begin_anew();
            Ok(())
        })
        .await?;
        *self.rules.lock() = wanted;
        Ok(true)
    }

    /// Lets new connections go direct from now on; those that are carried go on.
    pub(crate) async fn quiesce(&self) {
        self.beats.end();
        let rules = self.rules.lock().clone();
        if let Some(rules) = rules
            && let Err(error) = apart(move || Programs(&rules).quiesce()).await
        {
            tracing::warn!("rules still hold for a second: {error}");
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.beats.end();
        if let Some(rules) = self.rules.lock().take()
            && let Err(error) = Programs(&rules).remove()
        {
            tracing::warn!(table = rules.table(), "rules stay, without effect: {error}");
        }
    }
}

/// Runs what waits for a program where nothing else waits.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panicked| std::panic::resume_unwind(panicked.into_panic()))
}

fn nft(arguments: &[&str], input: &str) -> Result<String, LoadError> {
    run("nft", "nftables", arguments, input)
}

fn ip(command: &str) -> Result<String, LoadError> {
    run("ip", "iproute2", &command.split(' ').collect::<Vec<_>>(), "")
}

fn run(
    program: &'static str,
    package: &'static str,
    arguments: &[&str],
    input: &str,
) -> Result<String, LoadError> {
    let refused = |said: &str| LoadError::Refused {
        program: format!("{program} {}", arguments.join(" ")),
        said: said.trim().to_owned(),
    };
    match output(program, arguments, input) {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(refused(&String::from_utf8_lossy(&output.stderr))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(LoadError::Missing(program, package)),
        Err(error) => Err(refused(&error.to_string())),
    }
}

fn output(program: &str, arguments: &[&str], input: &str) -> io::Result<Output> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new(program)
        .args(arguments)
        // Where these programs lie is not in every service's path.
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // It reads all of it before it says anything.
        let _ = stdin.write_all(input.as_bytes());
    }
    child.wait_with_output()
}

fn has_ipv6() -> bool {
    std::path::Path::new("/proc/net/if_inet6").exists()
}
