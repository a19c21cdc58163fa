//! Limits of the system that a gateway meets: raised where it may, told where it may not.

use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::units::Size;

/// Raises the limit of open files to what this process may have, and returns what is still small, as lines for the
/// operator.
pub fn raise_and_report() -> Vec<String> {
    raise_open_files();
    let buffers = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"].map(|name| (name, largest_buffer(name)));
    too_small(getrlimit(Resource::Nofile).current, &buffers)
}

/// Raises the limit of open files to what this process may have; each flow and lane is one.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Reads to how many bytes the kernel lets a TCP buffer grow; none if it does not say.
fn largest_buffer(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
    text.split_whitespace().nth(2)?.parse().ok()
}

fn too_small(open_files: Option<u64>, buffers: &[(&str, Option<u64>)]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(files) = open_files.filter(|files| *files < FILES) {
        lines.push(format!(
            "only {files} files may be open, about as many flows and lanes together; raise it with `ulimit -Hn` or \
             LimitNOFILE= of the service"
        ));
    }
    for (name, bytes) in buffers {
        if let Some(bytes) = bytes.filter(|bytes| *bytes < BUFFER) {
            lines.push(format!(
                "{name} lets a lane have at most {} under way, less than a long fat link holds; raise its third \
                 number, for example to {BUFFER}",
                Size(bytes)
            ));
        }
    }
    lines
}

/// Enough for all connections of one interception and the flows' far sides.
const FILES: u64 = 32 << 10;

/// What 100 Mbit/s and 300 ms have under way, and Linux's own least default for sending.
const BUFFER: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_enough_is_not_mentioned() {
        assert_eq!(too_small(Some(FILES), &[("a", Some(BUFFER)), ("b", None)]), Vec::<String>::new());
        assert_eq!(too_small(None, &[]), Vec::<String>::new());
    }

    #[test]
    fn what_is_small_is_named_with_a_way_out() {
        let lines = too_small(Some(1024), &[("net.ipv4.tcp_wmem", Some(212_992))]);
        assert!(lines[0].contains("1024 files") && lines[0].contains("LimitNOFILE"), "{lines:?}");
        assert!(lines[1].contains("net.ipv4.tcp_wmem") && lines[1].contains("208 KiB"), "{lines:?}");
    }

    #[test]
    fn the_kernel_says_how_far_buffers_grow() {
        assert!(largest_buffer("net.ipv4.tcp_rmem").is_some_and(|bytes| bytes > 0));
    }
}
