//! Gateways of the same trust groups: chunk requests and announcements.
//!
//! One task decides (`task`); links and the store hand it their events, and wait for nothing. An event
//! without room counts as lost, at the cost of time only. `docs/internals/neighbours.md` describes the roles.

mod pending;
mod task;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc};

use oncewire_codec::wanax::hints::PackedTag;
use oncewire_codec::wanax::{Name, NameKey, Shape};
use oncewire_codec::wire::{GroupFrame, Sought};
use oncewire_keys::{ProofKey, PublicKey};
use oncewire_link::Now;
use oncewire_mesh::MemberId;
use oncewire_report::GroupReport;

use self::pending::Pending;
pub(crate) use self::pending::PendingShare;
pub use task::Task;

/// Configuration of a peer in a group.
#[derive(Clone, Debug)]
pub struct Member {
    /// The group's name here; a reload may change it.
    pub group: Arc<RwLock<String>>,
    /// The group's key for names of chunks.
    pub key: NameKey,
    /// Key of both ends' proofs of membership.
    pub proofs: ProofKey,
    /// The peer's name among neighbours: the key in use, of its permitted ones.
    pub id: Arc<RwLock<MemberId>>,
    /// Its site, if configured.
    pub site: Option<String>,
    /// Whether it is this gateway's site.
    pub is_near: bool,
    /// The task of all groups.
    pub neighbours: Neighbours,
}

/// A link to a gateway of a group, for neighbours.
pub trait GroupLink: Send + Sync {
    /// The peer's configuration in the group.
    fn member(&self) -> Option<&Member>;

    /// The link's standing in the group shared by both ends.
    fn standing(&self) -> GroupStanding;

    /// Sends a frame to a member of the group.
    ///
    /// # Errors
    /// The frame, if the peer is no member, is away, or has too full a queue.
    fn tell(self: Arc<Self>, frame: GroupFrame) -> Result<(), GroupFrame>;

    /// Takes the chunks readable at the peer's site.
    fn learn_chunks(self: Arc<Self>, least_log2: u8, tags: &[u64]);

    /// As [`Self::learn_chunks`], for the chunks of a neighbour of the peer.
    fn learn_stored(self: Arc<Self>, chunks: &[PackedTag]);
}

/// A link's standing in a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupStanding {
    /// It is up, and both ends are in the group.
    pub is_member: bool,
    /// The peer has a chunk store.
    pub keeps_chunks: bool,
}

impl GroupStanding {
    /// Whether it can be asked for chunks, if it is near.
    pub(crate) fn is_neighbour(self) -> bool {
        self.is_member && self.keeps_chunks
    }
}

impl Member {
    /// Returns how neighbours name it.
    pub(crate) fn id(&self) -> MemberId {
        *self.id.read()
    }

    /// Names it by its key in use, as its other neighbours do.
    pub(crate) fn speaks_with(&self, key: &PublicKey) {
        *self.id.write() = MemberId::of_key(key.as_bytes());
    }
}

/// Handle of links and the store for group events.
#[derive(Clone, Debug)]
pub struct Neighbours {
    told: mpsc::Sender<Told>,
    /// Apart from the rest: it holds content without a waiter.
    news: mpsc::Sender<News>,
    /// Has the task look at all links, and report.
    links: Arc<Notify>,
    /// Has the task check its waiters, and report.
    look: Arc<Notify>,
    shared: Arc<Shared>,
}

/// State shared beyond the task.
#[derive(Debug, Default)]
struct Shared {
    open: RwLock<Open>,
    reports: RwLock<Vec<GroupReport>>,
    /// Bytes of queued news, and of peers' frames.
    waiting_bytes: AtomicUsize,
    said_bytes: AtomicUsize,
    /// New chunks in the store, and the part not reported to the task, by the bytes of their key.
    came: Mutex<BTreeMap<[u8; 32], (u64, u64)>>,
    pending: Arc<Pending>,
    /// Members' frames beyond their rate limit, by the bytes of their key.
    unheard: Mutex<BTreeMap<[u8; 32], Unheard>>,
}

/// Members' frames beyond their rate limit.
#[derive(Clone, Copy, Debug, Default)]
struct Unheard {
    /// Chunks announced by them.
    tags: u64,
    /// Frames of all other kinds.
    frames: u64,
}

/// Groups with present members.
#[derive(Debug, Default, PartialEq)]
struct Open {
    /// With a neighbour to ask.
    asked: Vec<NameKey>,
    /// Keys with members to tell.
    told: Vec<NameKey>,
}

/// Event for the task.
enum Told {
    /// A peer of a group speaks.
    Said(Arc<dyn GroupLink>, GroupFrame),
    /// A peer of a group has these chunks, sent from here.
    Stored(Arc<dyn GroupLink>, Vec<PackedTag>),
    /// A chunk is to be read.
    Read(Wanted),
    /// Neighbours are asked about their chunks.
    Survey(Survey),
    /// Result of a look-up here for a neighbour.
    Served { key: NameKey, from: MemberId, request: u64, name: Name, len: u32, bytes: Option<Bytes> },
}

/// A chunk wanted by a link.
pub(crate) struct Wanted {
    pub(crate) key: NameKey,
    pub(crate) name: Name,
    pub(crate) len: u32,
    /// Whether the own store has it.
    pub(crate) held: bool,
    /// Called once, with a neighbour's chunk, or with none to try the own store.
    pub(crate) done: Box<dyn FnOnce(Option<Bytes>) + Send>,
    /// Called earlier, with the expected time of a slow answer.
    pub(crate) wait: Box<dyn Fn(Now) + Send>,
}

/// Chunks for a peer's question about neighbours.
pub(crate) struct Survey {
    pub(crate) key: NameKey,
    pub(crate) chunks: Vec<Sought>,
    /// Called once, with an answer for each.
    pub(crate) done: Box<dyn FnOnce(Vec<bool>) + Send>,
}

/// New chunks of at least 2 KiB from a block for the store.
pub(crate) struct News {
    pub(crate) key: NameKey,
    pub(crate) shape: Shape,
    pub(crate) plain: Bytes,
    pub(crate) chunks: Vec<NewChunk>,
}

/// A new chunk in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewChunk {
    pub(crate) sought: Sought,
    /// Its offset in the block.
    pub(crate) at: u32,
    /// Whether it is offered and announced; else it is only for waiters.
    pub(crate) is_shared: bool,
}

/// The task's input.
pub struct Inbox {
    told: mpsc::Receiver<Told>,
    news: mpsc::Receiver<News>,
    neighbours: Neighbours,
}

#[cfg(test)]
impl Inbox {
    /// Takes the next event if it is a chunk wanted by a link.
    pub(crate) fn wanted(&mut self) -> Option<Wanted> {
        match self.told.try_recv() {
            Ok(Told::Read(wanted)) => Some(wanted),
            _ => None,
        }
    }
}

impl Neighbours {
    /// Makes the two ends.
    pub fn new() -> (Self, Inbox) {
        let (told, told_end) = mpsc::channel(MOST_TOLD);
        let (news, news_end) = mpsc::channel(MOST_NEWS);
        let neighbours =
            Self { told, news, links: Arc::default(), look: Arc::default(), shared: Arc::default() };
        (neighbours.clone(), Inbox { told: told_end, news: news_end, neighbours })
    }

    /// Makes the two ends for a gateway with one neighbour, without a task and answers.
    #[cfg(test)]
    pub(crate) fn of_one_to_ask(key: NameKey) -> (Self, Inbox) {
        let (neighbours, inbox) = Self::new();
        neighbours.shared.open.write().asked.push(key);
        (neighbours, inbox)
    }

    /// Makes an end for a gateway with a member to inform, and the receiver of its news.
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
    pub(crate) fn handle_group_frame(&self, peer: Arc<dyn GroupLink>, frame: GroupFrame) {
        let bytes = frame.size();
        let waiting = self.shared.said_bytes.fetch_add(bytes, Relaxed);
        // All frames are hints, or answers with a limited wait.
        let taken = waiting + bytes <= MOST_SAID_BYTES && self.told.try_send(Told::Said(peer, frame)).is_ok();
        if !taken {
            self.shared.said_bytes.fetch_sub(bytes, Relaxed);
        }
    }

    /// Reports the chunks of a group's peer: its neighbours can read them.
    pub(crate) fn handle_stored(&self, peer: Arc<dyn GroupLink>, chunks: Vec<PackedTag>) {
        // A chunk not reported is sent once more.
        let _ = self.told.try_send(Told::Stored(peer, chunks));
    }

    /// Counts a member's frame beyond its rate limit.
    pub(crate) fn count_rejected(&self, key: &NameKey, frame: &GroupFrame) {
        let mut unheard = self.shared.unheard.lock();
        let count = unheard.entry(*key.bytes()).or_default();
        match frame {
            GroupFrame::Stored { tags, .. } => count.tags += tags.len() as u64,
            _ => count.frames += 1,
        }
    }

    /// Whether there is a neighbour to ask for names under this key.
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

    /// Asks for the holders of chunks; returns false, without a callback, if there is no room for the
    /// question.
    pub(crate) fn survey(&self, survey: Survey) -> bool {
        self.told.try_send(Told::Survey(survey)).is_ok()
    }

    /// Whether there are members to tell of new chunks under this key.
    pub(crate) fn can_tell(&self, key: &NameKey) -> bool {
        self.shared.open.read().told.contains(key)
    }

    /// Reports new chunks of the store; those without time are not shared.
    pub(crate) fn handle_news(&self, news: News) {
        let chunks = news.chunks.iter().filter(|chunk| chunk.is_shared).count() as u64;
        let (key, bytes) = (*news.key.bytes(), news.plain.len());
        // Ahead of the task's own count: it reports both.
        self.shared.came.lock().entry(key).or_default().0 += chunks;
        let waiting = self.shared.waiting_bytes.fetch_add(bytes, Relaxed);
        let taken = waiting + bytes <= MOST_NEWS_BYTES && self.news.try_send(news).is_ok();
        if !taken {
            self.shared.waiting_bytes.fetch_sub(bytes, Relaxed);
            self.shared.came.lock().entry(key).or_default().1 += chunks;
            self.look.notify_one();
        }
    }

    /// Counts the pending reads of one more link.
    pub(crate) fn pending_share(&self) -> PendingShare {
        PendingShare::new(Arc::clone(&self.shared.pending), Arc::clone(&self.look))
    }

    /// Returns the groups' reports for `status`.
    pub fn reports(&self) -> Vec<GroupReport> {
        self.shared.reports.read().clone()
    }
}

/// As many chunks as links may want in one moment; those without room are read from the own store.
const MOST_TOLD: usize = 16 << 10;
/// Frames hold up to 64 KiB each. A neighbour is asked for no more at a time than fits here.
const MOST_SAID_BYTES: usize = 32 << 20;
const MOST_NEWS: usize = 4096;
const MOST_NEWS_BYTES: usize = 16 << 20;
