//! Private files and texts: proxy users, the admin token.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use oncewire_keys::key_file::{self, Unreadable};

use super::Config;

/// The users of a proxy with their passwords.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users {
    passwords: BTreeMap<String, String>,
    /// Whether the passwords stand in the configuration itself.
    inline: bool,
}

impl Users {
    /// Whether there are none: then nobody is asked for a name.
    pub fn is_empty(&self) -> bool {
        self.passwords.is_empty()
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.passwords.len()
    }

    /// Whether a name and password are right, in constant time.
    pub fn verify(&self, name: &[u8], password: &[u8]) -> bool {
        let expected = std::str::from_utf8(name).ok().and_then(|name| self.passwords.get(name));
        // An unknown name costs the same comparison: time must not reveal names either.
        let right = same(password, expected.map_or(b"", |password| password.as_bytes()));
        expected.is_some() && right
    }

    /// Reads entries of the form `user:password` from the configuration.
    pub(super) fn from_entries<'a>(entries: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut users = Self { inline: true, ..Self::default() };
        entries.into_iter().try_for_each(|entry| users.add(entry))?;
        Ok(users)
    }

    /// Reads a file with one `user:password` a line; empty lines and `#` comments are passed over.
    pub(super) fn from_file(path: &Path) -> Result<Self, String> {
        let text = private_file(path)?;
        let mut users = Self::default();
        for (at, line) in
            text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        {
            users.add(line).map_err(|error| format!("{}:{}: {error}", path.display(), at + 1))?;
        }
        if users.is_empty() {
            return Err(format!("{}: no users in it; write one `user:password` a line", path.display()));
        }
        Ok(users)
    }

    fn add(&mut self, entry: &str) -> Result<(), String> {
        let (name, password) =
            entry.split_once(':').ok_or("an entry is not of the form \"user:password\"")?;
        let fits = |text: &str| (1..=MAX_FIELD).contains(&text.len());
        if !fits(name) || !fits(password) {
            return Err(format!("name and password of user {name:?} must each have 1 to {MAX_FIELD} bytes"));
        }
        match self.passwords.insert(name.to_owned(), password.to_owned()) {
            Some(_) => Err(format!("user {name:?} stands there twice")),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Users {
    /// Shows the names only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.passwords.keys()).finish()
    }
}

/// Compares two secrets in a time dependent on their lengths only.
pub fn same(a: &[u8], b: &[u8]) -> bool {
    let digest = |bytes| ring::digest::digest(&ring::digest::SHA256, bytes);
    let (a, b) = (digest(a), digest(b));
    a.as_ref().iter().zip(b.as_ref()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// Reads the admin token: the one line of its file, of at least 16 characters.
///
/// # Errors
/// If others can read the file, or it holds something else; the message names the file.
pub fn read_token(path: &Path) -> Result<String, String> {
    let text = private_file(path)?;
    let token = text.trim();
    let fits = token.len() >= MIN_TOKEN && token.bytes().all(|byte| byte.is_ascii_graphic());
    match fits {
        true => Ok(token.to_owned()),
        false => Err(format!(
            "{}: a token is one line of at least {MIN_TOKEN} printable characters; make one with \
             `head -c 24 /dev/urandom | base64`",
            path.display()
        )),
    }
}

/// Warns of passwords in a configuration file readable by others.
pub(super) fn exposure(path: &Path, config: &Config) -> Option<String> {
    let inline =
        config.intercepts.iter().any(|intercept| intercept.users.inline && !intercept.users.is_empty());
    let mode = std::fs::metadata(path).ok()?.mode() & 0o7777;
    (inline && mode & 0o077 != 0).then(|| {
        format!("users' passwords stand in {path}, which others can read (mode {mode:04o}); run `chmod 600 {path}` \
                 or name a file in `users`", path = path.display())
    })
}

/// Reads a small file accessible to its owner alone.
fn private_file(path: &Path) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = key_file::open(path).map_err(|why| match why {
        Unreadable::Missing => failed(rustix::io::Errno::NOENT.into()),
        Unreadable::Io(error) => failed(error),
        Unreadable::Exposed(mode) => {
            format!(
                "{path}: permissions {mode:04o} are too open for a secret key; run `chmod 600 {path}`",
                path = path.display()
            )
        }
    })?;
    let mut text = String::new();
    file.take(MAX_FILE + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > MAX_FILE {
        return Err(format!("{}: longer than the {MAX_FILE} bytes that are read", path.display()));
    }
    Ok(text)
}

/// RFC 1929 has one byte for the length of either.
const MAX_FIELD: usize = 255;
const MIN_TOKEN: usize = 16;
/// Some ten thousand users.
const MAX_FILE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_the_right_name_and_password_are_accepted() {
        let users = Users::from_entries(["ann:secret", "bob:with:colon"].into_iter()).unwrap();
        assert!(users.verify(b"ann", b"secret") && users.verify(b"bob", b"with:colon"));
        for (name, password) in [("ann", ""), ("ann", "Secret"), ("ann", "with:colon"), ("eve", ""), ("", "")]
        {
            assert!(!users.verify(name.as_bytes(), password.as_bytes()), "{name}:{password}");
        }
        assert!(!users.verify(b"\xff", b"secret"));
    }

    #[test]
    fn bad_entries_are_named_without_their_passwords() {
        let error = |entries: &[&str]| Users::from_entries(entries.iter().copied()).unwrap_err();
        assert!(error(&["hunter2"]).contains("user:password") && !error(&["hunter2"]).contains("hunter2"));
        assert!(error(&["ann:"]).contains("\"ann\""));
        assert!(error(&[":pw"]).contains("1 to 255"));
        assert!(error(&["ann:a", "ann:b"]).contains("twice"));
    }

    #[test]
    fn users_file_must_be_private_and_not_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        std::fs::write(&path, "# staff\nann:secret\n\nbob:word\n").unwrap();
        assert!(Users::from_file(&path).unwrap_err().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Users::from_file(&path).unwrap().len(), 2);
        std::fs::write(&path, "ann:secret\nbob\n").unwrap();
        assert!(Users::from_file(&path).unwrap_err().contains("users:2:"));
        std::fs::write(&path, "ann:secret\n".repeat(100_000)).unwrap();
        assert!(Users::from_file(&path).unwrap_err().contains("longer than"));
        std::fs::write(&path, "# nobody\n").unwrap();
        assert!(Users::from_file(&path).unwrap_err().contains("no users"));
        std::fs::write(&path, "short\n").unwrap();
        assert!(read_token(&path).unwrap_err().contains("at least 16"));
        std::fs::write(&path, "0123456789abcdef\n").unwrap();
        assert_eq!(read_token(&path).unwrap(), "0123456789abcdef");
    }

    #[test]
    fn debugging_output_does_not_hold_passwords() {
        let users = Users::from_entries(["ann:secret"].into_iter()).unwrap();
        assert_eq!(format!("{users:?}"), "{\"ann\"}");
    }
}
