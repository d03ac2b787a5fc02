"""Runs sequences in a process of its own: `python -m tests.nnhal_ndk.stateful.program LIBRARY TRACE EXAMPLES`.

The calls of the current sequence are in TRACE, also after a crash. The devices are those in NNHAL_TARGET.
"""

import faulthandler
import gc
import os
import resource
import sys
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from nnhal_tools.conformance.device.ndk_library import NdkLibrary
from tests.nnhal_ndk.stateful.machine import NdkMachine

STEPS = 60
BATCH = 250
"""Sequences of one run: hypothesis keeps all examples of a run in memory, 200 KiB for each."""
WARM_UP = 20
GROWTH_KIB = 64 * 1024
GROWTH_DESCRIPTORS = 16
"""Connections to two devices open data sockets when they first need them."""


def main() -> None:
    """Run the sequences, and check that the process has not grown."""
    faulthandler.enable()
    library, trace, examples = sys.argv[1:]
    with Path(trace).open("w") as file:
        NdkMachine.library, NdkMachine.trace = NdkLibrary(Path(library)), file
        _run(WARM_UP)
        before = _descriptors()
        sizes = [BATCH] * (int(examples) // BATCH) or [int(examples)]
        _run(sizes[0])
        memory = _memory_kib()
        for size in sizes:
            _run(size, derandomize=len(sizes) == 1)
        gc.collect()
        descriptors = _descriptors() - before
        assert descriptors < GROWTH_DESCRIPTORS, f"{descriptors} more descriptors are open than before"
        growth = _memory_kib() - memory
        assert growth < GROWTH_KIB, f"the process has grown by {growth} KiB"


def _run(examples: int, *, derandomize: bool = True) -> None:
    run_state_machine_as_test(
        NdkMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            report_multiple_bugs=False,
            database=None,
            derandomize=derandomize,
            suppress_health_check=list(HealthCheck),
        ),
    )


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _memory_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
