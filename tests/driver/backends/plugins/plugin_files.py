"""Python plug-ins that tests write: a working one, and changes that break it."""

from pathlib import Path

WORKING = """
from nnhal_backend.v1 import API_VERSION, OperationType, PerOperationBackend, Support


class Doubler(PerOperationBackend):
    id = "Doubler"
    version = "7"

    def supports(self, operation):
        return Support() if operation.type == OperationType.RELU else Support("only RELU is supported")

    def workload(self, operation):
        return lambda call: call.array("input") * 2  # wrong on purpose: the result shows which backend ran


def GetBackendId():
    return "Doubler"


def GetVersion():
    return API_VERSION


def BackendFactory():
    return Doubler()
"""
"""A backend whose RELU doubles its input."""


def write(folder: Path, name: str, changes: dict[str, str] | None = None) -> Path:
    """Write the working plug-in with some texts replaced. Each text must occur in it."""
    source = WORKING
    for old, new in (changes or {}).items():
        assert old in source, f"the plug-in has no {old!r}"
        source = source.replace(old, new)
    path = folder / name
    path.write_text(source)
    return path
