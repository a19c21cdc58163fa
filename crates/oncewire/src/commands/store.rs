//! `oncewire store`: the chunk store of a gateway.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use oncewire_config::Config;
use oncewire_keys::StorageKey;
use oncewire_report::{CompactReport, StatusReport, StoreCondition, StoreReport, VerifyReport};
use oncewire_tunnel::chunks::{AtRest, AtRestError, OpenError, Room};
use serde::Serialize;

use super::ask::{Place, Unreachable, Verb};
use super::progress;
use crate::cli::{Store, StoreAt, StoreWork};
use crate::failure::Usage;
use crate::table::{Align, Table, age, bytes, counted, millis, printable};

/// Executes a store command.
pub(super) fn run(command: &Store) -> anyhow::Result<()> {
    match command {
        Store::Stat(at) => print(at.json, &stat(at)?, render),
        Store::Verify(work) => verify(work),
        Store::Compact(args) => {
            let report = compact(&args.work, args.to.map(|size| size.0))?;
            print(args.work.at.json, &report, render_compacted)?;
            match report.left.len() as u64 + report.left_left_out {
                0 => Ok(()),
                left => {
                    let left = counted(left, "file, which stays as it is", "files, which stay as they are");
                    bail!("nothing can be read of {left}")
                }
            }
        }
    }
}

/// A store's place, and its options.
struct Found {
    path: PathBuf,
    key: Option<StorageKey>,
    room: Option<Room>,
    /// The source of these, if there is a configuration.
    config: Option<Config>,
}

fn find(at: &StoreAt) -> anyhow::Result<Found> {
    let Some(path) = &at.config else {
        let path = at.path.clone().unwrap_or_default();
        let key = at.encrypt_key_file.as_deref().map(StorageKey::load);
        let key = key.transpose().map_err(|error| Usage(error.to_string()))?;
        return Ok(Found { path, key, room: None, config: None });
    };
    let config = Config::load(path)?;
    let Some(store) = config.store.clone() else {
        let why = format!("{}: no `store_disk` in [cache], so there is no chunk store", path.display());
        return Err(Usage(why).into());
    };
    Ok(Found {
        room: Some(Room { disk: store.disk, index_memory: store.index_memory }),
        path: store.path,
        key: config.gateway.encrypt_key.clone(),
        config: Some(config),
    })
}

impl Found {
    fn open(&self) -> anyhow::Result<AtRest> {
        AtRest::open(&self.path, self.key.as_ref(), self.room).map_err(|error| match (&error, &self.config) {
            (AtRestError::Refused(why @ OpenError::OtherKey { .. }), Some(config)) => {
                config.wrong_key(why).into()
            }
            (AtRestError::OtherKey { .. }, None) => Usage(error.to_string()).into(),
            _ => error.into(),
        })
    }

    fn open_and_tell(&self) -> anyhow::Result<AtRest> {
        let store = self.open()?;
        let mut told = String::new();
        list(&mut told, &printable(&self.path.display().to_string()), &store.notes, store.notes_left_out);
        eprint!("{told}");
        Ok(store)
    }
}

/// Asks the running gateway, or looks into the files.
fn stat(at: &StoreAt) -> anyhow::Result<StoreReport> {
    let found = find(at)?;
    if let Some(place) = found.config.as_ref().and_then(|config| config.gateway.admin.clone()).map(Place::of)
    {
        match place.request::<StatusReport>(Verb::Get, "/status") {
            Ok(answer) => {
                return answer.report.store.context("the gateway runs without a chunk store; restart it");
            }
            Err(error) if error.is::<Unreachable>() => {}
            Err(error) => return Err(error),
        }
    }
    let store = found.open_and_tell()?;
    if store.index_is_assumed {
        let path = found.path.display().to_string();
        eprintln!("{}: {ASSUMED}", printable(&path));
    }
    let report = store.stat();
    store.close()?;
    Ok(report)
}

/// The note for a store without a saved index or a configuration with its index's size.
const ASSUMED: &str = "there is no saved index that can be used, so one was made that suits what is there: `indexed` and \
                       `index_memory` may be less than its gateway has; -c FILE tells how much that is";

fn verify(work: &StoreWork) -> anyhow::Result<()> {
    let found = find(&work.at)?;
    let store = found.open()?;
    let label = format!("verifying {}", printable(&found.path.display().to_string()));
    let report = progress::shown(&label, work.progress, |progress| store.verify(progress))?;
    store.close()?;
    print(work.at.json, &report, render_verified)?;
    let damaged = report.damaged.len() as u64 + report.damaged_left_out;
    let unreadable = report.unreadable.len() as u64 + report.unreadable_left_out;
    if damaged > 0 {
        let damaged = counted(damaged, "place is", "places are");
        bail!("{damaged} damaged; `oncewire store compact` drops what is lost");
    }
    if unreadable > 0 {
        let places = counted(unreadable, "place", "places");
        bail!(
            "{places} could not be read; `oncewire store compact` leaves those behind that the disk refuses, and files of \
             which nothing can be read where they are"
        );
    }
    Ok(())
}

fn render_verified(report: &VerifyReport) -> String {
    let mut text = format!("{} containers, {} sound\n", report.containers, bytes(report.bytes));
    let found = [
        ("note", &report.notes, report.notes_left_out),
        ("damaged", &report.damaged, report.damaged_left_out),
        ("cannot be read", &report.unreadable, report.unreadable_left_out),
    ];
    for (what, lines, left_out) in found {
        list(&mut text, what, lines, left_out);
    }
    text
}

/// Writes a line for each of `lines`, and how many are left out beyond.
fn list(text: &mut String, what: &str, lines: &[String], left_out: u64) {
    // Writing to a string does not fail.
    for line in lines {
        let _ = writeln!(text, "{what}: {}", printable(line));
    }
    if left_out > 0 {
        let _ = writeln!(text, "{what}: {left_out} more");
    }
}

fn compact(work: &StoreWork, to: Option<u64>) -> anyhow::Result<CompactReport> {
    let found = find(&work.at)?;
    let store = found.open_and_tell()?;
    let label = format!("compacting {}", printable(&found.path.display().to_string()));
    let report = progress::shown(&label, work.progress, |progress| store.compact(to, progress))?;
    store.close()?;
    Ok(report)
}

fn render_compacted(report: &CompactReport) -> String {
    let mut text = format!(
        "{} now, {} before: {} containers written again, {} no longer found, {} let go, {} damaged, {} refused by the \
         disk\n",
        bytes(report.after),
        bytes(report.before),
        report.kept,
        report.superseded,
        report.let_go,
        report.damaged,
        report.lost.len() as u64 + report.lost_left_out,
    );
    let listed = [
        ("dropped", &report.dropped, report.dropped_left_out),
        ("lost", &report.lost, report.lost_left_out),
        ("stays", &report.left, report.left_left_out),
    ];
    for (what, places, left_out) in listed {
        list(&mut text, what, places, left_out);
    }
    text
}

fn print<T: Serialize>(json: bool, report: &T, render: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
    match json {
        true => super::print(format!("{}\n", serde_json::to_string(report)?)),
        false => super::print(render(report)),
    }
}

/// Describes a store for people; also in `status`.
pub(super) fn render(store: &StoreReport) -> String {
    let mut text = format!(
        "chunk store {}, {} of {}, index {}",
        printable(&store.path),
        bytes(store.used),
        bytes(store.size),
        bytes(store.index_memory),
    );
    if let Some(oldest) = store.oldest_secs {
        let _ = write!(text, ", reaches back {}", age(oldest as f64));
    }
    text.push('\n');
    if store.state != StoreCondition::Open {
        let why = store.reason.as_deref().unwrap_or("unknown");
        let state = match store.state {
            StoreCondition::ReadOnly => "it takes nothing",
            StoreCondition::Clearing => "it is being cleared",
            StoreCondition::Opening => "it is being opened",
            StoreCondition::Hanging => "it is not used for now",
            StoreCondition::Failed | StoreCondition::Open => "it is not used",
        };
        let share = store.opened_percent.map(|percent| format!(", {percent} % done")).unwrap_or_default();
        let _ = writeln!(text, "{state}: {}{share}", printable(why));
    }
    if store.set_aside > 0 {
        let aside = store.set_aside;
        let are = if aside == 1 { "is" } else { "are" };
        let files = counted(store.segments, "file", "files");
        let _ = writeln!(text, "the disk refuses to read {aside} of {files}, which {are} set aside");
    }
    if store.given_up > 0 {
        let count = if store.given_up == 1 { "counts" } else { "count" };
        let _ = writeln!(text, "{} of them {count} as lost: the disk reads others", store.given_up);
    }
    if store.replaced > 0 {
        let blocks = counted(
            store.replaced,
            "block was stored again where the disk reads it",
            "blocks were stored again where the disk reads them",
        );
        let _ = writeln!(text, "{blocks}");
    }
    if store.reads + store.puts > 0 {
        let _ = writeln!(
            text,
            "reads {}, found {} ({}), damaged {}, unreadable {}, turned away {}; blocks put {}, known {}, dropped {}",
            store.reads,
            store.found,
            bytes(store.found_bytes),
            store.damaged,
            store.unreadable,
            store.turned_away,
            store.puts,
            store.known,
            store.dropped,
        );
    }
    if let Some(busy) = busy(store) {
        let _ = writeln!(text, "{busy}");
    }
    let mut table = Table::new(&[("LEVEL", Align::Left), ("CHUNKS", Align::Right), ("BYTES", Align::Right)]);
    for level in &store.levels {
        table.row([level.level.to_string(), level.chunks.to_string(), bytes(level.bytes)]);
    }
    if !table.is_empty() {
        text.push_str(&table.render());
    }
    text
}

/// Says how busy the disk is, once anything was to be read.
fn busy(store: &StoreReport) -> Option<String> {
    let waiting = counted(store.queue, "chunk waits to be read", "chunks wait to be read");
    match (store.queue, store.service_time_us) {
        (0, 0) => None,
        (_, 0) => Some(waiting),
        (_, 1..100) => Some(format!("{waiting}, less than 0.1 ms a read")),
        (_, micros) => Some(format!("{waiting}, {} a read", millis(Some(micros as f64 / 1e3)))),
    }
}

#[cfg(test)]
mod tests {
    use oncewire_report::LevelReport;

    use super::*;

    #[test]
    fn opening_store_shows_its_progress() {
        let store = StoreReport {
            state: StoreCondition::Opening,
            reason: Some("its files are looked through".to_owned()),
            opened_percent: Some(42),
            segments: 7,
            set_aside: 2,
            given_up: 1,
            replaced: 3,
            ..StoreReport::default()
        };
        let text = render(&store);
        assert!(text.contains("it is being opened: its files are looked through, 42 % done"), "{text}");
        assert!(text.contains("refuses to read 2 of 7 files"), "{text}");
        assert!(
            text.contains("1 of them counts as lost")
                && text.contains("3 blocks were stored again where the disk reads them"),
            "{text}"
        );
    }

    #[test]
    fn compacting_reports_lost_and_remaining_content() {
        let report = CompactReport {
            kept: 9,
            let_go: 4,
            lost: vec!["0000000000000001.seg: offset 4096: Input/output error".to_owned()],
            lost_left_out: 1,
            left: vec!["0000000000000002.seg: offset 0: Input/output error".to_owned()],
            left_left_out: 2,
            dropped_left_out: 3,
            ..CompactReport::default()
        };
        let text = render_compacted(&report);
        assert!(
            text.contains(
                "9 containers written again, 0 no longer found, 4 let go, 0 damaged, 2 refused by the disk"
            ),
            "{text}"
        );
        for line in [
            "lost: 0000000000000001.seg",
            "lost: 1 more\n",
            "stays: 0000000000000002.seg",
            "stays: 2 more\n",
            "dropped: 3 more\n",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn verifying_reports_damage_and_unknown_state() {
        let report = VerifyReport {
            containers: 17,
            damaged: vec!["0000000000000001.seg: its footer is gone, and 35 containers with it".to_owned()],
            notes: vec!["0000000000000002.seg has no footer".to_owned()],
            notes_left_out: 3,
            ..VerifyReport::default()
        };
        let text = render_verified(&report);
        for line in
            ["damaged: 0000000000000001.seg: its", "note: 0000000000000002.seg has no", "note: 3 more"]
        {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn store_shows_its_disks_load_after_the_first_read() {
        let text = |queue, service_time_us| {
            busy(&StoreReport { queue, service_time_us, ..StoreReport::default() }).unwrap_or_default()
        };
        assert_eq!(text(0, 0), "");
        assert_eq!(text(1, 0), "1 chunk waits to be read");
        assert_eq!(text(12, 7500), "12 chunks wait to be read, 7.5 ms a read");
        assert_eq!(text(0, 99), "0 chunks wait to be read, less than 0.1 ms a read");
        assert_eq!(text(0, 100), "0 chunks wait to be read, 0.1 ms a read");
    }

    #[test]
    fn description_of_a_store_includes_faults() {
        let store = StoreReport {
            path: "state/store".to_owned(),
            state: StoreCondition::ReadOnly,
            reason: Some("no space left on device".to_owned()),
            size: 10 << 30,
            used: 1 << 30,
            oldest_secs: Some(7200),
            reads: 7,
            found: 5,
            damaged: 2,
            queue: 12,
            service_time_us: 7500,
            levels: vec![LevelReport { level: 0, chunks: 16_384, bytes: 1 << 30 }],
            ..StoreReport::default()
        };
        let text = render(&store);
        for part in [
            "chunk store state/store, 1 GiB of 10 GiB",
            "reaches back 2 h 0 min",
            "it takes nothing: no space left on device",
            "reads 7, found 5",
            "damaged 2",
            "\n12 chunks wait to be read, 7.5 ms a read\n",
            "16384",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }
}
