"""Program that uses a GPU while faults are switched on, and prints what happens: a lost GPU is of no use afterwards.

python -m tests.driver.backends.gpu.failing_gpu FOLDER
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from nnhal.types import AnyArray
from nnhal_driver.activity import TABLE_BYTES, ActivityTable, Stage
from nnhal_driver.backends.gpu.engine import GpuMemory
from nnhal_driver.backends.gpu.trial import run_trial
from tests.driver.backends.gpu.faulty_driver import FaultyDriver

LARGE = np.ones((1, 256, 256, 128), np.float32)
SMALL = np.ones((1, 4), np.float32)


def report(name: str, work: Callable[[], object]) -> None:
    """Print the result of some work, or its error."""
    try:
        print(name, work(), flush=True)
    except Exception as error:
        print(name, type(error).__name__, flush=True)


def main(folder: str) -> None:
    """Run out of memory, recover, and lose the GPU: first without a supervisor, which is told by a table, then with."""
    driver = FaultyDriver(Path(folder))
    os.environ["VK_DRIVER_FILES"] = str(driver.manifest)
    run_trial()
    memory = GpuMemory()

    def sum_of(array: AnyArray) -> Callable[[], float]:
        return lambda: float(memory.to_host(memory.to_own(array)).sum())

    driver.set_fault("m")
    report("large", sum_of(LARGE))
    report("small", sum_of(SMALL))
    driver.set_fault("")
    report("large", sum_of(LARGE))
    driver.set_fault("l")
    report("lost", sum_of(SMALL))
    report("lost", sum_of(SMALL))
    table = ActivityTable(memoryview(bytearray(TABLE_BYTES)))
    with table.record(Stage.EXECUTING, b"model"):
        report("supervised", sum_of(SMALL))


if __name__ == "__main__":
    main(sys.argv[1])
