"""Kinds of file systems, found without a request to the file system itself: a hanging one would hang its caller."""

import fcntl
from contextlib import suppress
from pathlib import Path

LOCAL = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "tmpfs", "xfs", "zfs")
)
"""File systems whose data is in memory or on a disk of this machine: reads and writes do not wait for anybody.

Others wait for a server (NFS), for a process of the client (FUSE), or for events (files of procfs such as kmsg).
"""
_MOUNTS = Path("/proc/self/mountinfo")


def file_system(descriptor: int) -> str:
    """Return the kind of file system of an open file; "" if it is not mounted where this process can see it."""
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_GET_SEALS)  # memfds are not mounted anywhere; only they and tmpfs have seals
        return "tmpfs"
    description = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    mount = next(line.split()[1] for line in description.splitlines() if line.startswith("mnt_id:"))
    for line in _MOUNTS.read_text(errors="replace").splitlines():
        number, _, rest = line.partition(" ")
        if number == mount:
            return rest.partition(" - ")[2].partition(" ")[0]
    return ""
