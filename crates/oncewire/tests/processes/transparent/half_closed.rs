//! Half-closed connections, forgotten on the way: by connection tracking unless probes keep them, or by the system of
//! an end with everything sent and closed.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use oncewire_testnet::{Host, isolated};
use socket2::{Domain, Socket, Type};

use super::deployment::{Deployment, LIMIT, Plan, TRY};
use crate::common::clients::reset;
use crate::common::data::{assert_same, random};
use crate::common::wait::eventually;

const PORT: u16 = 7070;
const INTERCEPTS: &str = "[[intercept]]\nmode = \"redirect\"\nlisten = \"0.0.0.0:15001\"\nscope = \"gateway\"\n\
                          interfaces = [\"lan0\"]\nnetworks = [\"198.18.2.0/24\", \"fd18:2::/64\"]\n";

/// The way of intercepted connections.
#[derive(Clone, Copy, Debug)]
enum Way {
    Link,
    /// The branch connects by itself.
    Direct,
}

impl Way {
    /// The host with connections to the server.
    fn near_server(self) -> &'static str {
        match self {
            Self::Link => "hub",
            Self::Direct => "branch",
        }
    }
}

/// Gateways with a redirecting branch, and these keys in their `[gateway]`.
fn deployment(gateway: &str, way: Way) -> Option<Deployment> {
    // Rules in the kernel cannot tell a connection's peer.
    const DIRECT: &str = "[[policy]]\nmatch = { peers = [\"hub\"] }\npath = \"direct\"\n";
    let intercepts = match way {
        Way::Link => INTERCEPTS.to_owned(),
        Way::Direct => INTERCEPTS.to_owned() + DIRECT,
    };
    let plan = Plan { intercepts: &intercepts, gateway, hub: gateway, ..Plan::default() };
    let mut deployment = Deployment::new(&plan)?;
    deployment.start();
    Some(deployment)
}

fn server(deployment: &Deployment) -> SocketAddr {
    SocketAddr::new(deployment.servers()[0], PORT)
}

/// Serves the first connection past the branch at the server's host.
fn serve<R: Send + 'static>(
    deployment: &Deployment,
    body: impl FnOnce(TcpStream) -> R + Send + 'static,
) -> JoinHandle<R> {
    let (address, [client, _]) = (server(deployment), deployment.clients());
    let listener = deployment.network.host("server").enter(|| TcpListener::bind(address).unwrap());
    let accept = move || listener.accept().unwrap();
    std::thread::spawn(move || {
        let mut accepted = std::iter::repeat_with(accept);
        body(accepted.find(|(_, from)| from.ip() != client).unwrap().0)
    })
}

/// Connects from the client until the branch takes the connection in: on a busy machine some pass it.
fn connect(deployment: &Deployment) -> TcpStream {
    let address = server(deployment);
    let [branch, client] = ["branch", "client"].map(|name| deployment.network.host(name));
    eventually("a connection is taken in", LIMIT, || {
        let stream = client.enter(|| TcpStream::connect_timeout(&address, TRY)).ok()?;
        // A passing connection has no socket there.
        if known(branch, stream.local_addr().unwrap().port()).is_empty() {
            // So the server's system keeps nothing of it.
            reset(stream);
            return None;
        }
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        Some(stream)
    })
}

fn set(host: &Host, key: &str, value: u32) {
    host.enter(|| std::fs::write(format!("/proc/sys/net/{key}"), value.to_string()))
        .unwrap_or_else(|error| panic!("{key}: {error}"));
}

/// Returns the state of the connection from this port, as connection tracking of a host has it, and the seconds until it is
/// forgotten.
fn tracked(host: &Host, port: u16) -> Option<(String, u32)> {
    let table = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/nf_conntrack")).unwrap();
    let line =
        table.lines().find(|line| line.split_whitespace().any(|word| word == format!("sport={port}")))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    Some((words[5].to_owned(), words[4].parse().unwrap()))
}

/// The seconds before connection tracking forgets half a connection, as Linux has it: three times the interval of
/// probes, so a machine with short stalls loses none. Both halves' ends it remembers for longer.
const FORGOTTEN_S: u32 = 60;

/// How long a connection is silent before it is probed while both halves last: too long for connection tracking once one
/// has ended.
const KEEPALIVE: &str = "keepalive = \"600 s\"\n";

/// Waits until half of the connection from this port has ended, and then until a probe has kept the other, with all
/// of its time again.
fn see_it_kept(host: &Host, port: u16) {
    // Half the connection has ended once its time is short; if the end was sent twice, all of it is taken to have ended.
    let tracked = || tracked(host, port).expect("the connection was forgotten");
    eventually("half of it has ended", LIMIT, || {
        let (state, left) = tracked();
        (left <= FORGOTTEN_S || state == "TIME_WAIT").then_some(())
    });
    let mut before = tracked().1;
    eventually("a probe keeps the connection", LIMIT, || {
        let (earlier, now) = (before, tracked().1);
        before = now;
        (now > earlier).then_some(())
    });
}

/// Returns the states of TCP connections with this port at either end in a host's system, and their unread bytes.
fn known(host: &Host, port: u16) -> Vec<(String, u64)> {
    const LISTENS: &str = "0A";
    let table = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/tcp")).unwrap();
    let port = format!(":{port:04X}");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let rows = rows.filter(|row| row[3] != LISTENS && (row[1].ends_with(&port) || row[2].ends_with(&port)));
    let unread = |row: &[&str]| u64::from_str_radix(row[4].split_once(':').unwrap().1, 16).unwrap();
    rows.map(|row| (row[3].to_owned(), unread(&row))).collect()
}

#[test]
fn half_closed_connection_is_kept_by_probes_until_its_answer() {
    isolated(|| slow_answer_arrives(Way::Link));
}

#[test]
fn half_closed_direct_connection_is_kept_by_probes() {
    isolated(|| slow_answer_arrives(Way::Direct));
}

fn slow_answer_arrives(way: Way) {
    let Some(deployment) = deployment(KEEPALIVE, way) else { return };
    let branch = deployment.network.host("branch");
    let (go_on, told) = mpsc::channel();
    let served = serve(&deployment, move |mut stream| {
        let mut request = Vec::new();
        stream.read_to_end(&mut request).unwrap();
        told.recv().unwrap();
        stream.write_all(&[b"got ", request.as_slice()].concat()).unwrap();
    });
    let mut client = connect(&deployment);
    client.write_all(b"all of it").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    see_it_kept(branch, client.local_addr().unwrap().port());
    go_on.send(()).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"got all of it");
    served.join().unwrap();
}

#[test]
fn request_ended_before_reaching_its_server_is_answered() {
    isolated(|| request_waiting_for_its_server_is_answered(Way::Link));
}

#[test]
fn direct_request_ended_before_reaching_its_server_is_answered() {
    isolated(|| request_waiting_for_its_server_is_answered(Way::Direct));
}

fn request_waiting_for_its_server_is_answered(way: Way) {
    let Some(deployment) = deployment(KEEPALIVE, way) else { return };
    let (branch, address) = (deployment.network.host("branch"), server(&deployment));
    // Its system answers nobody until somebody is accepted.
    let (listener, _first) = deployment.network.host("server").enter(|| {
        let listener = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        listener.bind(&address.into()).unwrap();
        listener.listen(0).unwrap();
        (TcpListener::from(listener), TcpStream::connect(address).unwrap())
    });
    let mut client = connect(&deployment);
    client.write_all(b"all of it").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    see_it_kept(branch, client.local_addr().unwrap().port());
    drop(listener.accept().unwrap());
    let (mut server, _) = listener.accept().unwrap();
    server.set_read_timeout(Some(LIMIT)).unwrap();
    let mut request = Vec::new();
    server.read_to_end(&mut request).unwrap();
    assert_eq!(request, b"all of it");
    server.write_all(b"got it").unwrap();
    drop(server);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"got it");
}

#[test]
fn upload_ended_during_a_stall_is_kept_and_answered() {
    isolated(|| stalled_upload_is_answered(Way::Link));
}

#[test]
fn direct_upload_ended_during_a_stall_is_kept_and_answered() {
    isolated(|| stalled_upload_is_answered(Way::Direct));
}

fn stalled_upload_is_answered(way: Way) {
    let Some(deployment) = deployment(KEEPALIVE, way) else { return };
    let data = random(7, 32 << 20);
    // A busy machine may read more than intended; then once more.
    let _ = is_answered(&deployment, &data) || is_answered(&deployment, &data);
}

/// Says whether the branch's system had the end of the upload, and something unread before it, and whether connection
/// tracking was to forget the other half soon.
fn is_answered(deployment: &Deployment, data: &[u8]) -> bool {
    let [branch, host] = ["branch", "client"].map(|name| deployment.network.host(name));
    let served = serve(deployment, |stream| stream);
    let mut client = connect(deployment);
    let mut server = served.join().unwrap();
    server.set_read_timeout(Some(LIMIT)).unwrap();
    let sent = fill(&client, data);
    client.shutdown(Shutdown::Write).unwrap();
    let port = client.local_addr().unwrap().port();
    let mut got = Vec::new();
    // Only enough to let the client's system send its bytes, and the end.
    const END_IS_ACKNOWLEDGED: &str = "05";
    while !known(host, port).iter().all(|(state, _)| state == END_IS_ACKNOWLEDGED) {
        let mut part = [0; 4 << 10];
        let read = server.read(&mut part).unwrap();
        got.extend_from_slice(&part[..read]);
    }
    let unread: u64 = known(branch, port).iter().map(|(_, unread)| unread).sum();
    println!("{sent} bytes were sent and {} read, and {unread} were with the branch's system", got.len());
    // A repeated end counts for connection tracking as the other side's, too, and it remembers that for longer.
    let tracked = tracked(branch, port);
    let is_half = tracked.as_ref().is_some_and(|(_, left)| *left <= FORGOTTEN_S);
    if is_half {
        see_it_kept(branch, port);
    } else {
        println!("the end was sent twice: {tracked:?}");
    }
    server.read_to_end(&mut got).unwrap();
    assert_same(&got, &data[..sent], "seed 7");
    server.write_all(b"got all of it").unwrap();
    drop(server);
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"got all of it");
    is_half && unread > 0
}

/// The connecting gateway's discovery that the server's system has forgotten a connection with unread bytes.
#[derive(Clone, Copy, PartialEq)]
enum By {
    /// It asks whether anybody is there.
    Probe,
    /// The client ends its stream, and the gateway passes the end on.
    End,
}

/// Has a server send and close, and its system forget the connection, with some of its bytes still unread.
fn a_download_outlives_its_server(way: Way, by: By) {
    let keepalive = if by == By::Probe { "keepalive = \"2 s\"\n" } else { "keepalive = \"0 s\"\n" };
    let Some(deployment) = deployment(keepalive, way) else { return };
    set(deployment.network.host("server"), "ipv4/tcp_fin_timeout", 1);
    let data = random(6, 32 << 20);
    // A busy machine may read more than intended; then once more.
    let _ = outlives_its_server(&deployment, (way, by), &data)
        || outlives_its_server(&deployment, (way, by), &data);
}

/// Says whether the gateway's system had something unread by the gateway.
fn outlives_its_server(deployment: &Deployment, (way, by): (Way, By), data: &[u8]) -> bool {
    let [gateway, server] = [way.near_server(), "server"].map(|name| deployment.network.host(name));
    let (sent, (close, closed)) = (data.to_vec(), mpsc::channel());
    let served = serve(deployment, move |stream| close.send(fill(&stream, &sent)).unwrap());
    let mut client = connect(deployment);
    let sent = closed.recv().unwrap();
    let mut got = Vec::new();
    // Only enough to let the server's system send its bytes, and the end.
    const ENDED: &str = "05";
    while !known(server, PORT).iter().all(|(state, _)| state == ENDED) {
        let mut part = [0; 4 << 10];
        let read = client.read(&mut part).unwrap();
        got.extend_from_slice(&part[..read]);
    }
    served.join().unwrap();
    eventually("the server is forgotten", LIMIT, || known(server, PORT).is_empty().then_some(()));
    let unread: u64 = known(gateway, PORT).iter().map(|(_, unread)| unread).sum();
    println!("{sent} bytes were sent and {} read, and {unread} were with the gateway's system", got.len());
    if by == By::End {
        client.shutdown(Shutdown::Write).unwrap();
    }
    eventually("the gateway is told that nobody is there", LIMIT, || {
        known(gateway, PORT).is_empty().then_some(())
    });
    client.read_to_end(&mut got).unwrap();
    assert_same(&got, &data[..sent], "seed 6");
    unread > 0
}

/// Sends until nothing more has had room for a while, without a reader; returns the sent bytes.
fn fill(mut stream: &TcpStream, data: &[u8]) -> usize {
    // Little is left to be sent then, once nothing more has room.
    socket2::SockRef::from(stream).set_send_buffer_size(16 << 10).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut sent = 0;
    while sent < data.len()
        && let Ok(more) = stream.write(&data[sent..data.len().min(sent + (16 << 10))])
    {
        sent += more;
    }
    sent
}

#[test]
fn download_arrives_whole_in_spite_of_vain_probes() {
    isolated(|| a_download_outlives_its_server(Way::Link, By::Probe));
}

#[test]
fn direct_download_arrives_whole_in_spite_of_vain_probes() {
    isolated(|| a_download_outlives_its_server(Way::Direct, By::Probe));
}

#[test]
fn a_download_arrives_whole_although_its_clients_end_reaches_nobody() {
    isolated(|| a_download_outlives_its_server(Way::Link, By::End));
}

#[test]
fn direct_download_arrives_whole_after_an_unheard_clients_end() {
    isolated(|| a_download_outlives_its_server(Way::Direct, By::End));
}
