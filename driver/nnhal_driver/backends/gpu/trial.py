"""Trials of GPUs: each runs a tiny model in a process of its own. One that aborts, hangs or is wrong is not used."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from nnhal.builder import ModelBuilder
from nnhal.types import ExecutionPreference, Model, OperandType, OperationType
from nnhal_driver.backends.api import CompileOptions
from nnhal_driver.backends.gpu.adapters import Adapter, NoAdapterError
from nnhal_driver.backends.gpu.engine import GpuMemory, GpuSettings
from nnhal_driver.backends.gpu.measurement import Measurement, measure
from nnhal_driver.backends.gpu.shared_answer import LAST_SELECTION
from nnhal_driver.backends.gpu.subgraph import GpuSubgraph
from nnhal_driver.graph import build_graphs, subgraph_view

_COMMAND = ("-P", "-m", "nnhal_driver.backends.gpu")
_DRIVERS = "VK_DRIVER_FILES"
"""Variable with the drivers that the loader of Vulkan uses instead of those that are installed."""
_TIMEOUT_S = 40.0
_USED = re.compile("Selected adapter: (.*?), arch=")
"""Line of the engine's log that names the GPU it uses."""


@dataclass(frozen=True, slots=True)
class SelectedAdapter:
    """GPU that has passed its trial.

    Attributes:
        adapter: the GPU.
        trial: figures of its trial.
        left_out: reasons against others that were tried before, by name.
    """

    adapter: Adapter
    trial: Measurement
    left_out: Mapping[str, str]


def shared_selection(name: str) -> SelectedAdapter:
    """Return what `select_adapter` has returned to this process or to another one of the service in the last minute.

    Raises:
        NoAdapterError: there is none.
    """

    def select() -> dict[str, object]:
        try:
            return asdict(select_adapter(name))
        except NoAdapterError as error:
            return {"problem": str(error)}

    drivers = os.environ.get(_DRIVERS, "")  # services with several ones may have been forked from one process
    answer = LAST_SELECTION.get(f"{name} {drivers}", select)
    if problem := answer.get("problem"):
        raise NoAdapterError(problem)
    return SelectedAdapter(Adapter(**answer["adapter"]), Measurement(**answer["trial"]), answer["left_out"])


def select_adapter(name: str) -> SelectedAdapter:
    """Return the first GPU that passes its trial, of those that `matching_adapters` returns for a name.

    Raises:
        NoAdapterError: there is none.
    """
    left_out: dict[str, str] = {}
    while True:
        answers, failure = _run_apart(name, *left_out)
        if "tried" not in answers:
            raise NoAdapterError("; ".join(left_out.values()) or answers.get("problem") or f"Vulkan {failure}")
        adapter = Adapter(**answers["tried"])
        if "trial" in answers:
            trial = Measurement(**answers["trial"])
            if not (fault := trial.fault(half_precision=False)):
                return SelectedAdapter(adapter, trial, left_out)
            failure = f"failed: {fault}"
        left_out[adapter.name] = f"the trial of the GPU {adapter.name} {failure}"


def _run_apart(*arguments: str) -> tuple[dict[str, Any], str]:
    """Return the answers of `__main__` in a process of its own, by name, and how it failed."""
    command = [sys.executable, *_COMMAND, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        return _answers(error.stdout or b""), f"gave no answer in {_TIMEOUT_S:g} s"
    answers, log = _answers(done.stdout), done.stderr.decode(errors="replace")
    used = _USED.search(log)
    if used and used[1] != answers["tried"]["name"]:
        answers.pop("trial", None)
        return answers, f"failed: the engine uses {used[1]} instead; select it with VK_DRIVER_FILES"
    end = f"killed by {signal.Signals(-done.returncode).name}, " if done.returncode < 0 else ""
    return answers, f"failed: {end}{next(reversed(log.strip().splitlines()), 'without a message')}"


def _answers(output: bytes) -> dict[str, Any]:
    """Return what a process has printed as JSON, among lines of the engine."""
    answers: dict[str, Any] = {}
    for line in output.splitlines():
        if line.startswith(b"{") and line.endswith(b"}"):
            answers.update(json.loads(line))
    return answers


def run_trial() -> Measurement:
    """Measure a tiny model on the GPU of this process.

    Raises:
        HalError, LitertError, MemoryError: the GPU failed.
    """
    (graph,), memory = build_graphs(_tiny_model()), GpuMemory()
    view = subgraph_view(graph, range(len(graph.operations)), relaxed=False)
    options = CompileOptions(ExecutionPreference.FAST_SINGLE_ANSWER)
    return measure(GpuSubgraph(view, options, GpuSettings(), memory), memory)


def _tiny_model() -> Model:
    """Return a convolution, and a function of its results."""
    builder = ModelBuilder()
    image = builder.input(OperandType.TENSOR_FLOAT32, (1, 8, 8, 4))
    filters = np.random.default_rng(0).uniform(-1, 1, (4, 3, 3, 4)).astype(np.float32)
    bias, convolved = np.ones(4, np.float32), image.description
    same, plain = 1, 0  # padding and activation
    result = builder.add(OperationType.CONV_2D, image, filters, bias, same, 1, 1, plain, output=convolved)
    builder.output(builder.add(OperationType.TANH, result, output=convolved))
    return builder.build()
