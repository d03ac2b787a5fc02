"""Cost of a partition, and the time that it saves: the source of the constants of `compilation.cost`.

`python -m tests.benchmark.partition_cost` runs chains of sums on CpuRef and on CpuAcc, each as one partition, and
alternates between the two. It prints medians in microseconds. Times differ between machines, so nothing fails.
"""

import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np

from nnhal.types import DataLocation, Model, Operand, OperandLifeTime, Operation, OperationType, Subgraph
from nnhal.types import OperandType as T
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import CompileOptions
from nnhal_driver.compilation.compiler import place_and_compile
from nnhal_driver.compilation.cost import CROSSING_COST, OPERATION_COST, PARTITION_COST
from nnhal_driver.execution.plan import RunContext
from nnhal_driver.graph import build_graphs
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import NO_DEADLINE

UNIT_NS = 0.25
SIZES = (2, 100_000)
LENGTHS = (1, 9)
BACKENDS = ("CpuRef", "CpuAcc")


def chain(size: int, length: int) -> Model:
    """Return a model of `length` sums: x + x, then the result + x, and so on."""
    operands = [
        Operand(T.TENSOR_FLOAT32, (size,), lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(T.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 4)),
    ]
    lifetimes = [OperandLifeTime.TEMPORARY_VARIABLE] * (length - 1) + [OperandLifeTime.SUBGRAPH_OUTPUT]
    operands += [Operand(T.TENSOR_FLOAT32, (size,), lifetime=lifetime) for lifetime in lifetimes]
    operations = [Operation(OperationType.ADD, (i + 1 if i else 0, 0, 1), (i + 2,)) for i in range(length)]
    return Model(Subgraph(tuple(operands), tuple(operations), (0,), (length + 1,)), operand_values=bytes(4))


def prepare(backend: str, size: int, length: int) -> Callable[[], object]:
    """Compile a chain for one backend, and return a run of it."""
    backends = registry.create([backend])
    _, plan = place_and_compile(
        build_graphs(chain(size, length)), backends, CompileOptions(0), relaxed=False, check=lambda: None
    )
    x, progress = np.ones(size, np.float32), RunContext(NO_DEADLINE, Cancellation(), 0)
    return lambda: plan.call([x], progress)


def medians_us(calls: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Return the median of each call, in microseconds. The calls alternate."""
    durations: list[list[int]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, times in zip(calls, durations, strict=True):
            start = time.perf_counter_ns()
            call()
            times.append(time.perf_counter_ns() - start)
    return [statistics.median(times) / 1e3 for times in durations]


def main() -> None:
    """Print the measured costs beside those that placement assumes."""
    kinds = [(backend, size, length) for backend in BACKENDS for size in SIZES for length in LENGTHS]
    medians = dict(zip(kinds, medians_us([prepare(*kind) for kind in kinds], 300), strict=True))
    preparing = medians_us([lambda: prepare("CpuAcc", SIZES[0], 1)], 30)[0]
    each = {
        (backend, size): (medians[backend, size, LENGTHS[1]] - medians[backend, size, LENGTHS[0]])
        / (LENGTHS[1] - LENGTHS[0])
        for backend in BACKENDS
        for size in SIZES
    }
    small, large = SIZES
    partition = medians["CpuAcc", small, 1] + medians["CpuRef", small, 1] - each["CpuRef", small]
    crossing = (medians["CpuAcc", large, 1] - each["CpuAcc", large] - medians["CpuAcc", small, 1]) / (2 * large)
    element = (each["CpuRef", large] - each["CpuRef", small] - each["CpuAcc", large]) / (3 * large)
    print("Cost of a partition (µs measured, µs in driver.cost):")
    print(f"  an operation on CpuRef      {each['CpuRef', small]:8.1f} {OPERATION_COST * UNIT_NS / 1e3:8.1f}")
    print(f"  an operation on CpuAcc      {each['CpuAcc', small]:8.1f}      0.0")
    print(f"  a partition, run            {partition:8.1f} {PARTITION_COST * UNIT_NS / 1e3:8.1f}")
    print(f"  its preparation / 30        {preparing / 30:8.1f}          (included above)")
    print(f"  1,000 elements copied        {crossing * 1e3:8.3f} {CROSSING_COST * UNIT_NS:8.3f}")
    print(f"  1,000 elements of a sum     {element * 1e3:8.3f} {UNIT_NS:8.3f}")


if __name__ == "__main__":
    main()
