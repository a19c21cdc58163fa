//! Logs competing for memory, and idle logs.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::timeout;

use oncewire_gateway::daemon::Gateway;
use oncewire_keys::Identity;
use oncewire_report::PeerReport;

use crate::common::{LIMIT, Origin, UNCHANGING, exchange, forward, noise, start, until, within};

/// A hub and its dialling branches.
struct Star {
    dir: TempDir,
    hub: Option<Gateway>,
    hub_config: String,
    branches: Vec<Gateway>,
    _origin: Origin,
}

impl Star {
    /// Starts a hub with these lines in its `[gateway]` and `[cache]`, and branches with their own.
    async fn start(names: &[&str], gateway: &str, hub_cache: &str, branch_cache: &str) -> Self {
        Self::before(Origin::echo().await, names, gateway, hub_cache, branch_cache).await
    }

    /// [`Self::start`] with an origin of the test's choice.
    async fn before(
        origin: Origin,
        names: &[&str],
        gateway: &str,
        hub_cache: &str,
        branch_cache: &str,
    ) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let key =
            |name: &str| Identity::create(&dir.path().join(format!("{name}.key"))).unwrap().public_key();
        let hub_key = key("hub");
        let own = |name: &str| {
            format!(
                "[gateway]\nname = \"{name}\"\nkey_file = \"{name}.key\"\n{}",
                gateway.replace("NAME", name)
            )
        };
        let mut hub_config =
            format!("{}\nlisten = [\"127.0.0.1:0\"]\n[cache]\n{hub_cache}\n{UNCHANGING}", own("hub"));
        let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
        for (name, key) in names.iter().zip(&keys) {
            hub_config += &format!("[[peer]]\nname = \"{name}\"\npublic_key = \"{key}\"\n");
        }
        let hub = start(dir.path(), &hub_config).await.unwrap();
        let address: SocketAddr = hub.local_addrs().tunnel[0];
        let mut branches = Vec::new();
        for name in names {
            let config = format!(
                "{}\n[cache]\n{branch_cache}\n{UNCHANGING}[[peer]]\nname = \"hub\"\npublic_key = \"{hub_key}\"\n\
                 address = \"{address}\"\n{}",
                own(name),
                forward(origin.address)
            );
            let branch = start(dir.path(), &config).await.unwrap();
            assert!(branch.wait_up("hub", LIMIT).await);
            branches.push(branch);
        }
        // The next hub must have the address known to the branches.
        let hub_config = hub_config.replace("127.0.0.1:0", &address.to_string());
        Self { dir, hub: Some(hub), hub_config, branches, _origin: origin }
    }

    async fn connect(&self, branch: usize) -> TcpStream {
        TcpStream::connect(self.branches[branch].local_addrs().intercepts[0]).await.unwrap()
    }

    async fn cross(&self, branch: usize, data: &[u8]) {
        let stream = self.connect(branch).await;
        assert!(exchange(stream, data).await.unwrap() == data, "the data came back changed");
    }

    /// Sends to an [`Origin::count`].
    async fn upload(&self, branch: usize, data: &[u8]) {
        let answer = exchange(self.connect(branch).await, data).await.unwrap();
        assert_eq!(answer, data.len().to_string().as_bytes());
    }

    fn at_hub(&self, branch: usize) -> PeerReport {
        self.hub.as_ref().unwrap().status().peers.remove(branch)
    }

    fn at_branch(&self, branch: usize) -> PeerReport {
        self.branches[branch].status().peers.remove(0)
    }

    /// Both ends of the first branch's link.
    fn ends(&self) -> [PeerReport; 2] {
        [self.at_hub(0), self.at_branch(0)]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeating_peer_gets_the_memory() {
    within(async {
        // 19 MiB for tables, contexts and flows of each; 14 MiB are left for logs with a use for 36 MiB.
        // Nothing repeats in the other direction, else it would have as good a claim.
        let star = Star::before(
            Origin::count().await,
            &["copies", "fresh"],
            "",
            "memory = \"51 MiB\"\nlog_memory = \"8 MiB\"\n[link]\nflow_memory = \"16 MiB\"",
            "memory = \"256 MiB\"\nlog_memory = \"8 MiB\"",
        )
        .await;
        let (copies, fresh) = (star.at_hub(0), star.at_hub(1));
        for peer in [&copies, &fresh] {
            assert!(peer.out.log_limit < 5 << 20 && peer.inbound.log_limit < 5 << 20, "{peer:?}");
        }
        let repeated = noise(1, 4 << 20);
        let (mut seed, mut rounds) = (100, 0);
        while star.at_hub(0).inbound.log_limit < 8 << 20 {
            star.upload(0, &repeated).await;
            star.upload(1, &noise(seed, 1 << 20)).await;
            (seed, rounds) = (seed + 1, rounds + 1);
        }
        assert!(rounds > 1, "it was given before anything was known");
        let fresh = star.at_hub(1);
        assert!(fresh.out.log_limit + fresh.inbound.log_limit < 5 << 20, "{fresh:?}");
        // The hub's other end follows.
        until(|| star.at_branch(0).out.log_limit == 8 << 20).await;
        // Bytes in flight for too long are not logged, and cross once more.
        let mut copied = 0;
        while copied <= (repeated.len() as u64) / 100 * 95 {
            let before = star.at_branch(0).out.copied;
            star.upload(0, &repeated).await;
            copied = star.at_branch(0).out.copied - before;
        }
        let used = star.hub.as_ref().unwrap().status().gateway.memory_used.unwrap();
        assert!(used < 68 << 20, "{used} bytes");
        assert_eq!(star.at_hub(0).mismatches + star.at_hub(1).mismatches, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_borrows_idle_memory_and_gives_it_back() {
    within(async {
        // Beside it each log has two pieces of 1 MiB at most.
        let limit = (42 + 12) << 20;
        let star = Star::before(
            Origin::count().await,
            &["first", "second", "third"],
            "",
            "memory = \"42 MiB\"\nlog_memory = \"16 MiB\"",
            "memory = \"256 MiB\"\nlog_memory = \"16 MiB\"",
        )
        .await;
        let held = |branch: usize| star.at_hub(branch).inbound.log_limit;
        let share = held(0);
        println!("each begins with {share} bytes");
        assert!(share < 6 << 20, "they do not compete");
        // Nothing repeats, so no log has more of a claim than another.
        let mut seed = 200;
        let mut fill = async |branches: Range<usize>| {
            for branch in branches {
                star.upload(branch, &noise(seed, 4 << 20)).await;
                seed += 1;
            }
            let used = star.hub.as_ref().unwrap().status().gateway.memory_used.unwrap();
            assert!(used < limit, "{used} bytes");
        };
        while held(0) < share + share / 2 || star.at_hub(0).inbound.log_used < share + share / 4 {
            fill(0..1).await;
        }
        let taken = held(0);
        println!("the one that is used has {taken} bytes");
        while held(0) > taken / 5 * 4 || held(1).min(held(2)) < held(0) / 4 * 3 {
            fill(0..3).await;
        }
        for branch in 0..3 {
            assert_eq!(star.at_hub(branch).mismatches + star.at_branch(branch).mismatches, 0);
        }
    })
    .await;
}

const KEPT: &str = "memory = \"256 MiB\"\nlog_memory = \"4 MiB\"\nlog_idle = \"1 s\"";
/// Their `log_idle`.
const IDLE: Duration = Duration::from_secs(1);

fn on_disk(end: &PeerReport) -> bool {
    end.out.log_on_disk && end.inbound.log_on_disk
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_logs_leave_memory_and_are_back_with_the_traffic() {
    // Also at an end with a higher offer than the other.
    for other in [KEPT, "memory = \"256 MiB\"\nlog_memory = \"8 MiB\"\nlog_idle = \"1 s\""] {
        idle_logs_leave_memory_and_are_back(other).await;
    }
}

async fn idle_logs_leave_memory_and_are_back(other: &str) {
    within(async {
        let star = Star::start(&["branch"], "state = \"NAME-state\"", KEPT, other).await;
        // On a machine standing still they idle again at once. Other data: only kept content can be copied.
        let mut seed = 31;
        while !leave_and_are_back(&star, &noise(seed, 1 << 20)).await {
            seed += 1;
        }
    })
    .await;
}

/// Whether the logs were seen in memory before and after, and all of the data was copied from them then.
async fn leave_and_are_back(star: &Star, data: &[u8]) -> bool {
    star.cross(0, data).await;
    let before = star.ends();
    until(|| star.ends().iter().all(on_disk)).await;
    if before.iter().any(on_disk) {
        return false;
    }
    let memory = |end: &PeerReport| end.out.memory + end.inbound.memory;
    for (end, before) in star.ends().iter().zip(&before) {
        assert!(memory(end) + (2 << 20) < memory(before), "{} of {}", memory(end), memory(before));
    }
    // The opened flow brings them back.
    let stream = star.connect(0).await;
    let back = until(|| !star.ends().iter().any(on_disk));
    if timeout(2 * IDLE, back).await.is_err() {
        return false;
    }
    let copied = |end: &PeerReport| [end.out.copied, end.inbound.copied];
    let before = copied(&star.at_branch(0));
    assert!(exchange(stream, data).await.unwrap() == data, "the data came back changed");
    let after = copied(&star.at_branch(0));
    before.into_iter().zip(after).all(|(before, after)| is_all(after - before, data))
}

fn is_all(copied: u64, data: &[u8]) -> bool {
    println!("{copied} of {} bytes copied", data.len());
    copied > (data.len() as u64) / 100 * 98
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_ahead_of_returning_logs_is_correct() {
    within(async {
        let star = Star::start(&["branch"], "state = \"NAME-state\"", KEPT, KEPT).await;
        let data = noise(32, 2 << 20);
        star.cross(0, &data).await;
        until(|| star.ends().iter().all(on_disk)).await;
        // They are back with some later transfer; on a machine standing still they idle again at once.
        loop {
            star.cross(0, &data).await;
            if !star.ends().iter().any(on_disk) {
                break;
            }
        }
        for end in star.ends() {
            assert_eq!(end.mismatches, 0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_gateway_meets_idle_logs_warm() {
    within(async {
        let mut star = Star::start(&["branch"], "state = \"NAME-state\"", KEPT, KEPT).await;
        // On a machine standing still they idle again before anything crosses. Other data: only kept content
        // can be copied.
        for seed in 33.. {
            let data = noise(seed, 1 << 20);
            star.cross(0, &data).await;
            until(|| star.ends().iter().all(on_disk)).await;
            star.hub.take().unwrap().shutdown(LIMIT).await;
            while star.hub.is_none() {
                // The one before may not have let go of its port yet.
                star.hub = start(star.dir.path(), &star.hub_config).await.ok();
            }
            assert!(star.hub.as_ref().unwrap().wait_up("branch", LIMIT).await);
            assert!(star.branches[0].wait_up("hub", LIMIT).await);
            let before = star.at_branch(0).out.copied;
            star.cross(0, &data).await;
            if is_all(star.at_branch(0).out.copied - before, &data) {
                break;
            }
        }
    })
    .await;
}
