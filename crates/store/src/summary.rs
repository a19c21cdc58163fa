//! Summaries of segments, for starts after a kill without reading containers.
//!
//! The summary of segment `0000000000000001.seg` is `0000000000000001.summary`. It is written when the segment is sealed,
//! or was found without a footer by a start, and it is a copy: without it, or if anything of it is not as it should be,
//! the containers are read. Numbers are little-endian. Behind the first page:
//!
//! | bytes | what |
//! |---:|---|
//! | 8 | bytes of the segment's file |
//! | 4 | number of its containers |
//! | 4 | bytes of a footer's content, 0 if the segment has one |
//! | 4, 4 | bytes of the lists of medium chunks, and of fine ones |
//! | 8 each | bytes of the tables of both, and how many bits of a slot are the place in each, a byte each |
//! | | a footer's content |
//! | | for each container, its chunks from 512 bytes to 4 KiB: their number (2 bytes), and their [keys](crate::bits) |
//! | 8 | XXH3-64 of the bytes before, seeded with the id of the store plus the segment's number |
//! | | for each container, its chunks of less than 512 bytes, likewise |
//! | 8 | XXH3-64 of these lists, seeded likewise |
//!
//! A *key* is a table's information on a chunk: its line and its print. So it takes a little more than the 3 bytes to
//! tell it from others of its container, and it means nothing to tables of another size.

use std::ops::Range;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::bits;
use crate::bytes::{u16_at, u32_at, u64_at};
use crate::flaw::Said;
use crate::index::{Class, Index};
use crate::paged::{Header, Kind, PAGE, Paged, SEALED};
use crate::segment::{Coarse, Extent, Segment};
use crate::{Backend, Part, Sealer};

/// Small chunks, gathered container by container.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(crate) containers: u32,
    medium: Vec<u8>,
    fine: Vec<u8>,
}

/// An existing summary.
pub(crate) struct Summary {
    file: Paged,
    /// The bytes read with its first page: its first part, head, footer and medium chunks, at least.
    front: Vec<u8>,
    footer: Range<usize>,
    medium: Range<usize>,
    /// The range of the fine chunks in the file.
    fine: Range<usize>,
    file_len: u64,
    pub(crate) containers: u32,
    layout: [u64; 3],
    seed: u64,
}

impl Lists {
    /// Adds the next container.
    pub(crate) fn add(&mut self, index: &Index, parts: &[Part]) {
        self.containers += 1;
        for (class, list) in [(Class::Medium, &mut self.medium), (Class::Fine, &mut self.fine)] {
            let table = index.small(class);
            let of_class = parts.iter().filter(|part| Class::of(part.len) == class);
            let mut keys: Vec<u64> = of_class.map(|part| table.key(part.tag)).collect();
            let count_at = list.len();
            list.extend_from_slice(&[0; 2]);
            bits::encode(&mut keys, table.keys(), list);
            list[count_at..count_at + 2].copy_from_slice(&(keys.len() as u16).to_le_bytes());
        }
    }

    /// Returns an upper bound of the bytes of [`summary`](Self::summary)'s file, with `more` chunks in one more
    /// container and without a footer's content.
    pub(crate) fn most_bytes(&self, index: &Index, more: usize) -> u64 {
        let lists =
            [Class::Medium, Class::Fine].map(|class| bits::most_bytes(more, index.small(class).keys()));
        let more = 4 + lists.iter().sum::<usize>();
        file_len(HEAD + self.medium.len() + self.fine.len() + more + 16)
    }

    /// Lets the index forget the content of the containers from one on; `first` is the number of the first of all.
    pub(crate) fn forget(&self, index: &Index, first: u64, from: u32) {
        for (class, lists) in [(Class::Medium, &self.medium), (Class::Fine, &self.fine)] {
            let _ =
                each_list(index, class, lists, first..first + u64::from(self.containers), |keys, number| {
                    if number >= first + u64::from(from) {
                        keys.iter().for_each(|key| index.small(class).forget_key(*key, number));
                    }
                });
        }
    }

    /// Makes a summary, without the padding of its last page; of a segment without a footer it has the footer's
    /// content.
    pub(crate) fn summary(
        &self,
        extent: &Extent,
        coarse: Option<&[Coarse]>,
        layout: [u64; 3],
        seed: u64,
    ) -> Vec<u8> {
        let mut footer = Vec::new();
        coarse.into_iter().for_each(|coarse| extent.encode(coarse, &mut footer));
        let mut bytes = Vec::with_capacity(HEAD + footer.len() + self.medium.len() + self.fine.len() + 16);
        bytes.extend_from_slice(&extent.file_len.to_le_bytes());
        bytes.extend_from_slice(&self.containers.to_le_bytes());
        for part in [&footer, &self.medium, &self.fine] {
            bytes.extend_from_slice(&(part.len() as u32).to_le_bytes());
        }
        layout.into_iter().for_each(|n| bytes.extend_from_slice(&n.to_le_bytes()));
        bytes.extend_from_slice(&footer);
        bytes.extend_from_slice(&self.medium);
        bytes.extend_from_slice(&xxh3_64_with_seed(&bytes, seed).to_le_bytes());
        bytes.extend_from_slice(&self.fine);
        bytes.extend_from_slice(&xxh3_64_with_seed(&self.fine, seed).to_le_bytes());
        bytes
    }
}

impl Summary {
    /// Reads the first part of a segment's summary, and the fine chunks with it on request; none if there is no sound
    /// one. `len` is that of its file.
    pub(crate) fn read(
        backend: &Arc<dyn Backend>,
        sealer: Option<&Sealer>,
        (store, number): (u64, u64),
        len: u64,
        with_fine: bool,
    ) -> Option<Self> {
        let most = if with_fine { WHOLE } else { FRONT };
        let (file, header, mut front) =
            Paged::open_front(backend, sealer, file_name(number), len, most).ok()?;
        (header == Header { kind: Kind::Summary, store, number }).then_some(())?;
        let seed = Segment::footer_seed(store, number);
        let room = usize::try_from(file.room(len)).ok()?;
        let lens = [u32_at(&front, 12)?, u32_at(&front, 16)?, u32_at(&front, 20)?].map(|len| len as usize);
        let footer = HEAD..HEAD.checked_add(lens[0])?;
        let medium = footer.end..footer.end.checked_add(lens[1])?;
        let fine = medium.end.checked_add(8)?;
        let fine = fine..fine.checked_add(lens[2])?;
        (fine.end.checked_add(8)? <= room).then_some(())?;
        if front.len() < fine.start {
            front = file.read(0, fine.start).ok()?;
        }
        (u64_at(&front, medium.end)? == xxh3_64_with_seed(front.get(..medium.end)?, seed)).then_some(())?;
        let (file_len, containers) = (u64_at(&front, 0)?, u32_at(&front, 8)?);
        let layout = [u64_at(&front, 24)?, u64_at(&front, 32)?, u64_at(&front, 40)?];
        Some(Self { file, front, footer, medium, fine, file_len, containers, layout, seed })
    }

    /// Returns a footer's content; none if the segment has one, or its file has changed.
    pub(crate) fn footer(&self, file_len: u64) -> Option<(Extent, Vec<Coarse>)> {
        let footer = self.front.get(self.footer.clone()).filter(|footer| !footer.is_empty())?;
        let (extent, coarse) = Extent::decode(footer, file_len).filter(|_| self.file_len == file_len)?;
        Some((Extent { has_footer: false, ..extent }, coarse))
    }

    /// Returns how its segment was when it was written.
    pub(crate) fn said(&self) -> Said {
        let (file_len, containers) = (self.file_len, self.containers);
        Said { file_len, containers, has_footer: self.footer.is_empty() }
    }

    /// Says whether it is about a segment as it is, and means anything to these tables.
    pub(crate) fn fits(&self, extent: &Extent, index: &Index) -> bool {
        (self.file_len, self.containers) == (extent.file_len, extent.containers)
            && self.layout == index.small_layout()
    }

    /// Visits the keys of its small chunks, container by container from `first` on, the fine ones only if they are asked
    /// for; says whether these could be read.
    pub(crate) fn put(&self, index: &Index, first: u64, with_fine: bool) -> bool {
        let medium = self.front.get(self.medium.clone()).unwrap_or_default();
        let containers = first..first + u64::from(self.containers);
        let is_whole = put_lists(index, Class::Medium, medium, containers.clone());
        if !with_fine || self.fine.is_empty() {
            return is_whole.is_some();
        }
        let fine = self.fine().and_then(|fine| put_lists(index, Class::Fine, &fine, containers));
        is_whole.and(fine).is_some()
    }

    fn fine(&self) -> Option<Vec<u8>> {
        let there = self.front.get(self.fine.start..self.fine.end + 8);
        let mut fine = match there {
            Some(fine) => fine.to_vec(),
            None => self.file.read(self.fine.start as u64, self.fine.len() + 8).ok()?,
        };
        let check = u64_at(&fine, self.fine.len())?;
        fine.truncate(self.fine.len());
        (check == xxh3_64_with_seed(&fine, self.seed)).then_some(fine)
    }
}

fn put_lists(index: &Index, class: Class, lists: &[u8], containers: Range<u64>) -> Option<()> {
    each_list(index, class, lists, containers, |keys, container| index.put_keys(class, keys, container))
}

/// Visits the keys of each container; none if the lists are not sound.
fn each_list(
    index: &Index,
    class: Class,
    mut lists: &[u8],
    containers: Range<u64>,
    mut visit: impl FnMut(&[u64], u64),
) -> Option<()> {
    let (limit, mut keys) = (index.small(class).keys(), Vec::new());
    for container in containers {
        let count = usize::from(u16_at(lists, 0)?);
        keys.clear();
        lists = bits::decode(lists.get(2..)?, count, limit, &mut keys)?;
        visit(&keys, container);
    }
    Some(())
}

/// Returns the length of the file of a summary: whole pages, and the first one.
pub(crate) fn file_len(summary: usize) -> u64 {
    ((summary.div_ceil(SEALED) + 1) * PAGE) as u64
}

pub(crate) fn file_name(number: u64) -> String {
    format!("{number:016x}.summary")
}

/// Returns the number of a summary's segment, by the file's name.
pub(crate) fn number_of(file_name: &str) -> Option<u64> {
    let digits = file_name.strip_suffix(".summary").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// Bytes before the footer's content.
const HEAD: usize = 48;

/// Bytes of one read of the first part: all of it for 64 MiB of blocks in four levels.
const FRONT: usize = 256 << 10;

/// Bytes of one read with fine chunks: the whole summary of 512 MiB of blocks in four levels. A longer one, or a file
/// of another kind, costs a read more and no more memory.
const WHOLE: usize = 16 << 20;
