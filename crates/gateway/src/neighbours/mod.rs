//! Gateways of the same trust groups: what they ask of each other's chunk stores, and tell of their own.
//!
//! One task has the say ([`task`]); links and the store hand it what concerns it, and wait for nothing. What cannot be
//! handed over counts as lost, which costs time only. `docs/internals/neighbours.md` says who is what to whom.

mod pending;
mod task;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc};

use oncewire_codec::wanax::hints::PackedTag;
use oncewire_codec::wanax::neighbours::MemberId;
use oncewire_codec::wanax::{Name, NameKey, Shape};
use oncewire_codec::wire::{GroupFrame, Sought};
use oncewire_link::Now;

use crate::group_key::ProofKey;
use crate::identity::PublicKey;
use crate::telemetry::GroupReport;
use crate::tunnel::peer::Peer;

use self::pending::Pending;
pub(crate) use self::pending::PendingShare;
pub(crate) use task::Task;

/// What is configured of a peer that is in a group.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// The group's name here, which a reload may change.
    pub(crate) group: Arc<RwLock<String>>,
    pub(crate) key: NameKey,
    /// What both ends prove with that they hold the group's key.
    pub(crate) proofs: ProofKey,
    /// The peer, as neighbours name each other: by the key that it speaks with, of those that it may.
    pub(crate) id: Arc<RwLock<MemberId>>,
    /// Where it stands, if that is said.
    pub(crate) site: Option<String>,
    /// Whether that is where this gateway stands.
    pub(crate) is_near: bool,
    pub(crate) neighbours: Neighbours,
}

impl Member {
    /// Returns how neighbours name it.
    pub(crate) fn id(&self) -> MemberId {
        *self.id.read()
    }

    /// Names it by the key that it speaks with, as its other neighbours do.
    pub(crate) fn speaks_with(&self, key: &PublicKey) {
        *self.id.write() = MemberId::of_key(key.as_bytes());
    }
}

/// Where links and the store tell what concerns groups.
#[derive(Clone, Debug)]
pub(crate) struct Neighbours {
    told: mpsc::Sender<Told>,
    /// Apart from the rest since these hold content that nobody waits for.
    news: mpsc::Sender<News>,
    /// Has the task look at all links, and report.
    links: Arc<Notify>,
    /// Has it look at what is waited for, and report.
    look: Arc<Notify>,
    shared: Arc<Shared>,
}

/// What others than the task look at.
#[derive(Debug, Default)]
struct Shared {
    open: RwLock<Open>,
    reports: RwLock<Vec<GroupReport>>,
    /// Bytes of news that wait, and of what peers said.
    waiting_bytes: AtomicUsize,
    said_bytes: AtomicUsize,
    /// Chunks that came to the store, and those of them that the task was not told of, by the bytes of their key.
    came: Mutex<BTreeMap<[u8; 32], (u64, u64)>>,
    pending: Arc<Pending>,
    /// What members said beyond what they are listened to for, by the bytes of their key.
    unheard: Mutex<BTreeMap<[u8; 32], Unheard>>,
}

/// What members said beyond what they are listened to for.
#[derive(Clone, Copy, Debug, Default)]
struct Unheard {
    /// Chunks of which they told.
    tags: u64,
    /// Frames of all other kinds.
    frames: u64,
}

/// The groups in which somebody is there.
#[derive(Debug, Default, PartialEq)]
struct Open {
    /// With a neighbour to ask.
    asked: Vec<NameKey>,
    /// With anybody to tell.
    told: Vec<NameKey>,
}

/// What the task is told.
enum Told {
    /// A peer of a group speaks.
    Said(Arc<Peer>, GroupFrame),
    /// A peer of a group has these chunks, which were sent from here.
    Stored(Arc<Peer>, Vec<PackedTag>),
    /// A chunk is to be read.
    Read(Wanted),
    /// Neighbours are to say what they have.
    Survey(Survey),
    /// A chunk that a neighbour asked for was looked up here.
    Served { key: NameKey, from: MemberId, request: u64, name: Name, len: u32, bytes: Option<Bytes> },
}

/// A chunk that a link wants.
pub(crate) struct Wanted {
    pub(crate) key: NameKey,
    pub(crate) name: Name,
    pub(crate) len: u32,
    /// Whether the own store has it.
    pub(crate) held: bool,
    /// Is called once, with what a neighbour had, or with none if the own store is to be asked.
    pub(crate) done: Box<dyn FnOnce(Option<Bytes>) + Send>,
    /// Is called before, with how long the answer may take from then on, if that is long.
    pub(crate) wait: Box<dyn Fn(Now) + Send>,
}

/// Chunks of which a peer wants to know whether neighbours have them.
pub(crate) struct Survey {
    pub(crate) key: NameKey,
    pub(crate) chunks: Vec<Sought>,
    /// Is called once, with the answer for each.
    pub(crate) done: Box<dyn FnOnce(Vec<bool>) + Send>,
}

/// Chunks of at least 2 KiB that a block brought to the store.
pub(crate) struct News {
    pub(crate) key: NameKey,
    pub(crate) shape: Shape,
    pub(crate) plain: Bytes,
    pub(crate) chunks: Vec<NewChunk>,
}

/// A chunk that is new in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewChunk {
    pub(crate) sought: Sought,
    /// Where it begins in the block.
    pub(crate) at: u32,
    /// Whether it is offered and announced; else it is only for those that wait for it.
    pub(crate) is_shared: bool,
}

/// What the task reads from.
pub(crate) struct Inbox {
    told: mpsc::Receiver<Told>,
    news: mpsc::Receiver<News>,
    neighbours: Neighbours,
}

#[cfg(test)]
impl Inbox {
    /// Takes a chunk that a link wants, if that was told next.
    pub(crate) fn wanted(&mut self) -> Option<Wanted> {
        match self.told.try_recv() {
            Ok(Told::Read(wanted)) => Some(wanted),
            _ => None,
        }
    }
}

impl Neighbours {
    /// Makes the two ends.
    pub(crate) fn new() -> (Self, Inbox) {
        let (told, told_end) = mpsc::channel(MOST_TOLD);
        let (news, news_end) = mpsc::channel(MOST_NEWS);
        let neighbours =
            Self { told, news, links: Arc::default(), look: Arc::default(), shared: Arc::default() };
        (neighbours.clone(), Inbox { told: told_end, news: news_end, neighbours })
    }

    /// Makes the two ends for a gateway with one neighbour, which has no task and answers nothing.
    #[cfg(test)]
    pub(crate) fn of_one_to_ask(key: NameKey) -> (Self, Inbox) {
        let (neighbours, inbox) = Self::new();
        neighbours.shared.open.write().asked.push(key);
        (neighbours, inbox)
    }

    /// Makes an end for a gateway with a member to tell, and where its news come.
    #[cfg(test)]
    pub(crate) fn of_one_to_tell(key: NameKey) -> (Self, mpsc::Receiver<News>) {
        let (neighbours, inbox) = Self::new();
        neighbours.shared.open.write().told.push(key);
        (neighbours, inbox.news)
    }

    /// A link came, went, or leads to another process.
    pub(crate) fn handle_link(&self) {
        self.links.notify_one();
    }

    /// A peer of a group speaks.
    pub(crate) fn handle_said(&self, peer: &Arc<Peer>, frame: GroupFrame) {
        let bytes = frame.size();
        let waiting = self.shared.said_bytes.fetch_add(bytes, Relaxed);
        // Nothing that is said is more than a hint or an answer that is not waited for forever.
        let taken = waiting + bytes <= MOST_SAID_BYTES
            && self.told.try_send(Told::Said(Arc::clone(peer), frame)).is_ok();
        if !taken {
            self.shared.said_bytes.fetch_sub(bytes, Relaxed);
        }
    }

    /// A peer of a group has these chunks, so that its neighbours can read them.
    pub(crate) fn handle_stored(&self, peer: &Arc<Peer>, chunks: Vec<PackedTag>) {
        // What is not told is sent once more.
        let _ = self.told.try_send(Told::Stored(Arc::clone(peer), chunks));
    }

    /// Counts what a member said beyond what it is listened to for.
    pub(crate) fn count_unheard(&self, key: &NameKey, frame: &GroupFrame) {
        let mut unheard = self.shared.unheard.lock();
        let count = unheard.entry(*key.bytes()).or_default();
        match frame {
            GroupFrame::Stored { tags, .. } => count.tags += tags.len() as u64,
            _ => count.frames += 1,
        }
    }

    /// Says whether there is a neighbour to ask for what this key names.
    pub(crate) fn can_ask(&self, key: &NameKey) -> bool {
        self.shared.open.read().asked.contains(key)
    }

    /// Asks for a chunk; gives it back if there is no room for the question.
    pub(crate) fn read(&self, wanted: Wanted) -> Result<(), Wanted> {
        match self.told.try_reserve() {
            Ok(room) => {
                room.send(Told::Read(wanted));
                Ok(())
            }
            Err(_) => Err(wanted),
        }
    }

    /// Asks who has chunks; returns false, and calls nobody, if there is no room for the question.
    pub(crate) fn survey(&self, survey: Survey) -> bool {
        self.told.try_send(Told::Survey(survey)).is_ok()
    }

    /// Says whether there is anybody to tell what comes to the store under this key.
    pub(crate) fn can_tell(&self, key: &NameKey) -> bool {
        self.shared.open.read().told.contains(key)
    }

    /// Tells what came to the store; what there is no time for is not shared.
    pub(crate) fn handle_news(&self, news: News) {
        let chunks = news.chunks.iter().filter(|chunk| chunk.is_shared).count() as u64;
        let (key, bytes) = (*news.key.bytes(), news.plain.len());
        // Before the task has them, which then reports both.
        self.shared.came.lock().entry(key).or_default().0 += chunks;
        let waiting = self.shared.waiting_bytes.fetch_add(bytes, Relaxed);
        let taken = waiting + bytes <= MOST_NEWS_BYTES && self.news.try_send(news).is_ok();
        if !taken {
            self.shared.waiting_bytes.fetch_sub(bytes, Relaxed);
            self.shared.came.lock().entry(key).or_default().1 += chunks;
            self.look.notify_one();
        }
    }

    /// Counts what one more link waits for.
    pub(crate) fn pending_share(&self) -> PendingShare {
        PendingShare::new(Arc::clone(&self.shared.pending), Arc::clone(&self.look))
    }

    /// Returns what `status` tells of the groups.
    pub(crate) fn reports(&self) -> Vec<GroupReport> {
        self.shared.reports.read().clone()
    }
}

/// As many chunks as links may want in one moment; what there is no room for is read from the own store.
const MOST_TOLD: usize = 16 << 10;
/// Frames hold up to 64 KiB each. No more is asked of a neighbour at a time than comes in here.
const MOST_SAID_BYTES: usize = 32 << 20;
const MOST_NEWS: usize = 4096;
const MOST_NEWS_BYTES: usize = 16 << 20;
