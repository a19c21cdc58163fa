//! Late persistence of logs, after a hung disk answers again.

use std::sync::Arc;

use oncewire_logs::Logs;

use super::report::Report;
use super::start::log_owner;
use super::state::State;

/// Starts persistence for peers without it, whenever a timed-out disk answers again, until the gateway is
/// told to stop.
pub(super) async fn run(report: Arc<Report>, logs: Logs) {
    let mut stopped = report.stopped.clone();
    loop {
        tokio::select! {
            () = logs.answered() => {}
            // An error means the end of the gateway.
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
        let _changing = report.changing.lock().await;
        keep_again(&report.state(), &logs).await;
    }
}

/// The links go on with their epochs and offsets; the disk may have different ones, so it begins with
/// nothing.
async fn keep_again(state: &State, logs: &Logs) {
    let peers = state.config.peers.iter().zip(&state.peers);
    let (configs, peers): (Vec<_>, Vec<_>) = peers.filter(|(_, peer)| peer.logs.may_start()).unzip();
    let Some(opened) = logs.open_anew(configs.into_iter().map(log_owner).collect()).await else { return };
    peers.iter().zip(opened).for_each(|(peer, opened)| peer.keep_logs(opened));
    let peers = peers.len();
    // First: a status with persistence must find this line in the log.
    tracing::info!(
        peers,
        "the disk of logs answers again: they are kept from now on, what it had of them is forgotten"
    );
    logs.not_kept().take_back();
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use oncewire_link::{LinkConfig, LinkStats};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use crate::daemon::Gateway;
    use oncewire_config::Config;
    use oncewire_keys::Identity;
    use oncewire_logs::Patience;

    const LIMIT: Duration = Duration::from_secs(60);
    /// Codes as configured, independent of the machine's load: uncoded bytes are not logged either.
    const UNCHANGING: &str = "[codec]\nadapt = false\n";

    /// As a disk that hangs while there is a file of this name in the state directory.
    fn hang(state: &Path) {
        while state.join(HANGS).exists() {
            std::thread::yield_now();
        }
    }

    const HANGS: &str = "hangs";

    async fn start(dir: &Path, text: &str, patience: Patience) -> Gateway {
        let config = Config::parse(text, &dir.join("oncewire.toml")).unwrap();
        Gateway::start_with(config, LinkConfig::default().codecs, patience).await.unwrap()
    }

    fn link(gateway: &Gateway) -> LinkStats {
        gateway.report.state().peers[0].status().link
    }

    /// A server with different bytes for every client.
    async fn origin() -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let mut noise = 1_u64;
            while let Ok((mut client, _)) = listener.accept().await {
                let mut next = || {
                    noise =
                        noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (noise >> 33) as u8
                };
                let bytes: Vec<u8> = (0..100_000).map(|_| next()).collect();
                client.write_all(&bytes).await.unwrap();
            }
        });
        address
    }

    async fn fetch(gateway: &Gateway) -> usize {
        let mut client = TcpStream::connect(gateway.local_addrs().intercepts[0]).await.unwrap();
        client.read_to_end(&mut Vec::new()).await.unwrap()
    }

    /// Starts a hub without persistence; returns the configuration of a branch with persistent logs, too.
    async fn hub(dir: &Path) -> (Gateway, String) {
        hub_with(dir, "", "64 MiB").await
    }

    /// The same with more keys for the hub, and logs of another size.
    async fn hub_with(dir: &Path, keys: &str, log_memory: &str) -> (Gateway, String) {
        let [branch_key, hub_key] = ["branch", "hub"]
            .map(|name| Identity::create(&dir.join(format!("{name}.key"))).unwrap().public_key());
        let hub = format!(
            "[gateway]\nname = \"hub\"\nkey_file = \"hub.key\"\nlisten = \"127.0.0.1:0\"\n{keys}\n\
             [[peer]]\nname = \"branch\"\npublic_key = \"{branch_key}\"\n\
             [cache]\nmemory = \"256 MiB\"\nlog_memory = \"{log_memory}\"\n{UNCHANGING}"
        );
        let hub = start(dir, &hub, Patience::default()).await;
        let (address, origin) = (hub.local_addrs().tunnel[0], origin().await);
        let text = format!(
            "[gateway]\nname = \"branch\"\nkey_file = \"branch.key\"\nstate = \"state\"\n\
             [[peer]]\nname = \"hub\"\npublic_key = \"{hub_key}\"\naddress = \"{address}\"\n\
             [cache]\nmemory = \"256 MiB\"\nlog_memory = \"{log_memory}\"\n{UNCHANGING}\
             [[intercept]]\nmode = \"forward\"\nlisten = \"127.0.0.1:0\"\ntarget = \"{origin}\"\npeer = \"hub\"\n"
        );
        (hub, text)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn holes_of_a_slow_disk_are_filled_before_memory_release() {
        let dir = tempfile::tempdir().unwrap();
        let (_hub, text) = hub(dir.path()).await;
        let branch = start(dir.path(), &text, Patience::default()).await;
        assert!(branch.wait_up("hub", LIMIT).await);
        let peer = Arc::clone(&branch.report.state().peers[0]);
        let writer = peer.logs.writer().unwrap();
        for is_slow in [false, true, false, true, false] {
            if is_slow {
                writer.stall(true);
            }
            assert_eq!(fetch(&branch).await, 100_000);
            if is_slow {
                writer.stall(false);
            }
        }
        assert_eq!((peer.logs.is_whole(), writer.lost()[1]), (false, 200_000));
        while !peer.logs.is_on_disk_only() {
            peer.release_logs(|_| true);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(fetch(&branch).await, 100_000);
        while peer.logs.is_on_disk_only() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!((peer.logs.is_whole(), link(&branch).inbound.log_used), (true, 600_000));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rewritten_full_log_is_complete_at_both_ends() {
        let dir = tempfile::tempdir().unwrap();
        let (hub, text) = hub_with(dir.path(), "state = \"hub-state\"", "1 MiB").await;
        let branch = start(dir.path(), &text, Patience::default()).await;
        assert!(branch.wait_up("hub", LIMIT).await);
        let peers = [&branch, &hub].map(|gateway| Arc::clone(&gateway.report.state().peers[0]));
        for number in 0..12 {
            let stall = |is_slow| peers.iter().for_each(|peer| peer.logs.writer().unwrap().stall(is_slow));
            // Pieces skipped by a slow disk cause a log to be rewritten.
            if number == 3 {
                stall(true);
            }
            assert_eq!(fetch(&branch).await, 100_000);
            if number == 3 {
                stall(false);
            }
        }
        for peer in &peers {
            while !peer.logs.is_on_disk_only() {
                peer.release_logs(|_| true);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
        let [received, sent] = peers.map(|peer| peer.logs_on_disk().unwrap());
        for (log, end) in [(received.inbound, "branch"), (sent.out, "hub")] {
            let ranges: Vec<_> = log.unwrap().ranges.iter().map(|range| (range.start, range.end)).collect();
            assert_eq!(ranges, [(1_200_000 - (1 << 20), 1_200_000)], "{end}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn gateway_persists_logs_once_a_hung_disk_answers() {
        let dir = tempfile::tempdir().unwrap();
        let (_hub, text) = hub(dir.path()).await;
        let hangs = dir.path().join("state").join(HANGS);
        std::fs::create_dir_all(hangs.parent().unwrap()).unwrap();
        File::create(&hangs).unwrap();
        let short =
            Patience { reading: Duration::from_millis(20), before_opening: hang, ..Patience::default() };
        let branch = start(dir.path(), &text, short).await;
        assert!(branch.status().gateway.logs_not_kept.unwrap().contains("logs start cold"));
        assert!(branch.wait_up("hub", LIMIT).await);
        assert_eq!(fetch(&branch).await, 100_000);

        std::fs::remove_file(&hangs).unwrap();
        while branch.status().gateway.logs_not_kept.is_some() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        assert_eq!(fetch(&branch).await, 100_000, "the link goes on");
        assert_eq!(link(&branch).peer_restarts, 0);
        let all = link(&branch).inbound.log_used;
        let peer = Arc::clone(&branch.report.state().peers[0]);
        while !peer.logs.is_whole() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        branch.shutdown(LIMIT).await;
        let again = start(dir.path(), &text, Patience::default()).await;
        assert_eq!(again.status().gateway.logs_not_kept, None);
        assert_eq!(
            (link(&again).inbound.log_used, all),
            (200_000, 200_000),
            "also what came while the disk hung"
        );
    }
}
