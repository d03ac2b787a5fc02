"""What a partition costs, and what it saves: where the constants of `driver.cost` come from.

`python -m tests.benchmark.partition_cost` runs chains of sums on CpuRef and on CpuAcc, each as one partition, and takes
turns between the two. It tells medians in microseconds; times differ between machines, and nothing fails.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from driver.backends import registry
from driver.backends.api import CompileOptions
from driver.cancellation import Cancellation
from driver.compilation import place_and_compile
from driver.cost import PER_CROSSING, PER_OPERATION, PER_PARTITION
from driver.deadline import NO_DEADLINE
from driver.graph import graphs
from driver.plan import Progress
from nnhal.types import DataLocation, Model, Operand, OperandLifeTime, Operation, OperationType, Subgraph
from nnhal.types import OperandType as T

UNIT_NS = 0.25
SIZES = (2, 100_000)
LENGTHS = (1, 9)
BACKENDS = ("CpuRef", "CpuAcc")


def chain(size: int, length: int) -> Model:
    """x + x, that + x, ..."""
    operands = [
        Operand(T.TENSOR_FLOAT32, (size,), lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(T.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 4)),
    ]
    lifetimes = [OperandLifeTime.TEMPORARY_VARIABLE] * (length - 1) + [OperandLifeTime.SUBGRAPH_OUTPUT]
    operands += [Operand(T.TENSOR_FLOAT32, (size,), lifetime=lifetime) for lifetime in lifetimes]
    operations = [Operation(OperationType.ADD, (i + 1 if i else 0, 0, 1), (i + 2,)) for i in range(length)]
    return Model(Subgraph(tuple(operands), tuple(operations), (0,), (length + 1,)), operand_values=bytes(4))


def prepare(backend: str, size: int, length: int) -> Callable[[], object]:
    """Makes a chain ready to run on one backend."""
    backends = registry.create([backend])
    _, plan = place_and_compile(
        graphs(chain(size, length)), backends, CompileOptions(0), relaxed=False, check=lambda: None
    )
    x, progress = np.ones(size, np.float32), Progress(NO_DEADLINE, Cancellation(), 0)
    return lambda: plan.call([x], progress)


def medians_us(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Median of each; they take turns."""
    taken: list[list[int]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, taken, strict=True):
            start = time.perf_counter_ns()
            call()
            times.append(time.perf_counter_ns() - start)
    return [statistics.median(times) / 1e3 for times in taken]


def main() -> None:
    """Prints the measured costs beside those that placement reckons with."""
    kinds = [(backend, size, length) for backend in BACKENDS for size in SIZES for length in LENGTHS]
    found = dict(zip(kinds, medians_us([prepare(*kind) for kind in kinds], 300), strict=True))
    preparing = medians_us([lambda: prepare("CpuAcc", SIZES[0], 1)], 30)[0]
    each = {
        (backend, size): (found[backend, size, LENGTHS[1]] - found[backend, size, LENGTHS[0]])
        / (LENGTHS[1] - LENGTHS[0])
        for backend in BACKENDS
        for size in SIZES
    }
    small, large = SIZES
    partition = found["CpuAcc", small, 1] + found["CpuRef", small, 1] - each["CpuRef", small]
    crossing = (found["CpuAcc", large, 1] - each["CpuAcc", large] - found["CpuAcc", small, 1]) / (2 * large)
    element = (each["CpuRef", large] - each["CpuRef", small] - each["CpuAcc", large]) / (3 * large)
    print("What a partition costs (µs measured, µs in driver.cost):")
    print(f"  an operation on CpuRef      {each['CpuRef', small]:8.1f} {PER_OPERATION * UNIT_NS / 1e3:8.1f}")
    print(f"  an operation on CpuAcc      {each['CpuAcc', small]:8.1f}      0.0")
    print(f"  a partition, run            {partition:8.1f} {PER_PARTITION * UNIT_NS / 1e3:8.1f}")
    print(f"  its preparation / 30        {preparing / 30:8.1f}          (included above)")
    print(f"  1,000 elements copied        {crossing * 1e3:8.3f} {PER_CROSSING * UNIT_NS:8.3f}")
    print(f"  1,000 elements of a sum     {element * 1e3:8.3f} {UNIT_NS:8.3f}")


if __name__ == "__main__":
    main()
