//! A dead gateway: resets for its clients, a return by itself, and a kept memory.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;

use crate::common::data;
use crate::common::origin::{Origin, Request};
use crate::common::pair::{Options, Pair};
use crate::common::wait::{LIMIT, eventually};
use crate::pair;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Branch,
    Hub,
}

#[test]
fn killing_the_branch_never_ends_a_stream_in_order() {
    killed_in_mid_transfer(Side::Branch);
}

#[test]
fn killing_the_hub_never_ends_a_stream_in_order() {
    killed_in_mid_transfer(Side::Hub);
}

#[test]
fn a_killed_branch_comes_back_warm() {
    comes_back_warm(Side::Branch);
}

#[test]
fn a_killed_hub_comes_back_warm() {
    comes_back_warm(Side::Hub);
}

#[test]
fn sigterm_lets_running_transfers_finish() {
    let origin = Origin::server();
    let mut pair = pair(&Options::to(origin.address()));
    let request = Request { seed: 40, len: 8 << 20 };
    let (mut client, mut got) = begin(&pair, request);
    pair.branch.terminate();
    client.read_to_end(&mut got).unwrap();
    data::assert_same(&got, &request.answer(), "what was under way");
    drop(client);
    let status = pair.branch.wait(LIMIT);
    assert!(status.success(), "ended with {status}: {}", pair.branch.log());
    assert!(TcpStream::connect(pair.forward()).is_err(), "it accepts no more");
}

fn killed_in_mid_transfer(side: Side) {
    let origin = Origin::server();
    let mut pair = pair(&Options::to(origin.address()).with("[link]\nresume_window = \"2 s\"\n"));
    let request = Request { seed: 41, len: 48 << 20 };
    let (mut client, mut got) = begin(&pair, request);
    kill(&mut pair, side);
    let end = client.read_to_end(&mut got).map_err(|error| error.kind());
    assert!(got.len() < request.len, "the transfer was over before the kill");
    assert_eq!(end, Err(ErrorKind::ConnectionReset), "a short file that looks whole: {} bytes", got.len());
    data::assert_same(&got, &request.answer()[..got.len()], "what came before the reset");

    restart(&mut pair, side);
    let again = Request { seed: 42, len: 1 << 20 };
    data::assert_same(&fetch(&pair, again), &again.answer(), "after the restart");
}

fn comes_back_warm(side: Side) {
    let origin = Origin::server();
    let mut pair = pair(&Options::to(origin.address()).without_adapting());
    let request = Request { seed: 43, len: 12 << 20 };
    data::assert_same(&fetch(&pair, request), &request.answer(), "the first time");
    // Content not on disk at a gateway's death is gone, on a busy disk more than the last block; once sent again, it
    // is on disk the next time.
    let mut crossed = Vec::new();
    for _ in 0..5 {
        kill(&mut pair, side);
        restart(&mut pair, side);
        let before = pair.relay.carried();
        data::assert_same(&fetch(&pair, request), &request.answer(), "the next time");
        let wire = pair.relay.carried() - before;
        if wire < (request.len / 10) as u64 {
            return;
        }
        crossed.push(wire);
    }
    panic!("{side:?}: {crossed:?} bytes crossed for {} that both ends knew", request.len);
}

/// Asks for `request` and reads the first part of the answer.
fn begin(pair: &Pair, request: Request) -> (TcpStream, Vec<u8>) {
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    request.send(&mut client).unwrap();
    let mut got = vec![0; 1 << 20];
    client.read_exact(&mut got).unwrap();
    (client, got)
}

fn kill(pair: &mut Pair, side: Side) {
    match side {
        Side::Branch => pair.branch.kill(),
        Side::Hub => pair.hub.kill(),
    }
}

fn restart(pair: &mut Pair, side: Side) {
    match side {
        Side::Branch => pair.branch.start(),
        Side::Hub => pair.hub.start(),
    }
    pair.wait_until_up();
}

/// Fetches until it works: the two ends may need a moment to agree on a new link.
fn fetch(pair: &Pair, request: Request) -> Vec<u8> {
    eventually("a transfer works", LIMIT, || request.fetch(pair.forward()).ok())
}
