//! How much memory there is.

use std::path::Path;

/// The memory limit of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// How many bytes.
    pub(super) bytes: u64,
    /// Whether the limit is that of its control group, or of one above; else it is the machine's.
    is_of_group: bool,
}

impl Memory {
    /// Returns the owner of the limit.
    pub(super) fn owner(self) -> &'static str {
        if self.is_of_group { "this container or unit (its control group's limit)" } else { "this machine" }
    }

    fn least(machine: u64, groups: Option<u64>) -> Self {
        match groups {
            Some(bytes) if bytes < machine => Self { bytes, is_of_group: true },
            _ => Self { bytes: machine, is_of_group: false },
        }
    }
}

/// Returns the memory limit of this process: the machine's memory, or the limit of its control group or of
/// one above, if less.
pub(super) fn memory() -> Memory {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Memory::least(of_machine(), of_groups(Path::new("/sys/fs/cgroup"), &groups))
}

#[allow(clippy::useless_conversion, reason = "the kernel's word has 32 bits on some machines")]
fn of_machine() -> u64 {
    let info = rustix::system::sysinfo();
    u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit.max(1)))
}

/// Returns the smallest memory limit on the path of `groups`, given as in `/proc/self/cgroup`, with control
/// groups mounted at `root` as usual; none if there is no limit.
fn of_groups(root: &Path, groups: &str) -> Option<u64> {
    let limits = |line: &str| {
        let (controllers, own) = line.split_once(':')?.1.split_once(':')?;
        let (mounted, file) = match controllers {
            "" => ("", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => ("memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        let limit = |group: &Path| -> Option<u64> {
            let path = root.join(mounted).join(group).join(file);
            std::fs::read_to_string(path).ok()?.trim().parse().ok()
        };
        Path::new(own.trim_start_matches('/')).ancestors().filter_map(limit).min()
    };
    groups.lines().filter_map(limits).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_some_memory() {
        assert!(memory().bytes > 1 << 20);
    }

    #[test]
    fn limit_below_the_machine_names_the_container() {
        let limited = Memory::least(4 << 30, Some(1 << 30));
        assert_eq!(limited.bytes, 1 << 30);
        assert!(limited.owner().contains("container"), "{}", limited.owner());
        for groups in [None, Some(u64::MAX)] {
            assert_eq!(Memory::least(4 << 30, groups).owner(), "this machine");
        }
    }

    #[test]
    fn smallest_limit_on_the_path_to_a_service_holds() {
        let root = tempfile::tempdir().unwrap();
        let service = root.path().join("system.slice/oncewire.service");
        std::fs::create_dir_all(&service).unwrap();
        let own = "1:name=systemd:/elsewhere\n0::/system.slice/oncewire.service\n";
        assert_eq!(of_groups(root.path(), own), None);
        std::fs::write(service.join("memory.max"), "max\n").unwrap();
        assert_eq!(of_groups(root.path(), own), None);
        std::fs::write(root.path().join("system.slice/memory.max"), "2000\n").unwrap();
        assert_eq!(of_groups(root.path(), own), Some(2000));
        std::fs::write(service.join("memory.max"), "1000\n").unwrap();
        assert_eq!(of_groups(root.path(), own), Some(1000));
        // As a container sees its own.
        std::fs::write(root.path().join("memory.max"), "500\n").unwrap();
        assert_eq!(of_groups(root.path(), "0::/\n"), Some(500));
    }

    #[test]
    fn memory_controller_of_version_1_holds_too() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("memory/service")).unwrap();
        std::fs::write(root.path().join("memory/service/memory.limit_in_bytes"), "700\n").unwrap();
        std::fs::write(root.path().join("memory/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!(of_groups(root.path(), "3:cpu:/service\n2:hugetlb,memory:/service\n"), Some(700));
        assert_eq!(of_groups(root.path(), "3:cpu:/service\n"), None);
    }
}
