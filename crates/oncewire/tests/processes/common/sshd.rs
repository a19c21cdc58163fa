//! An OpenSSH server of our own.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use super::programs::{Service, command, find, leave_out, missing, run};

/// An OpenSSH server for the test's own user.
pub(crate) struct Sshd {
    pub(crate) address: SocketAddr,
    /// Keys, and room for files.
    pub(crate) dir: TempDir,
    user: String,
    _sshd: Service,
}

impl Sshd {
    /// Starts one; `None`, with the reason printed, without OpenSSH.
    pub(crate) fn start(address: SocketAddr) -> Option<Self> {
        if missing(&["sshd", "ssh", "sftp", "ssh-keygen"]) {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for key in ["host", "user"] {
            run(command("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at(key)));
        }
        let config = format!(
            "ListenAddress {address}\nHostKey {0}/host\nAuthorizedKeysFile {0}/user.pub\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n\
             Subsystem sftp internal-sftp\n",
            dir.path().display()
        );
        std::fs::write(at("sshd_config"), config).unwrap();
        if rustix::process::geteuid().is_root() {
            // The server's cell before a login; its package makes it when the service starts.
            let cell = Path::new("/run/sshd");
            let _ = std::fs::create_dir_all(cell);
            let _ = std::fs::set_permissions(cell, std::fs::Permissions::from_mode(0o755));
            if !std::fs::metadata(cell).is_ok_and(|cell| cell.uid() == 0) {
                leave_out("/run/sshd is not root's, as in a user namespace: sshd refuses to start");
                return None;
            }
        }
        let mut sshd = Command::new(find("sshd").unwrap());
        sshd.args(["-D", "-e", "-f"]).arg(at("sshd_config"));
        let service = Service::start(&mut sshd, address, &at("sshd.log"), Signal::TERM);
        let user = run(command("id").arg("-un")).trim().to_owned();
        Some(Self { address, dir, user, _sshd: service })
    }

    /// The login's user and place.
    pub(crate) fn login(&self) -> String {
        format!("{}@{}", self.user, self.address.ip())
    }

    /// A client with the key and without questions.
    pub(crate) fn client(&self, program: &str) -> Command {
        let mut client = command(program);
        client.args(["-F", "/dev/null", "-i"]).arg(self.dir.path().join("user"));
        for option in
            ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "BatchMode=yes", "LogLevel=ERROR"]
        {
            client.args(["-o", option]);
        }
        client
    }
}
