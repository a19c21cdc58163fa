//! Reports of losses in a store at rest, without false ones after crashes.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;

use std::sync::Arc;

use common::{block, open, options, parts, sealed, whole};
use oncewire_store::{
    Backend, Compacted, Directory, Fault, Faults, Inserted, Memory, Opened, Options, Progress, Store,
    Verified,
};

const BLOCKS: u64 = 60;

fn fill(store: &Store) {
    for number in 0..BLOCKS {
        let block = block(number, 60_000);
        assert!(matches!(store.insert(&block, &parts(&block), number), Inserted::Stored { .. }));
    }
}

/// A store of several segments, closed in order or left as a power cut leaves it.
fn filled(options: &Options, closed: bool) -> Memory {
    let memory = Memory::default();
    let store = open(&memory, options);
    fill(&store);
    match closed {
        true => store.close().unwrap(),
        false => store.sync().unwrap(),
    }
    memory
}

fn segments(memory: &Memory) -> Vec<(String, u64)> {
    let files = memory.list().unwrap();
    files.into_iter().filter(|(name, _)| name.ends_with(".seg")).collect()
}

fn looked_at(backend: &(impl Backend + Clone), options: &Options) -> (Store, Opened) {
    let at_rest = Options { at_rest: true, ..options.clone() };
    Store::open(Arc::new(backend.clone()), &at_rest).unwrap()
}

fn verified(backend: &(impl Backend + Clone), options: &Options) -> (Verified, Opened) {
    let (store, opened) = looked_at(backend, options);
    (store.verify(&Progress::default()).unwrap(), opened)
}

fn compacted(backend: &(impl Backend + Clone), options: &Options) -> Compacted {
    let (store, _) = looked_at(backend, options);
    let compacted = store.compact(None, &Progress::default()).unwrap();
    store.close().unwrap();
    compacted
}

fn lines(faults: &Faults) -> Vec<String> {
    faults.noted().iter().map(Fault::to_string).collect()
}

/// Expects one loss from a look, as described here, the same from compaction, and a sound store after it.
#[track_caller]
fn assert_lost(memory: &Memory, options: &Options, expected: &str) {
    let (found, opened) = verified(memory, options);
    let damaged = lines(&found.damaged);
    assert!(damaged.len() == 1 && damaged[0].contains(expected), "{expected}: {damaged:?} {opened:?}");
    assert!(found.unreadable.is_empty(), "{found:?}");
    let compacted = compacted(memory, options);
    assert_eq!(lines(&compacted.damaged), damaged);
    assert!(compacted.left.is_empty() && compacted.lost.is_empty(), "{compacted:?}");
    let (found, _) = verified(memory, options);
    assert!(found.damaged.is_empty() && found.unreadable.is_empty(), "{found:?}");
}

#[test]
fn an_encrypted_segment_without_its_first_page_is_lost() {
    for (closed, at) in [(true, 0), (true, 1), (false, 0)] {
        let memory = filled(&sealed(1, 200), closed);
        let (name, _) = segments(&memory).swap_remove(at);
        memory.damage(&name, |bytes| bytes[64..68].fill(0xff));
        assert_lost(&memory, &sealed(1, 200), &format!("{name}: its first page, which has its key, is gone"));
    }
    let memory = filled(&sealed(1, 200), true);
    let (name, _) = segments(&memory).swap_remove(1);
    memory.damage(&name, |bytes| bytes[..4096].fill(0));
    assert_lost(&memory, &sealed(1, 200), "which has its key, is gone, and ");
}

#[test]
fn damaged_first_page_is_reported_in_spite_of_sound_content() {
    for closed in [true, false] {
        // Magic, version, kind, id, number, key, salt and check.
        for at in [0, 8, 12, 16, 24, 32, 48, 71] {
            let memory = filled(&options(200), closed);
            let (name, _) = segments(&memory).swap_remove(1);
            memory.damage(&name, |bytes| bytes[at] ^= 1);
            let containers = verified(&memory, &options(200)).0.containers;
            assert_lost(&memory, &options(200), &format!("{name}: its first page is damaged"));
            let store = open(&memory, &options(200));
            assert_eq!(whole(&store, &[60_000; BLOCKS as usize]).len(), BLOCKS as usize);
            assert_eq!(store.stat().containers, containers, "nothing is lost");
        }
    }
}

#[test]
fn empty_first_page_without_footer_is_no_damage() {
    let memory = filled(&options(200), false);
    let files = segments(&memory);
    let (name, _) = files.last().unwrap();
    memory.damage(name, |bytes| bytes[..4096].fill(0));
    assert!(verified(&memory, &options(200)).0.damaged.is_empty());
    drop(open(&memory, &options(200)));
    assert!(verified(&memory, &options(200)).0.damaged.is_empty(), "also once a start has looked through it");
    memory.damage(&files[0].0, |bytes| bytes[..4096].fill(0));
    assert_lost(&memory, &options(200), &format!("{}: its first page is damaged", files[0].0));
}

#[test]
fn files_rebuilt_from_segments_are_no_damage() {
    for file in ["store", "index", "0000000000000002.summary"] {
        let memory = filled(&options(200), true);
        memory.damage(file, |bytes| bytes[20] ^= 1);
        let (found, _) = verified(&memory, &options(200));
        assert!(found.damaged.is_empty() && found.unreadable.is_empty(), "{file}: {found:?}");
        let store = open(&memory, &options(200));
        assert_eq!(whole(&store, &[60_000; BLOCKS as usize]).len(), BLOCKS as usize, "{file}");
    }
}

#[test]
fn newest_segment_without_first_page_is_lost_unless_empty() {
    let options = sealed(1, 200);
    let memory = filled(&options, false);
    let (name, _) = segments(&memory).pop().unwrap();
    memory.damage(&name, |bytes| bytes[64..68].fill(0xff));
    assert_lost(&memory, &options, &name);
    let memory = filled(&options, false);
    memory.damage(&name, |bytes| bytes.fill(0));
    let (found, opened) = verified(&memory, &options);
    assert!(found.damaged.is_empty(), "{found:?}");
    assert!(opened.notes.iter().any(|note| note.contains("cannot be told")), "{opened:?}");
}

#[test]
fn cut_segment_is_damaged_with_its_loss_counted() {
    for options in [options(200), sealed(1, 200)] {
        for at in [0, 1] {
            let memory = filled(&options, true);
            let (name, len) = segments(&memory).swap_remove(at);
            memory.truncate(&name, len / 3 / 4096 * 4096).unwrap();
            assert_lost(&memory, &options, "containers with it");
        }
    }
}

#[test]
fn removed_segment_is_missed_after_a_clean_close() {
    let memory = filled(&options(200), true);
    let (name, _) = segments(&memory).swap_remove(1);
    memory.remove(&name).unwrap();
    assert_lost(&memory, &options(200), &format!("{name}: it is gone, and "));
}

#[test]
fn summaries_tell_sealed_segments_after_a_power_cut() {
    for options in [options(200), sealed(1, 200)] {
        let memory = filled(&options, false);
        let (name, len) = segments(&memory).swap_remove(1);
        memory.truncate(&name, len / 3 / 4096 * 4096).unwrap();
        assert_lost(&memory, &options, "its footer is gone, and ");
    }
}

/// Does something to a segment of this name and length.
type Harm = fn(&Memory, &str, u64);

#[test]
fn file_without_summary_tells_its_own_state() {
    let harms: [(&str, Harm); 3] = [
        ("within a page", |memory, name, len| memory.truncate(name, len / 3 / 4096 * 4096 + 5).unwrap()),
        ("nothing in it", |memory, name, _| memory.truncate(name, 0).unwrap()),
        ("footer is gone", |memory, name, _| memory.damage(name, |bytes| *bytes.last_mut().unwrap() ^= 1)),
    ];
    for (expected, harm) in harms {
        let memory = filled(&options(200), false);
        let (name, len) = segments(&memory).swap_remove(1);
        memory.remove(&name.replace(".seg", ".summary")).unwrap();
        harm(&memory, &name, len);
        assert_lost(&memory, &options(200), expected);
    }
}

#[test]
fn remains_of_a_power_cut_are_possible_loss_not_damage() {
    for options in [options(200), sealed(1, 200)] {
        let memory = filled(&options, false);
        let (found, opened) = verified(&memory, &options);
        assert!(found.damaged.is_empty() && found.unreadable.is_empty(), "{found:?}");
        assert!(opened.notes.iter().any(|note| note.contains("more cannot be told")), "{opened:?}");
        // The start with its scan knows all of it from then on.
        let store = open(&memory, &options);
        assert_eq!(whole(&store, &[60_000; BLOCKS as usize]).len(), BLOCKS as usize);
        store.sync().unwrap();
        drop(store);
        let (found, opened) = verified(&memory, &options);
        assert!(found.damaged.is_empty() && opened.notes.is_empty(), "{found:?} {opened:?}");
    }
}

#[test]
fn a_footer_is_compared_with_its_check() {
    let memory = filled(&options(200), true);
    let (name, _) = segments(&memory).swap_remove(1);
    memory.damage(&name, |bytes| *bytes.last_mut().unwrap() ^= 1);
    assert_lost(&memory, &options(200), "its footer is damaged");
}

#[test]
fn non_file_with_a_segments_name_is_reported_and_left() {
    for at in [0, 1] {
        let dir = tempfile::tempdir().unwrap();
        let files = || Arc::new(Directory::open(dir.path()).unwrap());
        let store = Store::open(files(), &options(200)).unwrap().0;
        fill(&store);
        store.close().unwrap();
        let at_rest = Options { at_rest: true, ..options(200) };
        let count = files().list().unwrap().iter().filter(|(name, _)| name.ends_with(".seg")).count();
        // One in the middle, or the last; its number would be the next.
        let number = if at == 0 { 2 } else { count };
        let path = dir.path().join(format!("{number:016x}.seg"));
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        let store = Store::open(files(), &at_rest).unwrap().0;
        let found = store.verify(&Progress::default()).unwrap();
        let unreadable = lines(&found.unreadable);
        let is_said = |line: &String| line.contains(&format!("{number:016x}.seg: not read, since it is no"));
        assert!(unreadable.len() == 1 && is_said(&unreadable[0]), "{unreadable:?}");
        assert!(found.damaged.is_empty(), "{found:?}");
        let compacted = store.compact(None, &Progress::default()).unwrap();
        assert!(compacted.kept > 0 && lines(&compacted.left) == unreadable, "{compacted:?}");
        store.close().unwrap();
        assert!(path.symlink_metadata().unwrap().is_symlink(), "it stays");
    }
}

#[test]
fn a_segment_of_another_store_is_unreadable_and_stays() {
    let (memory, other) = (filled(&options(200), true), filled(&Options { id: 9, ..options(200) }, true));
    let (name, len) = segments(&memory).swap_remove(1);
    let mut bytes = vec![0; 8192];
    other.read(&name, 0, &mut bytes).unwrap();
    memory.truncate(&name, 8192).unwrap();
    memory.write(&name, 0, &bytes).unwrap();
    let (found, _) = verified(&memory, &options(200));
    assert!(lines(&found.unreadable)[0].contains("since it is of another store"), "{found:?}");
    assert_eq!(lines(&compacted(&memory, &options(200)).left), lines(&found.unreadable));
    assert!(len > 8192 && segments(&memory).contains(&(name, 8192)), "it stays");
}
