"""How fast a device is: ratios to CpuRef, measured by small fixed workloads, and kept so that they never change.

Clients drop a device whose description changes. So the figures of a set of backends are measured once for each machine
and version, at the first question, and written to a file; every later process, and every device with the same backends,
takes them from there. A file that cannot be used is measured anew and replaced.
"""

import contextlib
import errno
import fcntl
import json
import logging
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile

from driver.backends.api import Backend, CompileOptions
from driver.backends.reference.backend import CpuRef
from driver.cancellation import Cancellation
from driver.compilation import place_and_compile
from driver.deadline import NO_DEADLINE
from driver.graph import Graph, forget, graphs
from driver.placement import DRIVER
from driver.plan import Plan, Progress
from driver.workloads import TYPES, WORKLOADS, inputs
from nnhal.types import (
    DEFAULT_LOOP_TIMEOUT_NS,
    Capabilities,
    ExecutionPreference,
    Model,
    OperandPerformance,
    PerformanceInfo,
    Placement,
)

Figures = Mapping[str, PerformanceInfo | None]
"""By group of `driver.workloads`; None: no backend runs the workload."""

FLT_MAX = 3.4028234663852886e38
"""The HAL's figure for what a device does not do (hal-surface 5.7)."""

_ROUNDS, _FEWEST_ROUNDS = 12, 4
_LONGEST_S = 0.05
"""For the rounds of one workload: ten of them stay below a second together."""
_FILE_BYTES = 65_536

_log = logging.getLogger(__name__)


class Performance:
    """The figures of devices. Thread safe; made once for each process and shared by its devices.

    Args:
        folder: where figures are kept; made when it is needed. Without one they last as long as this object.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._known: dict[str, Figures] = {}

    def capabilities(self, backends: Sequence[Backend], version: str) -> Capabilities:
        """The figures of a device; the first call for a set of backends may take a second.

        Args:
            version: of the driver and of all backends; figures of another one do not count.
        """
        key = {
            "machine": _processor(),
            "version": version,
            "engines": " ".join(backend.fingerprint() for backend in backends),
        }
        name = f"performance-{sha256(json.dumps(key).encode()).hexdigest()[:16]}"
        with self._lock:
            if name not in self._known:
                self._known[name] = self._find(name, key, backends)
            return _capabilities(self._known[name])

    def _find(self, name: str, key: Mapping[str, str], backends: Sequence[Backend]) -> Figures:
        """The figures that are kept; else those of a measurement, which are kept from then on."""
        if self._folder is None:
            return measure(backends)
        path = self._folder / f"{name}.json"
        figures = None
        try:
            with _locked(self._folder / f"{name}.lock"):
                figures = _read(path, key)
                if figures is None:
                    figures = measure(backends)
                    _write(path, key, figures)
        except OSError as error:
            _log.warning("performance figures cannot be kept in %s: %s; the next start measures again", path, error)
        return measure(backends) if figures is None else figures


def measure(backends: Sequence[Backend]) -> Figures:
    """Runs every workload on the backends and on CpuRef in turn.

    The time figure is the ratio of the shortest runs. Power cannot be measured: it is the same ratio, times what the
    backend says that it draws in comparison with the time it takes.
    """
    return {group: _measure(group, make(), backends) for group, make in WORKLOADS.items()}


def _measure(group: str, model: Model, backends: Sequence[Backend]) -> PerformanceInfo | None:
    parts = graphs(model)
    try:
        placement, plan = _prepared(parts, backends, model)
        users = _users(placement, backends)
        if {backend.id for backend in users} <= {CpuRef.id}:
            return PerformanceInfo(1.0, 1.0)
        _, reference = _prepared(parts, [CpuRef()], model)
        ratio = _ratio(lambda: _run(plan, model), lambda: _run(reference, model))
    except Exception as error:
        _log.info("no performance figure for %s: %s", group, error)
        return None
    finally:
        forget(parts)
    stated = users[0].performance()
    return PerformanceInfo(_rounded(ratio), _rounded(ratio * stated.power_usage / stated.exec_time))


def _prepared(parts: Sequence[Graph], backends: Sequence[Backend], model: Model) -> tuple[Placement, Plan]:
    options = CompileOptions(ExecutionPreference.FAST_SINGLE_ANSWER)
    relaxed = model.relax_computation_float32_to_float16
    return place_and_compile(parts, backends, options, relaxed=relaxed, check=lambda: None)


def _users(placement: Placement, backends: Sequence[Backend]) -> list[Backend]:
    """The backends that run something, in the device's order."""
    names = {partition.backend for partition in placement.partitions} - {DRIVER}
    return [backend for backend in backends if backend.id in names]


def _run(plan: Plan, model: Model) -> None:
    plan.call(inputs(model), Progress(NO_DEADLINE, Cancellation(), DEFAULT_LOOP_TIMEOUT_NS))


def _ratio(one: Callable[[], None], other: Callable[[], None]) -> float:
    """Shortest time of the one to that of the other. They take turns, so that other work on the machine hits both."""
    for run in (one, other):
        run()  # what is done once does not count
    shortest = [math.inf, math.inf]
    start = time.perf_counter()
    for turn in range(_ROUNDS):
        for i, run in enumerate((one, other)):
            before = time.perf_counter()
            run()
            shortest[i] = min(shortest[i], time.perf_counter() - before)
        if turn >= _FEWEST_ROUNDS and time.perf_counter() - start > _LONGEST_S:
            break
    return shortest[0] / shortest[1]


def _rounded(figure: float) -> float:
    """Three digits: more would pretend a precision that there is not."""
    return float(f"{figure:.3g}")


def _capabilities(figures: Figures) -> Capabilities:
    """What no backend does is left out of the list, which means FLT_MAX; where there is no list, it says so."""
    none = PerformanceInfo(FLT_MAX, FLT_MAX)
    listed = [(type_, figures[group]) for type_, group in sorted(TYPES.items())]
    relaxed = figures["relaxed"] or none
    return Capabilities(
        relaxed,
        relaxed,
        tuple(OperandPerformance(type_, info) for type_, info in listed if info is not None),
        figures["if"] or none,
        figures["while"] or none,
    )


# ---- The file -------------------------------------------------------------------------------------------


def _read(path: Path, key: Mapping[str, str]) -> Figures | None:
    """The figures of a file; None where there is none, or it is a link, not ours, not whole or of something else.

    Raises:
        OSError: it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            return None
        text = file.read(_FILE_BYTES)
    try:
        kept = json.loads(text)
        if kept["key"] != key or kept["figures"].keys() != WORKLOADS.keys():
            return None
        return {group: _info(figures) for group, figures in kept["figures"].items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        _log.warning("%s is damaged (%s) and made anew", path, error)
        return None


def _info(figures: Sequence[float] | None) -> PerformanceInfo | None:
    """Raises ValueError or TypeError where figures are not what the HAL takes."""
    if figures is None:
        return None
    exec_time, power_usage = figures
    if not all(isinstance(figure, float) and 0 < figure <= FLT_MAX for figure in (exec_time, power_usage)):
        raise ValueError(f"{figures} are no figures")
    return PerformanceInfo(exec_time, power_usage)


def _write(path: Path, key: Mapping[str, str], figures: Figures) -> None:
    """Replaces a file as a whole; only this user can read it.

    Raises:
        OSError: it cannot be written.
    """
    kept = {group: info and (info.exec_time, info.power_usage) for group, info in figures.items()}
    text = json.dumps({"key": key, "figures": kept}, indent=1)
    with NamedTemporaryFile("w", dir=path.parent, prefix=path.stem, suffix=".new", delete=False) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lets one process at a time measure; the others find what it wrote.

    Raises:
        OSError: the folder cannot be made or written to.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _processor() -> str:
    """The name of the processor, as the kernel tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return os.uname().machine
