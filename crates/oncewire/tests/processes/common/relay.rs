//! A TCP relay between the gateways, with cuts and a byte count of its own.

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

/// One direction: its bytes, and its rate.
struct Way {
    carried: AtomicU64,
    /// Whether its bytes get nowhere for now.
    silent: AtomicBool,
    bytes_per_s: Option<u64>,
    /// The time at which the link has sent all its bytes.
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

/// The lateness a thread may make up for: other programs must not slow the link down.
const CATCH_UP: Duration = Duration::from_millis(50);

impl CuttingRelay {
    /// Relays connections from a port of its own to `target`, at most so many bytes a second each way.
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

    /// Its address.
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

    /// Takes the link away (`true`: connections are cut, and new ones refused) or brings it back.
    pub(crate) fn set_down(&self, down: bool) {
        self.shared.down.store(down, Ordering::SeqCst);
        if down {
            self.cut_all();
        }
    }

    /// Stops, or lets go again, the bytes towards the target and from it, without a word: a path with total loss,
    /// with retransmissions by TCP afterwards.
    pub(crate) fn set_silent(&self, [towards, from]: [bool; 2]) {
        self.shared.towards_target.silent.store(towards, Ordering::Relaxed);
        self.shared.from_target.silent.store(from, Ordering::Relaxed);
    }

    /// How many connections it relays now.
    pub(crate) fn connections(&self) -> usize {
        self.shared.pairs.lock().unwrap().len()
    }

    /// TCP payload read so far, both ways together.
    pub(crate) fn carried(&self) -> u64 {
        let Shared { towards_target, from_target, .. } = &*self.shared;
        [towards_target, from_target].iter().map(|way| way.carried.load(Ordering::Relaxed)).sum()
    }
}

impl Drop for CuttingRelay {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.cut_all();
        let _ = TcpStream::connect(self.address); // Wakes the acceptor for its end.
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
        // A vanishing link ends nothing in order: both ends see a reset.
        let _ = socket2::SockRef::from(end).set_linger(Some(std::time::Duration::ZERO));
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// Copies up to and including the end of the stream; an error ends both directions.
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
