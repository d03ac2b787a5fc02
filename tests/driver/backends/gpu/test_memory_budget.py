"""Memory that models use on a GPU: it counts against limits, and is free again when they are."""

import gc

import pytest

from nnhal.errors import HalError, limit_exceeded
from nnhal.types import ErrorStatus
from nnhal_driver.backends.api import CompileOptions
from nnhal_driver.backends.gpu.backend import GpuAcc
from nnhal_driver.backends.gpu.engine import GpuMemory, GpuSettings
from nnhal_driver.backends.gpu.memory_budget import MemoryBudget
from nnhal_driver.backends.gpu.subgraph import GpuSubgraph
from nnhal_driver.backends.options import BackendOptions
from nnhal_driver.backends.registry import create
from nnhal_driver.device import Device
from tests.driver.backends.gpu.models import IMAGE, OPTIONS, convolution, view_of
from tests.driver.backends.gpu.software_gpu import NAME, require_software_gpu
from tests.driver.one_operation import execute, prepare


def test_budget_counts_until_shares_are_freed() -> None:
    budget = MemoryBudget(100)
    first = budget.reserve(60)
    with pytest.raises(MemoryError, match="the GPU has 100 bytes, of which models use 60; 41 are needed"):
        budget.reserve(41)
    second = budget.reserve(40)
    assert budget.used == 100
    del first, second
    assert budget.used == 0


def test_model_counts_its_weights_and_tensors() -> None:
    require_software_gpu()
    memory = GpuMemory()
    subgraph = GpuSubgraph(view_of(convolution()), OPTIONS, GpuSettings(), memory)
    weights, tensors = 4 * (4 * 3 * 3 * 4 + 4), 2 * IMAGE.nbytes
    assert weights + tensors <= memory.budget.used <= 3 * (weights + tensors)
    del subgraph
    gc.collect()
    assert memory.budget.used == 0


def test_client_without_memory_is_told() -> None:
    require_software_gpu()

    def refuse(size: int) -> object:
        raise limit_exceeded("service_memory_bytes", f"no {size} bytes")

    with pytest.raises(HalError, match="service_memory_bytes"):
        GpuSubgraph(view_of(convolution()), CompileOptions(1, reserve=refuse), GpuSettings(), GpuMemory())


def test_full_gpu_refuses_models_and_runs_those_that_it_has() -> None:
    require_software_gpu()
    memory = GpuMemory()
    _one = GpuSubgraph(view_of(convolution()), OPTIONS, GpuSettings(), memory)
    values = {"adapter": NAME, "placement": "always", "memory_bytes": str(memory.budget.used * 3 // 2)}
    device = Device("small", [GpuAcc(BackendOptions(values))])
    first, second = prepare(convolution(), device), prepare(convolution(1), device)
    assert first.prepared_model is not None and second.prepared_model is None
    assert second.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT and "of which models use" in second.reason
    assert execute(first, [IMAGE])[1][0].shape == IMAGE.shape
    del first
    gc.collect()
    assert prepare(convolution(1), device).prepared_model is not None


def test_next_backend_takes_what_the_gpu_has_no_memory_for() -> None:
    require_software_gpu()
    values = {"adapter": NAME, "placement": "always", "memory_bytes": "100"}
    outcome = prepare(convolution(), Device("tiny", [GpuAcc(BackendOptions(values)), *create(["CpuAcc"])]))
    assert outcome.prepared_model is not None
    (operation,) = outcome.prepared_model.placement.operations
    assert operation.backend == "CpuAcc" and "are needed" in operation.refusals[0].reason
