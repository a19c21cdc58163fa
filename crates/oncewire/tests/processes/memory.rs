//! Memory of ended links, logs on disk and stalled flows: returned or bounded.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use crate::common::connections::raise_open_files;
use crate::common::gateway::Gateway;
use crate::common::origin::{Origin, Request};
use crate::common::pair::{Options, Pair};
use crate::common::wait::{LIMIT, eventually, pause};
use crate::pair;

/// Fills most of a log at either end; nothing of it repeats.
const CONTENT: Request = Request { seed: 90, len: 48 << 20 };

/// Starts the branch's link anew again and again, with its memory kept; `before_each` comes before each time.
fn reload_often(pair: &Pair, mut before_each: impl FnMut()) {
    let config = fs::read_to_string(pair.branch.config()).unwrap();
    for turn in 1..=RELOADS {
        before_each();
        pair.branch.write_config(&format!("{config}[link]\nresume_window = \"{} s\"\n", 100 + turn));
        pair.branch.reload();
        eventually("the link starts anew", LIMIT, || {
            (pair.branch.whole_log().matches("changed; its link starts anew").count() == turn).then_some(())
        });
        pair.wait_until_up();
        println!("reload {turn}: {} MiB in use", pair.branch.resident() >> 20);
    }
}

/// Expects the branch's memory back at its earlier value, and its threads for logs at those of one link.
fn assert_no_more_than(before: u64, branch: &Gateway) {
    let resident = branch.resident();
    assert!(resident < before + SLACK, "{} MiB in use, {} MiB before", resident >> 20, before >> 20);
    let tasks = fs::read_dir(format!("/proc/{}/task", branch.pid())).unwrap().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    let writing = names.filter(|name| name.trim_end() == "oncewire-logs").count();
    // The last but one may be about to end.
    assert!(writing <= 2, "{writing} threads write logs");
}

#[test]
fn restarted_links_with_logs_take_no_more_memory() {
    let origin = Origin::server();
    let pair = pair(&Options::to(origin.address()).without_adapting());
    assert_eq!(CONTENT.fetch(pair.forward()).unwrap().len(), CONTENT.len);
    let before = pair.branch.resident();
    reload_often(&pair, || ());
    assert_no_more_than(before, &pair.branch);
    // Logs too slow on a busy disk are not waited for, and the gateway says so.
    let is_late = pair.branch.whole_log().contains("until its disk answers");
    let used = pair.branch.peer()["in"]["log_used"].as_u64();
    assert!(is_late || used > Some(40 << 20), "the log came back each time: {used:?}");
}

#[test]
fn surviving_connections_keep_nothing_of_ended_links() {
    let (origin, echo) = (Origin::server(), Origin::echo());
    let direct =
        format!("[[policy]]\nmatch = {{ ports = [{}] }}\npath = \"direct\"\n", echo.address().port());
    let mut options = Options::to(origin.address()).with(&direct);
    options.targets.push(echo.address());
    let pair = pair(&options);
    assert_eq!(CONTENT.fetch(pair.forward()).unwrap().len(), CONTENT.len);
    let before = pair.branch.resident();
    let mut steady = Vec::new();
    reload_often(&pair, || {
        let mut stream = TcpStream::connect(pair.forwards[1]).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        echoes(&mut stream);
        steady.push(stream);
    });
    assert_no_more_than(before, &pair.branch);
    steady.iter_mut().for_each(echoes);
}

fn echoes(stream: &mut TcpStream) {
    let mut got = [0];
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"x");
}

#[test]
fn logs_only_on_disk_take_no_memory_after_many_returns() {
    let origin = Origin::server();
    let cache = "[cache]\nmemory = \"512 MiB\"\nlog_memory = \"64 MiB\"\nlog_idle = \"2 s\"\n";
    let pair = pair(&Options::to(origin.address()).with(cache));
    let empty = pair.branch.resident();
    let fetch = |len| assert_eq!(Request { len, ..CONTENT }.fetch(pair.forward()).unwrap().len(), len);
    let on_disk_only = || {
        eventually("the log goes", LIMIT, || {
            (pair.branch.ask("status")?["peers"][0]["in"]["log_on_disk"] == true).then_some(())
        });
        pair.branch.resident()
    };
    // It may be gone again before anybody has looked at the status.
    let times_back = || pair.branch.whole_log().matches("its logs are back in memory").count();
    let turn = || {
        let before = times_back();
        fetch(1 << 10);
        eventually("the log comes back", LIMIT, || (times_back() > before).then_some(()));
        on_disk_only()
    };
    fetch(CONTENT.len);
    let first = on_disk_only();
    let most = (1..TURNS).map(|_| turn()).fold(first, u64::max);
    let misses = || pair.branch.whole_log().contains("not on the disk any more");
    assert!(!misses(), "{}", pair.branch.log());
    for directory in fs::read_dir(pair.dir.path().join("branch-state/logs")).unwrap() {
        let files = fs::read_dir(directory.unwrap().path()).unwrap();
        files.for_each(|file| drop(File::create(file.unwrap().path()).unwrap()));
    }
    turn();
    assert!(misses(), "{}", pair.branch.log());
    println!("{} MiB in use at most, {} MiB at first", most >> 20, empty >> 20);
    assert!(most < empty + SLACK, "{} MiB in use, {} MiB at first", most >> 20, empty >> 20);
}

#[test]
fn stalled_uploads_stay_within_memory_and_return_it() {
    stalled_uploads(192, "log_memory = \"1 MiB\"\n");
}

#[test]
fn stalled_uploads_borrow_no_more_than_logs_have_to_spare() {
    stalled_uploads(16, "");
}

/// Has many applications send without a reader, with so much `memory`.
fn stalled_uploads(memory_mib: u64, more: &str) {
    raise_open_files();
    let server = Origin::server();
    let unread = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&unread);
    let stalled = Origin::start(move |stream| kept.lock().unwrap().push(stream));
    let cache = format!("[cache]\nmemory = \"{memory_mib} MiB\"\n{more}");
    let mut options = Options::to(server.address()).with(&cache).without_adapting();
    options.targets.push(stalled.address());
    let pair = pair(&options);
    let empty = pair.branch.resident();
    let uploads: Vec<TcpStream> =
        (0..UPLOADS).map(|_| TcpStream::connect(pair.forwards[1]).unwrap()).collect();
    uploads.iter().for_each(|upload| upload.set_nonblocking(true).unwrap());
    // Until nobody has taken anything for a while.
    let (part, mut idle) = (vec![7; 64 << 10], 0);
    while idle < 50 {
        let taken = uploads.iter().filter(|upload| matches!((&**upload).write(&part), Ok(1..))).count();
        idle = if taken == 0 { idle + 1 } else { 0 };
        pause();
    }
    for (name, gateway) in [("branch", &pair.branch), ("hub", &pair.hub)] {
        let resident = gateway.resident();
        println!("{name}: {} MiB in use, {} MiB before", resident >> 20, empty >> 20);
        let most = (memory_mib << 20) + (64 << 20) + UPLOADS * (8 << 10);
        assert!(resident < most, "{} MiB at {name}, of {} MiB", resident >> 20, most >> 20);
    }
    let small = Request { seed: 91, len: 300_000 };
    assert!(small.fetch(pair.forward()).unwrap() == small.answer(), "another flow goes on");
    drop(uploads);
    unread.lock().unwrap().clear();
    for gateway in [&pair.branch, &pair.hub] {
        eventually("a burst's memory comes back", LIMIT, || {
            (gateway.resident() < empty + LEFT_OVER).then_some(())
        });
    }
}

/// The possible rest of a burst: spare lanes, code read from disk, memory the allocator cannot return.
const LEFT_OVER: u64 = 40 << 20;

/// The number of applications sending without a reader.
const UPLOADS: u64 = 400;

/// How often logs are given back.
const TURNS: usize = 4;

/// How often a link starts anew.
const RELOADS: usize = 8;

/// Room for other changes, far less than two logs.
const SLACK: u64 = 64 << 20;
