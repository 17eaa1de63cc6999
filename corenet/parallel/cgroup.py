"""What a container may use: Linux control groups, in both versions.

    /proc/self/cgroup       which group this process is in       0::/job/step           (version 2)
                                                                 4:memory:/job          (version 1, one per controller)
    /proc/self/mountinfo    where that hierarchy is mounted      /sys/fs/cgroup

A limit set on any group from the process's own up to the root binds it, so all of them are read. Files that are
missing or make no sense set no limit. `root` stands for `/`; tests pass a made-up tree.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

V2 = ""  # the name of version 2's single hierarchy, where version 1 has one per controller


def read(path: Path) -> str:
    """A file's text without its line end, or "" if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def groups(controller: str, root: Path) -> Iterator[Path]:
    """The folders of the groups this process is in, from its own up to the root of that hierarchy."""
    group, mount = _own_group(controller, root), _mount(controller, root)
    if group is None or mount is None:
        return
    mounted, folder = mount
    # In a container only a part of the hierarchy may be mounted, and the group may bear the host's name for it.
    inside = group.relative_to(mounted) if group.is_relative_to(mounted) else PurePosixPath()
    yield folder / inside
    for parent in inside.parents:
        yield folder / parent


def _own_group(controller: str, root: Path) -> PurePosixPath | None:
    for line in read(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")  # 4:cpu,cpuacct:/job/step
        controllers, _, group = rest.partition(":")
        if controller in controllers.split(",") and group.startswith("/"):
            return PurePosixPath(group)
    return None


def _mount(controller: str, root: Path) -> tuple[str, Path] | None:
    """(the group that is mounted, where) of that controller's hierarchy."""
    for line in read(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")  # 31 23 0:28 /group /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == ("cgroup2" if controller == V2 else "cgroup") and controller in ["", *kind[2].split(",")]:
            return fields[3], root / fields[4].lstrip("/")
    return None


def _number(text: str) -> int | None:
    """A non-negative whole number, or None: "max", "-1" (version 1's word for it) and rubbish are no limit."""
    return int(text) if text.isascii() and text.isdigit() else None


def cpu_quota(root: Path) -> float | None:
    """How many cores' worth of time this process may use, or None if nothing limits it."""
    quotas = []
    for group in groups(V2, root):
        quotas.append(read(group / "cpu.max").split()[:2])
    for group in groups("cpu", root):
        quotas.append([read(group / "cpu.cfs_quota_us"), read(group / "cpu.cfs_period_us")])
    limits = []
    for pair in quotas:
        quota, period = (_number(text) for text in pair) if len(pair) == 2 else (None, None)
        if quota and period:
            limits.append(quota / period)
    return min(limits, default=None)


def memory_free(root: Path) -> int | None:
    """Bytes that this process may still use, or None if nothing limits it.

    The cache of files not used lately counts as free: the kernel drops it when memory is asked for.
    """
    free = []
    for controller, limit_file, usage_file, cache in (
        (V2, "memory.max", "memory.current", "inactive_file"),
        ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        for group in groups(controller, root):
            limit, usage = _number(read(group / limit_file)), _number(read(group / usage_file))
            if limit is None or usage is None:
                continue
            stat = dict(line.split(" ", 1) for line in read(group / "memory.stat").splitlines() if " " in line)
            free.append(max(0, limit - max(0, usage - (_number(stat.get(cache, "")) or 0))))
    return min(free, default=None)
