//! Socket settings of gateways, and their behaviour at the kernel's limits.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Resource, Rlimit, getrlimit, pidfd_getfd, pidfd_open, prlimit,
};
use socket2::SockRef;

use super::common::data::{assert_same, random};
use super::common::gateway::Gateway;
use super::common::origin::Origin;
use super::common::pair::{Options, Pair};
use super::common::wait::eventually;
use super::pair;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn accepted_lanes_have_the_configured_congestion_control() {
    let setting = |key: &str| std::fs::read_to_string(format!("/proc/sys/net/ipv4/{key}")).unwrap();
    let usual = setting("tcp_congestion_control");
    let allowed = setting("tcp_allowed_congestion_control");
    let Some(other) = allowed.split_whitespace().find(|name| *name != usual.trim()) else {
        assert!(std::env::var_os("CI").is_none_or(|value| value != "true"), "no other than {usual}");
        return println!("skipped: this kernel allows no congestion control but {usual}");
    };
    let pair = pair(&Options::default().with(&format!("[link]\ncongestion = \"{other}\"\n")));
    eventually("accepted lanes have it", LIMIT, || {
        let controls = accepted_lanes(&pair.hub);
        println!("{controls:?}");
        (!controls.is_empty() && controls.iter().all(|control| control == other)).then_some(())
    });
}

/// Four direct connections to an echo.
fn direct_connections() -> (Origin, Pair, Vec<TcpStream>) {
    let (accepted, count) = mpsc::channel();
    let origin = Origin::start(move |mut stream| {
        // Only the first are counted.
        let _ = accepted.send(());
        let mut reader = stream.try_clone().unwrap();
        let _ = std::io::copy(&mut reader, &mut stream);
        let _ = stream.shutdown(Shutdown::Write);
    });
    let mut options = Options::to(origin.address());
    options.branch = "[[policy]]\npath = \"direct\"\n".to_owned();
    let pair = pair(&options);
    let streams: Vec<_> = (0..4).map(|_| TcpStream::connect(pair.forward()).unwrap()).collect();
    streams.iter().for_each(|_| count.recv_timeout(LIMIT).unwrap());
    (origin, pair, streams)
}

#[test]
fn direct_connections_go_on_without_files_for_pipes() {
    let (_origin, pair, streams) = direct_connections();
    // Of pipes there are at most as many as were lent by now, fewer than directions.
    let limits = set_files(&pair.branch, 0);
    std::thread::scope(|scope| {
        for (seed, stream) in (60..).zip(&streams) {
            scope.spawn(move || exchange(stream, seed));
        }
    });
    set_files(&pair.branch, limits);
    exchange(&TcpStream::connect(pair.forward()).unwrap(), 70);
}

#[test]
fn pipes_of_direct_connections_leave_the_last_files() {
    let (_origin, pair, streams) = direct_connections();
    // Room for the existing sockets, and the last 16. Files from the gateway's birth may have a higher number.
    let files = files_of(&pair.branch);
    let sockets = files.iter().filter(|(_, link)| link.starts_with("socket:"));
    let first = sockets.map(|(number, _)| number).max().unwrap() + 1;
    let last = first..first + 16;
    set_files(&pair.branch, last.end as u64);
    // A new direction tries a pipe and keeps it, and may have done so before the limit was set.
    let before = files_of(&pair.branch);
    std::thread::scope(|scope| {
        for (seed, stream) in (80..).zip(&streams) {
            scope.spawn(move || exchange(stream, seed));
        }
    });
    // Empty ones are kept; one of the last files is made, looked at and closed.
    eventually("no pipe stays in the last files", LIMIT, || {
        let mut pipes = files_of(&pair.branch);
        pipes.retain(|file| file.1.starts_with("pipe:") && last.contains(&file.0) && !before.contains(file));
        pipes.is_empty().then_some(())
    });
}

#[test]
fn lane_takes_no_second_file_from_the_last_ones() {
    let origin = Origin::echo();
    let mut pair = pair(&Options::to(origin.address()));
    wait_for_logs(&pair.branch);
    // Once the existing lanes have ended, there is room for the socket of another, and the last 16.
    let lanes = dialled_lanes(&pair);
    let mut taken = files_of(&pair.branch);
    taken.retain(|(number, _)| !lanes.contains(number));
    let free = (0..).find(|number| taken.iter().all(|(other, _)| other != number)).unwrap();
    let last = free + 1..free + 17;
    let limits = set_files(&pair.branch, last.end as u64);
    pair.hub.kill();
    pair.hub.start();
    // A query to the branch during its dialling may take the lane's descriptor.
    pair.hub.wait_until_up(LIMIT);
    pair.branch.wait_until_up(LIMIT);
    // A second one is made, looked at and closed.
    eventually("the lane has none of the last files", LIMIT, || {
        let lanes = dialled_lanes(&pair);
        (!lanes.is_empty() && !lanes.iter().any(|number| last.contains(number))).then_some(())
    });
    set_files(&pair.branch, limits);
    exchange(&TcpStream::connect(pair.forward()).unwrap(), 90);
}

#[test]
fn a_gateway_without_files_still_tells_its_status() {
    let origin = Origin::start(|mut stream| _ = std::io::copy(&mut stream, &mut std::io::sink()));
    let pair = pair(&Options::to(origin.address()));
    for gateway in [&pair.branch, &pair.hub] {
        wait_for_logs(gateway);
        set_files(gateway, gateway.open_files() as u64 + 30);
    }
    let streams: Vec<_> = (0..200).map(|_| TcpStream::connect(pair.forward()).unwrap()).collect();
    eventually("the branch says what to do", LIMIT, || {
        let log = pair.branch.log();
        (log.contains("connections are refused") && log.contains("LimitNOFILE")).then_some(())
    });
    for gateway in [&pair.branch, &pair.hub] {
        let status = gateway.ask("status").expect("it answers");
        assert_eq!(status["peers"][0]["state"], "up", "{status}");
    }
    let refused = pair.branch.ask("status").unwrap()["gateway"]["refused"].clone();
    let refused = refused.as_array().unwrap().iter().find(|row| row["reason"] == "too_many");
    assert!(refused.is_some_and(|row| row["count"].as_u64() > Some(100)), "{refused:?}");
    let told = pair.branch.log().lines().filter(|line| line.contains("LimitNOFILE")).count();
    assert!(told < 20, "{told} lines for 200 connections:\n{}", pair.branch.log());
    drop(streams);
    eventually("the next is carried", LIMIT, || {
        let mut stream = TcpStream::connect(pair.forward()).ok()?;
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.write_all(b"data").and_then(|()| stream.shutdown(Shutdown::Write)).ok()?;
        stream.read(&mut [0]).ok().filter(|read| *read == 0).map(drop)
    });
}

/// Sends and receives the same 4 MiB, and ends the stream.
fn exchange(mut stream: &TcpStream, seed: u64) {
    let data = random(seed, 4 << 20);
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let received = std::thread::scope(|scope| {
        let mut reader = stream;
        let reading = scope.spawn(move || {
            let mut received = Vec::new();
            reader.read_to_end(&mut received).map(|_| received)
        });
        stream.write_all(&data).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        reading.join().unwrap().unwrap()
    });
    assert_same(&received, &data, &format!("seed {seed}"));
}

/// Sets how many files a gateway may have, and returns how many it might before.
fn set_files(gateway: &Gateway, files: u64) -> u64 {
    let limit = Rlimit { current: Some(files), maximum: getrlimit(Resource::Nofile).maximum };
    prlimit(Some(pid(gateway)), Resource::Nofile, limit).unwrap().current.unwrap()
}

fn pid(gateway: &Gateway) -> Pid {
    Pid::from_raw(i32::try_from(gateway.pid()).unwrap()).unwrap()
}

/// Waits until the files of both logs are open, soon after the link is up.
fn wait_for_logs(gateway: &Gateway) {
    let is_log = |(_, link): &(i32, String)| link.contains("/logs/");
    eventually("its logs are open", LIMIT, || {
        (files_of(gateway).into_iter().filter(is_log).count() == 4).then_some(())
    });
}

/// The descriptors of a gateway, and their targets.
fn files_of(gateway: &Gateway) -> Vec<(i32, String)> {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", gateway.pid())).unwrap();
    let file = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.ok()?.path();
        // One closed meanwhile is of no interest.
        let link = std::fs::read_link(&path).ok()?;
        Some((path.file_name()?.to_str()?.parse().ok()?, link.to_string_lossy().into_owned()))
    };
    entries.filter_map(file).collect()
}

/// Its sockets, as descriptors of this process.
fn sockets_of(gateway: &Gateway) -> Vec<(i32, OwnedFd)> {
    let process = pidfd_open(pid(gateway), PidfdFlags::empty()).unwrap();
    let sockets = files_of(gateway).into_iter().filter(|(_, link)| link.starts_with("socket:"));
    let own = |number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok();
    sockets.filter_map(|(number, _)| Some((number, own(number)?))).collect()
}

/// The descriptors of the branch's dialled lanes.
fn dialled_lanes(pair: &Pair) -> Vec<i32> {
    let peer = |socket: &OwnedFd| SockRef::from(socket).peer_addr().ok()?.as_socket();
    let mut sockets = sockets_of(&pair.branch);
    sockets.retain(|(_, socket)| peer(socket) == Some(pair.relay.address()));
    sockets.into_iter().map(|(number, _)| number).collect()
}

/// The congestion controls of a gateway's accepted lanes.
fn accepted_lanes(gateway: &Gateway) -> Vec<String> {
    let sockets: Vec<OwnedFd> = sockets_of(gateway).into_iter().map(|(_, socket)| socket).collect();
    let local = |socket: &OwnedFd| SockRef::from(socket).local_addr().ok()?.as_socket();
    let listens = |socket: &&OwnedFd| SockRef::from(*socket).is_listener().unwrap_or(false);
    let tunnels: Vec<SocketAddr> = sockets.iter().filter(listens).filter_map(local).collect();
    let accepted = sockets.iter().filter(|socket| {
        let tunnel = local(socket).filter(|local| tunnels.contains(local) && *local != gateway.admin());
        tunnel.is_some() && SockRef::from(*socket).peer_addr().is_ok()
    });
    let control = |socket: &OwnedFd| String::from_utf8(SockRef::from(socket).tcp_congestion().ok()?).ok();
    accepted.filter_map(control).map(|name| name.trim_end_matches('\0').to_owned()).collect()
}
