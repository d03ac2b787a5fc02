"""Number of CPUs that this process may use."""

import math
import os
import sys
from functools import cache
from pathlib import Path

_PROCESS_CGROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


@cache
def available_cpus() -> int:
    """Return the number of CPUs in the process's affinity mask, capped by the quota of its cgroup; at least 1.

    A container with a quota of 2 CPUs on a machine with 64 has 2. Quotas are rounded up. The number is read once. Other
    systems than Linux have neither, so there it is the number of CPUs of the machine.
    """
    if sys.platform != "linux":
        return os.cpu_count() or 1
    return math.ceil(min(len(os.sched_getaffinity(0)), *_cgroup_quotas()))


def _cgroup_quotas() -> list[float]:
    """Return the CPU quotas of the process's cgroup and of the cgroups above it; infinity is one of them."""
    quotas = [math.inf]
    try:
        lines = _PROCESS_CGROUPS.read_text().splitlines()
    except OSError:
        return quotas
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = _MOUNT / controllers  # cgroup v2 has one hierarchy without controllers in its name
        group = mount / path.lstrip("/")
        quotas += [_quota(folder) for folder in (group, *group.parents) if folder.is_relative_to(mount)]
    return quotas


def _quota(folder: Path) -> float:
    """Return the quota that the files of one cgroup set, in CPUs: cpu.max (v2) or cpu.cfs_quota_us (v1)."""
    try:
        if (file := folder / "cpu.max").exists():
            quota, period = file.read_text().split()
        else:
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf  # -1 is "no quota" in v1
    except (OSError, ValueError):  # no such file, or "max"
        return math.inf
