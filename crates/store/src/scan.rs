//! Scans of segments without a footer.

use crate::ahead::Ahead;
use crate::container::{Container, HEADER, Lengths, Place};
use crate::index::Class;
use crate::paged::Paged;
use crate::segment::{Coarse, ERRORS_TO_SET_ASIDE, Extent};
use crate::{Fault, Part};

/// The findings of a scan.
pub(crate) struct Scanned {
    pub(crate) extent: Extent,
    pub(crate) coarse: Vec<Coarse>,
    /// The first refused place.
    pub(crate) refused: Option<Fault>,
    /// Whether a container's header behind the others asks for more than the rest of the file.
    pub(crate) is_cut_short: bool,
}

impl Extent {
    /// Finds the containers of a file without a footer, by their checks. Torn or damaged content is passed over to
    /// the next page, a possible start of a group; and so is content refused by the disk, unless it refuses too
    /// often. With a known header, exactly this container is passed over. `visit` gets the chunks of each one found.
    pub(crate) fn scan(
        file: &Paged,
        file_len: u64,
        store: u64,
        segment: u64,
        visit: &mut dyn FnMut(&[Part]),
    ) -> Scanned {
        let (mut extent, mut coarse, mut refused) = (Self::default(), Vec::new(), None);
        let (room, payload) = (file.room(file_len).min(u64::from(u32::MAX)), file.payload() as u64);
        let (mut at, mut errors, mut empty) = (0, 0, Empty { window: 1 });
        let (mut ahead, mut is_cut_short) = (Ahead::new(file, file_len), false);
        while at + (HEADER as u64) < room && errors < ERRORS_TO_SET_ASIDE {
            let found = read_container(file, &mut ahead, Place { store, segment, at }, room - at);
            let (container, len) = match found {
                Ok(found) => found,
                Err(Miss { fault, len, is_cut_short: is_short }) => {
                    is_cut_short |= is_short;
                    let refused_len = len.filter(|_| !fault.is_damage());
                    at = refused_len.map_or((at + 1).next_multiple_of(payload), |len| at + len as u64);
                    if refused_len.is_none() {
                        at += empty.skip(file, at, room);
                    }
                    errors += u32::from(!fault.is_damage());
                    refused = refused.or((!fault.is_damage()).then_some(fault));
                    continue;
                }
            };
            let end = at + len as u64;
            is_cut_short = false;
            extent.add(at as u32, end as u32, container.time_s, &container.parts);
            let large = container.parts.iter().filter(|part| Class::of(part.len) == Class::Coarse);
            coarse.extend(large.map(|part| (part.tag, at as u32 + HEADER as u32 + part.start)));
            visit(&container.parts);
            at = end;
        }
        extent.file_len = file_len;
        Scanned { extent, coarse, refused, is_cut_short }
    }
}

/// Passes over empty pages, the most part of a fresh segment: in ever larger steps, as a request for each would take
/// minutes on a disk.
struct Empty {
    window: u64,
}

impl Empty {
    /// Returns how many bytes are empty from the beginning of a page on, as far as one request tells.
    fn skip(&mut self, file: &Paged, at: u64, room: u64) -> u64 {
        let payload = file.payload() as u64;
        let most = self.window.min(room.saturating_sub(at) / payload);
        let found = file.empty_pages(at, most as usize) as u64;
        self.window = if found == self.window { (2 * found).min(PAGES_AT_ONCE) } else { 1 };
        found * payload
    }
}

/// Why there is no container, and how long it is if its header says so.
struct Miss {
    fault: Fault,
    len: Option<usize>,
    /// Whether the file is too short for the container.
    is_cut_short: bool,
}

/// Reads a container from its known beginning, and returns its length, too.
fn read_container(
    file: &Paged,
    ahead: &mut Ahead<'_>,
    place: Place,
    room: u64,
) -> Result<(Container, usize), Miss> {
    let nothing = |fault| Miss { fault, len: None, is_cut_short: false };
    let damaged = |what| nothing(file.damaged(place.at, what));
    let mut read = |len| match ahead.get(place.at, len) {
        Some(bytes) => Ok(bytes.to_vec()),
        None => file.read(place.at, len),
    };
    let header = read(HEADER).map_err(nothing)?;
    let len = Lengths::decode(&header).ok_or_else(|| damaged("no container"))?.total();
    if len as u64 > room {
        return Err(Miss { is_cut_short: true, ..damaged("container is cut short") });
    }
    let container = read(len).map_err(|fault| Miss { len: Some(len), ..nothing(fault) })?;
    let container =
        Container::decode(container, place).ok_or_else(|| damaged("container fails its check"))?;
    Ok((container, len))
}

/// Pages of one request.
const PAGES_AT_ONCE: u64 = 256;
