"""Registry of checks.

A device check runs once and is registered with its id. A vector check runs once for each vector, yields one or more
results, and is registered with its suite. `nnhal_tools.conformance.suites.load` imports all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nnhal_tools.conformance.check import CheckRecorder, Result, Status
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.ids import CHECKS, SUITES, validate_id
from nnhal_tools.conformance.vectors.case import Case

DeviceBody = Callable[[Target, CheckRecorder], None]
VectorBody = Callable[[Target, Case], Iterator[Result]]


@dataclass(frozen=True)
class DeviceCheck:
    """Check that needs no vector.

    `name`: the id, with a title if several checks have the id. `exclusive`: no other check may run at the same time.
    """

    id: str
    name: str
    body: DeviceBody
    exclusive: bool

    @property
    def suite(self) -> str:
        """The suite of the id."""
        return CHECKS[self.id].suite


@dataclass(frozen=True)
class VectorCheck:
    """Check that a suite runs for each vector that it applies to."""

    body: VectorBody
    applies: Callable[[Case], bool]


DEVICE_CHECKS: list[DeviceCheck] = []
VECTOR_CHECKS: dict[str, VectorCheck] = {}
"""Vector checks by suite."""


def check(id_: str, title: str = "", *, exclusive: bool = False) -> Callable[[DeviceBody], DeviceBody]:
    """Register a device check. `ids.toml` has the requirement; a docstring of the body adds how it is checked.

    Args:
        id_: the id of the check, which also fails when a call fails without a service-specific error.
        title: distinguishes it from other checks with the same id.
        exclusive: see DeviceCheck.
    """
    validate_id(id_)

    def register(body: DeviceBody) -> DeviceBody:
        DEVICE_CHECKS.append(DeviceCheck(id_, f"{id_} {title}".rstrip(), body, exclusive))
        return body

    return register


def vector_check(suite: str, applies: Callable[[Case], bool] = lambda case: True) -> Callable[[VectorBody], VectorBody]:
    """Register the vector check of a suite.

    Raises:
        ValueError: the suite is unknown, or has a vector check already.
    """
    if suite not in SUITES or suite in VECTOR_CHECKS:
        raise ValueError(f"unknown suite, or registered twice: {suite}")

    def register(body: VectorBody) -> VectorBody:
        VECTOR_CHECKS[suite] = VectorCheck(body, applies)
        return body

    return register


def new_result(case: Case, suite: str, path: str = "") -> Result:
    """Return the result of a vector, with the status PASSED."""
    operations = [(name, "") for name in case.operations]
    return Result(case.name, suite, path, Status.PASSED, operations=operations, types=list(case.operand_types))
