//! PostgreSQL: a session protocol with requests both small and large.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use super::{Service, command, find, missing, run};
use crate::common::pair::Options;
use crate::common::wait::free_address;
use crate::pair;

#[test]
fn postgres_answers_through_forward() {
    if missing(&["postgres", "initdb", "psql"]) {
        return;
    }
    let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
    let data = dir.path().join("data");
    if rustix::process::geteuid().is_root() {
        run(command("chown").arg(SERVER_USER).arg(dir.path()));
    }
    let mut initdb = as_server_user("initdb");
    run(initdb
        .current_dir(dir.path())
        .args(["-U", "postgres", "-A", "trust", "-N", "--locale=C", "-E", "UTF8", "-D"])
        .arg(&data));
    let mut postgres = as_server_user("postgres");
    postgres.current_dir(dir.path()).args([
        "-p",
        &address.port().to_string(),
        "-c",
        "listen_addresses=127.0.0.1",
    ]);
    postgres.args(["-c", "unix_socket_directories=", "-c", "fsync=off", "-D"]).arg(&data);
    // SIGQUIT: at once, enough for a test's database.
    let _service = Service::start(&mut postgres, address, &dir.path().with_extension("log"), Signal::QUIT);
    let pair = pair(&Options::to(address));

    let query = |at: SocketAddr, sql: &str| run(psql(at).args(["-c", sql]));
    query(
        pair.forward(),
        "CREATE TABLE t AS SELECT n, md5(n::text) AS h FROM generate_series(1, 50000) AS n",
    );
    assert_eq!(query(pair.forward(), "SELECT count(*), sum(n) FROM t").trim(), "50000|1250025000");
    let copy = "COPY t TO STDOUT";
    let through = query(pair.forward(), copy);
    assert!(through == query(address, copy), "the table came out changed");

    let file = dir.path().with_extension("copy");
    std::fs::write(&file, &through).unwrap();
    query(pair.forward(), "CREATE TABLE u (LIKE t)");
    let input = Stdio::from(std::fs::File::open(&file).unwrap());
    run(psql(pair.forward()).args(["-c", "COPY u FROM STDIN"]).stdin(input));
    let difference = "SELECT count(*) FROM (SELECT * FROM t EXCEPT SELECT * FROM u) AS d";
    assert_eq!(query(pair.forward(), difference).trim(), "0");
    let _ = std::fs::remove_file(&file);
    let _ = std::fs::remove_file(dir.path().with_extension("log"));
}

fn psql(at: SocketAddr) -> Command {
    let mut psql = command("psql");
    psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"]);
    psql.args(["-p", &at.port().to_string(), "-d", "postgres"]);
    psql
}

/// The server refuses to run as root; root runs it as the user of its package.
fn as_server_user(program: &str) -> Command {
    if !rustix::process::geteuid().is_root() {
        return command(program);
    }
    let mut setpriv = command("setpriv");
    setpriv
        .args(["--reuid", SERVER_USER, "--regid", SERVER_USER, "--clear-groups"])
        .arg(find(program).unwrap());
    setpriv
}

const SERVER_USER: &str = "postgres";
