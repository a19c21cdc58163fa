//! Broken lanes under running transfers.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::common::data;
use crate::common::origin::{Origin, Request, halves, receipt};
use crate::common::pair::{Options, Pair};
use crate::common::wait::{LIMIT, eventually};
use crate::pair;

const CUTS: usize = 5;
const LEN: usize = 24 << 20;

#[test]
fn a_download_survives_five_cuts() {
    let origin = Origin::server();
    let pair = pair(&Options::to(origin.address()));
    let request = Request { seed: 50, len: LEN };
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    request.send(&mut client).unwrap();
    let got = read_and_cut(&mut client, &pair);
    data::assert_same(&got, &request.answer(), "the download");
    for gateway in [&pair.branch, &pair.hub] {
        assert!(gateway.counter("resumes") >= 1, "no flow had to resume");
        assert_eq!(gateway.counter("mismatches"), 0);
    }
}

#[test]
fn an_upload_survives_five_cuts() {
    let arrived: &'static AtomicUsize = Box::leak(Box::default());
    let origin = Origin::start(move |mut stream| {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => break,
                count => all.extend_from_slice(&buffer[..count]),
            }
            arrived.store(all.len(), Ordering::Relaxed);
        }
        stream.write_all(&receipt(&all)).unwrap();
    });
    let pair = pair(&Options::to(origin.address()));
    let sent = data::random(51, LEN);
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    let mut answer = Vec::new();
    std::thread::scope(|scope| {
        let mut writer = client.try_clone().unwrap();
        let sent = &sent;
        scope.spawn(move || {
            writer.write_all(sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        for cut in 1..=CUTS {
            let mark = cut * LEN / (CUTS + 1);
            eventually("the upload goes on", LIMIT, || {
                (arrived.load(Ordering::Relaxed) >= mark).then_some(())
            });
            pair.relay.cut_all();
        }
        client.read_to_end(&mut answer).unwrap();
    });
    assert_eq!(answer, receipt(&sent));
}

#[test]
fn many_transfers_survive_a_short_outage_of_the_link() {
    // None of them is over before the link is gone.
    let gone = Arc::new(AtomicBool::new(false));
    let is_gone = Arc::clone(&gone);
    let origin = Origin::start(move |mut stream| {
        let request = Request::read(&mut stream).unwrap();
        halves(&stream, &request.answer(), &is_gone);
    });
    let pair = pair(&Options::to(origin.address()));
    let begun = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..20)
            .map(|seed| {
                let request = Request { seed, len: 1 << 20 };
                let (address, begun) = (pair.forward(), &begun);
                scope.spawn(move || {
                    let mut client = TcpStream::connect(address).unwrap();
                    client.set_read_timeout(Some(LIMIT)).unwrap();
                    request.send(&mut client).unwrap();
                    let mut got = vec![0; 1];
                    client.read_exact(&mut got).unwrap();
                    begun.fetch_add(1, Ordering::Relaxed);
                    client.read_to_end(&mut got).unwrap();
                    (request, got)
                })
            })
            .collect();
        eventually("all are under way", LIMIT, || {
            (begun.load(Ordering::Relaxed) == clients.len()).then_some(())
        });
        pair.relay.set_down(true);
        gone.store(true, Ordering::SeqCst);
        until_noticed(&pair);
        pair.relay.set_down(false);
        for client in clients {
            let (request, got) = client.join().unwrap();
            data::assert_same(&got, &request.answer(), &format!("flow {}", request.seed));
        }
    });
}

#[test]
fn download_survives_silent_loss_of_one_direction() {
    let origin = Origin::server();
    let pair = pair(&Options::to(origin.address()).with("[link]\ndead_after = \"1 s\"\n"));
    for (seed, ways) in [(53, [true, false]), (54, [false, true])] {
        let request = Request { seed, len: LEN };
        let mut client = TcpStream::connect(pair.forward()).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        request.send(&mut client).unwrap();
        let mut got = vec![0; 1];
        client.read_exact(&mut got).unwrap();
        pair.relay.set_silent(ways);
        until_noticed(&pair);
        pair.relay.set_silent([false; 2]);
        client.read_to_end(&mut got).unwrap();
        data::assert_same(&got, &request.answer(), "the download");
    }
}

#[test]
fn download_survives_lanes_broken_during_a_stopped_gateway() {
    let origin = Origin::server();
    let pair = pair(&Options::to(origin.address()));
    let request = Request { seed: 52, len: LEN };
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    request.send(&mut client).unwrap();
    let mut got = vec![0; 1];
    client.read_exact(&mut got).unwrap();
    for gateway in [&pair.branch, &pair.hub] {
        gateway.set_stopped(true);
        (0..4).for_each(|_| pair.relay.cut_one(0));
        gateway.set_stopped(false);
    }
    client.read_to_end(&mut got).unwrap();
    data::assert_same(&got, &request.answer(), "the download");
}

#[test]
fn an_idle_flow_is_still_there_after_a_cut() {
    let origin = Origin::echo();
    let pair = pair(&Options::to(origin.address()));
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    for round in 0..3u8 {
        client.write_all(&[round; 100]).unwrap();
        let mut back = [0; 100];
        client.read_exact(&mut back).unwrap();
        assert_eq!(back, [round; 100]);
        assert!(pair.relay.cut_all() > 0);
    }
}

/// Waits until the branch reports the link as down.
fn until_noticed(pair: &Pair) {
    eventually("the branch notices", LIMIT, || {
        (pair.branch.ask("status")?["peers"][0]["state"] != "up").then_some(())
    });
}

/// Reads to the end of the stream and cuts every lane at five places on the way.
fn read_and_cut(client: &mut TcpStream, pair: &Pair) -> Vec<u8> {
    let (mut got, mut buffer, mut cuts) = (Vec::with_capacity(LEN), vec![0; 64 * 1024], 0);
    loop {
        match client.read(&mut buffer).unwrap() {
            0 => break,
            count => got.extend_from_slice(&buffer[..count]),
        }
        if cuts < CUTS && got.len() >= (cuts + 1) * LEN / (CUTS + 1) {
            cuts += 1;
            pair.relay.cut_all();
        }
    }
    assert_eq!(cuts, CUTS);
    got
}
