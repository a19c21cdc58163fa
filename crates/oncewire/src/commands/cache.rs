//! `oncewire cache`: what gateways remember.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use oncewire_gateway::config::{Caches, Config};
use oncewire_gateway::telemetry::ClearReport;
use oncewire_gateway::{chunks, logs};

use super::ask::{self, Place, Silent, Unreachable, Verb};
use crate::cli::Clear;
use crate::failure::Usage;
use crate::table::{Align, Table, bytes, printable};

/// Clears logs and prints what was cleared: by way of the running gateway, or in its state folder.
pub(super) fn clear(args: &Clear) -> anyhow::Result<()> {
    let report = match &args.ask.config {
        None => by_way_of(&ask::place(&args.ask)?, args.peer.as_deref())?,
        Some(path) => of_configuration(path, args.peer.as_deref())?,
    };
    match args.ask.json {
        true => super::print(&format!("{}\n", serde_json::to_string(&report)?)),
        false => super::print(&render(&report)),
    }
}

/// Asks the gateway of a configuration; if none answers and none uses its state folder, clears that.
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
            Err(error) if error.is::<Unreachable>() && state.is_some() => {}
            answered => return answered,
        }
    }
    let state = state.ok_or_else(|| {
        let path = path.display();
        Usage(format!(
            "{path}: neither `admin` nor `state` in [gateway], so there is nothing to clear from here"
        ))
    })?;
    let mut report =
        logs::clear_at_rest(&state, &peers, peer.is_none()).context("the logs are not cleared")?;
    if let Some(store) = store.filter(|_| peer.is_none()) {
        report.store = Some(chunks::clear_at_rest(&store).context("the chunk store is not cleared")?);
    }
    Ok(report)
}

fn by_way_of(place: &Place, peer: Option<&str>) -> anyhow::Result<ClearReport> {
    let query = peer.map_or(String::new(), |name| format!("?peer={}", encoded(name)));
    let answered = place.request(Verb::Post, &format!("/cache/clear{query}"));
    Ok(answered.map_err(may_go_on)?.report)
}

/// Adds what is to be done about a gateway that may have heard.
fn may_go_on(error: anyhow::Error) -> anyhow::Error {
    match error.is::<Silent>() {
        true => anyhow!(
            "{error}; clearing may still go on: see whether `oncewire status` answers, and clear again when it does"
        ),
        false => error,
    }
}

/// Encodes a name for a query; names have only plain letters, but what is typed may have any.
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
    use oncewire_gateway::telemetry::ClearedReport;

    use super::*;

    #[test]
    fn what_was_cleared_is_told_peer_by_peer() {
        let hub = ClearedReport { memory: 5_000_000, disk: 6_000_000, ..ClearedReport::new("hub") };
        let text = render(&ClearReport::of([hub, ClearedReport::new("ship")]));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[1].starts_with("hub") && lines[2].starts_with("ship"), "{text}");
    }

    #[test]
    fn a_name_of_any_letters_stays_one_value() {
        assert_eq!(encoded("hub-1.a_b"), "hub-1.a_b");
        assert_eq!(encoded("a&b=c dé"), "a%26b%3Dc%20d%C3%A9");
    }
}
