//! git over HTTP: clone and push through every mode.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{command, find, missing, run};
use crate::common::data;
use crate::common::origin::Origin;
use crate::common::pair::Options;
use crate::pair;

#[test]
fn git_clones_and_pushes_through_every_mode() {
    if missing(&["git"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let head = make_repository(dir.path());
    let root = dir.path().to_path_buf();
    let origin = Origin::start(move |stream| {
        let _ = serve(stream, &root);
    });
    let pair = pair(&Options::to(origin.address()));
    let modes = [
        ("forward", pair.forward(), None),
        ("socks5", origin.address(), Some(format!("socks5h://{}", pair.socks))),
        ("http", origin.address(), Some(format!("http://{}", pair.http))),
    ];
    for (mode, address, proxy) in modes {
        let copy = dir.path().join(mode);
        let mut clone = git(dir.path());
        if let Some(proxy) = proxy {
            clone.args(["-c", &format!("http.proxy={proxy}")]);
        }
        run(clone.args(["clone", "--quiet"]).arg(format!("http://{address}/repo.git")).arg(&copy));
        run(git(&copy).args(["fsck", "--full", "--strict"]));
        assert_eq!(run(git(&copy).args(["rev-parse", "HEAD"])).trim(), head, "{mode}");
    }
    let copy = dir.path().join("forward");
    std::fs::write(copy.join("more"), data::text(90, 200_000)).unwrap();
    run(git(&copy).args(["add", "more"]));
    run(git(&copy).args(["commit", "--quiet", "-m", "More"]));
    run(git(&copy).args(["push", "--quiet", "origin", "HEAD"]));
    let pushed = run(git(&copy).args(["rev-parse", "HEAD"]));
    assert_eq!(run(git(&dir.path().join("repo.git")).args(["rev-parse", "HEAD"])), pushed);
}

/// Makes `repo.git` with a few commits and returns the last one's name.
fn make_repository(dir: &Path) -> String {
    let work = dir.join("work");
    run(git(dir).args(["init", "--quiet", "-b", "main"]).arg(&work));
    for commit in 0..5u64 {
        for file in 0..20 {
            std::fs::write(work.join(format!("file{file}")), data::text(commit * 100 + file, 20_000))
                .unwrap();
        }
        std::fs::write(work.join("noise"), data::random(commit, 200_000)).unwrap();
        run(git(&work).args(["add", "."]));
        run(git(&work).args(["commit", "--quiet", "-m", &format!("Commit {commit}")]));
    }
    let bare = dir.join("repo.git");
    run(git(dir).args(["clone", "--quiet", "--bare"]).arg(&work).arg(&bare));
    run(git(&bare).args(["config", "http.receivepack", "true"]));
    run(git(&work).args(["rev-parse", "HEAD"])).trim().to_owned()
}

/// git in `dir`, with none of the user's settings.
fn git(dir: &Path) -> Command {
    let mut git = command("git");
    git.current_dir(dir).env("HOME", dir).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TERMINAL_PROMPT", "0");
    for who in ["AUTHOR", "COMMITTER"] {
        git.env(format!("GIT_{who}_NAME"), "A Test").env(format!("GIT_{who}_EMAIL"), "test@example.net");
        git.env(format!("GIT_{who}_DATE"), "2026-01-01T00:00:00Z");
    }
    git
}

/// Answers one HTTP request by git's own CGI program, and ends the answer by ending the stream.
fn serve(mut stream: TcpStream, root: &Path) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(()) };
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut cgi = Command::new(find("git").unwrap_or_else(|| PathBuf::from("git")));
    cgi.arg("http-backend").env("GIT_PROJECT_ROOT", root).env("GIT_HTTP_EXPORT_ALL", "1");
    cgi.env("REQUEST_METHOD", method).env("PATH_INFO", path).env("QUERY_STRING", query);
    cgi.env("REMOTE_ADDR", "127.0.0.1").env("REMOTE_USER", "test").env("HOME", root);
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim().split_once(": ") else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().unwrap_or(0),
            "content-type" => drop(cgi.env("CONTENT_TYPE", value)),
            "content-encoding" => drop(cgi.env("HTTP_CONTENT_ENCODING", value)),
            "git-protocol" => drop(cgi.env("GIT_PROTOCOL", value)),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    cgi.env("CONTENT_LENGTH", length.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = cgi.spawn()?;
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output()?;
    let _ = feeder.join();
    let status = match output.stdout.strip_prefix(b"Status: ") {
        Some(rest) => {
            String::from_utf8_lossy(rest.split(|byte| *byte == b'\r').next().unwrap_or(rest)).into_owned()
        }
        None => "200 OK".to_owned(),
    };
    write!(stream, "HTTP/1.1 {status}\r\nConnection: close\r\n")?;
    stream.write_all(&output.stdout)
}
