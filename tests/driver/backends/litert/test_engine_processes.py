"""Models that run in processes of their own: regions of one of several owners, and those that take long."""

from collections.abc import Callable

import numpy as np
import pytest

from nnhal.errors import HalError, general_failure
from nnhal.types import AnyArray
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.engine_process import EngineDiedError, EngineHosting, EngineModel
from nnhal_driver.backends.litert import subgraph
from nnhal_driver.backends.litert.engine import Interpreter
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceHost
from nnhal_driver.preparation.outcome import Outcome
from tests.driver.backends.litert.submodel.control_flow import counted_loop
from tests.driver.backends.litert.support.regions import region
from tests.driver.one_operation import execute, model_of, prepare, tensor
from tests.nnhal.tflite.build import Op as TfliteOp
from tests.nnhal.tflite.build import Tensor, build, options

X = np.array([1.5, -1.5], np.float32)


class Launcher:
    """Launcher whose engines run in this process. `models`: those that were launched."""

    def __init__(self) -> None:
        self.models: list[EngineModel] = []
        self.failure: Exception | None = None

    def launch(self, model: EngineModel, check: Callable[[], None]) -> Interpreter:
        """Return an engine that fails if `failure` is set."""
        check()
        self.models.append(model)
        launcher = self

        class Engine(Interpreter):
            def invoke(self, check: Callable[[], None] = lambda: None) -> None:
                if launcher.failure is not None:
                    raise launcher.failure
                super().invoke(check)

        return Engine(f"/proc/self/fd/{model.file}", model.threads)


def prepare_on(launcher: Launcher, model: object, *, is_shared: bool) -> Outcome:
    host = DeviceHost(engines=EngineHosting(launcher, is_shared))
    return prepare(model, Device("engines", registry.create(["CpuAcc", "CpuRef"]), host=host))  # type: ignore[arg-type]


def int64_product() -> bytes:
    tensors = [Tensor((2,), "INT64") for _ in range(3)]
    return build(TfliteOp("MUL", tensors[:2], tensors[2:], options("Mul")))


def floor(shape: tuple[int, ...] = (2,)) -> object:
    operand = tensor(T.TENSOR_FLOAT32, shape)
    return model_of(Op.FLOOR, [(operand, X)], [operand], constants=False)


@pytest.mark.parametrize("data", [int64_product(), counted_loop()], ids=["static", "alone"])
def test_regions_run_apart_from_other_owners(data: bytes) -> None:
    launcher = Launcher()
    for is_shared in (False, True):
        assert not launcher.models
        assert prepare_on(launcher, region(data), is_shared=is_shared).prepared_model is not None
    assert len(launcher.models) == 1


def test_converted_models_run_in_the_process_unless_they_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher()
    prepare_on(launcher, floor(), is_shared=True)
    assert not launcher.models
    monkeypatch.setattr(subgraph, "LONG_STEPS", 1)
    outcome = prepare_on(launcher, floor(), is_shared=False)
    assert len(launcher.models) == 1
    assert execute(outcome, [X])[1][0].tolist() == [1, -2]


def test_estimate_with_the_shapes_of_an_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher()
    outcome = prepare_on(launcher, floor((0,)), is_shared=False)
    monkeypatch.setattr(subgraph, "LONG_STEPS", 1000)
    for count, launched in ((2, 0), (1000, 1)):
        values: AnyArray = np.full(count, 0.5, np.float32)
        assert not execute(outcome, [values])[1][0].any()
        assert len(launcher.models) == launched


def test_cpu_ref_takes_over_from_an_engine_that_died(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = Launcher()
    monkeypatch.setattr(subgraph, "LONG_STEPS", 1)
    outcome = prepare_on(launcher, floor(), is_shared=False)
    launcher.failure = EngineDiedError("it was killed")
    assert execute(outcome, [X])[1][0].tolist() == [1, -2]
    launcher.failure = None
    assert execute(outcome, [X])[1][0].tolist() == [1, -2]
    assert len(launcher.models) == 2


@pytest.mark.parametrize("failure", [EngineDiedError("it was killed"), general_failure("the deadline has passed")])
def test_region_fails_with_its_engine_and_the_next_call_starts_another(failure: Exception) -> None:
    launcher = Launcher()
    data = build(TfliteOp("FLOOR", [Tensor((2,))], [Tensor((2,))]))
    outcome = prepare_on(launcher, region(data), is_shared=True)
    launcher.failure = failure
    with pytest.raises(HalError, match=str(failure).partition(": ")[2] or str(failure)):
        execute(outcome, [X])
    launcher.failure = None
    assert execute(outcome, [X])[1][0].tolist() == [1, -2]
    assert len(launcher.models) == 2
