//! How much memory there is.

use std::path::Path;

/// Returns the bytes of memory that this process may use: the machine's, or those of its control group, or of one above
/// that, if they are less.
pub(super) fn memory() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    of_machine().min(of_groups(Path::new("/sys/fs/cgroup"), &groups).unwrap_or(u64::MAX))
}

#[allow(clippy::useless_conversion, reason = "the kernel's word has 32 bits on some machines")]
fn of_machine() -> u64 {
    let info = rustix::system::sysinfo();
    u64::from(info.totalram).saturating_mul(u64::from(info.mem_unit.max(1)))
}

/// Returns the least that a process in `groups`, as `/proc/self/cgroup` tells of them, is allowed by control groups that
/// are mounted at `root` as usual; none if they allow everything.
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
        assert!(memory() > 1 << 20);
    }

    #[test]
    fn the_least_limit_on_the_way_to_a_service_holds() {
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
    fn the_memory_controller_of_version_1_holds_too() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("memory/service")).unwrap();
        std::fs::write(root.path().join("memory/service/memory.limit_in_bytes"), "700\n").unwrap();
        std::fs::write(root.path().join("memory/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!(of_groups(root.path(), "3:cpu:/service\n2:hugetlb,memory:/service\n"), Some(700));
        assert_eq!(of_groups(root.path(), "3:cpu:/service\n"), None);
    }
}
