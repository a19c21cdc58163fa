//! A lying neighbour with the group's key.
//!
//! A member made by hand around the library's own link.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::{Bytes, BytesMut};
use oncewire_codec::wanax::{Name, NameKey, NamesConfig, Shape};
use oncewire_codec::wire::{GroupFrame, Hello, LaneId, LaneRole, MAX_BLOCK, MAX_PEEK, MAX_TAGS, Sought};
use oncewire_gateway::daemon::Gateway;
use oncewire_keys::{Claim, GroupKey, ProofKey};
use oncewire_keys::{Identity, PublicKey};
use oncewire_link::{Event, Link, LinkConfig, Now};
use oncewire_report::LinkState;
use rustls::ClientConfig;
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::common::{LIMIT, noise, until, within};
use crate::neighbours::{LEN, Plan, directory, fetch, file, files_for, group, same, told, tunnel};

/// Its answer to a request for a chunk.
#[derive(Clone, Copy, Debug)]
enum Lie {
    /// Other bytes, as many as were asked for.
    Other,
    /// A byte less than was asked for, or more.
    Lengths,
    /// An answer to another question.
    Beside,
    /// Nothing, to this and to all else.
    Silence,
    /// Nothing, but endless announcements of missing chunks.
    Babble,
    /// Nothing, but endless requests, for present and missing chunks, and unwanted gifts.
    Flood,
}

/// A member of the group, by its key and its hello.
struct Liar {
    lie: Lie,
    /// Chunks requested from it.
    asked: Arc<AtomicU64>,
    link: Link,
    started: Instant,
    identity: Identity,
    proofs: ProofKey,
    theirs: PublicKey,
    /// The secret names of chunks, never sent.
    group_names: NameKey,
    victim: SocketAddr,
    lanes: BTreeMap<LaneId, Lane>,
    /// Input of lanes; none is the end of one.
    arriving: (mpsc::Sender<Arriving>, mpsc::Receiver<Arriving>),
    readers: JoinSet<()>,
}

type Arriving = (LaneId, BytesMut);

struct Lane {
    write: WriteHalf<TlsStream<TcpStream>>,
    /// An incomplete frame.
    input: BytesMut,
}

impl Liar {
    fn new(dir: &Path, name: &str, victim: &Gateway, lie: Lie) -> Self {
        let load = |name: &str| Identity::load(&dir.join(format!("{name}.key"))).unwrap();
        let (identity, theirs) = (load("liar"), load(name).public_key());
        let group = GroupKey::load(&dir.join("group.key")).unwrap();
        let names = NamesConfig {
            key: NameKey::new([1; 32]),
            group: Some(group.name_key()),
            shape: Shape::default(),
            hint_memory: 1 << 16,
            saved: None,
            clock_secs: 1 << 30,
        };
        let config = LinkConfig {
            instance: 1,
            first: identity.public_key() < theirs,
            dialer: true,
            log_capacity: LinkConfig::MIN_LOG,
            contexts: 1,
            names: Some(names),
            store: Some(1),
            ..LinkConfig::default()
        };
        Self {
            lie,
            asked: Arc::default(),
            link: Link::new(config, Now::ZERO),
            started: Instant::now(),
            identity,
            proofs: group.proofs(),
            theirs,
            group_names: group.name_key(),
            victim: tunnel(victim).unwrap(),
            lanes: BTreeMap::new(),
            arriving: mpsc::channel(64),
            readers: JoinSet::new(),
        }
    }

    async fn run(mut self) {
        self.dial(LaneId(1), LaneRole::Control).await;
        let mut next = 2;
        loop {
            while let Some(event) = self.link.poll_event() {
                match event {
                    Event::LanesWanted { role, count } => {
                        for _ in 0..count {
                            self.dial(LaneId(next), role).await;
                            next += 1;
                        }
                    }
                    Event::CloseLane(lane, _) => drop(self.lanes.remove(&lane)),
                    Event::Group(frame) => self.answer(frame),
                    _ => {}
                }
            }
            match self.lie {
                Lie::Babble => self.babble(next),
                Lie::Flood => self.flood(next),
                // A statement not repeated is void.
                Lie::Other | Lie::Lengths | Lie::Beside => {
                    _ = self.link.tell_group(GroupFrame::Pending { bytes: u64::MAX });
                }
                Lie::Silence => {}
            }
            next += 1;
            self.transmit().await;
            let due = self.link.poll_timeout().unwrap_or(Now::MAX / 2);
            let speaks = !matches!(self.lie, Lie::Silence);
            let due = if speaks { due.min(self.now() + BABBLE_EVERY) } else { due };
            tokio::select! {
                Some((lane, bytes)) = self.arriving.1.recv() => self.take(lane, &bytes),
                () = tokio::time::sleep_until(self.started + due) => self.link.handle_timeout(self.now()),
            }
        }
    }

    /// Announces eight full frames of chunks, others each time.
    fn babble(&mut self, seed: u64) {
        let words = noise(seed, 8 * 8 * MAX_TAGS);
        for frame in words.chunks(8 * MAX_TAGS) {
            let (tags, _) = frame.as_chunks::<8>();
            let tags = tags.iter().map(|tag| u64::from_le_bytes(*tag)).collect();
            _ = self.link.tell_group(GroupFrame::Stored { least_log2: 14, tags });
        }
    }

    /// Asks four full questions and for a thousand chunks, and gives one now and then: gifts fill the queue.
    fn flood(&mut self, request: u64) {
        let words = noise(request, 8 * MAX_PEEK);
        let tags = words.as_chunks::<8>().0.iter().map(|tag| u64::from_le_bytes(*tag));
        let chunks: Vec<Sought> = tags.map(|tag| Sought { tag, len: 4096 }).collect();
        for _ in 0..4 {
            _ = self.link.tell_group(GroupFrame::Peek { request, chunks: chunks.clone() });
        }
        for name in words.as_chunks::<20>().0.iter().cycle().take(1000) {
            _ = self.link.tell_group(GroupFrame::Get { request, name: Name(*name), len: 4096 });
        }
        if request.is_multiple_of(16) {
            let bytes = Bytes::from(noise(request, MAX_BLOCK));
            _ = self.link.tell_group(GroupFrame::Put { shape: Shape::default(), bytes });
        }
    }

    fn now(&self) -> Now {
        self.started.elapsed()
    }

    fn take(&mut self, id: LaneId, bytes: &[u8]) {
        let now = self.now();
        if bytes.is_empty() {
            self.lanes.remove(&id);
            self.link.handle_lane_lost(id, now);
        } else if let Some(lane) = self.lanes.get_mut(&id) {
            lane.input.extend_from_slice(bytes);
            self.link.handle_input(id, &mut lane.input, now).unwrap();
        }
    }

    async fn transmit(&mut self) {
        let now = self.now();
        for (id, lane) in &mut self.lanes {
            let mut out = Vec::new();
            self.link.poll_transmit(*id, now, &mut out);
            // A broken lane is reported by its reader.
            let _ = lane.write.write_all(&out).await;
            let _ = lane.write.flush().await;
        }
    }

    async fn dial(&mut self, lane: LaneId, role: LaneRole) {
        let stream = TcpStream::connect(self.victim).await.unwrap();
        let name = ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
        let mut stream =
            TlsConnector::from(tls(&self.identity, self.theirs)).connect(name, stream).await.unwrap();
        let mut input = BytesMut::new();
        let hello = loop {
            assert!(stream.read_buf(&mut input).await.unwrap() > 0, "no hello");
            if let Some((hello, used)) = Hello::decode(&input).unwrap() {
                let _ = input.split_to(used);
                break hello;
            }
        };
        assert!(hello.names.as_ref().is_some_and(|names| names.key != self.group_names));
        let (mut ours, mut own) = (self.link.hello(lane, role), Vec::new());
        let label = b"EXPERIMENTAL-oncewire-group";
        let binding = stream.get_ref().1.export_keying_material([0; 32], label, None).unwrap();
        let (prover, verifier, instance) = (&self.identity.public_key(), &self.theirs, ours.instance);
        ours.group_proof = Some(self.proofs.prove(Claim { binding: &binding, prover, verifier, instance }));
        ours.encode(&mut own);
        stream.write_all(&own).await.unwrap();
        // It is a member and needs no check of the other end's proof.
        self.link.handle_group_proof();
        self.link.handle_lane_up(ours.instance, &hello, lane, role, true, self.now()).unwrap();
        let (read, write) = tokio::io::split(stream);
        self.lanes.insert(lane, Lane { write, input: BytesMut::new() });
        self.readers.spawn(read_lane(lane, read, input, self.arriving.0.clone()));
    }

    fn answer(&mut self, frame: GroupFrame) {
        self.asked.fetch_add(u64::from(matches!(frame, GroupFrame::Get { .. })), Relaxed);
        let answer = match frame {
            _ if matches!(self.lie, Lie::Silence | Lie::Babble | Lie::Flood) => return,
            GroupFrame::Get { request, len, .. } => self.lie.about(request, len as usize),
            // Here it behaves, so as not to be found out by silence.
            GroupFrame::Peek { request, chunks } => {
                GroupFrame::Have { request, held: vec![true; chunks.len()] }
            }
            _ => return,
        };
        _ = self.link.tell_group(answer);
    }
}

impl Lie {
    fn about(self, request: u64, len: usize) -> GroupFrame {
        let len = match self {
            Self::Lengths if request.is_multiple_of(2) => len - 1,
            Self::Lengths => (len + 1).min(MAX_BLOCK),
            _ => len,
        };
        match self {
            Self::Beside => GroupFrame::Have { request, held: vec![false] },
            _ => GroupFrame::Chunk { request, bytes: Some(Bytes::from(vec![0xee; len])) },
        }
    }
}

async fn read_lane(
    lane: LaneId,
    mut read: ReadHalf<TlsStream<TcpStream>>,
    mut input: BytesMut,
    to: mpsc::Sender<Arriving>,
) {
    loop {
        if !input.is_empty() && to.send((lane, input.split())).await.is_err() {
            return;
        }
        if !matches!(read.read_buf(&mut input).await, Ok(1..)) {
            let _ = to.send((lane, BytesMut::new())).await;
            return;
        }
    }
}

fn tls(identity: &Identity, theirs: PublicKey) -> Arc<ClientConfig> {
    let keys = AlwaysResolvesClientRawPublicKeys::new(identity.certified_key().unwrap());
    let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(theirs.verifier())
        .with_client_cert_resolver(Arc::new(keys));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.alpn_protocols = vec![b"oncewire/1".to_vec()];
    Arc::new(config)
}

/// A neighbour of the first gateway unknown to the second. The first gives each chunk to one neighbour, so
/// the second lacks this one's chunks, and asks.
async fn third(dir: &Path, first: &Gateway) -> Gateway {
    let others = group(first).neighbours;
    let third = Plan::new("third").at("town").peer("first", Some("town"), tunnel(first)).start(dir).await;
    until(|| group(first).neighbours > others).await;
    third
}

/// Has a gateway fetch its honest neighbour's earlier files beside a lying one, until it has been lied to,
/// and has then fetched a file without asking the liar for anything.
async fn is_found_out_and_left_alone(lie: Lie, seed: u64) {
    let origin = files_for(2, seed, same).await;
    let dir = directory(&["hub", "first", "second", "third", "liar"]);
    let town = Some("town");
    let hub = Plan::new("hub").peer("first", town, None).peer("second", town, None).start(dir.path()).await;
    let branch = |name| Plan::new(name).at("town").peer("hub", None, tunnel(&hub));
    let first = branch("first").peer("second", town, None).peer("third", town, None);
    let first = first.forward("hub", origin.address).start(dir.path()).await;
    let second = branch("second").peer("first", town, tunnel(&first)).peer("liar", town, None);
    let second = second.forward("hub", origin.address).start(dir.path()).await;
    assert!(first.wait_up("hub", LIMIT).await && second.wait_up("hub", LIMIT).await);
    let liar = Liar::new(dir.path(), "second", &second, lie);
    let asked = Arc::clone(&liar.asked);
    let mut tasks = JoinSet::new();
    tasks.spawn(liar.run());
    until(|| group(&second).neighbours == 2).await;
    let _third = third(dir.path(), &first).await;
    let caught = |gateway: &Gateway| {
        let group = group(gateway);
        if matches!(lie, Lie::Silence) { group.late } else { group.wrong }
    };
    for number in 0.. {
        let data = file(seed, number);
        assert!(fetch(&first, 0).await == data, "file {number}");
        told(&first, &[&hub, &second]).await;
        let (lies, found) = (asked.load(Relaxed), group(&second).found);
        assert!(fetch(&second, 0).await == data, "file {number}");
        let more = (asked.load(Relaxed) - lies, group(&second).found - found);
        println!(
            "file {number}: the liar was asked {} times, {} were found; {:?}",
            more.0,
            more.1,
            group(&second)
        );
        if caught(&second) > 0 && lies > 0 && more.0 == 0 && more.1 > 0 {
            break;
        }
    }
    // It also claims the maximum of pending bytes.
    let pending = if matches!(lie, Lie::Silence) { 0 } else { u64::MAX };
    until(|| group(&second).neighbours_pending_bytes == pending).await;
    let status = second.status();
    let peer = status.peers.iter().find(|peer| peer.name == "liar").unwrap();
    assert_eq!(peer.state, LinkState::Up, "a lie is no fault of the link");
    assert_eq!(status.peers.iter().map(|peer| peer.mismatches).sum::<u64>(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbour_giving_wrong_content_is_avoided() {
    within(is_found_out_and_left_alone(Lie::Other, 21)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbour_giving_wrong_lengths_is_avoided() {
    within(is_found_out_and_left_alone(Lie::Lengths, 22)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbour_answering_other_questions_is_avoided() {
    within(is_found_out_and_left_alone(Lie::Beside, 23)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_neighbour_is_avoided() {
    within(is_found_out_and_left_alone(Lie::Silence, 24)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn babbling_member_is_limited_and_costs_no_savings() {
    within(async {
        let origin = files_for(2, 25, same).await;
        let dir = directory(&["hub", "branch", "liar"]);
        let town = Some("town");
        let hub = Plan::new("hub").peer("branch", town, None).peer("liar", town, None);
        let hub = hub.start(dir.path()).await;
        let branch = Plan::new("branch").at("town").peer("hub", None, tunnel(&hub));
        let branch = branch.forward("hub", origin.address).start(dir.path()).await;
        assert!(branch.wait_up("hub", LIMIT).await);
        let mut tasks = JoinSet::new();
        tasks.spawn(Liar::new(dir.path(), "hub", &hub, Lie::Babble).run());
        until(|| group(&hub).not_heard > 0).await;
        let crossed = || branch.status().peers.iter().map(|peer| peer.wire_in).sum::<u64>();
        for number in 0.. {
            let data = file(25, number);
            assert!(fetch(&branch, 0).await == data, "file {number}");
            told(&branch, &[&hub]).await;
            let (before, unheard) = (crossed(), group(&hub).not_heard);
            assert!(fetch(&branch, 0).await == data, "file {number}");
            let again = crossed() - before;
            println!("file {number}: {again} of {LEN} bytes crossed again; {:?}", group(&hub));
            if again < LEN as u64 / 10 && group(&hub).not_heard > unheard {
                break;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flooding_member_is_refused_and_others_are_served() {
    within(async {
        let origin = files_for(2, 26, same).await;
        let dir = directory(&["hub", "first", "second", "third", "liar"]);
        let town = Some("town");
        let hub = Plan::new("hub").peer("first", town, None).peer("second", town, None);
        let hub = hub.start(dir.path()).await;
        let branch = |name| Plan::new(name).at("town").peer("hub", None, tunnel(&hub));
        let first = branch("first").peer("second", town, None).peer("third", town, None);
        let first = first.peer("liar", town, None).forward("hub", origin.address).start(dir.path()).await;
        let second = branch("second").peer("first", town, tunnel(&first)).forward("hub", origin.address);
        let second = second.start(dir.path()).await;
        assert!(first.wait_up("hub", LIMIT).await && second.wait_up("hub", LIMIT).await);
        let mut tasks = JoinSet::new();
        tasks.spawn(Liar::new(dir.path(), "first", &first, Lie::Flood).run());
        until(|| group(&first).turned_away > 0).await;
        let _third = third(dir.path(), &first).await;
        for number in 0.. {
            let data = file(26, number);
            assert!(fetch(&first, 0).await == data, "file {number}");
            told(&first, &[&hub, &second]).await;
            let (found, refused) = (group(&second).found_bytes, group(&first).turned_away);
            assert!(fetch(&second, 0).await == data, "file {number}");
            let (found, refused) = (group(&second).found_bytes - found, group(&first).turned_away - refused);
            println!("file {number}: {found} of {LEN} bytes from the neighbour; {:?}", group(&first));
            if found > 0 && (refused > 0 || tasks.is_empty()) {
                break;
            }
            // A busy machine may meanwhile answer too late to be asked.
            if refused > 0 {
                tasks.shutdown().await;
            }
        }
    })
    .await;
}

const BABBLE_EVERY: Now = Now::from_millis(10);
