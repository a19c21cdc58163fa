//! sftp through forward and ssh through the SOCKS proxy: bytes that are ciphers, and recognised as such.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Service, command, find, missing, run};
use crate::common::data;
use crate::common::pair::Options;
use crate::common::wait::free_address;
use crate::pair;

#[test]
fn sftp_puts_and_gets_through_forward() {
    let Some(server) = Sshd::start() else { return };
    let pair = pair(&Options::to(server.address));
    let at = |name: &str| server.dir.path().join(name);
    let sent = data::text(100, 3_000_000);
    std::fs::write(at("sent"), &sent).unwrap();
    let batch = format!("put {0}/sent {0}/there\nget {0}/there {0}/back\n", server.dir.path().display());
    std::fs::write(at("batch"), batch).unwrap();
    let mut sftp = server.client("sftp");
    run(sftp.arg("-b").arg(at("batch")).args(["-P", &pair.forward().port().to_string()]).arg(server.login()));
    data::assert_same(&std::fs::read(at("back")).unwrap(), &sent, "what came back");

    let status = pair.branch.ask("status").unwrap();
    let rows = status["flows_not_coded"].to_string();
    assert!(rows.contains("uncoded") && rows.to_lowercase().contains("ssh"), "{rows}");
}

#[test]
fn ssh_runs_a_command_through_the_socks_proxy() {
    if missing(&["nc"]) {
        return;
    }
    let Some(server) = Sshd::start() else { return };
    let pair = pair(&Options::default());
    let mut ssh = server.client("ssh");
    ssh.arg("-o").arg(format!("ProxyCommand=nc -X 5 -x {} %h %p", pair.socks));
    ssh.args(["-p", &server.address.port().to_string(), &server.login(), "seq 1 200000"]);
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert!(run(&mut ssh) == expected, "the command's output came back changed");
}

/// An OpenSSH server for the user who runs the test.
struct Sshd {
    address: SocketAddr,
    dir: TempDir,
    user: String,
    _sshd: Service,
}

impl Sshd {
    fn start() -> Option<Self> {
        if missing(&["sshd", "ssh", "sftp", "ssh-keygen"]) {
            return None;
        }
        let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
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
            // Where the server locks itself in before a login; its package makes it when the service starts.
            let _ = std::fs::create_dir_all("/run/sshd");
            let _ = std::fs::set_permissions("/run/sshd", std::fs::Permissions::from_mode(0o755));
        }
        let mut sshd = Command::new(find("sshd").unwrap());
        sshd.args(["-D", "-e", "-f"]).arg(at("sshd_config"));
        let service = Service::start(&mut sshd, address, &at("sshd.log"), Signal::TERM);
        let user = run(command("id").arg("-un")).trim().to_owned();
        Some(Self { address, dir, user, _sshd: service })
    }

    fn login(&self) -> String {
        format!("{}@127.0.0.1", self.user)
    }

    /// A client that knows the key and asks nothing.
    fn client(&self, program: &str) -> Command {
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
