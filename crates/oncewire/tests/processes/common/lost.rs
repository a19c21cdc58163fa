//! A pair with a loss of memory between two transfers of the same file.

use std::fmt;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use oncewire_testnet::{Family, LinkParams, Network};
use tempfile::TempDir;

use super::data;
use super::network::{FORWARDED, PairInNetwork, Place, Setup};
use super::origin::Origin;
use super::wait::{LIMIT, eventually};

/// The loss while neither gateway runs. The file goes from the hub to the branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    Nothing,
    /// The branch's store and logs, and with the store its id.
    Receivers,
    /// The content of the branch's store, but not its id; and the logs.
    Emptied,
    /// The file, in the branch's store, by a copy from before the file. And the logs.
    OlderCopy,
    /// The content of the branch's store, by damage; and bytes in all parts of the existing logs.
    Damaged,
    /// The hub's knowledge of the branch's store, and its logs.
    Senders,
}

impl Loss {
    pub(crate) const ALL: [Self; 6] =
        [Self::Nothing, Self::Receivers, Self::Emptied, Self::OlderCopy, Self::Damaged, Self::Senders];
}

/// The line, the settings and the file of a trial.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) line: LinkParams,
    /// As in `[codec]`.
    pub(crate) codec: &'static str,
    /// TOML at the end of both configurations.
    pub(crate) both: &'static str,
    pub(crate) file: Vec<u8>,
}

/// The cost of fetching the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    /// From the connection's beginning to the last byte.
    pub(crate) time: Duration,
    /// Bytes on the line, both ways, packets' headers included.
    pub(crate) wire: u64,
    /// Chunks named by the hub and absent at the branch.
    pub(crate) absent: u64,
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { time, wire, absent } = self;
        write!(f, "{wire} bytes in {:.2} s, {absent} chunks named in vain", time.as_secs_f64())
    }
}

/// A stopped pair, and its state after fetching the file once.
pub(crate) struct Fetched {
    pair: PairInNetwork,
    file: Vec<u8>,
    _origin: Origin,
    /// The states: of the branch's store before the file came, and of both gateways behind it.
    kept: TempDir,
    /// The transfer of the file.
    pub(crate) cold: Transfer,
}

/// Fetches the file without gateways; `None`, with the reason printed, without a network.
pub(crate) fn without_gateways(binary: &Path, line: &LinkParams, file: &[u8]) -> Option<Transfer> {
    let setup = Setup { line: line.clone(), ..Setup::default() };
    let pair = PairInNetwork::configure(binary, &setup)?;
    forget_paths(&pair.network);
    let _origin = serve(&pair, file);
    Some(fetch(&pair, false, file))
}

impl Fetched {
    /// Fetches the file through a pair, and stops the pair. `None`, with the reason printed, without a network.
    /// Panics on a wrong byte.
    pub(crate) fn once(binary: &Path, trial: &Trial) -> Option<Self> {
        let Trial { line, codec, both, file } = trial;
        let both = format!("[codec]\ncodec = \"{codec}\"\nadapt = false\n{CACHE}{both}");
        let mut pair = PairInNetwork::start(binary, &Setup { line: line.clone(), both, ..Setup::default() })?;
        forget_paths(&pair.network);
        let other = data::random(OTHER_SEED, OTHER_LEN);
        let origin = serve(&pair, &other);
        fetch(&pair, true, &other);
        drop(origin);
        let origin = serve(&pair, file);

        stop(&mut pair);
        let kept = tempfile::tempdir().unwrap();
        copy(&pair.state(Place::Branch).join(STORE), &kept.path().join(OLDER));
        start(&mut pair);
        let cold = fetch(&pair, true, file);
        stop(&mut pair);
        for place in Place::BOTH {
            copy(&pair.state(place), &kept.path().join(place.name()));
        }
        Some(Self { pair, file: file.clone(), _origin: origin, kept, cold })
    }

    /// Fetches the file twice after a loss, always through fresh gateways, with the state after the first transfer
    /// except for the loss. Panics on a wrong byte.
    pub(crate) fn after(&mut self, loss: Loss) -> [Transfer; 2] {
        let Self { pair, file, kept, .. } = self;
        for place in Place::BOTH {
            remove(&pair.state(place));
            copy(&kept.path().join(place.name()), &pair.state(place));
        }
        befall(pair, loss, &kept.path().join(OLDER));
        [(); 2].map(|()| {
            start(pair);
            let transfer = fetch(pair, true, file);
            stop(pair);
            transfer
        })
    }
}

fn befall(pair: &PairInNetwork, loss: Loss, older: &Path) {
    let [branch, hub] = Place::BOTH.map(|place| pair.state(place));
    let logs = || contents(&branch).into_iter().filter(|path| !path.ends_with(STORE));
    match loss {
        Loss::Nothing => {}
        Loss::Receivers => remove(&branch),
        Loss::Emptied => empty(&branch),
        Loss::Damaged => {
            logs().for_each(|path| damage(&path));
            empty_store(&branch);
        }
        Loss::OlderCopy => {
            logs().for_each(|path| remove(&path));
            remove(&branch.join(STORE));
            copy(older, &branch.join(STORE));
        }
        Loss::Senders => remove(&hub),
    }
}

/// Removes a gateway's logs and its store's content, but not the store's id.
pub(crate) fn empty(state: &Path) {
    contents(state).iter().filter(|path| !path.ends_with(STORE)).for_each(|path| remove(path));
    empty_store(state);
}

fn empty_store(state: &Path) {
    let store = contents(&state.join(STORE)).into_iter();
    // The file with the directory's name holds the store's identity.
    store.filter(|path| !path.ends_with(STORE)).for_each(|path| remove(&path));
}

/// Changes a byte in each page of every file in a directory.
fn damage(path: &Path) {
    if path.is_dir() {
        return contents(path).iter().for_each(|path| damage(path));
    }
    let mut bytes = fs::read(path).unwrap();
    bytes.iter_mut().skip(DAMAGED_FROM).step_by(4096).for_each(|byte| *byte ^= 1);
    fs::write(path, bytes).unwrap();
}

/// Serves `file` to every client.
fn serve(pair: &PairInNetwork, file: &[u8]) -> Origin {
    let file = file.to_vec();
    Origin::on(pair.listen(Family::V4), move |mut stream| {
        // Whether it arrived is for the client to say.
        let _ = stream.write_all(&file);
    })
}

fn fetch(pair: &PairInNetwork, by_gateways: bool, expected: &[u8]) -> Transfer {
    let to = pair.server(Family::V4, FORWARDED);
    let before = wire(pair);
    let begun = Instant::now();
    let mut stream = match by_gateways {
        true => pair.connect(Family::V4),
        false => pair.network.host("client").enter(|| TcpStream::connect(to).unwrap()),
    };
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut got = Vec::with_capacity(expected.len());
    stream.read_to_end(&mut got).unwrap();
    let time = begun.elapsed();
    let wire = wire(pair) - before;
    data::assert_same(&got, expected, "the file");
    let absent = match by_gateways {
        true => pair.at(Place::Hub, |hub| hub.peer()["out"]["names"]["absent"].as_u64().unwrap_or_default()),
        false => 0,
    };
    Transfer { time, wire, absent }
}

/// Ends both gateways in order.
fn stop(pair: &mut PairInNetwork) {
    Place::BOTH.into_iter().for_each(|place| pair.gateway(place).terminate());
    for place in Place::BOTH {
        let status = pair.gateway_mut(place).wait(LIMIT);
        assert!(status.success(), "{place:?}: {status}");
    }
}

fn start(pair: &mut PairInNetwork) {
    Place::BOTH.into_iter().for_each(|place| pair.launch(place));
    eventually("the gateways meet", LIMIT, || pair.is_up().then_some(()));
}

/// Has the kernel carry nothing over from one connection to the next, or the first would be the slowest.
pub(crate) fn forget_paths(network: &Network) {
    for host in ["client", "branch", "hub", "server"] {
        network.host(host).sh("echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save");
    }
}

/// Bytes on the line, both ways.
fn wire(pair: &PairInNetwork) -> u64 {
    let wan = pair.network.wan();
    wan.up.counters().carried_bytes + wan.down.counters().carried_bytes
}

fn contents(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn remove(path: &Path) {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
}

/// Copies a directory to a new name.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(status.success(), "{} is not copied", from.display());
}

const CACHE: &str = "[cache]\nmemory = \"512 MiB\"\nlog_memory = \"64 MiB\"\nhint_memory = \"1 MiB\"\nstore_disk = \"256 MiB\"\n";
/// The directory of the store in the state, and in it the file of its id.
const STORE: &str = "store";
/// The copy of the store from before the file, and its content.
const OLDER: &str = "older";
/// Behind the marks of a file's owner.
const DAMAGED_FROM: usize = 1000;
const OTHER_SEED: u64 = 2;
const OTHER_LEN: usize = 256 << 10;
