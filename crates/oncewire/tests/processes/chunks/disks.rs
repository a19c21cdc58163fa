//! Slow, full and failing disks.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::gateway::Gateway;
use crate::common::origin::{Origin, Request};
use crate::common::pair::{Options, Pair};
use crate::common::programs;
use crate::common::wait::{LIMIT, eventually};
use crate::pair;

use super::{
    FILE, assert_warm, fetch, options, segments, store_directory, store_of, wait_until_damaged,
    wait_until_kept, wait_until_on_disk, wait_until_stored,
};

/// A disk that fails a gateway until this is dropped, through strace.
struct Fault(Child);

impl Fault {
    /// Refuses calls (`EIO`) on a store's first segments.
    fn refusing(gateway: &Gateway, calls: &str, store: &Path) -> Self {
        Self::begin(gateway, refusing(calls, store))
    }

    /// Has a gateway wait for ever for each write, rename and sync of its state about its only peer.
    fn hanging(gateway: &Gateway, state: &Path) -> Self {
        let directory = fs::read_dir(state.join("logs")).unwrap().next().unwrap().unwrap().path();
        let names = ["out.log", "out.idx", "in.log", "in.idx", "hints"];
        let files =
            names.iter().flat_map(|name| [directory.join(name), directory.join(format!("{name}.new"))]);
        let calls = "write,pwrite64,rename,fsync,fdatasync,ftruncate:delay_enter=1000000000";
        Self::begin(gateway, strace(calls, files))
    }

    fn begin(gateway: &Gateway, mut strace: Command) -> Self {
        let strace = strace.args(["-p", &gateway.pid().to_string()]);
        let begun = Self(strace.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        eventually("each thread is traced", LIMIT, || {
            let mut threads = fs::read_dir(format!("/proc/{}/task", gateway.pid())).ok()?;
            let is_traced = |status: String| !status.contains("TracerPid:\t0\n");
            threads
                .all(|thread| fs::read_to_string(thread.unwrap().path().join("status")).is_ok_and(is_traced))
                .then_some(())
        });
        begun
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // The system releases the traced process; asked to end, it would first wait for hanging calls.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The tracer of a gateway since its start; it ends on drop, or the gateway could not be killed.
struct Tracer(Pid);

impl Tracer {
    fn of(gateway: &Gateway) -> Self {
        eventually("the gateway is traced", LIMIT, || {
            let status = fs::read_to_string(format!("/proc/{}/status", gateway.pid())).ok()?;
            let pid = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?.trim().parse().ok()?;
            Pid::from_raw(pid).map(Self)
        })
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::KILL);
    }
}

/// Starts a pair with chunk stores on disks open to tampering; none without strace.
fn traceable() -> Option<(Origin, Pair)> {
    if programs::missing(&["strace"]) {
        return None;
    }
    let origin = Origin::server();
    let pair = pair(&options(&origin));
    Some((origin, pair))
}

/// Begins a command for failing calls on a store's first segments.
fn refusing(calls: &str, store: &Path) -> Command {
    let segments = (0..64).map(|number| store.join(format!("{number:016x}.seg")));
    strace(&format!("{calls}:error=EIO"), segments)
}

/// Begins a command to tamper with calls on files.
fn strace(inject: &str, files: impl Iterator<Item = PathBuf>) -> Command {
    let mut command = programs::command("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("inject={inject}")]);
    files.for_each(|file| {
        command.arg("-P").arg(file);
    });
    command
}

/// Returns a gateway in the place of an ended one, started by a shell with these words before the arguments.
fn started_by(words: &str, ended: &Gateway, name: &str, config: &str) -> Gateway {
    let wrapper = ended.config().with_extension("sh");
    fs::write(&wrapper, format!("#!/bin/sh\nexec {words} \"$@\"\n")).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    Gateway::new(&wrapper, ended.config().parent().unwrap(), name, ended.admin(), config)
}

/// Returns the words for a gateway with a disk of its own of this size for its directory.
fn on_small_disk(directory: &Path, size: &str) -> String {
    let (directory, binary) = (directory.display(), crate::binary().display());
    format!("unshare -rm sh -c 'mount -t tmpfs -o size={size} tmpfs {directory} && exec {binary} \"$@\"' sh")
}

/// Ends a branch in good order.
#[track_caller]
fn end(pair: &mut Pair) {
    pair.branch.terminate();
    assert!(pair.branch.wait(LIMIT).success());
}

/// Starts a branch again and expects a whole store.
#[track_caller]
fn assert_whole_after_a_start(pair: &mut Pair) {
    pair.branch.start();
    pair.wait_until_up();
    assert_warm(pair, "after the disk is well again");
    let store = store_of(&pair.branch);
    assert_eq!((&store["state"], &store["set_aside"]), (&"open".into(), &0.into()), "{store}");
}

#[test]
fn disk_refusing_reads_costs_only_its_savings() {
    let Some((_origin, mut pair)) = traceable() else { return };
    fetch(&pair, FILE);
    assert_warm(&pair, "from a disk that is well");
    wait_until_on_disk(&pair);
    let refusal = Fault::refusing(&pair.branch, "pread64", &store_directory(&pair));
    let wire = fetch(&pair, FILE);
    assert!(wire < FILE.len as u64 / 100 * 115, "{wire} bytes crossed");
    let store = eventually("its file is set aside", LIMIT, || {
        Some(store_of(&pair.branch)).filter(|store| store["set_aside"] == 1)
    });
    assert_eq!((&store["state"], &store["damaged"]), (&"open".into(), &0.into()), "{store}");
    assert!(store["unreadable"].as_u64() > Some(0), "{store}");
    assert!(pair.branch.log().contains("it is asked for at the far side"), "{}", pair.branch.log());
    fetch(&pair, FILE);
    drop(refusal);
    end(&mut pair);
    let store = store_directory(&pair);
    let verified = refusing("pread64", &store)
        .arg(crate::binary())
        .args(["store", "verify", "--path"])
        .arg(&store)
        .output();
    let verified = verified.unwrap();
    let said =
        [verified.stdout, verified.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(
        verified.status.code() == Some(1) && said.contains("cannot be read: 0000000000000001.seg"),
        "{said}"
    );
    assert_whole_after_a_start(&mut pair);
}

#[test]
fn disk_refusing_writes_is_reported_once_and_traffic_goes_on() {
    let Some((_origin, mut pair)) = traceable() else { return };
    let refusal = Fault::refusing(&pair.branch, "pwrite64", &store_directory(&pair));
    for _ in 0..2 {
        let wire = fetch(&pair, FILE);
        assert!(wire < FILE.len as u64 / 100 * 115, "{wire} bytes crossed");
        wait_until_stored(&pair);
    }
    let store = eventually("the store says that it takes nothing more", LIMIT, || {
        Some(store_of(&pair.branch)).filter(|store| store["state"] == "read_only")
    });
    let reason = store["reason"].as_str().unwrap();
    assert!(reason.contains("0000000000000001.seg: Input/output error"), "{store}");
    assert_eq!(pair.branch.log().matches("takes nothing more").count(), 1, "{}", pair.branch.log());
    drop(refusal);
    end(&mut pair);
    assert_whole_after_a_start(&mut pair);
}

#[test]
fn hanging_state_disk_delays_no_traffic_reload_or_end() {
    let Some((_origin, mut pair)) = traceable() else { return };
    fetch(&pair, FILE);
    wait_until_kept(&pair);
    let fault = Fault::hanging(&pair.hub, &pair.dir.path().join("hub-state"));
    // There is more to keep than ever gets there.
    fetch(&pair, Request { seed: 94, len: 4 << 20 });
    eventually("what is known of the branch's store hangs", LIMIT, || {
        let mut threads = fs::read_dir(format!("/proc/{}/task", pair.hub.pid())).ok()?;
        let saves = |name: String| name.trim_end() == "save-hints";
        threads
            .any(|thread| fs::read_to_string(thread.unwrap().path().join("comm")).is_ok_and(saves))
            .then_some(())
    });
    let config = fs::read_to_string(pair.hub.config()).unwrap();
    pair.hub.write_config(&config.replace("shed = false", "shed = true"));
    pair.hub.reload();
    eventually("the peer begins anew", LIMIT, || {
        pair.hub.log().contains("reload: peer branch").then_some(())
    });
    pair.wait_until_up();
    fetch(&pair, FILE);
    let log = pair.hub.log();
    assert!(log.contains("until its disk answers, the logs of new peers are not kept"), "{log}");
    pair.hub.terminate();
    eventually("the gateway ends, but for threads that are traced", LIMIT, || {
        let status = fs::read_to_string(format!("/proc/{}/status", pair.hub.pid())).ok()?;
        status.contains("State:\tZ").then_some(())
    });
    drop(fault);
    assert!(pair.hub.wait(LIMIT).success(), "{}", pair.hub.log());
    let log = pair.hub.log();
    let (_, last) = log.split_once("shutting down").expect("it says that it stops");
    assert!(!last.contains("link up"), "whoever dials finds nobody: {log}");
    pair.hub.start();
    pair.wait_until_up();
    fetch(&pair, FILE);
}

#[test]
fn start_on_a_hanging_state_disk_serves_cold() {
    let Some((_origin, mut pair)) = traceable() else { return };
    fetch(&pair, FILE);
    wait_until_kept(&pair);
    pair.hub.kill();
    // The gateway stays the started process.
    let lock = pair.dir.path().join("hub-state/lock");
    let strace = strace("openat:delay_enter=1000000000", std::iter::once(lock));
    let options: Vec<String> = strace.get_args().map(|word| format!("'{}'", word.display())).collect();
    let words = format!("strace -D {} '{}'", options.join(" "), crate::binary().display());
    let config = fs::read_to_string(pair.hub.config()).unwrap();
    pair.hub = started_by(&words, &pair.hub, "hub", &config);
    pair.hub.start();
    let fault = Tracer::of(&pair.hub);
    pair.wait_until_up();
    fetch(&pair, FILE);
    let status = pair.hub.ask("status").expect("it answers");
    let why = status["gateway"]["logs_not_kept"].clone();
    let why = why.as_str().expect("status says it");
    assert!(why.contains("logs start cold") && why.contains("takes longer than 10s"), "{why}");
    assert!(pair.hub.log().contains(why), "{}", pair.hub.log());
    let refused = pair.hub.clear_cache(&[]).unwrap_err();
    assert!(refused.contains("stay on disk"), "{refused}");
    drop(fault);
    eventually("the disk answers, and logs are kept again", LIMIT, || {
        let status = pair.hub.ask("status")?;
        status["gateway"]["logs_not_kept"].is_null().then_some(())
    });
    assert!(pair.hub.log().contains("the disk of logs answers again"), "{}", pair.hub.log());
    fetch(&pair, FILE);
}

#[test]
fn disk_failing_during_reads_costs_no_byte() {
    let origin = Origin::server();
    let pair = pair(&options(&origin));
    fetch(&pair, FILE);
    wait_until_on_disk(&pair);
    for segment in segments(&store_directory(&pair)) {
        File::options().write(true).open(segment).unwrap().set_len(0).unwrap();
    }
    fetch(&pair, FILE);
    wait_until_damaged(&pair);
}

#[test]
fn far_too_slow_disk_delays_nobody() {
    let origin = Origin::server();
    let slow = "[cache]\nmemory = \"512 MiB\"\nlog_memory = \"1 MiB\"\nstore_disk = \"256 MiB\"\n\
                store_read_latency = \"2 s\"\n";
    let pair = pair(&Options::to(origin.address()).without_adapting().with(slow));
    // Twice the log's size.
    let file = Request { seed: 93, len: 2 << 20 };
    fetch(&pair, file);
    // Each chunk would take seconds, one after the other.
    fetch(&pair, file);
    fetch(&pair, file);
    let names = pair.branch.peer()["in"]["names"].clone();
    let elsewhere = ["late", "absent", "shed"].map(|key| names[key].as_u64().unwrap());
    assert!(elsewhere.iter().sum::<u64>() > 0, "{names}");
}

#[test]
fn a_full_state_disk_is_told_until_it_is_cleared() {
    let origin = Origin::server();
    let mut pair = pair(&Options::to(origin.address()).without_adapting());
    pair.branch.kill();
    let state = pair.dir.path().join("branch-state");
    let config = fs::read_to_string(pair.branch.config()).unwrap();
    pair.branch = started_by(&on_small_disk(&state, "20m"), &pair.branch, "branch", &config);
    pair.branch.start();
    pair.wait_until_up();
    let unkept = || pair.branch.ask("status").map(|status| status["gateway"]["logs_not_kept"].clone());
    assert_eq!(unkept(), Some(serde_json::Value::Null));
    fetch(&pair, Request { seed: 120, len: 40 << 20 });
    let why = eventually("status says it", LIMIT, || unkept()?.as_str().map(str::to_owned));
    assert!(why.contains("No space left on device") && why.contains("in.log"), "{why}");
    let status = pair.branch.ask("status").unwrap();
    assert!(status["gateway"]["logs_not_kept_s"].as_f64().is_some_and(|age| age >= 0.0), "{status}");
    assert!(pair.branch.peer()["in"]["not_saved"].as_u64().is_some_and(|lost| lost > 0), "{status}");
    let output = pair.branch.run(&["status", "--admin", &pair.branch.admin().to_string()]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains(" now, and until the next start") && shown.contains("of its logs could not be"));
    eventually("a full disk can be cleared", LIMIT, || pair.branch.clear_cache_in_time(&[]));
    assert_eq!(unkept(), Some(serde_json::Value::Null));
}

#[test]
fn full_disk_keeps_the_fitting_part() {
    let origin = Origin::server();
    let options = options(&origin);
    let small = tempfile::tempdir().unwrap();
    let mount = small.path().join("disk");
    fs::create_dir(&mount).unwrap();
    let mut pair = pair(&options);
    pair.branch.kill();
    let config = fs::read_to_string(pair.branch.config()).unwrap();
    let there = format!("store_path = {:?}\nstore_disk", mount.display().to_string());
    let config = config.replace("store_disk", &there);
    // The branch has a disk of its own, smaller than configured.
    pair.branch = started_by(&on_small_disk(&mount, "48m"), &pair.branch, "branch", &config);
    pair.branch.start();
    pair.wait_until_up();
    for seed in 100..110 {
        fetch(&pair, Request { seed, len: 8 << 20 });
    }
    assert_warm(&pair, "what came last");
    let store = store_of(&pair.branch);
    assert_eq!(store["state"], "open", "{store}");
}
