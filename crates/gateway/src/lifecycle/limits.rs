//! System limits of a gateway: raised if possible, else reported.

use std::fs;
use std::thread;

use oncewire_config::units::Size;
use oncewire_host::limits::RAISE;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Turns the file-size limit (`ulimit -f`, LimitFSIZE=) into a write error, where it would end the process.
pub fn outlive_file_size_limit() {
    oncewire_sys::signals::ignore_file_size_signal();
}

/// Whether the limits of this process leave room for so much `memory`.
///
/// # Errors
/// If they do not: a failed allocation would end the process. With the numbers and a remedy.
pub fn room_for(memory: u64) -> Result<(), String> {
    let limits = [(Resource::As, "ulimit -v", "LimitAS"), (Resource::Data, "ulimit -d", "LimitDATA")];
    let needed = needed_for(memory, mapped(), thread::available_parallelism().map_or(1, usize::from));
    limits.into_iter().try_for_each(|(resource, command, key)| {
        let limit = getrlimit(resource).current;
        limit.map_or(Ok(()), |limit| fits(memory, needed, limit, command, key))
    })
}

/// Returns the address space of a gateway with so much memory on so many CPUs.
fn needed_for(memory: u64, mapped: u64, processors: usize) -> u64 {
    let threads = processors as u64 + THREADS;
    // Requests' heads have a share of their own.
    mapped.saturating_add(memory).saturating_add(memory / 16).saturating_add(threads * STACK)
}

fn fits(memory: u64, needed: u64, limit: u64, command: &str, key: &str) -> Result<(), String> {
    if limit >= needed {
        return Ok(());
    }
    let [limit, memory] = [limit, memory].map(|bytes| Size(bytes).to_string());
    let needed = needed.div_ceil(MIB);
    Err(format!(
        "this process may have {limit} (`{command}`), and takes {needed} MiB with [cache] memory = \"{memory}\"; raise the \
         limit with `{command} {}` or {key}={needed}M of the service, or lower `memory`",
        needed * 1024
    ))
}

/// Reads the size of this process's mapped address space.
fn mapped() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default().saturating_mul(1024)
}

/// Raises the limit of open files to this process's maximum, and returns limits still small, as lines for the
/// operator.
pub fn raise_and_report() -> Vec<String> {
    raise_open_files();
    let buffers = ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"].map(|name| (name, largest_buffer(name)));
    too_small(getrlimit(Resource::Nofile).current, &buffers)
}

/// Raises the limit of open files to this process's maximum; each flow is one, and each lane two.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Reads the kernel's limit of a growing TCP buffer; none if it is unknown.
fn largest_buffer(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
    text.split_whitespace().nth(2)?.parse().ok()
}

fn too_small(open_files: Option<u64>, buffers: &[(&str, Option<u64>)]) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(files) = open_files.filter(|files| *files < FILES) {
        lines.push(format!(
            "only {files} files may be open, one for each flow and two for each lane; {RAISE}"
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

/// Threads beside one for each CPU: log, watchdog, disks, names.
const THREADS: u64 = 16;

/// The stack of a thread.
const STACK: u64 = 2 << 20;

const MIB: u64 = 1 << 20;

/// Enough for all connections of one interception and the flows' far sides.
const FILES: u64 = 32 << 10;

/// Bandwidth-delay product of 100 Mbit/s and 300 ms, and Linux's own least default for sending.
const BUFFER: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sufficient_limits_are_not_mentioned() {
        assert_eq!(too_small(Some(FILES), &[("a", Some(BUFFER)), ("b", None)]), Vec::<String>::new());
        assert_eq!(too_small(None, &[]), Vec::<String>::new());
    }

    #[test]
    fn too_small_memory_limit_is_reported_with_both_numbers() {
        let needed = needed_for(256 * MIB, 10 * MIB, 2);
        assert_eq!(needed, (256 + 16 + 10 + 36) * MIB);
        assert_eq!(fits(256 * MIB, needed, needed, "ulimit -v", "LimitAS"), Ok(()));
        let told = fits(256 * MIB, needed, 200 * MIB, "ulimit -v", "LimitAS").unwrap_err();
        assert!(told.contains("may have 200 MiB") && told.contains("takes 318 MiB"), "{told}");
        assert!(told.contains("\"256 MiB\"") && told.contains("LimitAS=318M"), "{told}");
        assert!(told.contains("ulimit -v 325632"), "{told}");
        assert!(mapped() > MIB);
    }

    #[test]
    fn small_limits_are_named_with_a_remedy() {
        let lines = too_small(Some(1024), &[("net.ipv4.tcp_wmem", Some(212_992))]);
        assert!(lines[0].contains("1024 files") && lines[0].contains("LimitNOFILE"), "{lines:?}");
        assert!(lines[1].contains("net.ipv4.tcp_wmem") && lines[1].contains("208 KiB"), "{lines:?}");
    }

    #[test]
    fn kernel_reports_the_limit_of_buffers() {
        assert!(largest_buffer("net.ipv4.tcp_rmem").is_some_and(|bytes| bytes > 0));
    }
}
