//! TCP semantics through a pair of gateways.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc;

use crate::common::clients::{
    NO_METHOD, http_connect, is_reset, read, reset, socks_connect, socks_connect_as,
};
use crate::common::data;
use crate::common::origin::{Origin, Request, receipt, upload};
use crate::common::pair::Options;
use crate::common::wait::{LIMIT, eventually, free_address};
use crate::pair;

#[test]
fn client_after_the_end_of_its_stream_gets_the_answer() {
    let origin = Origin::sink();
    let pair = pair(&Options::to(origin.address()));
    for len in [0, 1, 100_000, 3_000_000] {
        let sent = data::text(1, len);
        assert_eq!(upload(pair.forward(), &sent).unwrap(), receipt(&sent), "{len} bytes");
    }
}

#[test]
fn server_after_the_end_of_its_stream_gets_the_rest() {
    let (report, got) = mpsc::channel();
    let origin = Origin::start(move |mut stream| {
        stream.write_all(b"goodbye").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        report.send(rest).unwrap();
    });
    let pair = pair(&Options::to(origin.address()));
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "goodbye");
    let sent = data::random(2, 500_000);
    client.write_all(&sent).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    data::assert_same(&got.recv_timeout(LIMIT).unwrap(), &sent, "what came after the server's end");
}

#[test]
fn denied_destination_is_told_at_both_ends() {
    // Link-local addresses are denied unless `allow` names them.
    let denied = "169.254.7.7:9";
    let pair = pair(&Options::to(denied.parse().unwrap()));
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    assert!(client.read_to_end(&mut Vec::new()).is_err());
    for (gateway, peer) in [(&pair.branch, "peer=\"hub\""), (&pair.hub, "peer=\"branch\"")] {
        eventually("the log says so", LIMIT, || {
            let log = gateway.whole_log();
            let told =
                |line: &&str| line.contains("WARN") && line.contains("`allow`") && line.contains(denied);
            log.lines().find(told).filter(|line| line.contains(peer)).map(drop)
        });
    }
    let rows = pair.branch.ask("status").unwrap()["flows_not_coded"].clone();
    assert_eq!(
        (&rows[0]["destination"], &rows[0]["reason"]),
        (&denied.into(), &"not_allowed".into()),
        "{rows}"
    );
}

#[test]
fn a_server_may_speak_first() {
    let origin = Origin::start(|mut stream| {
        stream.write_all(b"220 ready\r\n").unwrap();
        let _ = stream.read(&mut [0; 1]);
    });
    let pair = pair(&Options::to(origin.address()));
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    assert_eq!(&read::<11>(&mut client), b"220 ready\r\n");
}

#[test]
fn a_reset_by_the_client_reaches_the_server() {
    let (report, got) = mpsc::channel();
    let origin = Origin::start(move |mut stream| {
        let _ = read::<5>(&mut stream);
        stream.write_all(b"!").unwrap();
        report.send(stream.read(&mut [0; 16]).map_err(|error| error.kind())).unwrap();
    });
    let pair = pair(&Options::to(origin.address()));
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    client.write_all(b"hello").unwrap();
    let _ = read::<1>(&mut client);
    reset(client);
    assert_eq!(got.recv_timeout(LIMIT).unwrap(), Err(ErrorKind::ConnectionReset));
}

#[test]
fn a_reset_by_the_server_reaches_the_client() {
    let origin = Origin::start(|mut stream| {
        let _ = read::<5>(&mut stream);
        reset(stream);
    });
    let pair = pair(&Options::to(origin.address()));
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    client.write_all(b"hello").unwrap();
    assert!(is_reset(&mut client, LIMIT));
}

#[test]
fn reset_by_a_client_without_reads_reaches_the_server() {
    let (report, got) = mpsc::channel();
    let origin = Origin::start(move |mut stream| {
        let block = data::random(3, 64 * 1024);
        while let Ok(()) = stream.write_all(&block) {}
        report.send(()).unwrap();
    });
    let pair = pair(&Options::to(origin.address()));
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    let _ = read::<1>(&mut client);
    reset(client);
    got.recv_timeout(LIMIT).unwrap();
}

#[test]
fn a_refused_connection_resets_the_client_before_any_byte() {
    let pair = pair(&Options::to(free_address()));
    match TcpStream::connect(pair.forward()) {
        Ok(mut client) => assert!(is_reset(&mut client, LIMIT)),
        // It may come before the connect is looked at.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn proxies_report_refused_connections() {
    let nobody = free_address();
    let pair = pair(&Options::default());
    assert_eq!(socks_connect(pair.socks, "127.0.0.1", nobody.port()).unwrap_err(), 5);
    let (status, _) = http_connect(pair.http, &nobody.to_string());
    assert_eq!(status, 502);
}

#[test]
fn proxies_carry_both_ways_by_address_and_by_name() {
    let origin = Origin::echo();
    let pair = pair(&Options::default());
    for host in ["127.0.0.1", "localhost"] {
        let (status, through_http) = http_connect(pair.http, &format!("{host}:{}", origin.address().port()));
        assert_eq!(status, 200);
        let through_socks = socks_connect(pair.socks, host, origin.address().port()).unwrap();
        for mut stream in [through_http, through_socks] {
            stream.write_all(b"there and back").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut back = String::new();
            stream.read_to_string(&mut back).unwrap();
            assert_eq!(back, "there and back", "{host}");
        }
    }
}

#[test]
fn an_unknown_name_is_an_unreachable_host() {
    let pair = pair(&Options::default());
    assert_eq!(socks_connect(pair.socks, "no-such-host.invalid", 80).unwrap_err(), 4);
}

#[test]
fn proxies_ask_for_the_configured_password() {
    let origin = Origin::echo();
    let port = origin.address().port();
    let pair = pair(&Options { users: vec!["anna:open sesame".into()], ..Options::default() });
    assert_eq!(socks_connect(pair.socks, "127.0.0.1", port).unwrap_err(), NO_METHOD);
    let with = |password| socks_connect_as(pair.socks, Some(("anna", password)), "127.0.0.1", port);
    assert_eq!(with("wrong").unwrap_err(), NO_METHOD);
    with("open sesame").unwrap();
    assert_eq!(http_connect(pair.http, &origin.address().to_string()).0, 407);
}

#[test]
fn single_bytes_are_forwarded_at_once() {
    let origin = Origin::echo();
    let pair = pair(&Options::to(origin.address()));
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    client.set_nodelay(true).unwrap();
    client.set_read_timeout(Some(LIMIT)).unwrap();
    for byte in 0..200 {
        client.write_all(&[byte]).unwrap();
        assert_eq!(read::<1>(&mut client), [byte]);
    }
}

#[test]
fn urgent_bytes_stay_in_line() {
    let (report, got) = mpsc::channel();
    let origin = Origin::start(move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        report.send(all).unwrap();
    });
    let pair = pair(&Options::to(origin.address()));
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    client.write_all(b"before ").unwrap();
    socket2::SockRef::from(&client).send_out_of_band(b"!").unwrap();
    client.write_all(b" after").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(got.recv_timeout(LIMIT).unwrap(), b"before ! after");
}

#[test]
fn both_directions_carry_at_once() {
    let origin = Origin::echo();
    let pair = pair(&Options::to(origin.address()));
    let sent = [data::text(4, 6_000_000), data::random(5, 6_000_000)].concat();
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    let mut writer = client.try_clone().unwrap();
    let mut got = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            writer.write_all(&sent).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        client.read_to_end(&mut got).unwrap();
    });
    data::assert_same(&got, &sent, "what came back");
}

#[test]
fn a_writer_is_held_back_when_nobody_reads() {
    let (release, held) = mpsc::channel::<()>();
    let (report, got) = mpsc::channel();
    let held = std::sync::Mutex::new(held);
    let origin = Origin::start(move |mut stream| {
        let _ = held.lock().unwrap().recv();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        report.send(all.len()).unwrap();
    });
    let pair = pair(&Options::to(origin.address()));
    let mut client = TcpStream::connect(pair.forward()).unwrap();
    client.set_nonblocking(true).unwrap();
    let block = data::random(6, 256 * 1024);
    let mut sent = 0;
    let mut still = 0;
    eventually("the writer is held back", LIMIT, || {
        let before = sent;
        while let Ok(count) = client.write(&block) {
            sent += count;
            assert!(sent < MOST_IN_BETWEEN, "{sent} bytes went in and nobody reads");
        }
        still = if sent == before { still + 1 } else { 0 };
        (still == 100).then_some(())
    });
    release.send(()).unwrap();
    client.set_nonblocking(false).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(got.recv_timeout(LIMIT).unwrap(), sent);
}

#[test]
fn an_idle_half_closed_connection_is_kept() {
    let late = Request { seed: 7, len: 1000 };
    let (release, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let origin = Origin::start(move |mut stream| {
        let mut asked = Vec::new();
        stream.read_to_end(&mut asked).unwrap();
        if asked == b"late" {
            let _ = held.lock().unwrap().recv();
        }
        let _ = stream.write_all(&late.answer());
    });
    let pair = pair(&Options::to(origin.address()));
    let ask = |what: &[u8]| {
        let mut client = TcpStream::connect(pair.forward()).unwrap();
        client.write_all(what).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        client
    };
    let mut waiting = ask(b"late");
    for _ in 0..50 {
        ask(b"now").read_to_end(&mut Vec::new()).unwrap();
    }
    pair.relay.cut_all();
    release.send(()).unwrap();
    let mut got = Vec::new();
    waiting.read_to_end(&mut got).unwrap();
    data::assert_same(&got, &late.answer(), "the late answer");
}

/// A flow's credit (16 MiB), the sending end's queue, and the sockets' own buffers.
const MOST_IN_BETWEEN: usize = 96 << 20;
