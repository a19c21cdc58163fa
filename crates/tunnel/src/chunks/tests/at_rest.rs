//! A store at rest: inspected, compacted and cleared.

use oncewire_keys::StorageKey;

use super::*;

/// The files of a directory with their content.
fn files(path: &std::path::Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> =
        entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn inspection_and_verification_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let settings = StoreSettings {
        path: dir.path().join("store"),
        disk: 64 << 20,
        index_memory: 1 << 20,
        read_latency: None,
    };
    let store = ChunkStore::open(&settings, None).unwrap();
    fill(&store, 100);
    close(&store);
    let before = files(&settings.path);
    assert!(before.iter().any(|(name, _)| name == "index"));
    let configured = Room { disk: settings.disk, index_memory: settings.index_memory };
    for room in [None, Some(configured), Some(Room { disk: 16 << 20, ..configured })] {
        let store = AtRest::open(&settings.path, None, room).unwrap();
        assert_eq!(store.stat().levels.first().map(|level| level.chunks), Some(100));
        assert_eq!(store.verify(&Progress::default()).unwrap().damaged.len(), 0);
        store.close().unwrap();
        assert!(files(&settings.path) == before, "{room:?}");
    }
    let store = AtRest::open(&settings.path, None, None).unwrap();
    assert_eq!(store.compact(None, &Progress::default()).unwrap().superseded, 0);
    store.close().unwrap();
    let options = open::options(settings.index_memory, settings.disk, None);
    let directory = Arc::new(oncewire_store::Directory::open(&settings.path).unwrap());
    let (_, opened) = oncewire_store::Store::open(directory, &options).unwrap();
    assert!(opened.index_kept, "the gateway finds the index as it wants it");
}

#[test]
fn interrupted_clearing_resumes_and_spares_foreign_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    assert_eq!(clear_at_rest(&path).unwrap(), 0);
    assert!(!path.exists());
    for left in ["0000000000000001.seg", "index", "store"] {
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join(left), vec![1; 8192]).unwrap();
        assert_eq!(clear_at_rest(&path).unwrap(), 8192, "{left}");
        assert!(!path.exists(), "{left}");
    }
    let settings =
        StoreSettings { path: path.clone(), disk: 64 << 20, index_memory: 1 << 20, read_latency: None };
    let store = ChunkStore::open(&settings, None).unwrap();
    fill(&store, 4);
    assert!(matches!(clear_at_rest(&path), Err(AtRestError::Refused(OpenError::InUse { .. }))));
    close(&store);
    drop(store);
    std::fs::write(path.join("thesis.txt"), "another's").unwrap();
    assert!(clear_at_rest(&path).unwrap() > 4 << 16);
    assert_eq!(files(&path), [("thesis.txt".into(), b"another's".to_vec())]);
    // A directory beyond removal, as one behind a link, is at least emptied.
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    std::fs::write(path.join("index"), vec![1; 8192]).unwrap();
    std::fs::remove_file(path.join("thesis.txt")).unwrap();
    assert_eq!(clear_at_rest(&link).unwrap(), 8192);
    assert_eq!(files(&path), []);
}

#[test]
fn store_without_index_and_configuration_assumes_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let settings =
        StoreSettings { path: path.clone(), disk: 64 << 20, index_memory: 1 << 20, read_latency: None };
    let store = ChunkStore::open(&settings, None).unwrap();
    fill(&store, 4);
    close(&store);
    let is_assumed = |room| AtRest::open(&path, None, room).unwrap().index_is_assumed;
    let configured = Room { disk: settings.disk, index_memory: settings.index_memory };
    assert_eq!([is_assumed(None), is_assumed(Some(configured))], [false; 2]);
    std::fs::remove_file(path.join("index")).unwrap();
    assert_eq!([is_assumed(None), is_assumed(Some(configured))], [true, false]);
}

#[test]
fn missing_key_error_names_the_option() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let keys = ["own.key", "other.key"].map(|name| StorageKey::create(&dir.path().join(name)).unwrap());
    let settings =
        StoreSettings { path: path.clone(), disk: 64 << 20, index_memory: 1 << 20, read_latency: None };
    let store = ChunkStore::open(&settings, Some(&keys[0])).unwrap();
    fill(&store, 1);
    close(&store);
    assert!(AtRest::open(&path, Some(&keys[0]), None).is_ok());
    let room = Room { disk: settings.disk, index_memory: settings.index_memory };
    for key in [None, Some(&keys[1])] {
        let told = AtRest::open(&path, key, None).err().unwrap().to_string();
        assert!(told.contains("`--encrypt-key-file`") && !told.contains("remove"), "{told}");
        let told = AtRest::open(&path, key, Some(room)).err().unwrap().to_string();
        assert!(told.contains("`encrypt_key_file`"), "{told}");
    }
}
