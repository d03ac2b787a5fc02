"""What a process holds: memory, descriptors, threads; for counting leaks."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Holdings:
    """Counted from /proc."""

    descriptors: int
    threads: int

    @staticmethod
    def of(pid: int) -> "Holdings":
        """What a process holds now."""
        root = Path(f"/proc/{pid}")
        return Holdings(len(list((root / "fd").iterdir())), len(list((root / "task").iterdir())))


def memory(pid: int, key: str) -> int:
    """A figure of /proc/PID/status in bytes: VmRSS (now) or VmHWM (the peak)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)
