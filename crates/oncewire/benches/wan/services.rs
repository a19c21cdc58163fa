//! A server's services, and their programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use oncewire_lab::corpus::Corpus;
use oncewire_testnet::{Host, Process};
use tempfile::TempDir;

pub(crate) const HTTP_PORT: u16 = 8080;
pub(crate) const GIT_PORT: u16 = 9418;
pub(crate) const SSH_PORT: u16 = 2222;
pub(crate) const POSTGRES_PORT: u16 = 5432;
pub(crate) const PORTS: [u16; 4] = [HTTP_PORT, GIT_PORT, SSH_PORT, POSTGRES_PORT];
pub(crate) const OBJECTS: usize = 100;

/// Files, a repository and a database, the same for all networks.
pub(crate) struct Content {
    dir: TempDir,
}

impl Content {
    /// Makes all of it; generated content of text and logs, the same in each run.
    pub(crate) fn make() -> Self {
        let content = Self { dir: tempfile::tempdir().expect("a directory for what is served") };
        let mut corpus = Corpus::new(1);
        for directory in ["www/objects", "tree", "repository", "keys"] {
            fs::create_dir_all(content.at(directory)).expect("a directory");
        }
        fs::set_permissions(content.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("the database's user passes");
        write(&content.at("www/file"), &corpus.log(4_000_000));
        for object in 1..=OBJECTS {
            write(&content.at(&format!("www/objects/{object}")), &corpus.text(2_000 + 180 * object));
        }
        for number in 0..40 {
            write(&content.at(&format!("tree/{number}")), &corpus.text(100_000));
            write(&content.at(&format!("repository/{number}")), &corpus.text(100_000));
        }
        content.sh("cd $CONTENT/repository && git init -q . && git add . && \
                    git -c user.name=a -c user.email=a@b commit -q -m first && touch .git/git-daemon-export-ok");
        content.sh("ssh-keygen -q -t ed25519 -N '' -f $CONTENT/keys/host && ssh-keygen -q -t ed25519 -N '' -f $CONTENT/keys/user");
        content.sh("mkdir $CONTENT/data && chown postgres $CONTENT/data && cd / && \
                    setpriv --reuid postgres --regid postgres --clear-groups \
                    initdb -U postgres -A trust -N --locale=C -E UTF8 -D $CONTENT/data >/dev/null && \
                    echo 'host all all all trust' >> $CONTENT/data/pg_hba.conf");
        content
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn sh(&self, line: &str) {
        let status = Command::new("sh").args(["-c", line]).env("CONTENT", self.dir.path()).status();
        assert!(status.is_ok_and(|status| status.success()), "{line}");
    }

    /// Starts every program on a host; they end on the drop of the result.
    pub(crate) fn serve(&self, host: &Host) -> Vec<Process> {
        let dir = self.dir.path().display();
        write(
            &self.at("nginx.conf"),
            format!(
                "daemon off; pid {dir}/nginx.pid; error_log {dir}/nginx.log; events {{}} user root; \
                 http {{ access_log off; server {{ listen {HTTP_PORT}; listen [::]:{HTTP_PORT}; root {dir}/www; }} }}"
            )
            .as_bytes(),
        );
        write(
            &self.at("sshd_config"),
            format!(
                "Port {SSH_PORT}\nHostKey {dir}/keys/host\nAuthorizedKeysFile {dir}/keys/user.pub\nPidFile none\n\
                 StrictModes no\nUsePAM no\nPermitRootLogin yes\n"
            )
            .as_bytes(),
        );
        let lines = [
            format!("exec nginx -c {dir}/nginx.conf"),
            format!(
                "exec git -c safe.directory='*' daemon --port={GIT_PORT} --base-path={dir} --reuseaddr {dir}/repository"
            ),
            format!("mkdir -p /run/sshd; exec $(command -v sshd) -D -e -f {dir}/sshd_config"),
            format!(
                "cd /; exec setpriv --reuid postgres --regid postgres --clear-groups postgres -p {POSTGRES_PORT} \
                 -c listen_addresses='*' -c unix_socket_directories= -c fsync=off -D {dir}/data"
            ),
        ];
        let start = |line: &String| {
            let mut command = Command::new("sh");
            command.args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(fs::File::create(self.at("services.log")).expect("a log"));
            host.spawn(&mut command).expect("sh starts")
        };
        lines.iter().map(start).collect()
    }
}

/// Makes the table for clients' copies, once.
pub(crate) const TABLE: &str = "CREATE TABLE IF NOT EXISTS t AS SELECT n, md5(n::text) AS h, 'row ' || n AS name FROM generate_series(1, 60000) AS n";

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("room for what is served");
}
