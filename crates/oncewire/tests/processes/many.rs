//! Many flows at once, and stalled flows.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Barrier;
use std::thread::{Builder, scope};
use std::time::Duration;

use crate::common::connections::{self, Crowd};
use crate::common::data;
use crate::common::origin::{Origin, Request};
use crate::common::pair::Options;
use crate::common::wait::{LIMIT, eventually};
use crate::pair;

#[test]
fn a_thousand_flows_at_once_get_their_own_bytes() {
    let origin = Origin::echo();
    let pair =
        pair(&Options::to(origin.address()).with("[cache]\nmemory = \"256 MiB\"\nlog_memory = \"32 MiB\"\n"));
    let all_open = Barrier::new(FLOWS);
    scope(|threads| {
        for flow in 0..FLOWS {
            let (all_open, address) = (&all_open, pair.forward());
            let thread = Builder::new().stack_size(256 * 1024);
            let client = move || {
                let sent = match flow % 2 {
                    0 => data::random(flow as u64, 20_000 + flow),
                    _ => data::text(flow as u64 % 10, 30_000 + flow),
                };
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(LIMIT)).unwrap();
                stream.write_all(&sent[..1]).unwrap();
                let mut got = vec![0; 1];
                stream.read_exact(&mut got).unwrap();
                all_open.wait();
                stream.write_all(&sent[1..]).unwrap();
                stream.shutdown(Shutdown::Write).unwrap();
                stream.read_to_end(&mut got).unwrap();
                data::assert_same(&got, &sent, &format!("flow {flow}"));
            };
            thread.spawn_scoped(threads, client).unwrap();
        }
    });
    for (name, gateway) in [("branch", &pair.branch), ("hub", &pair.hub)] {
        let resident = gateway.resident();
        println!("{name}: {} MiB in use after {FLOWS} flows", resident >> 20);
        assert!(resident < (256 << 20) + BESIDE_CACHE, "{} MiB in use", resident >> 20);
    }
    connections::until_open(&pair.branch, 0);
    assert_eq!(pair.branch.counter("flows_total"), FLOWS as u64);
    for gateway in [&pair.branch, &pair.hub] {
        eventually("applications' sockets are closed", LIMIT, || {
            (gateway.open_files() < FLOWS / 5).then_some(())
        });
    }
}

#[test]
fn thousand_connections_with_a_hundred_active_leave_nothing_behind() {
    let origin = Origin::echo();
    let crowd = Crowd { all: FLOWS, active: FLOWS / 10, len: 50_000, idle: Duration::from_millis(500) };
    let cost = connections::run(crate::binary(), origin.address(), &crowd);
    println!("{cost}");
    assert!(cost.memory_each.iter().all(|bytes| *bytes < IDLE_FLOW), "{:?}", cost.memory_each);
}

#[test]
fn stopped_reader_holds_back_nobody() {
    let origin = Origin::server();
    let pair = pair(&Options::to(origin.address()));
    let slow_request = Request { seed: 60, len: 32 << 20 };
    let mut slow = TcpStream::connect(pair.forward()).unwrap();
    slow.set_read_timeout(Some(LIMIT)).unwrap();
    slow_request.send(&mut slow).unwrap();
    let mut got = vec![0; 1];
    slow.read_exact(&mut got).unwrap();

    // It has stopped. The others ask for the same bytes, too, so theirs are copies of its untaken ones.
    for request in [Request { seed: 61, len: 4 << 20 }, Request { seed: 60, len: 8 << 20 }] {
        scope(|threads| {
            for _ in 0..8 {
                let address = pair.forward();
                threads.spawn(move || {
                    data::assert_same(&request.fetch(address).unwrap(), &request.answer(), "a quick reader");
                });
            }
        });
    }
    slow.read_to_end(&mut got).unwrap();
    data::assert_same(&got, &slow_request.answer(), "the slow reader, in the end");
}

#[test]
fn short_flows_in_a_row_need_no_new_connection_each() {
    let origin = Origin::server();
    let pair = pair(&Options::to(origin.address()));
    let lanes = pair.relay.connections();
    for seed in 0..200 {
        let request = Request { seed, len: 500 };
        data::assert_same(&request.fetch(pair.forward()).unwrap(), &request.answer(), "a short flow");
    }
    let more = pair.relay.connections().saturating_sub(lanes);
    assert!(more <= 10, "{more} more lanes for flows that came one after the other");
}

const FLOWS: usize = 1000;

/// A gateway's memory beside `[cache] memory`: code, threads, sockets' buffers, TLS, bookkeeping of flows.
const BESIDE_CACHE: u64 = 192 << 20;

/// The most memory of an idle connection in a gateway.
const IDLE_FLOW: u64 = 64 << 10;
