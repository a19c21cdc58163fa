//! Access of a gateway's later user to its configured files.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use oncewire_config::Config;
use rustix::process::geteuid;

use super::privileges::Account;

/// Lists everything a gateway started by root cannot use once it is its `user`. Uncertain cases are left out:
/// users other than root, who read what they can, and directories with access lists.
pub fn obstacles(config: &Config) -> Vec<String> {
    let account = config.gateway.user.as_ref().filter(|_| geteuid().is_root());
    let account = account.and_then(|user| Account::find(user).ok());
    account.map(|account| obstacles_of(config, &account)).unwrap_or_default()
}

fn obstacles_of(config: &Config, account: &Account) -> Vec<String> {
    let user = &account.name;
    let mut lines = Vec::new();
    for (key, path) in &config.private_files {
        // It is readable by its owner alone, or it would not have been taken.
        if fs::metadata(path).is_ok_and(|file| !may(account, &file, READ)) {
            let path = path.display();
            lines.push(format!(
                "{key}: {user}, as whom it runs, cannot read {path}; run `chown {user} {path}`"
            ));
        }
    }
    let state = config.gateway.state.iter().map(|path| ("state in [gateway]", path));
    let store = config.store.iter().map(|store| ("store_path in [cache]", &store.path));
    let store =
        store.filter(|(_, path)| config.gateway.state.as_ref().is_none_or(|state| !path.starts_with(state)));
    for (key, path) in state.chain(store) {
        // A missing file is created in its last existing ancestor.
        let there = path.ancestors().find_map(|path| Some((path, fs::metadata(path).ok()?)));
        let Some((there, directory)) =
            there.filter(|(path, directory)| directory.is_dir() && !has_access_list(path))
        else {
            continue;
        };
        if !may(account, &directory, WRITE | SEARCH) {
            let there = there.display();
            lines.push(format!(
                "{key}: {user}, as whom it runs, cannot write to {there}; change its owner or mode"
            ));
        }
    }
    lines
}

/// Whether a user with its one group has these rights.
fn may(account: &Account, file: &Metadata, rights: u32) -> bool {
    let granted = match (file.uid() == account.uid, file.gid() == account.gid) {
        _ if account.uid == 0 => return true,
        (true, _) => file.mode() >> 6,
        (false, true) => file.mode() >> 3,
        (false, false) => file.mode(),
    };
    granted & rights == rights
}

fn has_access_list(path: &Path) -> bool {
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0; 0]).is_ok()
}

const READ: u32 = 0o4;
const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use oncewire_keys::Identity;

    #[test]
    fn only_inaccessible_paths_of_the_user_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let key = dir.path().join("a.key");
        Identity::create(&key).unwrap();
        let own = fs::metadata(&key).unwrap();
        let text = "[gateway]\nname = \"a\"\nkey_file = \"a.key\"\nlisten = \"127.0.0.1:1\"\nstate = \"state/a\"\n\
                    [cache]\nmemory = \"256 MiB\"\nstore_disk = \"64 MiB\"\n";
        let config = Config::parse(text, &dir.path().join("a.toml")).unwrap();
        // This test may run as root, with access to everything.
        let of = |uid, gid| obstacles_of(&config, &Account { name: "them".to_owned(), uid, gid });
        let mode = |mode| fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode)).unwrap();
        let (them, theirs) = (own.uid() + 1, own.gid() + 1);
        mode(0o700);
        let both = of(them, theirs);
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both[0].starts_with("key_file in [gateway]: them, as whom it runs, cannot read"), "{both:?}");
        assert!(
            both[1].starts_with("state in [gateway]: them, as whom it runs, cannot write to"),
            "{both:?}"
        );
        assert_eq!(of(own.uid(), theirs), [""; 0]);
        mode(0o770);
        assert_eq!((of(them, own.gid()).len(), of(them, theirs).len()), (1, 2));
        mode(0o777);
        assert_eq!(of(them, theirs).len(), 1);
        fs::create_dir_all(dir.path().join("state/a")).unwrap();
        fs::set_permissions(dir.path().join("state/a"), PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!((of(them, theirs).len(), of(own.uid(), theirs).len()), (2, 0));
    }
}
