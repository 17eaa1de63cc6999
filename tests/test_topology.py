"""Usable cores and layouts on machines made of files: affinity, hyper-threads, quotas, and files that make no sense."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corenet.errors import ConfigError
from corenet.parallel import cgroup
from corenet.parallel.topology import Layout, bind, parse_cpu_list, plan_layout, usable_cpus

V2_MOUNT = "31 23 0:28 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw"


def machine(root: Path, files: dict[str, str]) -> Path:
    """A made-up `/` with these files."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def siblings(*groups: str) -> dict[str, str]:
    """Hyper-threads: siblings("0,4", "1,5") is two cores with two threads each."""
    return {
        f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": group
        for group in groups
        for cpu in parse_cpu_list(group)
    }


def v2(quotas: dict[str, str], own: str = "/") -> dict[str, str]:
    """cgroup version 2, this process in group `own`, and the cpu.max of some groups."""
    files = {"proc/self/cgroup": f"0::{own}", "proc/self/mountinfo": V2_MOUNT}
    return files | {f"sys/fs/cgroup{group}/cpu.max": text for group, text in quotas.items()}


def v1(quota: str, period: str = "100000") -> dict[str, str]:
    return {
        "proc/self/cgroup": "5:memory:/other\n4:cpuacct,cpu:/job\n0::/",
        "proc/self/mountinfo": "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct",
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": quota,
        "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": period,
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
    }


def test_affinity_alone_decides_on_a_machine_that_tells_nothing(tmp_path):
    assert usable_cpus(tmp_path, [3, 1, 2]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("groups", "affinity", "expected"),
    [
        (("0,4", "1,5", "2,6", "3,7"), range(8), [0, 1, 2, 3]),
        (("0-1", "2-3"), range(4), [0, 2]),
        (("0,4", "1,5", "2,6", "3,7"), [4, 5, 6], [4, 5, 6]),  # the first siblings are not ours
        (("0,4", "1,5", "2,6", "3,7"), [1, 4, 5], [1, 4]),
        (("0", "1"), [0, 1], [0, 1]),
        (("0-3",), range(4), [0]),  # four threads a core
    ],
)
def test_one_thread_of_each_core(tmp_path, groups, affinity, expected):
    assert usable_cpus(machine(tmp_path, siblings(*groups)), affinity) == expected


@pytest.mark.parametrize("text", ["", "rubbish", "0-", "-1", "0,,1", "3-x", "0\x00", "99999999999", "2-3", "0", "٣"])
def test_a_malformed_list_of_siblings_is_ignored(tmp_path, text):
    files = siblings("0", "1") | {"sys/devices/system/cpu/cpu1/topology/thread_siblings_list": text}
    assert usable_cpus(machine(tmp_path, files), [0, 1]) == [0, 1]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (v2({"/": "max 100000"}), 8),
        (v2({"/": "200000 100000"}), 2),
        (v2({"/": "350000 100000"}), 3),  # rounded down
        (v2({"/": "50000 100000"}), 1),  # but never to 0
        (v2({"/": "30000 10000"}), 3),
        (v2({"/job/step": "400000 100000", "/job": "200000 100000"}, own="/job/step"), 2),  # the tightest binds
        (v2({"/job/step": "max 100000", "/": "300000 100000"}, own="/job/step"), 3),
        (v2({"/neighbour": "100000 100000"}, own="/job"), 8),
        (v2({"/": "300000 100000"}, own="/../../elsewhere"), 3),  # outside this container's view
        (v1("200000"), 2),
        (v1("-1"), 8),
        (v1("75000", "25000"), 3),
        (v1("200000") | {"proc/self/mountinfo": V2_MOUNT}, 8),  # version 1's files, not mounted
        # A container that sees only its own part, under the host's name for it.
        (
            v2({"/": "max 100000", "/x": "200000 100000"}, own="/docker/abc/x")
            | {"proc/self/mountinfo": V2_MOUNT.replace(" / ", " /docker/abc ")},
            2,
        ),
    ],
)
def test_the_quota_of_the_container(tmp_path, files, expected):
    assert usable_cpus(machine(tmp_path, files), range(8)) == list(range(expected))


def test_both_versions_bind_where_both_are_mounted(tmp_path):
    both = v1("300000")
    both["proc/self/mountinfo"] += "\n" + V2_MOUNT.replace("/sys/fs/cgroup", "/sys/fs/cgroup/unified")
    both["sys/fs/cgroup/unified/cpu.max"] = "200000 100000"
    assert usable_cpus(machine(tmp_path, both), range(8)) == [0, 1]
    (tmp_path / "sys/fs/cgroup/unified/cpu.max").write_text("600000 100000")
    assert usable_cpus(tmp_path, range(8)) == [0, 1, 2]


@pytest.mark.parametrize("text", ["", "max", "200000", "-5 100000", "200000 0", "0 100000", "a b", "1e5 100000"])
def test_a_malformed_quota_is_ignored(tmp_path, text):
    assert usable_cpus(machine(tmp_path, v2({"/": text})), range(4)) == [0, 1, 2, 3]
    if " " in text:
        quota, period = text.split()
        assert usable_cpus(machine(tmp_path, v1(quota, period)), range(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["proc/self/cgroup", "proc/self/mountinfo"])
@pytest.mark.parametrize("text", ["", "rubbish", ":::", "0::", "a b c d e - f", "1 2 3 4 5 - cgroup2"])
def test_malformed_proc_files_are_ignored(tmp_path, name, text):
    files = v2({"/": "100000 100000"}) | {name: text}
    assert usable_cpus(machine(tmp_path, files), range(4)) == [0, 1, 2, 3]


@given(st.text(max_size=60))
def test_any_text_in_any_file_leaves_a_core(tmp_path_factory, text):
    root = tmp_path_factory.mktemp("any")
    for name in [*v2({"/": ""}), *v1(""), *siblings("0", "1")]:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert usable_cpus(root, [0, 1]) in ([0], [0, 1])
    assert parse_cpu_list(text) is not None


@given(st.sets(st.integers(0, 63), min_size=1), st.integers(1, 80))
def test_usable_cores_are_a_part_of_the_affinity(tmp_path_factory, affinity, quota):
    root = machine(tmp_path_factory.mktemp("m"), v2({"/": f"{quota * 1000} 1000"}))
    usable = usable_cpus(root, affinity)
    assert usable == sorted(affinity)[:quota]


def test_this_machine():
    usable = usable_cpus()
    assert usable and usable == sorted(set(usable))
    if hasattr(os, "sched_getaffinity"):
        assert set(usable) <= os.sched_getaffinity(0)


def test_a_system_without_affinity_counts_its_cores(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    monkeypatch.setattr("psutil.cpu_count", lambda logical: 3)
    assert usable_cpus(tmp_path) == [0, 1, 2]
    bind([0])  # nothing happens


def plan(tmp_path, *args, cores=4, **kwargs) -> Layout:
    return plan_layout(*args, root=tmp_path, affinity=range(cores), **kwargs)


def test_auto_takes_all_cores(tmp_path):
    assert plan(tmp_path, "auto", 1).cpus == ((0,), (1,), (2,), (3,))
    assert plan(tmp_path, "auto", 2).cpus == ((0, 1), (2, 3))
    assert plan(tmp_path, "auto", 3).cpus == ((0, 1, 2),)
    assert plan(tmp_path, "auto", 1, cores=1).cpus == ((0,),)


def test_the_reason_is_one_line_that_says_what_and_why(tmp_path):
    assert plan(tmp_path, 2, 1, cores=2).reason == (
        "2 workers x 1 thread on cores 0, 1 (2 usable: affinity 2, physical 2, cgroup quota none)"
    )
    root = machine(tmp_path, v2({"/": "150000 100000"}) | siblings("0,1", "2,3"))
    layout = plan_layout(2, 2, share_cores=True, root=root, affinity=range(4))
    assert layout.reason == (
        "2 workers x 2 threads sharing core 0 (1 usable: affinity 4, physical 2, cgroup quota 1.5)"
    )


def test_too_many_workers_are_refused_with_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match=r"at most 4.*got 3 x 2 = 6\. Use workers=2 or less.*--share-cores"):
        plan(tmp_path, 3, 2)
    with pytest.raises(ConfigError, match=r"got 1 x 5 = 5\. Use threads=4 or less"):
        plan(tmp_path, "auto", 5)


def test_shared_cores_are_dealt_in_turn(tmp_path):
    layout = plan(tmp_path, 3, 1, cores=2, share_cores=True)
    assert layout.cpus == ((0,), (1,), (0,))
    assert layout.shared
    assert plan(tmp_path, 2, 3, cores=4, share_cores=True).cpus == ((0, 1, 2), (0, 1, 3))
    assert plan(tmp_path, 1, 5, cores=2, share_cores=True).cpus == ((0, 1),)
    assert not plan(tmp_path, 2, 1, cores=2, share_cores=True).shared  # allowed, not needed


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 12))
def test_every_layout_gives_each_worker_cores(tmp_path_factory, workers, threads, cores):
    layout = plan(tmp_path_factory.getbasetemp(), workers, threads, cores=cores, share_cores=True)
    assert len(layout.cpus) == layout.workers == workers
    assert all(len(cpus) == min(threads, cores) for cpus in layout.cpus)
    used = [cpu for cpus in layout.cpus for cpu in cpus]
    counts = [used.count(cpu) for cpu in range(cores)]
    if workers * threads <= cores:
        assert max(counts) == 1 and not layout.shared
    elif threads <= cores:
        assert max(counts) - min(counts) <= 1  # evenly


@pytest.mark.parametrize("bad", [0, -1, True, False, 1.0, 2.5, "2", "all", "", None, [1]])
def test_numbers_of_workers_and_threads_are_checked(tmp_path, bad):
    with pytest.raises(ConfigError, match="workers: expected a whole number of at least 1 or"):
        plan(tmp_path, bad, 1)
    with pytest.raises(ConfigError, match="threads: expected a whole number of at least 1"):
        plan(tmp_path, 1, bad)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to cores")
def test_bind_moves_the_worker_and_ignores_a_core_that_went_away():
    before = os.sched_getaffinity(0)
    code = """
import os
from corenet.parallel.topology import bind, usable_cpus
mine = usable_cpus()[-1]
bind([mine, 4000]);  assert os.sched_getaffinity(0) == {mine}
bind([4000]);        assert os.sched_getaffinity(0) == {mine}
bind([]);            assert os.sched_getaffinity(0) == {mine}
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    assert os.sched_getaffinity(0) == before


def memory(tmp_path, files: dict[str, str]) -> int | None:
    return cgroup.memory_free(machine(tmp_path, files))


def test_free_memory_of_a_version_2_container(tmp_path):
    group = {"proc/self/cgroup": "0::/job", "proc/self/mountinfo": V2_MOUNT}
    own = "sys/fs/cgroup/job/memory"
    assert memory(tmp_path, group) is None
    assert memory(tmp_path, group | {f"{own}.max": "max", f"{own}.current": "10"}) is None
    assert memory(tmp_path, group | {f"{own}.max": "1000", f"{own}.current": "400"}) == 600
    stat = "anon 100\ninactive_file 250\nactive_file 50"  # file cache that the kernel can drop
    assert memory(tmp_path, group | {f"{own}.stat": stat}) == 850
    above = {"sys/fs/cgroup/memory.max": "500", "sys/fs/cgroup/memory.current": "450"}
    assert memory(tmp_path, group | above) == 50
    assert memory(tmp_path, group | {f"{own}.current": "2000"}) == 0  # over its limit: none, not less


def test_free_memory_of_a_version_1_container(tmp_path):
    files = {
        "proc/self/cgroup": "4:memory:/job",
        "proc/self/mountinfo": "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        "sys/fs/cgroup/memory/job/memory.limit_in_bytes": "1000",
        "sys/fs/cgroup/memory/job/memory.usage_in_bytes": "700",
        "sys/fs/cgroup/memory/job/memory.stat": "cache 5\ninactive_file 7\ntotal_inactive_file 100",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "900",
    }
    assert memory(tmp_path, files) == 400
