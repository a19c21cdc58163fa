//! A store slow to open.

use super::*;

/// A store with four blocks under opening: its identity is readable, and the rest only once the gate is open.
fn opening() -> (Moody, Option<u64>, Gated, ChunkStore) {
    let disk = Moody::new(Mood::Works);
    let first = store_on(Arc::new(disk.clone()));
    fill(&first, 4);
    let id = first.id();
    close(&first);
    let gate = Gated { disk: disk.clone(), shut: Arc::new((Mutex::new(true), parking_lot::Condvar::new())) };
    let store = opening_on(Arc::new(gate.clone()), Duration::ZERO);
    (disk, id, gate, store)
}

#[test]
fn slow_store_is_used_once_open() {
    let (_, id, gate, store) = opening();
    let report = store.report();
    assert_eq!((store.id(), report.state), (id, StoreCondition::Opening), "{report:?}");
    assert!(report.opened_percent.is_some() && report.id.is_some());
    assert_eq!(store.state(), StoreState::default());
    let answers: Arc<[AtomicU64; 2]> = Arc::default();
    assert!(!ask(&store, 1, &answers));
    assert_eq!(absent(&store, [1, 9]), [false; 2], "nobody knows");
    let tags = [1, 9].map(|number| NameKey::new([7; 32]).tag(&block(number)));
    assert_eq!(tags.map(|tag| store.may_hold(tag, 65_536)), [true; 2]);
    assert_eq!(tags.map(|tag| store.may_hold(tag, LEAST_SHARED - 1)), [false; 2], "looked for where it is");
    put(&store, 5);
    assert_eq!(store.report().dropped, 1);
    assert!(store.clear().blocking_recv().unwrap().unwrap_err().contains("being opened"));
    gate.open();
    until("it is open", || store.report().state == StoreCondition::Open);
    assert!(store.state().taking);
    assert_eq!(absent(&store, [1, 9]), [false, true]);
    assert_eq!(tags.map(|tag| store.may_hold(tag, 65_536)), [true, false]);
    until("it is read", || ask(&store, 1, &answers));
    until("it was read", || answers[0].load(Relaxed) == 1);
    until("it is looked at", || {
        store.look(true);
        store.report().levels.first().is_some_and(|level| level.chunks == 4)
    });
}

#[test]
fn store_closed_during_opening_is_unchanged() {
    let (disk, _, gate, store) = opening();
    let opening = std::thread::scope(|scope| {
        let closing = scope.spawn(|| close(&store));
        until("it was told to end", || matches!(&*store.slot.read(), Slot::None));
        gate.open();
        closing.join().is_ok()
    });
    assert!(opening);
    let again = store_on(Arc::new(disk));
    until("all is there", || {
        again.look(true);
        again.report().levels.first().is_some_and(|level| level.chunks == 4)
    });
}

#[test]
fn unreadable_store_is_none_after_all() {
    let (disk, _, gate, store) = opening();
    disk.inner.fail_writes(Some(io::ErrorKind::Other));
    gate.open();
    until("it is given up", || store.report().state == StoreCondition::Failed);
    assert!(store.report().reason.is_some() && store.state() == StoreState::default());
}

/// A disk with only the file `store` readable until the gate is open.
#[derive(Clone)]
struct Gated {
    disk: Moody,
    shut: Arc<(Mutex<bool>, parking_lot::Condvar)>,
}

impl Gated {
    fn open(&self) {
        *self.shut.0.lock() = false;
        self.shut.1.notify_all();
    }

    fn pass(&self) {
        let (shut, changed) = &*self.shut;
        let mut shut = shut.lock();
        while *shut {
            changed.wait(&mut shut);
        }
    }
}

impl Backend for Gated {
    fn create(&self, name: &str, len: u64) -> io::Result<()> {
        self.disk.create(name, len)
    }

    fn read(&self, name: &str, at: u64, into: &mut [u8]) -> io::Result<()> {
        if name != "store" {
            self.pass();
        }
        self.disk.read(name, at, into)
    }

    fn write(&self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write(name, at, bytes)
    }

    fn truncate(&self, name: &str, len: u64) -> io::Result<()> {
        self.disk.truncate(name, len)
    }

    fn sync(&self, name: &str) -> io::Result<()> {
        self.disk.sync(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.pass();
        self.disk.list()
    }
}
