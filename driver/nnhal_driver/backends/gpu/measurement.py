"""Measurement of a subgraph on the GPU and on the CPU: times, transfers, and the difference of the results."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from statistics import median

import numpy as np

from nnhal.cpu import available_cpus
from nnhal.types import AnyArray
from nnhal_driver.backends.gpu.engine import GpuMemory
from nnhal_driver.backends.gpu.subgraph import GpuSubgraph
from nnhal_driver.backends.litert.convert import ConvertedModel
from nnhal_driver.backends.litert.engine import Interpreter

_MAX_DIFFERENCE = {False: 1e-3, True: 5e-2}
"""Largest accepted difference of the results, relative to the largest result, without and with half precision."""
_MAX_REGION_DIFFERENCE = 1e-4
"""Largest accepted difference of a region's results, relative to the largest result."""
_RUNS, _MAX_SECONDS = 7, 0.25
"""Executions whose median counts, and the time after which no further one begins."""
_VALUES, _HALVES = ((1.0, 1e-6), (100.0, 0.01)), (3.0, 0.5)
"""Largest values of the inputs in the trial of a region, and the steps between values."""
_MIN_HALVES = 64
"""Halves for each input: so many hardly miss 0, at which operators fail."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Times of one execution, and the difference of its results.

    Attributes:
        gpu_s: on the GPU, with the copies of inputs and outputs.
        transfer_s: the copies alone.
        cpu_s: on the CPU, with one thread or all, whichever is faster.
        difference: largest difference of a result, relative to the largest one.
    """

    gpu_s: float
    transfer_s: float
    cpu_s: float
    difference: float

    def fault(self, *, half_precision: bool) -> str:
        """Return what is wrong with the results of the GPU, or ""."""
        if self.difference <= _MAX_DIFFERENCE[half_precision]:  # not if it is not a number
            return ""
        return f"results of the GPU differ from those of the CPU by {self.difference:.1e} of the largest"

    def refusal(self, *, half_precision: bool) -> str:
        """Return why the subgraph belongs on the CPU, or ""."""
        slower = f"slower on the GPU: {self}" if self.gpu_s >= self.cpu_s else ""
        return self.fault(half_precision=half_precision) or slower

    def __str__(self) -> str:
        computing = (self.gpu_s - self.transfer_s) * 1e3
        return f"GPU {computing:.2f} ms + transfer {self.transfer_s * 1e3:.2f}, CPU {self.cpu_s * 1e3:.2f}"


def measure(compiled: GpuSubgraph, memory: GpuMemory) -> Measurement:
    """Measure a compiled subgraph with random inputs.

    Raises:
        HalError: the GPU failed.
        RuntimeError: the CPU failed.
    """
    model = compiled.model
    random = np.random.default_rng(0)
    inputs = [random.uniform(-1, 1, shape).astype(np.float32) for shape in compiled.shapes]
    outputs: list[AnyArray] = []

    def transfer_in() -> list[object]:
        return [memory.to_own(array) for array in inputs]

    def run_gpu() -> None:
        outputs[:] = [memory.to_host(value) for value in compiled.compute([memory.to_own(array) for array in inputs])]

    gpu_s = _median_seconds(run_gpu)
    computed = compiled.compute([memory.to_own(array) for array in inputs])
    transfer_s = _median_seconds(lambda: [transfer_in(), *map(memory.to_host, computed)])
    cpu_s, expected = _measure_cpu(model, inputs)
    return Measurement(gpu_s, min(transfer_s, gpu_s), cpu_s, _difference(outputs, expected))


def is_exact(compiled: GpuSubgraph, memory: GpuMemory) -> bool:
    """Return whether the results of a subgraph are those of the CPU: for small values, for halves, and for large ones.

    Raises:
        HalError: the GPU failed.
        RuntimeError: the CPU failed.
    """
    random = np.random.default_rng(0)
    interpreter = Interpreter(compiled.model.file.source, 1)
    smallest = min(map(prod, compiled.shapes), default=_MIN_HALVES)
    for scale, step in (*_VALUES, *[_HALVES] * -(-_MIN_HALVES // smallest)):
        inputs = [
            (np.round(random.uniform(-scale, scale, shape) / step) * step).astype(np.float32)
            for shape in compiled.shapes
        ]
        computed = compiled.compute([memory.to_own(array) for array in inputs])
        _write(interpreter, compiled.model, inputs)
        interpreter.invoke()
        results = [memory.to_host(buffer) for buffer in computed]
        if _difference(results, _results(interpreter, compiled.model)) > _MAX_REGION_DIFFERENCE:
            return False
    return True


def _measure_cpu(model: ConvertedModel, inputs: list[AnyArray]) -> tuple[float, list[AnyArray]]:
    """Return the seconds of an execution on the CPU, and its results."""
    seconds, results = [], []
    for threads in {1, available_cpus()}:
        interpreter = Interpreter(model.file.source, threads)
        _write(interpreter, model, inputs)
        seconds.append(_median_seconds(interpreter.invoke))
        results = _results(interpreter, model)
    return min(seconds), results


def _write(interpreter: Interpreter, model: ConvertedModel, inputs: list[AnyArray]) -> None:
    for tensor, array in zip(model.inputs, inputs, strict=True):
        if tensor is not None:
            interpreter.view(tensor)[...] = array


def _results(interpreter: Interpreter, model: ConvertedModel) -> list[AnyArray]:
    return [interpreter.view(tensor).copy() for tensor, _ in model.outputs if tensor is not None]


def _median_seconds(work: Callable[[], object]) -> float:
    """Return the median duration of some work, after one run that warms up."""
    work()
    seconds: list[float] = []
    while len(seconds) < _RUNS and sum(seconds) < _MAX_SECONDS:
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def _difference(computed: list[AnyArray], expected: list[AnyArray]) -> float:
    """Return the largest difference, relative to the largest result. NaN is equal to NaN."""
    largest = 0.0
    for ours, theirs in zip(computed, expected, strict=True):
        with np.errstate(invalid="ignore"):
            gap = np.abs(ours - theirs)
        gap[np.isnan(gap)] = np.inf
        gap[(ours == theirs) | (np.isnan(ours) & np.isnan(theirs))] = 0
        scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=0.0)
        largest = max(largest, float(gap.max(initial=0.0)) / max(float(scale), 1e-6))
    return largest
