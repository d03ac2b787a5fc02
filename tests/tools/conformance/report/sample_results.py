"""Sample results for tests of reports."""

from nnhal.types import BackendInfo, BackendState
from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.run_info import RunInfo

PASSED, FAILED, SKIPPED, UNSUPPORTED = Status

INFO = RunInfo(
    "localhost:1",
    "nnhal-cpu",
    "nnhal/0.1 Npu/2",
    "0.1",
    (
        BackendInfo("Npu", "2", BackendState.READY, origin="npu.so"),
        BackendInfo("CpuRef", "1", BackendState.READY, origin="built in"),
        BackendInfo("Gone", "3", BackendState.FAILED, "it crashed"),
    ),
    nnhal_version="0.1",
    commit="abcdef",
)


def make_result(
    name: str, status: Status = PASSED, suite: str = "generated", *operations: str, **more: object
) -> Result:
    """Return a result whose operations run on CpuRef. `more`: further fields of the result."""
    on_backend = [(operation, "CpuRef") for operation in operations]
    return Result(name, suite, "", status, operations=on_backend, **more)  # type: ignore[arg-type]


RESULTS = [
    make_result("first", PASSED, "generated", "CONV_2D", "RELU", "CONV_2D"),
    make_result("second", FAILED, "generated", "RELU", check="GEN-18", reason="why", seconds=1.5),
    make_result("third", SKIPPED, "generated", "ADD", check="X2", reason="X2: not so"),
    make_result("fourth", UNSUPPORTED, "burst", reason="no such call"),
    make_result("fifth", FAILED, "basic", check="BASIC-01", reason="no"),
    make_result("sixth", FAILED, "generated", "RELU", check="GEN-18"),
]


def _on_path(path: str, *operations: tuple[str, str]) -> Result:
    return Result("", "generated", path, PASSED, operations=list(operations))


RESULTS_ON_PATHS = [
    _on_path("SYNC", ("ADD", "Npu"), ("MUL", "Npu")),
    _on_path("SYNC", ("ADD", "Npu")),
    _on_path("BURST", ("ADD", "Npu"), ("MUL", "CpuRef")),
    _on_path("", ("RELU", "CpuRef")),
]
"""Results in which the backends differ by path."""
