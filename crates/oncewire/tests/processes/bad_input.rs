//! Robustness: wrong configurations, strangers, garbage and floods.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::common::clients::socks_connect;
use crate::common::data;
use crate::common::gateway::{Gateway, keygen};
use crate::common::origin::{Origin, Request};
use crate::common::pair::{Options, Pair};
use crate::common::wait::{LIMIT, eventually, free_address};
use crate::{binary, pair};

#[test]
fn wrong_configurations_are_refused_with_their_place() {
    let dir = tempfile::tempdir().unwrap();
    let key = keygen(binary(), &dir.path().join("own.key"));
    let other = keygen(binary(), &dir.path().join("other.key"));
    std::fs::write(dir.path().join("garbage.key"), "not a key\n").unwrap();
    std::fs::set_permissions(dir.path().join("garbage.key"), PermissionsExt::from_mode(0o600)).unwrap();
    keygen(binary(), &dir.path().join("open.key"));
    std::fs::set_permissions(dir.path().join("open.key"), PermissionsExt::from_mode(0o644)).unwrap();

    let peer = |text: &str| format!("{GATEWAY}[[peer]]\nname = \"hub\"\npublic_key = \"{other}\"\n{text}");
    let cases = [
        ("an unknown key", GATEWAY.replace("listen", "lissten"), "lissten"),
        ("a wrong type", GATEWAY.replace("[\"127.0.0.1:7400\"]", "7400"), "listen"),
        ("a wrong unit", format!("{GATEWAY}[cache]\nmemory = \"4 Gigs\"\n"), "memory"),
        ("an unusable address", GATEWAY.replace("127.0.0.1:7400", "127.0.0.1"), "listen"),
        ("a missing key file", GATEWAY.replace("own.key", "none.key"), "none.key"),
        ("a key file that others can read", GATEWAY.replace("own.key", "open.key"), "open.key"),
        ("a key file that is none", GATEWAY.replace("own.key", "garbage.key"), "garbage.key"),
        ("a bad public key", peer("").replace(&other, "AAAA"), "public_key"),
        ("one's own key as a peer's", peer("").replace(&other, &key), "public_key"),
        ("a codec that is not there", peer("[codec]\nentropy = \"brotli:9\"\n"), "entropy"),
        (
            "a forward without a target",
            peer("[[intercept]]\nmode = \"forward\"\nlisten = \"127.0.0.1:1\"\npeer = \"hub\"\n"),
            "target",
        ),
        (
            "an unknown peer",
            peer("[[intercept]]\nmode = \"socks5\"\nlisten = \"127.0.0.1:1\"\npeer = \"hob\"\n"),
            "hob",
        ),
        (
            "an open proxy for everybody",
            peer("[[intercept]]\nmode = \"socks5\"\nlisten = \"0.0.0.0:1080\"\npeer = \"hub\"\n"),
            "allow_from",
        ),
        ("an open admin interface", GATEWAY.replace("127.0.0.1:7411", "0.0.0.0:7411"), "admin"),
        ("no TOML at all", "][".to_owned(), "line 1"),
    ];
    let file = dir.path().join("bad.toml");
    for (what, config, named) in cases {
        std::fs::write(&file, config).unwrap();
        for command in ["check", "run"] {
            let output = Command::new(binary())
                .args([command, "-c"])
                .arg(&file)
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{command} with {what}: {said}");
            assert!(said.contains("bad.toml") && said.contains(named), "{command} with {what}: {said}");
        }
    }
    std::fs::write(&file, peer("")).unwrap();
    let fine = Command::new(binary()).args(["check", "-c"]).arg(&file).output().unwrap();
    assert!(fine.status.success(), "{}", String::from_utf8_lossy(&fine.stderr));
}

#[test]
fn stranger_is_refused_and_named() {
    let (origin, pair) = running();
    let (own, hub) = (keygen(binary(), &pair.dir.path().join("stranger.key")), hub_key(&pair));
    let admin = free_address();
    let config = format!(
        "[gateway]\nname = \"stranger\"\nkey_file = \"stranger.key\"\nadmin = \"{admin}\"\nstate = \"stranger-state\"\n\
         [[peer]]\nname = \"hub\"\npublic_key = \"{hub}\"\naddress = \"{}\"\n",
        pair.tunnel
    );
    let mut stranger = Gateway::new(binary(), pair.dir.path(), "stranger", admin, &config);
    stranger.start();
    eventually("the hub names the key that it refused", LIMIT, || {
        pair.hub.log().contains(&own).then_some(())
    });
    assert_ne!(stranger.peer()["state"], "up");
    still_works(&origin, &pair);
}

#[test]
fn gateway_dialled_by_another_key_names_its_own() {
    let (origin, pair) = running();
    let other = keygen(binary(), &pair.dir.path().join("other.key"));
    keygen(binary(), &pair.dir.path().join("mistaken.key"));
    let admin = free_address();
    let config = format!(
        "[gateway]\nname = \"mistaken\"\nkey_file = \"mistaken.key\"\nadmin = \"{admin}\"\n\
         [[peer]]\nname = \"hub\"\npublic_key = \"{other}\"\naddress = \"{}\"\n",
        pair.tunnel
    );
    let mut mistaken = Gateway::new(binary(), pair.dir.path(), "mistaken", admin, &config);
    mistaken.start();
    let said = format!(
        "does not accept our public key; if it is a peer, its public_key for us must be {}",
        hub_key(&pair)
    );
    eventually("the hub says what is expected of it", LIMIT, || pair.hub.log().contains(&said).then_some(()));
    still_works(&origin, &pair);
}

#[test]
fn garbage_on_the_tunnel_port_is_dropped() {
    let (origin, pair) = running();
    for seed in 0..50 {
        let mut stream = TcpStream::connect(pair.tunnel).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = stream.write_all(&data::random(seed, 2000));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 200, "{} bytes for a stranger", answer.len());
    }
    for talk in ["GET / HTTP/1.1\r\n\r\n", "SSH-2.0-OpenSSH_9.2\r\n", "\u{16}\u{3}\u{1}"] {
        TcpStream::connect(pair.tunnel).unwrap().write_all(talk.as_bytes()).unwrap();
    }
    still_works(&origin, &pair);
}

#[test]
fn clients_speaking_garbage_are_dropped() {
    let (origin, pair) = running();
    let long_name = [&[5u8, 1, 0, 5, 1, 0, 3, 255][..], &[b'a'; 255], &[0, 80]].concat();
    let socks: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[4, 1, 0, 80, 127, 0, 0, 1, 0],
        &[5, 0],
        &[5, 255, 0],
        &[5, 1, 0, 5, 2, 0, 1, 127, 0, 0, 1, 0, 80],
        &[5, 1, 0, 5, 1, 0, 9, 1, 2, 3],
        &long_name,
    ];
    for (index, bytes) in socks.iter().enumerate() {
        ends(pair.socks, bytes, &format!("socks {index}"));
    }
    let endless = [b"GET http://a/ HTTP/1.1\r\nX: ".to_vec(), vec![b'a'; 1 << 20]].concat();
    let http: [&[u8]; 5] = [
        b"\0\0\0\0\r\n\r\n",
        b"GET /no/authority HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"CONNECT nonsense HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET ftp://127.0.0.1/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        &endless,
    ];
    for (index, bytes) in http.iter().enumerate() {
        ends(pair.http, bytes, &format!("http {index}"));
    }
    still_works(&origin, &pair);
    assert!(socks_connect(pair.socks, "127.0.0.1", origin.address().port()).is_ok());
}

#[test]
fn obstacles_to_directories_are_named() {
    let dir = tempfile::tempdir().unwrap();
    keygen(binary(), &dir.path().join("own.key"));
    std::fs::write(dir.path().join("file"), "").unwrap();
    std::fs::create_dir_all(dir.path().join("locked/lock")).unwrap();
    let file = dir.path().join("oncewire.toml");
    let warnings = |state: &str, store: &str| {
        let config = GATEWAY.replace("\"state\"", &format!("{state:?}"));
        std::fs::write(&file, format!("{config}[cache]\nstore_disk = \"1 GiB\"\n{store}")).unwrap();
        let output = Command::new(binary()).args(["check", "-c"]).arg(&file).output().unwrap();
        assert!(output.status.success(), "it would run without");
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("warning") && line.contains("another path"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let named = |path: &str| dir.path().join(path).display().to_string();
    assert_eq!(warnings("none", ""), Vec::<String>::new());
    let file = warnings("file", "");
    assert!(file.len() == 1 && file[0].contains("neither logs nor chunks"), "{file:?}");
    assert!(file[0].contains(&format!("{} is a file, not a directory", named("file"))), "{file:?}");
    let both = warnings("locked", "store_path = \"file\"\n");
    assert!(both[0].contains(&format!("{} is a directory", named("locked/lock"))), "{both:?}");
    assert!(both[1].contains("store_path in [cache]") && both[1].contains(&named("file")), "{both:?}");
}

#[test]
fn ten_thousand_silent_strangers_keep_no_peer_out() {
    let (origin, pair) = running();
    let wanted = open_files().saturating_sub(FILES_FOR_OTHERS).min(10_000);
    let (stop, tunnel) = (&AtomicBool::new(false), pair.tunnel);
    std::thread::scope(|scope| {
        let flood = scope.spawn(move || {
            let mut kept = Vec::with_capacity(wanted);
            for number in 0..wanted {
                if stop.load(Ordering::Relaxed) && number > wanted / 2 {
                    break;
                }
                kept.extend(stranger(tunnel, number));
            }
            kept
        });
        pair.relay.set_down(true);
        eventually("the branch notices", LIMIT, || (pair.branch.peer()["state"] != "up").then_some(()));
        pair.relay.set_down(false);
        let start = Instant::now();
        let request = Request { seed: 140, len: 10_000 };
        let fetch = || request.fetch(pair.forward()).ok().filter(|got| got.len() == request.len);
        eventually("a transfer in the middle of the flood", LIMIT, fetch);
        println!("a peer came back in {:?} while strangers knocked", start.elapsed());
        let kept = flood.join().unwrap();
        println!("{} strangers of {wanted}", kept.len());
        let held = std::fs::read_dir(format!("/proc/{}/fd", pair.hub.pid())).unwrap().count();
        assert!(held < 1000, "the hub holds {held} files");
        still_works(&origin, &pair);
        drop(kept);
    });
}

fn running() -> (Origin, Pair) {
    let origin = Origin::server();
    let pair = pair(&Options::to(origin.address()));
    (origin, pair)
}

#[track_caller]
fn still_works(_origin: &Origin, pair: &Pair) {
    let request = Request { seed: 141, len: 100_000 };
    data::assert_same(&request.fetch(pair.forward()).unwrap(), &request.answer(), "afterwards");
}

/// The hub's key in the branch's configuration.
fn hub_key(pair: &Pair) -> String {
    let config = std::fs::read_to_string(pair.branch.config()).unwrap();
    let line = config.lines().find(|line| line.starts_with("public_key")).unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

/// Sends `bytes` and fails unless the other end then closes the connection.
#[track_caller]
fn ends(address: SocketAddr, bytes: &[u8], what: &str) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{what}");
    }
}

/// Connects from one of many loopback addresses and says nothing.
fn stranger(target: SocketAddr, number: usize) -> Option<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).ok()?;
    let source = Ipv4Addr::new(127, 1, u8::try_from(number % 50).ok()?, 1);
    socket.bind(&SocketAddr::from((source, 0)).into()).ok()?;
    socket.connect_timeout(&target.into(), Duration::from_secs(2)).ok()?;
    Some(socket)
}

/// Raises this process's limit of open files to the system's, and returns it.
fn open_files() -> usize {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.map_or(20_000, |most| usize::try_from(most).unwrap_or(20_000))
}

const GATEWAY: &str = "[gateway]\nname = \"branch\"\nkey_file = \"own.key\"\nlisten = [\"127.0.0.1:7400\"]\n\
                       admin = \"127.0.0.1:7411\"\nstate = \"state\"\n";

/// Open files of this process for everything but the flood.
const FILES_FOR_OTHERS: usize = 6000;
