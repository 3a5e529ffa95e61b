//! Facts of the host a run was made on.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use crate::memory::Memory;
use crate::root::{ProcRoot, optional_number, optional_text};

/// What two runs must share to be comparable; absent where the host does not say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    pub name: Option<String>,
    pub kernel: Option<String>,
    pub cpu_model: Option<String>,
    /// CPUs the kernel runs on.
    pub cpus_online: Option<u64>,
    /// CPUs this process may use (affinity); fewer when it is pinned.
    pub cpus_allowed: Option<u64>,
    /// CPUs' worth of time the control group allows.
    pub cpu_quota: Option<f64>,
    pub cpu_governor: Option<String>,
    pub memory_bytes: Option<u64>,
    pub memory_limit_bytes: Option<u64>,
    pub swap_bytes: Option<u64>,
    /// Changes with every boot: two processes with the same one share a monotonic clock, if the time namespace is the
    /// same too.
    pub boot_id: Option<String>,
    pub time_namespace: Option<String>,
    pub clock_source: Option<String>,
    /// What hints at a virtual machine: the hypervisor's name, or `hypervisor` when only the CPU flag tells.
    pub virtualisation: Option<String>,
    /// What hints at a container: the engine, from the control group's path.
    pub container: Option<String>,
    /// Settings of the page cache, by their names below /proc/sys/vm.
    pub vm_settings: BTreeMap<String, u64>,
}

/// Where "dirty" becomes "written": they decide how much of a short run ever reaches the disk.
const VM_SETTINGS: [&str; 7] = [
    "dirty_ratio",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_background_bytes",
    "dirty_expire_centisecs",
    "dirty_writeback_centisecs",
    "swappiness",
];

pub fn host_facts(root: &ProcRoot) -> HostFacts {
    let cpuinfo = root.proc_optional("cpuinfo").unwrap_or_default();
    let memory = Memory::read(root).unwrap_or_default();
    let sys_text = |path: &str| optional_text(&root.sys.join(path));
    let online = sys_text("devices/system/cpu/online").and_then(|list| count_list(&list));
    HostFacts {
        name: root.proc_optional("sys/kernel/hostname"),
        kernel: root.proc_optional("sys/kernel/osrelease"),
        // ARM kernels give numbers instead of a name; those say little, so the field stays blank there.
        cpu_model: cpu_line(&cpuinfo, "model name").map(str::to_owned),
        cpus_online: online.or_else(|| Some(count_processors(&cpuinfo)).filter(|&count| count > 0)),
        cpus_allowed: allowed_cpus(root),
        cpu_quota: cpu_quota(root),
        cpu_governor: sys_text("devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        memory_bytes: memory.total_bytes,
        memory_limit_bytes: memory_limit(root),
        swap_bytes: memory.swap_total_bytes,
        boot_id: root.proc_optional("sys/kernel/random/boot_id"),
        time_namespace: time_namespace(root),
        clock_source: sys_text("devices/system/clocksource/clocksource0/current_clocksource"),
        virtualisation: virtualisation(root, &cpuinfo),
        container: container(root),
        vm_settings: vm_settings(root),
    }
}

fn cpu_line<'a>(cpuinfo: &'a str, key: &str) -> Option<&'a str> {
    let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
}

fn count_processors(cpuinfo: &str) -> u64 {
    cpuinfo.lines().filter(|line| line.split(':').next().is_some_and(|key| key.trim() == "processor")).count() as u64
}

/// `0-3,8` -> 5.
fn count_list(list: &str) -> Option<u64> {
    let count = |part: &str| match part.split_once('-') {
        Some((first, last)) => last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1),
        None => part.parse::<u64>().ok().map(|_| 1),
    };
    list.split(',').map(|part| count(part.trim())).sum()
}

fn allowed_cpus(root: &ProcRoot) -> Option<u64> {
    let status = root.proc_optional("self/status")?;
    count_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim())
}

fn time_namespace(root: &ProcRoot) -> Option<String> {
    fs::read_link(root.proc.join("self/ns/time")).ok()?.to_str().map(str::to_owned)
}

/// The value of a control-group file, version 2 or 1 (`controller` folder). A container without a group namespace sees
/// its path of the host but its own group mounted at the top, so the top is tried too.
fn group_file(root: &ProcRoot, controller: &str, v2: &str, v1: &str) -> Option<(bool, String)> {
    let groups = root.proc_optional("self/cgroup")?;
    let base = root.sys.join("fs/cgroup");
    let mut unified = groups.lines().filter_map(|line| line.strip_prefix("0::"));
    let mut named = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    });
    let read = |folder: std::path::PathBuf, path: &str, file: &str| {
        let own = folder.join(path.trim_start_matches('/')).join(file);
        optional_text(&own).or_else(|| optional_text(&folder.join(file)))
    };
    let second = unified.next().and_then(|path| read(base.clone(), path, v2)).map(|text| (true, text));
    second.or_else(|| named.next().and_then(|path| read(base.join(controller), path, v1)).map(|text| (false, text)))
}

fn cpu_quota(root: &ProcRoot) -> Option<f64> {
    let (unified, text) = group_file(root, "cpu", "cpu.max", "cpu.cfs_quota_us")?;
    let (quota, period) = if unified {
        let (quota, period) = text.split_once(' ')?;
        (quota.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
    } else {
        let (_, period) = group_file(root, "cpu", "cpu.max", "cpu.cfs_period_us")?;
        (text.parse::<f64>().ok()?, period.parse::<f64>().ok()?)
    };
    // -1 (version 1) and `max` (version 2, not a number) mean no limit.
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn memory_limit(root: &ProcRoot) -> Option<u64> {
    let (_, text) = group_file(root, "memory", "memory.max", "memory.limit_in_bytes")?;
    // Version 1 writes "no limit" as the largest multiple of a page below 2^63.
    text.parse::<u64>().ok().filter(|&bytes| bytes < 1 << 60)
}

fn virtualisation(root: &ProcRoot, cpuinfo: &str) -> Option<String> {
    if let Some(kind) = optional_text(&root.sys.join("hypervisor/type")) {
        return Some(kind);
    }
    let flagged = cpu_line(cpuinfo, "flags")?.split(' ').any(|flag| flag == "hypervisor");
    let maker = ["sys_vendor", "product_name"].map(|file| optional_text(&root.sys.join("class/dmi/id").join(file)));
    let maker: Vec<String> = maker.into_iter().flatten().collect();
    // Without the flag this is real hardware, and the maker's name would be no hint.
    flagged.then(|| if maker.is_empty() { "hypervisor".to_owned() } else { maker.join(" ") })
}

fn container(root: &ProcRoot) -> Option<String> {
    let groups = root.proc_optional("1/cgroup").or_else(|| root.proc_optional("self/cgroup"))?;
    let engines = ["kubepods", "docker", "containerd", "libpod", "crio", "lxc"];
    engines.iter().find(|engine| groups.contains(*engine)).map(|engine| (*engine).to_owned())
}

fn vm_settings(root: &ProcRoot) -> BTreeMap<String, u64> {
    let folder = root.proc.join("sys/vm");
    let read = VM_SETTINGS.iter().map(|&name| (name, optional_number(&folder.join(name))));
    read.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::{count_list, host_facts};
    use crate::root::ProcRoot;
    use crate::root::fixture::Fixture;

    fn machine() -> Fixture {
        let fixture = Fixture::new();
        fixture
            .file("proc/sys/kernel/hostname", "node-7\n")
            .file("proc/sys/kernel/osrelease", "6.1.0-25-amd64\n")
            .file("proc/sys/kernel/random/boot_id", "0d9a8a3e-0000-4000-8000-000000000001\n")
            .file(
                "proc/cpuinfo",
                "processor\t: 0\nmodel name\t: Fast CPU @ 2 GHz\nflags\t\t: fpu hypervisor\n\nprocessor\t: 1\n",
            )
            .file("proc/meminfo", "MemTotal: 2048 kB\nSwapTotal: 1024 kB\n")
            .file("proc/self/status", "Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t0-3,8\n")
            .file("proc/sys/vm/dirty_ratio", "20\n")
            .file("proc/sys/vm/dirty_bytes", "0\n");
        fixture
    }

    #[test]
    fn a_host_is_described_by_its_own_words() {
        let fixture = machine();
        fixture.file("sys/class/dmi/id/sys_vendor", "QEMU\n").file("proc/self/ns/mnt", "");
        symlink("time:[4026531834]", fixture.root.proc.join("self/ns/time")).unwrap();
        let facts = host_facts(&fixture.root);
        assert_eq!((facts.name.as_deref(), facts.kernel.as_deref()), (Some("node-7"), Some("6.1.0-25-amd64")));
        assert_eq!(facts.cpu_model.as_deref(), Some("Fast CPU @ 2 GHz"));
        assert_eq!((facts.cpus_online, facts.cpus_allowed), (Some(2), Some(5)));
        assert_eq!((facts.memory_bytes, facts.swap_bytes), (Some(2 << 20), Some(1 << 20)));
        assert_eq!(facts.boot_id.as_deref(), Some("0d9a8a3e-0000-4000-8000-000000000001"));
        assert_eq!(facts.time_namespace.as_deref(), Some("time:[4026531834]"));
        assert_eq!(facts.virtualisation.as_deref(), Some("QEMU"));
        assert_eq!((facts.vm_settings["dirty_ratio"], facts.vm_settings["dirty_bytes"]), (20, 0));
        assert_eq!((facts.vm_settings.len(), facts.container, facts.cpu_quota), (2, None, None));
    }

    #[test]
    fn limits_are_found_in_both_versions_of_control_groups() {
        let second = machine();
        second.file("proc/self/cgroup", "0::/system.slice/docker-1.scope\n");
        second.file("sys/fs/cgroup/system.slice/docker-1.scope/cpu.max", "150000 100000\n");
        second.file("sys/fs/cgroup/system.slice/docker-1.scope/memory.max", "max\n");
        let facts = host_facts(&second.root);
        assert_eq!((facts.cpu_quota, facts.memory_limit_bytes), (Some(1.5), None));
        assert_eq!(facts.container.as_deref(), Some("docker"));

        let first = machine();
        first.file("proc/self/cgroup", "4:memory:/docker/1\n1:cpu,cpuacct:/docker/1\n0::/\n");
        first
            .file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n")
            .file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
        first.file("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "1073741824\n");
        let facts = host_facts(&first.root);
        assert_eq!((facts.cpu_quota, facts.memory_limit_bytes), (Some(0.5), Some(1 << 30)));
        first.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
        first.file("sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "9223372036854771712\n");
        let facts = host_facts(&first.root);
        assert_eq!((facts.cpu_quota, facts.memory_limit_bytes), (None, None));
    }

    #[test]
    fn an_empty_host_has_blanks_and_real_hardware_no_hypervisor() {
        assert_eq!(host_facts(&Fixture::new().root), super::HostFacts::default());
        let fixture = machine();
        fixture.file("proc/cpuinfo", "processor: 0\nflags: fpu\n").file("sys/class/dmi/id/sys_vendor", "ACME\n");
        assert_eq!(host_facts(&fixture.root).virtualisation, None);
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count_list("0"), Some(1));
        assert_eq!(count_list("0-3,8,10-11"), Some(7));
        assert_eq!((count_list(""), count_list("3-1"), count_list("a")), (None, None, None));
    }

    #[test]
    fn this_host_says_what_a_clock_check_needs() {
        let facts = host_facts(&ProcRoot::default());
        assert_eq!(facts.boot_id.as_deref().map(str::len), Some(36));
        assert!(facts.cpus_online >= facts.cpus_allowed.min(Some(1)), "{facts:?}");
        assert!(facts.memory_bytes > Some(1 << 20) && facts.kernel.is_some(), "{facts:?}");
    }
}
