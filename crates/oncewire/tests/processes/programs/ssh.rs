//! sftp through forward and ssh through SOCKS: encrypted bytes, recognised as such.

use super::{missing, run};
use crate::common::data;
use crate::common::pair::Options;
use crate::common::sshd::Sshd;
use crate::common::wait::free_address;
use crate::pair;

#[test]
fn sftp_puts_and_gets_through_forward() {
    let Some(server) = Sshd::start(free_address()) else { return };
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
    let Some(server) = Sshd::start(free_address()) else { return };
    let pair = pair(&Options::default());
    let mut ssh = server.client("ssh");
    ssh.arg("-o").arg(format!("ProxyCommand=nc -X 5 -x {} %h %p", pair.socks));
    ssh.args(["-p", &server.address.port().to_string(), &server.login(), "seq 1 200000"]);
    let expected: String = (1..=200_000).map(|number| format!("{number}\n")).collect();
    assert!(run(&mut ssh) == expected, "the command's output came back changed");
}
