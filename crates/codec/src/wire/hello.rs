//! The hello: the first thing on a lane, from each side.

use super::codecs::CodecOffers;
use super::names::{LaneId, LaneRole};
use super::probe::Probe;
use super::reader::{Reader, WireError};
use super::varint::{put_varint, take_varint};
use super::{MAX_CLAIMED, NAMES_SINCE, OLDEST, VERSION};
use crate::wanax::{NameKey, Shape};

/// What a gateway says of itself at the start of every lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The newest protocol version spoken.
    pub version: u16,
    /// The oldest protocol version spoken.
    pub oldest: u16,
    /// Drawn at random when the process started; another value means the peer restarted.
    pub instance: u64,
    /// The lane's name, chosen by the side that dialled.
    pub lane: LaneId,
    /// What the lane is for.
    pub role: LaneRole,
    /// Seed of the block digests in the direction from the sender of this hello.
    pub digest_seed: u64,
    /// Bytes of log the sender of this hello offers for each direction.
    pub log_capacity: u64,
    /// Bound on unacknowledged log bytes, of this hello's sender.
    pub max_in_flight: u64,
    /// Bytes a new flow may send before it is given credit.
    pub initial_credit: u64,
    /// Streaming entropy contexts the sender of this hello keeps for decoding.
    pub contexts: u32,
    /// The sender's memory of bytes received earlier.
    pub claim: Option<LogClaim>,
    /// How the sender of this hello names chunks, if it does.
    pub names: Option<NamesHello>,
    /// The id of the store into the sender of this hello puts what it receives.
    pub store: Option<u64>,
    /// What the sender of this hello understands the version does not say.
    pub understands: Understood,
    /// What the sender of this hello asks the store of a peer it meets.
    pub probe: Option<Probe>,
    /// Chunks of fewer bytes may be referred to by [short names](crate::wanax::ChunkName::Short) in what is sent to the
    /// sender of this hello. 0 unless it says so.
    pub short_names_below: u32,
    /// Proof of the group's key, for the group believed to be the other end's.
    pub group_proof: Option<GroupProof>,
    /// The codecs of the sender of this hello.
    pub codecs: CodecOffers,
}

/// A code for this lane, both ends and the sender's instance under the key of a trust group; who can check it makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupProof(pub [u8; 32]);

/// Features of one end beyond its version; none, unless it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Understood {
    /// That an open is answered with [`OpenFailure::Draining`](crate::wire::OpenFailure::Draining).
    pub draining: bool,
    /// That a reset says [how many bytes come before it](crate::wire::Reset::behind).
    pub resets_behind: bool,
    /// An end of a lane [left](crate::wire::Frame::LaneLeft) by its other end, and the replacement of a
    /// [worn](crate::wire::Frame::LaneWorn) one.
    pub lanes_left: bool,
    /// That strong digests are [HighwayHash's](crate::StrongKind::Highway), if the other end understands them too.
    pub highway: bool,
    /// Tags of chunks below 4 KiB of 48 bits, and short names of six bytes. Without it nothing is named: the peer would
    /// find none of these.
    pub tags_of_48_bits: bool,
    /// That an open may [divide the first credit](crate::wire::Open::credit_shift).
    pub small_credits: bool,
    /// What a lane said last is [gone on from](crate::wire::Frame::More), and [acknowledged so](crate::wire::Frame::Acked).
    pub continues: bool,
}

/// How a sending half names chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamesHello {
    /// What names are made with.
    pub key: NameKey,
    /// How blocks are cut.
    pub shape: Shape,
}

/// What a receiving half still has of a log, so the sending half can carry on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogClaim {
    /// The epoch.
    pub epoch: u64,
    /// The first offset that is there.
    pub start: u64,
    /// The offset behind the last one that is there; everything between is there too.
    pub end: u64,
    /// The highest offset ever written in this epoch.
    pub highest: u64,
    /// Digests of parts of it.
    pub samples: Vec<Sample>,
}

/// A digest of a part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Where the part starts.
    pub start: u64,
    /// Its length in bytes.
    pub len: u32,
    /// Its digest, unkeyed.
    pub digest: u64,
}

/// Why a hello was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HelloError {
    /// The bytes are not oncewire's.
    #[error("not an oncewire hello")]
    NotOurs,
    /// No version is common.
    #[error(
        "peer speaks protocol versions {oldest} to {newest}, this build speaks {OLDEST} to {VERSION}; update the older one"
    )]
    Version {
        /// The peer's oldest.
        oldest: u16,
        /// The peer's newest.
        newest: u16,
    },
    /// The hello is malformed.
    #[error("malformed hello: {0}")]
    Malformed(#[from] WireError),
}

const MAGIC: &[u8; 8] = b"oncewire";
const MAX_HELLO: u64 = 4096;
const MAX_SAMPLES: usize = 64;

impl Understood {
    /// All that this build understands.
    pub const ALL: Self = Self {
        draining: true,
        resets_behind: true,
        lanes_left: true,
        highway: true,
        tags_of_48_bits: true,
        small_credits: true,
        continues: true,
    };

    fn to_bits(self) -> u64 {
        let Self { draining, resets_behind, lanes_left, highway, tags_of_48_bits, small_credits, continues } =
            self;
        let bits = [draining, resets_behind, lanes_left, highway, tags_of_48_bits, small_credits, continues];
        bits.into_iter().enumerate().map(|(at, bit)| u64::from(bit) << at).sum()
    }

    fn from_bits(bits: u64) -> Self {
        let [draining, resets_behind, lanes_left, highway, tags_of_48_bits, small_credits, continues] =
            [1, 2, 4, 8, 16, 32, 64].map(|bit| bits & bit != 0);
        Self { draining, resets_behind, lanes_left, highway, tags_of_48_bits, small_credits, continues }
    }
}

impl Hello {
    /// Appends the hello.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::with_capacity(96);
        body.extend_from_slice(&self.instance.to_le_bytes());
        body.extend_from_slice(&self.lane.0.to_le_bytes());
        body.push(self.role.to_byte());
        body.extend_from_slice(&self.digest_seed.to_le_bytes());
        for value in [self.log_capacity, self.max_in_flight, self.initial_credit, u64::from(self.contexts)] {
            put_varint(&mut body, value);
        }
        match &self.claim {
            None => body.push(0),
            Some(claim) => {
                body.push(1);
                claim.encode(&mut body);
            }
        }
        if self.version >= NAMES_SINCE {
            self.encode_later_fields(&mut body);
        }
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.oldest.to_le_bytes());
        put_varint(out, body.len() as u64);
        out.extend_from_slice(&body);
    }

    fn encode_later_fields(&self, body: &mut Vec<u8>) {
        match &self.names {
            None => body.push(0),
            Some(NamesHello { key, shape }) => {
                body.push(1);
                body.extend_from_slice(key.bytes());
                body.extend_from_slice(&[shape.degree(), shape.root_log2(), shape.leaf_log2()]);
            }
        }
        match self.store {
            None => body.push(0),
            Some(id) => {
                body.push(1);
                body.extend_from_slice(&id.to_le_bytes());
            }
        }
        put_varint(body, self.understands.to_bits());
        self.encode_optional_fields(body);
    }

    /// Appends the optional fields of the end, left out like older builds do if they say nothing.
    fn encode_optional_fields(&self, body: &mut Vec<u8>) {
        let has_codecs = self.codecs != CodecOffers::default();
        let has_proof = has_codecs || self.group_proof.is_some();
        let has_short_names = has_proof || self.short_names_below > 0;
        match &self.probe {
            Some(probe) => {
                body.push(1);
                probe.encode(body);
            }
            None if has_short_names => body.push(0),
            None => {}
        }
        if has_short_names {
            put_varint(body, u64::from(self.short_names_below));
        }
        match &self.group_proof {
            Some(GroupProof(code)) => {
                body.push(1);
                body.extend_from_slice(code);
            }
            None if has_proof => body.push(0),
            None => {}
        }
        if has_codecs {
            self.codecs.encode(body);
        }
    }

    /// Reads a hello from the front of `input`, and how many bytes it took; `None` if it is not whole yet.
    ///
    /// # Errors
    /// Bytes without a hello for this build. The version is judged before the rest, open to extensions of later
    /// versions.
    pub fn decode(input: &[u8]) -> Result<Option<(Self, usize)>, HelloError> {
        let magic = input.len().min(MAGIC.len());
        if input[..magic] != MAGIC[..magic] {
            return Err(HelloError::NotOurs);
        }
        let Some(&[v0, v1, o0, o1]) = input.get(8..).and_then(|rest| rest.first_chunk()) else {
            return Ok(None);
        };
        let (version, oldest) = (u16::from_le_bytes([v0, v1]), u16::from_le_bytes([o0, o1]));
        if oldest > VERSION || version < OLDEST.max(oldest) {
            return Err(HelloError::Version { oldest, newest: version });
        }
        let mut rest = &input[12..];
        let before = rest.len();
        let Some(len) = take_varint(&mut rest) else {
            return if before >= 3 { Err(WireError::Invalid("hello length").into()) } else { Ok(None) };
        };
        if len > MAX_HELLO {
            return Err(WireError::TooLong(len).into());
        }
        let Some(body) = rest.get(..len as usize) else { return Ok(None) };
        let used = 12 + (before - rest.len()) + len as usize;
        Ok(Some((Self::decode_body(version, oldest, body)?, used)))
    }

    fn decode_body(version: u16, oldest: u16, body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body);
        let mut hello = Self {
            version,
            oldest,
            instance: reader.u64("instance")?,
            lane: LaneId(reader.u64("lane")?),
            role: LaneRole::from_byte(reader.byte("role")?).ok_or(WireError::Invalid("role"))?,
            digest_seed: reader.u64("digest seed")?,
            log_capacity: reader.varint_up_to(u64::MAX / 4, "log capacity")?,
            max_in_flight: reader.varint_up_to(u64::MAX / 4, "bytes in flight")?,
            initial_credit: reader.varint_up_to(u64::MAX / 4, "initial credit")?,
            contexts: reader.varint_u32("contexts")?,
            claim: match reader.byte("claim")? {
                0 => None,
                1 => Some(LogClaim::decode(&mut reader)?),
                _ => return Err(WireError::Invalid("claim")),
            },
            names: None,
            store: None,
            understands: Understood::default(),
            probe: None,
            short_names_below: 0,
            group_proof: None,
            codecs: CodecOffers::default(),
        };
        if version >= NAMES_SINCE {
            hello.names = decode_names(&mut reader)?;
            hello.store = decode_store(&mut reader)?;
            hello.decode_optional_fields(&mut reader)?;
        }
        // Since version 2 a hello may say more than its reader knows.
        if version == 1 {
            reader.finish()?;
        }
        Ok(hello)
    }

    /// Reads what a hello may end before.
    fn decode_optional_fields(&mut self, reader: &mut Reader<'_>) -> Result<(), WireError> {
        if !reader.is_empty() {
            self.understands = Understood::from_bits(reader.varint("what is understood")?);
        }
        if !reader.is_empty() {
            self.probe = decode_probe(reader)?;
        }
        if !reader.is_empty() {
            self.short_names_below = reader.varint_u32("length of chunks with short names")?;
        }
        if !reader.is_empty() {
            self.group_proof = decode_proof(reader)?;
        }
        if !reader.is_empty() {
            self.codecs = CodecOffers::decode(reader)?;
        }
        Ok(())
    }
}

fn decode_names(reader: &mut Reader<'_>) -> Result<Option<NamesHello>, WireError> {
    match reader.byte("names")? {
        0 => Ok(None),
        1 => {
            let key = NameKey::new(reader.array("key of names")?);
            let [degree, root_log2, leaf_log2] = reader.array("chunk sizes")?;
            let shape = Shape::new(degree, root_log2, leaf_log2);
            Ok(Some(NamesHello { key, shape: shape.map_err(|_| WireError::Invalid("chunk sizes"))? }))
        }
        _ => Err(WireError::Invalid("names")),
    }
}

fn decode_store(reader: &mut Reader<'_>) -> Result<Option<u64>, WireError> {
    match reader.byte("store")? {
        0 => Ok(None),
        1 => reader.u64("store").map(Some),
        _ => Err(WireError::Invalid("store")),
    }
}

fn decode_probe(reader: &mut Reader<'_>) -> Result<Option<Probe>, WireError> {
    match reader.byte("probe")? {
        0 => Ok(None),
        1 => Probe::decode(reader).map(Some),
        _ => Err(WireError::Invalid("probe")),
    }
}

fn decode_proof(reader: &mut Reader<'_>) -> Result<Option<GroupProof>, WireError> {
    match reader.byte("group proof")? {
        0 => Ok(None),
        1 => reader.array("group proof").map(GroupProof).map(Some),
        _ => Err(WireError::Invalid("group proof")),
    }
}

impl LogClaim {
    fn encode(&self, out: &mut Vec<u8>) {
        for value in [self.epoch, self.start, self.end, self.highest, self.samples.len() as u64] {
            put_varint(out, value);
        }
        for sample in &self.samples {
            put_varint(out, sample.start);
            put_varint(out, u64::from(sample.len));
            out.extend_from_slice(&sample.digest.to_le_bytes());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut field = |what| reader.varint_up_to(MAX_CLAIMED, what);
        let (epoch, start) = (field("epoch")?, field("claim")?);
        let (end, highest) = (field("claim")?, field("claim")?);
        if start > end || end > highest {
            return Err(WireError::Invalid("claim"));
        }
        let count = reader.varint_up_to(MAX_SAMPLES as u64, "samples")?;
        let samples = (0..count)
            .map(|_| {
                let start = reader.varint_up_to(MAX_CLAIMED, "sample")?;
                let len = reader.varint_up_to(1 << 20, "sample")? as u32;
                Ok(Sample { start, len, digest: reader.u64("sample")? })
            })
            .collect::<Result<_, WireError>>()?;
        Ok(Self { epoch, start, end, highest, samples })
    }
}
