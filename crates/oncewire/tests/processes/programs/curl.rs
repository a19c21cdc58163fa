//! curl and nginx: downloads, uploads and keep-alive through every mode.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Service, command, missing, run};
use crate::common::clients::reset;
use crate::common::data;
use crate::common::origin::Origin;
use crate::common::pair::Options;
use crate::common::wait::{LIMIT, eventually, free_address};
use crate::pair;

#[test]
fn curl_downloads_and_uploads_through_forward() {
    let Some(web) = Web::start() else { return };
    let pair = pair(&Options::to(web.address));
    web.exercise(pair.forward(), &[]);
}

#[test]
fn curl_downloads_and_uploads_through_socks5() {
    let Some(web) = Web::start() else { return };
    let pair = pair(&Options::default());
    web.exercise(web.address, &["--socks5-hostname", &pair.socks.to_string()]);
    web.exercise(web.address, &["--socks5", &pair.socks.to_string()]);
}

#[test]
fn curl_downloads_and_uploads_through_the_http_proxy() {
    let Some(web) = Web::start() else { return };
    let pair = pair(&Options::default());
    let proxy = format!("http://{}", pair.http);
    web.exercise(web.address, &["--proxy", &proxy]);
    web.exercise(web.address, &["--proxy", &proxy, "--proxytunnel"]);
}

#[test]
fn nginx_learns_its_clients_address() {
    let Some(web) = Web::start() else { return };
    let options = Options { forward_keys: "proxy_protocol = \"v2\"\n".into(), ..Options::to(web.told) };
    let pair = pair(&options);
    let mut curl = command("curl");
    curl.args(["-sS", "--fail", "--interface", "127.0.0.9", "-w", " %{local_ip}:%{local_port}"]);
    let answer = run(curl.arg(format!("http://{}/who", pair.forward())));
    let (told, real) = answer.split_once(' ').unwrap();
    assert!(told.starts_with("127.0.0.9:"), "{answer}");
    assert_eq!(told, real);
    web.exercise(pair.forward(), &[]);
}

#[test]
fn http_proxy_passes_on_the_origins_responses() {
    let Some(web) = Web::start() else { return };
    let pair = pair(&Options::default());
    let proxy = format!("http://{}", pair.http);
    let code = |arguments: &[&str], path: &str| {
        let mut curl = command("curl");
        curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "--proxy", &proxy]).args(arguments);
        run(curl.arg(format!("http://{}{path}", web.address)))
    };
    assert_eq!(code(&[], "/missing"), "404");
    assert_eq!(code(&["--head"], "/text"), "200");
    assert_eq!(code(&["--range", "100-199"], "/text"), "206");
    assert_eq!(code(&["--http1.0"], "/text"), "200");
    assert_eq!(code(&["-H", "Expect: 100-continue", "-d", "x=1"], "/text"), "405");
}

#[test]
fn curl_sends_an_expected_body_only_on_consent() {
    if missing(&["curl"]) {
        return;
    }
    let (took, taken) = std::sync::mpsc::channel();
    let origin = Origin::start(move |mut stream| {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0) {
            head.extend_from_slice(&byte);
        }
        let wants = head.starts_with(b"PUT /wanted");
        let word: &[u8] = if wants { b"HTTP/1.1 100 Continue\r\n\r\n" } else { b"" };
        let answer = if wants { "200 OK" } else { "413 Content Too Large" };
        let _ = stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n");
        let _ = stream.write_all(word);
        let mut body = vec![0; if wants { 100_000 } else { 0 }];
        let _ = stream.read_exact(&mut body);
        let _ = stream.write_all(format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").as_bytes());
        // Bytes up to the other side's end.
        let _ = stream.read_to_end(&mut body);
        let _ = took.send(body);
    });
    let dir = tempfile::tempdir().unwrap();
    let (sent, pair) = (data::text(82, 100_000), pair(&Options::default()));
    std::fs::write(dir.path().join("sent"), &sent).unwrap();
    let put = |path: &str| {
        let mut curl = command("curl");
        // Longer than any test takes: it is not to go on by itself.
        curl.args(["-sS", "-D", "-", "-H", "Expect: 100-continue", "--expect100-timeout", "600"]);
        curl.arg("--proxy").arg(format!("http://{}", pair.http)).arg("-T").arg(dir.path().join("sent"));
        run(curl.arg(format!("http://{}/{path}", origin.address())))
    };
    let heads = put("wanted");
    // Of two together, the 100 may overtake.
    assert!(heads.contains("HTTP/1.1 103 Early Hints"), "{heads}");
    assert!(heads.contains("link: </style.css>; rel=preload"), "{heads}");
    assert!(heads.contains("HTTP/1.1 100 Continue") && heads.contains("HTTP/1.1 200 OK"), "{heads}");
    assert!(taken.recv().unwrap() == sent);
    let heads = put("unwanted");
    assert!(heads.contains("HTTP/1.1 413 ") && !heads.contains("100 Continue"), "{heads}");
    assert_eq!(taken.recv().unwrap(), b"");
}

#[test]
fn download_broken_off_by_the_origin_fails_at_the_client() {
    if missing(&["curl"]) {
        return;
    }
    // No length and no chunks: only the kind of the connection's end tells a whole answer from a cut one.
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let arriving = out.clone();
    let origin = Origin::start(move |mut stream| {
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        let _ = stream.write_all(&data::text(80, 100_000));
        let some = || std::fs::metadata(&arriving).is_ok_and(|file| file.len() > 0).then_some(());
        eventually("curl gets a part", LIMIT, some);
        reset(stream);
    });
    let pair = pair(&Options::to(origin.address()));
    for arguments in [
        vec![format!("http://{}/", pair.forward())],
        vec!["--proxy".into(), format!("http://{}", pair.http), format!("http://{}/", origin.address())],
    ] {
        let _ = std::fs::remove_file(&out);
        let mut curl = command("curl");
        let ended = curl.args(["-sS", "--no-buffer", "-o"]).arg(&out).args(&arguments).output().unwrap();
        assert!(!ended.status.success(), "curl {arguments:?} took a cut answer for a whole one");
    }
}

/// nginx with files to fetch and a place to put some.
struct Web {
    address: SocketAddr,
    /// The address for connections with the client in PROXY protocol.
    told: SocketAddr,
    dir: TempDir,
    _nginx: Service,
}

impl Web {
    fn start() -> Option<Self> {
        if missing(&["nginx", "curl"]) {
            return None;
        }
        let (dir, address, told) = (tempfile::tempdir().unwrap(), free_address(), free_address());
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("www/up")).unwrap();
        std::fs::write(at("www/text"), data::text(81, 3_000_000)).unwrap();
        std::fs::write(at("www/noise"), data::random(82, 2_000_000)).unwrap();
        std::fs::write(at("nginx.conf"), nginx_config(dir.path(), address, told)).unwrap();
        let mut nginx = command("nginx");
        nginx.arg("-p").arg(dir.path()).arg("-e").arg(at("error.log")).arg("-c").arg(at("nginx.conf"));
        let service = Service::start(&mut nginx, address, &at("nginx.out"), Signal::TERM);
        Some(Self { address, told, dir, _nginx: service })
    }

    /// Fetches two files over one connection, each twice, and uploads one with a length and one in chunks.
    fn exercise(&self, address: SocketAddr, arguments: &[&str]) {
        let at = |name: &str| self.dir.path().join(name);
        let mut curl = command("curl");
        curl.args(["-sS", "--fail", "-w", "%{num_connects}\n"]).args(arguments);
        for (index, name) in ["text", "noise", "text", "noise"].iter().enumerate() {
            curl.arg("-o").arg(at(&format!("got{index}"))).arg(format!("http://{address}/{name}"));
        }
        // The first request connects, the others ride on it.
        assert_eq!(run(&mut curl), "1\n0\n0\n0\n", "{arguments:?}");
        for (index, name) in ["text", "noise", "text", "noise"].iter().enumerate() {
            same_files(&at(&format!("got{index}")), &at("www").join(name));
        }
        for header in ["Expect:", "Transfer-Encoding: chunked"] {
            let target = at("www/up/file");
            let _ = std::fs::remove_file(&target);
            let mut curl = command("curl");
            curl.args(["-sS", "--fail", "-H", header]).args(arguments).arg("-T").arg(at("www/noise"));
            run(curl.arg(format!("http://{address}/up/file")));
            same_files(&target, &at("www/noise"));
        }
    }
}

fn same_files(got: &Path, expected: &Path) {
    let name = got.display().to_string();
    data::assert_same(&std::fs::read(got).unwrap(), &std::fs::read(expected).unwrap(), &name);
}

fn nginx_config(dir: &Path, address: SocketAddr, told: SocketAddr) -> String {
    let dir = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {dir}/{kind};\n"))
        .concat();
    format!(
        "daemon off; master_process off; pid {dir}/nginx.pid; error_log {dir}/error.log;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n{temporary}access_log off; client_max_body_size 100m;\n\
         server {{ listen {address}; listen {told} proxy_protocol; root {dir}/www;\n\
         location /up/ {{ dav_methods PUT; }}\n\
         location /who {{ return 200 $proxy_protocol_addr:$proxy_protocol_port; }} }}\n}}\n"
    )
}
