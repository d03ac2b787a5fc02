"""Where suites register their checks.

A check of a device runs once and is registered with its id; a check of vectors runs once for each vector, gives one
result or more, and is registered with its suite. The modules of `tools.conformance.suites` are found by their place.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tools.conformance import suites
from tools.conformance.check import Judge, Result, Status
from tools.conformance.ids import CHECKS, SUITES, known
from tools.conformance.target import Target
from tools.conformance.vectors import Case

DeviceBody = Callable[[Target, Judge], None]
VectorBody = Callable[[Target, Case], Iterator[Result]]


@dataclass(frozen=True)
class DeviceCheck:
    """A check that needs no vector.

    Attributes:
        name: its id, and what it does where several have the id.
        alone: nothing else may run at the same time.
    """

    id: str
    name: str
    body: DeviceBody
    alone: bool

    @property
    def suite(self) -> str:
        """The suite of its id."""
        return CHECKS[self.id].suite


@dataclass(frozen=True)
class VectorCheck:
    """What a suite does with each vector that it applies to."""

    body: VectorBody
    applies: Callable[[Case], bool]


DEVICE_CHECKS: list[DeviceCheck] = []
VECTOR_CHECKS: dict[str, VectorCheck] = {}
"""By suite."""


def check(id_: str, what: str = "", *, alone: bool = False) -> Callable[[DeviceBody], DeviceBody]:
    """Registers a check of the device; what it raises without an id of its own counts against `id_`."""
    known(id_)

    def register(body: DeviceBody) -> DeviceBody:
        DEVICE_CHECKS.append(DeviceCheck(id_, f"{id_} {what}".rstrip(), body, alone))
        return body

    return register


def _always(case: Case) -> bool:
    return True


def per_vector(suite: str, applies: Callable[[Case], bool] = _always) -> Callable[[VectorBody], VectorBody]:
    """Registers what a suite does with each vector that it applies to."""
    if suite not in SUITES or suite in VECTOR_CHECKS:
        raise ValueError(f"no suite, or twice: {suite}")

    def register(body: VectorBody) -> VectorBody:
        VECTOR_CHECKS[suite] = VectorCheck(body, applies)
        return body

    return register


def result_of(case: Case, suite: str, path: str = "") -> Result:
    """A result of a vector, passed so far."""
    operations = [(name, "") for name in case.operations]
    return Result(case.name, suite, path, Status.PASSED, operations=operations, types=list(case.types))


def load() -> None:
    """Imports every module of the suites, so that all checks are registered."""
    for module in pkgutil.walk_packages(suites.__path__, f"{suites.__name__}."):
        importlib.import_module(module.name)
