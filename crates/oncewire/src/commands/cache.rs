//! `oncewire cache`: clearing logs and chunk stores.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use oncewire_config::{Caches, Config};
use oncewire_logs::{self as logs, ClearError};
use oncewire_report::ClearReport;
use oncewire_tunnel::chunks::{self, AtRestError};

use super::ask::{self, Place, Silent, Unreachable, Verb};
use crate::cli::Clear;
use crate::failure::Usage;
use crate::table::{Align, Table, bytes, printable};

/// Clears logs and prints the result: through the running gateway, or in its state directory.
pub(super) fn clear(args: &Clear) -> anyhow::Result<()> {
    let report = match &args.ask.config {
        None => by_way_of(&ask::place(&args.ask)?, args.peer.as_deref())?,
        Some(path) => of_configuration(path, args.peer.as_deref())?,
    };
    match args.ask.json {
        true => super::print(format!("{}\n", serde_json::to_string(&report)?)),
        false => super::print(render(&report)),
    }
}

/// Asks the gateway of a configuration; if none answers and none uses its state directory, clears the directory.
fn of_configuration(path: &Path, peer: Option<&str>) -> anyhow::Result<ClearReport> {
    let Caches { admin, state, store, mut peers } = Config::load_caches(path)?;
    if let Some(name) = peer {
        peers.retain(|(known, _)| known == name);
        if peers.is_empty() {
            return Err(Usage(format!("{}: there is no peer {name:?}", path.display())).into());
        }
    }
    if let Some(admin) = admin {
        match by_way_of(&Place::of(admin), peer) {
            Err(error) if error.is::<Unreachable>() && (state.is_some() || store.is_some()) => {}
            answered => return answered,
        }
    }
    let store = store.filter(|_| peer.is_none());
    if state.is_none() && store.is_none() {
        let path = path.display();
        let why = "neither `admin` nor `state` in [gateway], so there is nothing to clear from here";
        return Err(Usage(format!("{path}: {why}")).into());
    }
    // Each is cleared in spite of a failure of the other.
    let chunks = store.as_ref().map(|store| chunks::clear_at_rest(store));
    let report = state.as_ref().map(|state| logs::clear_at_rest(state, &peers, peer.is_none()));
    match (report.transpose(), chunks.transpose()) {
        (Ok(report), Ok(store)) => Ok(ClearReport { store, ..report.unwrap_or_default() }),
        (Err(logs), Ok(_)) => Err(logs).context("the logs are not cleared"),
        (Ok(_), Err(chunks)) => Err(chunks).context("the chunk store is not cleared"),
        (Err(logs), Err(chunks)) => {
            let is_within = store.zip(state).is_some_and(|(store, state)| store.starts_with(state));
            Err(neither(&logs, &chunks, is_within))
        }
    }
}

/// Says why neither is cleared; a common file system's reason comes once.
fn neither(logs: &ClearError, chunks: &AtRestError, is_within: bool) -> anyhow::Error {
    match logs {
        ClearError::ReadOnly(_) if is_within && chunks.is_read_only() => {
            anyhow!("nothing is cleared: {logs}")
        }
        _ => anyhow!("the logs are not cleared: {logs}; the chunk store is not cleared: {chunks}"),
    }
}

fn by_way_of(place: &Place, peer: Option<&str>) -> anyhow::Result<ClearReport> {
    let query = peer.map_or(String::new(), |name| format!("?peer={}", encoded(name)));
    let answered = place.request(Verb::Post, &format!("/cache/clear{query}"));
    Ok(answered.map_err(may_go_on)?.report)
}

/// Adds the remedy for a gateway perhaps still at work.
fn may_go_on(error: anyhow::Error) -> anyhow::Error {
    match error.is::<Silent>() {
        true => anyhow!(
            "{error}; clearing may still go on: see whether `oncewire status` answers, and clear again when it does"
        ),
        false => error,
    }
}

/// Encodes a name for a query; names have only plain letters, but a typed one may have any.
fn encoded(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let encode = |byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(encode).collect()
}

fn render(report: &ClearReport) -> String {
    let mut table =
        Table::new(&[("PEER", Align::Left), ("CLEARED IN MEMORY", Align::Right), ("ON DISK", Align::Right)]);
    for cleared in &report.cleared {
        table.row([printable(&cleared.peer), bytes(cleared.memory), bytes(cleared.disk)]);
    }
    let mut text = table.render();
    if let Some(store) = report.store {
        let _ = writeln!(text, "\n{} of chunks cleared from the store", bytes(store));
    }
    text
}

#[cfg(test)]
mod tests {
    use oncewire_report::ClearedReport;

    use super::*;

    #[test]
    fn cleared_logs_are_listed_by_peer() {
        let hub = ClearedReport { memory: 5_000_000, disk: 6_000_000, ..ClearedReport::new("hub") };
        let text = render(&ClearReport::of([hub, ClearedReport::new("ship")]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with("hub") && lines[2].starts_with("ship"), "{text}");
    }

    #[test]
    fn chunk_store_is_cleared_in_spite_of_the_logs() {
        let dir = tempfile::tempdir().unwrap();
        let (config, store) = (dir.path().join("oncewire.toml"), dir.path().join("chunks"));
        for (gateway, said) in [("", None), ("state = \"file\"\n", Some("the logs are not cleared"))] {
            std::fs::create_dir(&store).unwrap();
            std::fs::write(store.join("index"), vec![1; 8192]).unwrap();
            std::fs::write(dir.path().join("file"), "no directory").unwrap();
            let text = format!(
                "[gateway]\nname = \"a\"\nkey_file = \"a.key\"\n{gateway}[cache]\nstore_path = \"chunks\"\n\
                 store_disk = \"64 MiB\"\n"
            );
            std::fs::write(&config, text).unwrap();
            let cleared = of_configuration(&config, None);
            match (cleared, said) {
                (Ok(report), None) => assert_eq!(report.store, Some(8192)),
                (Err(error), Some(said)) => assert_eq!(error.to_string(), said),
                (other, _) => panic!("{other:?}"),
            }
            assert!(!store.exists());
        }
    }

    #[test]
    fn obstacle_to_both_is_named_once() {
        let dir = tempfile::tempdir().unwrap();
        let (config, state) = (dir.path().join("oncewire.toml"), dir.path().join("state"));
        std::fs::write(&state, "no directory").unwrap();
        let text = "[gateway]\nname = \"a\"\nkey_file = \"a.key\"\nstate = \"state\"\n[cache]\nstore_disk = \"64 MiB\"\n";
        std::fs::write(&config, text).unwrap();
        let said = of_configuration(&config, None).unwrap_err().to_string();
        for once in [
            "the logs are not cleared",
            "is a file, not a directory",
            "the chunk store is not cleared",
            "os error",
        ] {
            assert_eq!(said.matches(once).count(), 1, "{once}: {said}");
        }
    }

    #[test]
    fn a_name_of_any_letters_stays_one_value() {
        assert_eq!(encoded("hub-1.a_b"), "hub-1.a_b");
        assert_eq!(encoded("a&b=c dé"), "a%26b%3Dc%20d%C3%A9");
    }
}
