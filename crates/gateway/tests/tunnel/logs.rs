//! Warmth of logs after gateways' restarts.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use oncewire_config::Config;
use oncewire_gateway::daemon::{Gateway, StartError};
use oncewire_keys::StorageKey;
use oncewire_keys::{Identity, PublicKey};
use oncewire_report::PeerReport;

use crate::common::{
    LIMIT, Origin, UNCHANGING, branch_config, exchange, forward, hub_config, noise, start, within,
};

/// A pair with state directories, and restarts of its gateways.
struct Lives {
    dir: TempDir,
    hub: Option<Gateway>,
    branch: Option<Gateway>,
    hub_config: String,
    branch_config: String,
    _origin: Origin,
}

impl Lives {
    async fn begin() -> Self {
        Self::begin_with("").await
    }

    /// As [`Lives::begin`], with more keys in `[gateway]` at both ends.
    async fn begin_with(gateway: &str) -> Self {
        let (dir, origin) = (tempfile::tempdir().unwrap(), Origin::echo().await);
        let key = |name: &str| Identity::create(&dir.path().join(name)).unwrap().public_key();
        let (branch_key, hub_key) = (key("branch.key"), key("hub.key"));
        let kept = |config: String, state| {
            let gateway = format!("state = \"{state}\"\n{gateway}\nkey_file");
            config.replacen("key_file", &gateway, 1) + UNCHANGING
        };
        StorageKey::create(&dir.path().join("storage.key")).unwrap();
        let mut hub_config = kept(hub_config(branch_key, ""), "hub-state");
        let hub = start(dir.path(), &hub_config).await.unwrap();
        let address: SocketAddr = hub.local_addrs().tunnel[0];
        // The next hub must have the address known to the branch.
        hub_config = hub_config.replace("127.0.0.1:0", &address.to_string());
        let branch_config = kept(branch_config(hub_key, address, &forward(origin.address)), "branch-state");
        let mut lives =
            Self { dir, hub: Some(hub), branch: None, hub_config, branch_config, _origin: origin };
        lives.start().await;
        lives
    }

    /// Starts missing gateways.
    async fn start(&mut self) {
        while self.hub.is_none() {
            match start(self.dir.path(), &self.hub_config).await {
                Ok(hub) => self.hub = Some(hub),
                // The one before has not let go of its port yet.
                Err(StartError::Listen { .. }) => tokio::task::yield_now().await,
                Err(error) => panic!("{error}"),
            }
        }
        if self.branch.is_none() {
            self.branch = Some(start(self.dir.path(), &self.branch_config).await.unwrap());
        }
        assert!(self.hub.as_ref().unwrap().wait_up("branch", LIMIT).await);
        assert!(self.branch.as_ref().unwrap().wait_up("hub", LIMIT).await);
    }

    /// Sends bytes through both and back, and returns the wire bytes between them, both ways.
    async fn wire(&self, data: &[u8]) -> u64 {
        let branch = self.branch.as_ref().unwrap();
        let before = branch.status().peers[0].wire;
        let stream = TcpStream::connect(branch.local_addrs().intercepts[0]).await.unwrap();
        assert!(exchange(stream, data).await.unwrap() == data, "the data came back changed");
        branch.status().peers[0].wire - before
    }

    /// Sends bytes through both and back, and returns the share copied from the log, on the way out and on
    /// the way back.
    async fn cross(&self, data: &[u8]) -> [f64; 2] {
        let branch = self.branch.as_ref().unwrap();
        let peer = || -> PeerReport { branch.status().peers.remove(0) };
        let before = peer();
        let stream = TcpStream::connect(branch.local_addrs().intercepts[0]).await.unwrap();
        assert!(exchange(stream, data).await.unwrap() == data, "the data came back changed");
        let after = peer();
        [after.out.copied - before.out.copied, after.inbound.copied - before.inbound.copied]
            .map(|copied| copied as f64 / data.len() as f64)
    }

    /// Lists the files of a gateway's logs.
    fn files(&self, state: &str) -> Vec<PathBuf> {
        let entries = |path: &Path| -> Vec<PathBuf> {
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect()
        };
        let mut files: Vec<_> = entries(&self.dir.path().join(state).join("logs"))
            .iter()
            .flat_map(|peer| entries(peer))
            .collect();
        files.sort();
        files
    }

    /// Stops both gateways, damages one side's bytes, the next time the other's index, and so on, and starts them.
    async fn damage(&mut self, turn: usize, damage: Damage) {
        let state = ["hub-state", "branch-state"][turn % 2];
        let kind = ["log", "idx"][turn / 2 % 2];
        (self.hub, self.branch) = (None, None);
        let damaged = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == kind);
        self.files(state).iter().filter(damaged).for_each(|file| damage(file));
        self.start().await;
    }
}

/// The share of a repeat to be saved by a warm log.
const WARM: f64 = 0.98;

/// Damage to a file.
type Damage = fn(&Path);

/// Possible damages to a log's files.
const DAMAGES: [(&str, Damage); 6] = [
    ("flipped", |file| {
        let mut bytes = fs::read(file).unwrap();
        bytes.iter_mut().step_by(997).for_each(|byte| *byte ^= 0x20);
        fs::write(file, bytes).unwrap();
    }),
    ("cut", |file| {
        let bytes = fs::read(file).unwrap();
        fs::write(file, &bytes[..bytes.len() / 3]).unwrap();
    }),
    ("emptied", |file| fs::write(file, "").unwrap()),
    ("gone", |file| fs::remove_file(file).unwrap()),
    ("noise", |file| fs::write(file, noise(3, 100_000)).unwrap()),
    ("a directory", |file| {
        fs::remove_file(file).unwrap();
        fs::create_dir(file).unwrap();
    }),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_gateway_comes_back_warm() {
    within(async {
        let mut lives = Lives::begin().await;
        let data = noise(21, 1 << 20);
        let [out, back] = lives.cross(&data).await;
        assert!(out < 0.02 && back < 0.02, "{out} {back}");
        for (hub_dies, branch_dies) in [(true, false), (false, true), (true, true)] {
            if hub_dies {
                lives.hub = None;
            }
            if branch_dies {
                lives.branch = None;
            }
            lives.start().await;
            let [out, back] = lives.cross(&data).await;
            assert!(out > WARM && back > WARM, "hub {hub_dies}, branch {branch_dies}: {out} {back}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_gateways_come_back_warm() {
    within(async {
        let mut lives = Lives::begin().await;
        let data = noise(22, 1 << 20);
        lives.cross(&data).await;
        lives.branch.take().unwrap().shutdown(LIMIT).await;
        lives.hub.take().unwrap().shutdown(LIMIT).await;
        lives.start().await;
        let [out, back] = lives.cross(&data).await;
        assert!(out > WARM && back > WARM, "{out} {back}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_files_cost_savings_and_never_a_byte() {
    within(async {
        let mut lives = Lives::begin().await;
        let data = noise(23, 1 << 20);
        lives.cross(&data).await;
        for (turn, (name, damage)) in DAMAGES.into_iter().enumerate() {
            lives.damage(turn, damage).await;
            lives.cross(&data).await;
            let [out, back] = lives.cross(&data).await;
            // A cut leaves a log with a hole, and both ends still use the rest; the hits on a repeat depend
            // on the cuts of blocks.
            let warm = if name == "cut" { 0.1 } else { WARM };
            assert!(out > warm && back > warm, "{name}: not warm again: {out} {back}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_state_costs_one_cold_start() {
    within(async {
        let mut lives = Lives::begin().await;
        let data = noise(24, 1 << 20);
        lives.cross(&data).await;
        lives.hub = None;
        fs::remove_dir_all(lives.dir.path().join("hub-state")).unwrap();
        lives.start().await;
        let [out, back] = lives.cross(&data).await;
        assert!(out < 0.02 && back < 0.02, "{out} {back}");
        (lives.hub, lives.branch) = (None, None);
        lives.start().await;
        let [out, back] = lives.cross(&data).await;
        assert!(out > WARM && back > WARM, "{out} {back}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_cannot_share_a_state_directory() {
    within(async {
        let lives = Lives::begin().await;
        let listen = lives.hub.as_ref().unwrap().local_addrs().tunnel[0].to_string();
        let twin = lives.hub_config.replace(&listen, "127.0.0.1:0");
        let twin = start(lives.dir.path(), &twin).await;
        let Err(StartError::StateInUse(path)) = twin else { panic!("it started") };
        assert!(path.ends_with("hub-state"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_state_is_reported_while_nothing_is_persisted() {
    within(async {
        let mut lives = Lives::begin().await;
        assert_eq!(lives.hub.as_ref().unwrap().status().gateway.logs_not_kept, None);
        lives.hub = None;
        let state = lives.dir.path().join("hub-state");
        fs::remove_dir_all(&state).unwrap();
        fs::write(&state, "a file").unwrap();
        lives.start().await;
        let status = lives.hub.as_ref().unwrap().status();
        let why = status.gateway.logs_not_kept.unwrap();
        assert!(why.contains("logs start cold") && why.contains("hub-state"), "{why}");
        assert_eq!(status.peers[0].out.not_saved, None, "nothing is kept");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_logs_are_warm_and_show_nothing() {
    within(async {
        let mut lives = Lives::begin_with("encrypt_key_file = \"storage.key\"").await;
        let data = noise(25, 1 << 20);
        lives.cross(&data).await;
        for turn in 0..2 {
            (lives.hub, lives.branch) = (None, None);
            for file in ["hub-state", "branch-state"].iter().flat_map(|state| lives.files(state)) {
                let bytes = fs::read(&file).unwrap();
                assert!(!bytes.windows(16).any(|window| window == &data[500_000..500_016]), "{file:?}");
            }
            lives.start().await;
            let [out, back] = lives.cross(&data).await;
            assert!(out > WARM && back > WARM, "turn {turn}: {out} {back}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_encryption_costs_one_cold_start() {
    within(async {
        let mut lives = Lives::begin().await;
        let data = noise(26, 1 << 20);
        lives.cross(&data).await;
        let key = |name: &str| format!("encrypt_key_file = \"{name}\"");
        StorageKey::create(&lives.dir.path().join("other.key")).unwrap();
        let clear = lives.hub_config.clone();
        for line in [key("storage.key"), key("other.key"), String::new()] {
            lives.hub = None;
            lives.hub_config = clear.replacen("key_file", &format!("{line}\nkey_file"), 1);
            lives.start().await;
            let [out, back] = lives.cross(&data).await;
            assert!(out < 0.02 && back < 0.02, "{line}: {out} {back}");
            lives.hub = None;
            lives.start().await;
            let [out, back] = lives.cross(&data).await;
            assert!(out > WARM && back > WARM, "{line}: {out} {back}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_or_missing_log_costs_at_most_a_cold_start() {
    within(async {
        let mut lives = Lives::begin().await;
        let data = noise(27, 1 << 20);
        let cold = lives.wire(&data).await;
        let mut shares = Vec::new();
        for (turn, (name, damage)) in DAMAGES.into_iter().enumerate() {
            lives.damage(turn, damage).await;
            let wire = lives.wire(&data).await;
            // Acknowledgements and concurrent dials differ from run to run.
            assert!(wire < cold + 16_000, "{name}: {wire} bytes crossed, {cold} from cold");
            shares.push((name, wire as f64 / cold as f64));
            lives.wire(&data).await;
        }
        // Damage beyond use costs a cold start: unnoticed, it would void this test.
        assert!(shares.iter().any(|(_, share)| *share > 0.9), "{shares:?}");
    })
    .await;
}

fn hex(key: PublicKey) -> String {
    let hex: String = key.spki_der().iter().map(|byte| format!("{byte:02x}")).collect();
    // Its last 32 bytes are the key.
    hex[hex.len() - 64..].to_owned()
}

/// Has a gateway clear its logs, of one peer with a query naming it; the whole answer.
async fn clear(gateway: &Gateway, query: &str) -> String {
    let mut admin = TcpStream::connect(gateway.local_addrs().admin.unwrap()).await.unwrap();
    let request =
        format!("POST /cache/clear{query} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    admin.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    admin.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_gateway_clears_logs_of_removed_peers() {
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let key = |name: &str| Identity::create(&dir.path().join(name)).unwrap().public_key();
        let (branch, removed) = (key("branch.key"), key("removed.key"));
        key("hub.key");
        let config = |more: &str| {
            let gateway = "state = \"state\"\nadmin = \"127.0.0.1:0\"\nkey_file";
            let text = hub_config(branch, more).replacen("key_file", gateway, 1);
            Config::parse(&text, &dir.path().join("oncewire.toml")).unwrap()
        };
        let more = format!("[[peer]]\nname = \"removed\"\npublic_key = \"{removed}\"\n");
        let mut hub = Gateway::start(config(&more)).await.unwrap();
        hub.reload(config("")).await.unwrap();
        let logs = dir.path().join("state/logs");
        fs::create_dir(logs.join("mine")).unwrap();
        let left = || [hex(branch), hex(removed), "mine".to_owned()].map(|name| logs.join(name).exists());
        assert!(clear(&hub, "?peer=branch").await.starts_with("HTTP/1.1 200"));
        assert_eq!(left(), [true; 3]);
        let answer = clear(&hub, "").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains(&hex(removed)), "{answer}");
        assert_eq!(left(), [true, false, true]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_clearing_of_one_peer_spares_the_others() {
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let key = |name: &str| Identity::create(&dir.path().join(name)).unwrap().public_key();
        let (first, second, third) = (key("first.key"), key("second.key"), key("third.key"));
        key("hub.key");
        let peer = |name, key| format!("[[peer]]\nname = \"{name}\"\npublic_key = \"{key}\"\n");
        let config = hub_config(first, &(peer("second", second) + &peer("third", third))).replacen(
            "key_file",
            "state = \"state\"\nadmin = \"127.0.0.1:0\"\nkey_file",
            1,
        );
        let hub = start(dir.path(), &config).await.unwrap();
        let directories = [first, second, third].map(|key| dir.path().join("state/logs").join(hex(key)));
        for directory in &directories {
            fs::write(directory.join("hints"), "known").unwrap();
        }
        // A rewritten file first has this name. The first peer's logs and the second's hints cannot be
        // rewritten.
        for file in ["out.idx", "in.idx"]
            .map(|index| directories[0].join(index))
            .iter()
            .chain([&directories[1].join("hints")])
        {
            assert!(file.exists(), "{file:?}");
            fs::create_dir(format!("{}.new", file.display())).unwrap();
        }
        let answer = clear(&hub, "").await;
        assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
        for failed in [
            "the logs of branch are cleared in memory, and on disk they could not be",
            "what is known of the chunk store of second stays on disk",
        ] {
            assert!(answer.contains(failed), "{answer}");
        }
        assert!(!answer.contains("third"), "{answer}");
        let stays = directories.map(|directory| fs::read(directory.join("hints")).unwrap() == b"known");
        assert_eq!(stays, [false, true, false]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn link_without_names_keeps_the_saved_hints() {
    within(async {
        let dir = tempfile::tempdir().unwrap();
        let key = |name: &str| Identity::create(&dir.path().join(name)).unwrap().public_key();
        let (branch, _) = (key("branch.key"), key("hub.key"));
        let config =
            hub_config(branch, "codec = \"endre\"").replacen("key_file", "state = \"state\"\nkey_file", 1);
        let hub = start(dir.path(), &config).await.unwrap();
        let directory = fs::read_dir(dir.path().join("state/logs")).unwrap().next().unwrap().unwrap().path();
        fs::write(directory.join("hints"), "known").unwrap();
        hub.shutdown(LIMIT).await;
        assert_eq!(fs::read(directory.join("hints")).unwrap(), b"known");
    })
    .await;
}
