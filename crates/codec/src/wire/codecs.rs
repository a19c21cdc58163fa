//! Codec ids, and the list of codecs in a hello.

use std::fmt;
use std::ops::RangeInclusive;

use super::reader::{Reader, WireError};
use super::varint::put_varint;

/// The number of a codec in hellos. A number is never given a second meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodecId(pub u16);

/// The ids with a name, in order.
const NAMES: [(CodecId, &str); 5] = [
    (CodecId::NONE, "none"),
    (CodecId::ENDRE, "endre"),
    (CodecId::PACK, "pack"),
    (CodecId::PACKET, "packet"),
    (CodecId::REFACTOR, "refactor"),
];

impl CodecId {
    /// No codec. Stands in no list: every codec carries uncoded flows too.
    pub const NONE: Self = Self(0);
    /// EndRE's log, Wanax's names and an entropy stage, over streams.
    pub const ENDRE: Self = Self(1);
    /// Reserved for PACK.
    pub const PACK: Self = Self(2);
    /// Reserved for packet caches.
    pub const PACKET: Self = Self(3);
    /// Reserved for REfactor.
    pub const REFACTOR: Self = Self(4);
    /// Ids for experiments, never assigned.
    pub const PRIVATE: RangeInclusive<u16> = 0xff00..=0xffff;

    /// Returns the codec's name, if the registry has one.
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(id, _)| *id == self).map(|(_, name)| *name)
    }
}

impl fmt::Display for CodecId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A codec that one end has, with its parameters for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecOffer {
    /// The codec.
    pub id: CodecId,
    /// The codec's own part of the hello, opaque to all others.
    pub parameters: Vec<u8>,
}

/// The codecs of one end, the preferred one first, each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecOffers(Vec<CodecOffer>);

/// The most codecs in a hello.
pub const MAX_CODECS: usize = 8;
/// The most bytes of a codec's parameters.
pub const MAX_CODEC_PARAMETERS: usize = 255;

impl Default for CodecOffers {
    /// The offers of a hello without the field.
    fn default() -> Self {
        Self(vec![CodecOffer { id: CodecId::ENDRE, parameters: Vec::new() }])
    }
}

impl CodecOffers {
    /// Makes a list; `None` without an offer, with too many or too long ones, and with an id twice.
    pub fn new(offers: Vec<CodecOffer>) -> Option<Self> {
        let is_twice =
            |(at, offer): (usize, &CodecOffer)| offers[..at].iter().any(|other| other.id == offer.id);
        let is_right = (1..=MAX_CODECS).contains(&offers.len())
            && offers.iter().all(|offer| offer.parameters.len() <= MAX_CODEC_PARAMETERS)
            && !offers.iter().enumerate().any(is_twice);
        is_right.then_some(Self(offers))
    }

    /// Returns the ids, the preferred one first.
    pub fn ids(&self) -> impl Iterator<Item = CodecId> {
        self.0.iter().map(|offer| offer.id)
    }

    /// Returns the parameters of a codec, if it is offered.
    pub fn parameters(&self, id: CodecId) -> Option<&[u8]> {
        self.0.iter().find(|offer| offer.id == id).map(|offer| offer.parameters.as_slice())
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        for CodecOffer { id, parameters } in &self.0 {
            put_varint(out, u64::from(id.0));
            put_varint(out, parameters.len() as u64);
            out.extend_from_slice(parameters);
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let count = reader.varint_up_to(MAX_CODECS as u64, "count of codecs")?;
        if count == 0 {
            return Ok(Self::default());
        }
        let offers = (0..count)
            .map(|_| {
                let id = CodecId(reader.varint_up_to(u16::MAX.into(), "codec id")? as u16);
                let len = reader.varint_up_to(MAX_CODEC_PARAMETERS as u64, "length of codec parameters")?;
                let parameters = reader.bytes(len as usize, "codec parameters")?.to_vec();
                Ok(CodecOffer { id, parameters })
            })
            .collect::<Result<Vec<_>, WireError>>()?;
        Self::new(offers).ok_or(WireError::Invalid("list of codecs"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wanax::Name;
    use crate::wire::{GroupProof, Hello, HelloError, LogClaim, MAX_CLAIMED, MAX_PROBES, Probe, Sample};

    fn offer(id: u16, parameters: &[u8]) -> CodecOffer {
        CodecOffer { id: CodecId(id), parameters: parameters.to_vec() }
    }

    #[test]
    fn lists_have_bounds_and_each_id_once() {
        let ids = |ids: &[u16]| CodecOffers::new(ids.iter().map(|id| offer(*id, &[])).collect());
        assert_eq!(ids(&[1]), Some(CodecOffers::default()));
        assert_eq!(ids(&[]), None);
        assert_eq!(ids(&[1, 2, 1]), None);
        assert!(ids(&[1, 2, 3, 4, 5, 6, 7, 8]).is_some());
        assert_eq!(ids(&[1, 2, 3, 4, 5, 6, 7, 8, 9]), None);
        assert!(CodecOffers::new(vec![offer(1, &[0; 255])]).is_some());
        assert_eq!(CodecOffers::new(vec![offer(1, &[0; 256])]), None);
    }

    /// A hello as builds without the field say it.
    const RECORDED: &str = "6f6e636577697265030001005408070605040302010900000000000000020a00000000000000808080208080\
                            8008808010100001070707070707070707070707070707070707070707070707070707070707070708100701\
                            99000000000000007f";

    fn unhex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .filter_map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok())
            .collect()
    }

    fn said(hello: &Hello) -> Vec<u8> {
        let mut out = Vec::new();
        hello.encode(&mut out);
        out
    }

    fn heard(bytes: &[u8]) -> Result<Hello, HelloError> {
        Hello::decode(bytes).map(|heard| heard.unwrap().0)
    }

    #[test]
    fn recorded_hello_offers_endre_and_is_said_alike() {
        let recorded = unhex(RECORDED);
        let hello = heard(&recorded).unwrap();
        assert_eq!(hello.codecs, CodecOffers::default());
        assert_eq!(said(&hello), recorded);
    }

    #[test]
    fn codecs_stand_behind_all_other_fields() {
        let offers = CodecOffers::new(vec![offer(0xff01, &[7, 8]), offer(1, &[])]).unwrap();
        let hello = Hello { codecs: offers.clone(), ..heard(&unhex(RECORDED)).unwrap() };
        let bytes = said(&hello);
        let recorded = unhex(RECORDED);
        // Fields without a value, then the list: builds without the field pass over it.
        assert_eq!(bytes[13..recorded.len()], recorded[13..]);
        assert_eq!(bytes[recorded.len()..], [0, 0, 0, 2, 0x81, 0xfe, 3, 2, 7, 8, 1, 0]);
        assert_eq!(heard(&bytes), Ok(hello));
        for (at, byte, error) in [
            (9, 9, WireError::Invalid("count of codecs")),
            (6, 7, WireError::Invalid("codec id")),
            (5, 9, WireError::Short("codec parameters")),
        ] {
            let mut wrong = bytes.clone();
            let at = wrong.len() - at;
            wrong[at] = byte;
            assert_eq!(heard(&wrong), Err(error.into()));
        }
        let mut none = bytes.clone();
        let at = none.len() - 9;
        none[at] = 0;
        assert_eq!(heard(&none).unwrap().codecs, CodecOffers::default(), "none is as good as absent");
    }

    #[test]
    fn longest_list_fits_beside_longest_claim_and_probe() {
        let samples = vec![Sample { start: MAX_CLAIMED, len: 1 << 20, digest: 7 }; 64];
        let claim = LogClaim { epoch: 1, start: 0, end: MAX_CLAIMED, highest: MAX_CLAIMED, samples };
        let probe = Probe { request: u64::MAX, chunks: vec![(Name([7; 20]), 65_536); MAX_PROBES] };
        let offers = (0..MAX_CODECS as u16).map(|id| offer(0xff00 + id, &[7; MAX_CODEC_PARAMETERS]));
        let longest = Hello {
            claim: Some(claim),
            probe: Some(probe),
            short_names_below: u32::MAX,
            group_proof: Some(GroupProof([0xee; 32])),
            codecs: CodecOffers::new(offers.collect()).unwrap(),
            ..heard(&unhex(RECORDED)).unwrap()
        };
        assert_eq!(heard(&said(&longest)), Ok(longest));
    }

    #[test]
    fn codecs_are_shown_with_number_and_name() {
        assert_eq!(CodecId::ENDRE.to_string(), "1 (endre)");
        assert_eq!(CodecId(0xff01).to_string(), "65281");
        assert!(NAMES.iter().all(|(id, _)| !CodecId::PRIVATE.contains(&id.0)));
    }
}
