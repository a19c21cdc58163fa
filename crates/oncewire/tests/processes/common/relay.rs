//! A TCP relay between the gateways that can cut every connection and counts what it carries by itself.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Stands in for the network between two gateways.
pub(crate) struct CuttingRelay {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    target: SocketAddr,
    pairs: Mutex<BTreeMap<u64, [TcpStream; 2]>>,
    next: AtomicU64,
    down: AtomicBool,
    stopped: AtomicBool,
    towards_target: Way,
    from_target: Way,
}

/// One direction: what it carried, and how fast it may.
struct Way {
    carried: AtomicU64,
    /// Whether what it is given gets nowhere for now.
    silent: AtomicBool,
    bytes_per_s: Option<u64>,
    /// When the link has sent what it was given.
    free_at: Mutex<Instant>,
}

impl Way {
    fn new(bytes_per_s: Option<u64>) -> Self {
        Self {
            carried: AtomicU64::new(0),
            silent: AtomicBool::new(false),
            bytes_per_s,
            free_at: Mutex::new(Instant::now()),
        }
    }

    /// Counts bytes and waits until the link has had the time to send them.
    #[allow(clippy::disallowed_methods, reason = "time is what a slow link takes")]
    fn carry(&self, bytes: usize) {
        self.carried.fetch_add(bytes as u64, Ordering::Relaxed);
        let Some(bytes_per_s) = self.bytes_per_s else { return };
        let now = Instant::now();
        let wait = {
            let mut free_at = self.free_at.lock().unwrap();
            let from = (*free_at).max(now.checked_sub(CATCH_UP).unwrap_or(now));
            *free_at = from + Duration::from_secs_f64(bytes as f64 / bytes_per_s as f64);
            free_at.saturating_duration_since(now)
        };
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
    }

    /// Waits while nothing gets through.
    fn wait(&self) {
        while self.silent.load(Ordering::Relaxed) {
            super::wait::pause();
        }
    }
}

/// A thread that slept too long may make up for this much: other programs must not slow the link down.
const CATCH_UP: Duration = Duration::from_millis(50);

impl CuttingRelay {
    /// Relays what connects to a port of its own to `target`, at most so many bytes a second each way.
    pub(crate) fn start(target: SocketAddr, rate_bytes_per_s: Option<u64>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            target,
            pairs: Mutex::new(BTreeMap::new()),
            next: AtomicU64::new(0),
            down: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            towards_target: Way::new(rate_bytes_per_s),
            from_target: Way::new(rate_bytes_per_s),
        });
        let acceptor = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if acceptor.stopped.load(Ordering::Relaxed) {
                    return;
                }
                if let Ok(stream) = stream {
                    acceptor.clone().relay(stream);
                }
            }
        });
        Self { address, shared }
    }

    /// Where to connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Resets every connection and returns how many there were; new ones are relayed as before.
    pub(crate) fn cut_all(&self) -> usize {
        let pairs = std::mem::take(&mut *self.shared.pairs.lock().unwrap());
        pairs.values().for_each(cut);
        pairs.len()
    }

    /// Resets one connection, `pick` counted from the oldest and around.
    pub(crate) fn cut_one(&self, pick: usize) {
        let mut pairs = self.shared.pairs.lock().unwrap();
        let id = pairs.keys().nth(pick % pairs.len().max(1)).copied();
        if let Some(ends) = id.and_then(|id| pairs.remove(&id)) {
            cut(&ends);
        }
    }

    /// Takes the link away (`true`: what is there is cut and what comes is refused) or brings it back.
    pub(crate) fn set_down(&self, down: bool) {
        self.shared.down.store(down, Ordering::SeqCst);
        if down {
            self.cut_all();
        }
    }

    /// Stops, or lets go again, what goes towards the target and what comes from it, without a word: a path that loses
    /// everything, after which TCP sends it again.
    pub(crate) fn set_silent(&self, [towards, from]: [bool; 2]) {
        self.shared.towards_target.silent.store(towards, Ordering::Relaxed);
        self.shared.from_target.silent.store(from, Ordering::Relaxed);
    }

    /// How many connections it relays now.
    pub(crate) fn connections(&self) -> usize {
        self.shared.pairs.lock().unwrap().len()
    }

    /// TCP payload that it has read so far, both ways together.
    pub(crate) fn carried(&self) -> u64 {
        let Shared { towards_target, from_target, .. } = &*self.shared;
        [towards_target, from_target].iter().map(|way| way.carried.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for CuttingRelay {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.cut_all();
        let _ = TcpStream::connect(self.address); // wakes the acceptor, which then ends
    }
}

impl Shared {
    fn relay(self: Arc<Self>, near: TcpStream) {
        let far = match TcpStream::connect(self.target) {
            Ok(far) if !self.down.load(Ordering::SeqCst) => far,
            _ => {
                let _ = socket2::SockRef::from(&near).set_linger(Some(std::time::Duration::ZERO));
                return;
            }
        };
        let _ = (near.set_nodelay(true), far.set_nodelay(true));
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let ends = [near.try_clone().unwrap(), far.try_clone().unwrap()];
        self.pairs.lock().unwrap().insert(id, ends);
        let (near_again, far_again) = (near.try_clone().unwrap(), far.try_clone().unwrap());
        let up = Arc::clone(&self);
        std::thread::spawn(move || {
            let back = Arc::clone(&up);
            let other = std::thread::spawn(move || copy(far_again, near_again, &back.from_target));
            copy(near, far, &up.towards_target);
            let _ = other.join();
            up.pairs.lock().unwrap().remove(&id);
        });
    }
}

fn cut(ends: &[TcpStream; 2]) {
    for end in ends {
        // A link that goes away says nothing in order: both ends see a reset.
        let _ = socket2::SockRef::from(end).set_linger(Some(std::time::Duration::ZERO));
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// Copies until the end of the stream, which it passes on; an error ends both directions.
fn copy(mut from: TcpStream, mut to: TcpStream, way: &Way) {
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => {
                way.wait();
                break;
            }
            Ok(count) => {
                way.carry(count);
                way.wait();
                if to.write_all(&buffer[..count]).is_err() {
                    let _ = from.shutdown(Shutdown::Both);
                    return;
                }
            }
            Err(_) => {
                let _ = to.shutdown(Shutdown::Both);
                return;
            }
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
