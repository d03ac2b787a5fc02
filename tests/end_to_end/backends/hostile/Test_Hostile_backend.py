"""Backend that copies its input, and misbehaves as a file tells it: "METHOD ANSWER"."""

import ctypes
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from nnhal_backend.v1 import (
    API_VERSION,
    AnyArray,
    Backend,
    CompiledSubgraph,
    CompileOptions,
    Extension,
    HalError,
    OperationView,
    OptimizedSubgraph,
    Output,
    PerformanceInfo,
    Run,
    SubgraphView,
    Support,
)

FILE = Path(os.environ.get("HOSTILE_FILE", os.devnull))

ERRORS: Mapping[str, type[BaseException]] = {
    "SystemExit": SystemExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "ValueError": ValueError,
}


def misbehave(method: str) -> str:
    """Raise what the file asks for in a method, or return the name of the answer that it asks for."""
    asked_text = FILE.read_text()
    asked, _, answer = asked_text.partition(" ")
    if asked != method:
        return ""
    if answer in ERRORS:
        raise ERRORS[answer]
    if answer == "wait":
        FILE.with_suffix(".waiting").touch()
        while FILE.read_text() == asked_text:
            time.sleep(0.01)
    if answer == "crash":
        ctypes.string_at(0)
    if answer == "hang":
        FILE.with_suffix(".waiting").touch()
        ctypes.CDLL(None).pause()  # without the GIL, as an engine
    if answer == "freeze":
        ctypes.PyDLL(None).pause()  # with the GIL
    if answer.startswith("status "):
        raise HalError(int(answer.split()[1]), "a reason")
    return answer


class Hostile(Backend):
    """Backend that supports everything."""

    id = "Hostile"
    version = "1"

    def supports(self, operation: OperationView) -> Support:
        """Support everything."""
        return None if misbehave("supports") else Support()  # type: ignore[return-value]

    def before_load_network(self, network: int) -> None:
        """Do nothing."""
        misbehave("before_load_network")

    def optimize(self, subgraph: SubgraphView, options: CompileOptions) -> OptimizedSubgraph:
        """Change nothing."""
        misbehave("optimize")
        return OptimizedSubgraph()

    def before_load(self, network: int) -> None:
        """Do nothing."""
        misbehave("before_load")

    def after_load(self, network: int, compiled: CompiledSubgraph) -> None:
        """Do nothing."""
        misbehave("after_load")

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        """Return a copy."""
        return None if misbehave("compile") else _Copy()  # type: ignore[return-value]

    def extensions(self) -> Sequence[Extension]:
        """Return an extension without a proper name, if asked for."""
        return (Extension("NoDot"),) if misbehave("extensions") else (Extension("com.example.quiet"),)

    def performance(self) -> PerformanceInfo:
        """Return a performance of 0, if asked for."""
        return PerformanceInfo(0.0, -1.0) if misbehave("performance") else PerformanceInfo(1.0, 1.0)


class _Copy(CompiledSubgraph):
    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        assert inputs[0] is not None
        answer = misbehave("execute")
        if answer == "float64":
            outputs[0].write(inputs[0].astype(np.float64))
        elif answer != "nothing":
            outputs[0].write(inputs[0])

    def wait_finish(self) -> None:
        misbehave("wait_finish")


def GetBackendId() -> str:
    """Return the id of the backend."""
    return Hostile.id


def GetVersion() -> tuple[int, int]:
    """Return the version of the backend API."""
    return API_VERSION


BackendFactory = Hostile
