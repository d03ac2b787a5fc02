"""Python plug-ins that tests write: one that works, and what is changed in it to break it."""

from pathlib import Path

WORKING = """
from driver.backends.api import API_VERSION, Support
from driver.backends.per_operation import PerOperationBackend
from nnhal.types import OperationType


class Doubler(PerOperationBackend):
    id = "Doubler"
    version = "7"

    def supports(self, operation):
        return Support() if operation.type == OperationType.RELU else Support("only RELU is supported")

    def workload(self, operation):
        return lambda call: call.array("input") * 2  # wrong on purpose: it shows who ran


def GetBackendId():
    return "Doubler"


def GetVersion():
    return API_VERSION


def BackendFactory():
    return Doubler()
"""
"""A backend that doubles instead of rectifying."""


def write(folder: Path, name: str, changes: dict[str, str] | None = None) -> Path:
    """Writes the working plug-in, with texts replaced.

    Each text that is replaced must be there: a break that breaks nothing would show nothing.
    """
    source = WORKING
    for old, new in (changes or {}).items():
        assert old in source, f"the plug-in has no {old!r}"
        source = source.replace(old, new)
    path = folder / name
    path.write_text(source)
    return path
