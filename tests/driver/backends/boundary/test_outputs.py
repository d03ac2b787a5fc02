"""Values that a backend writes: they have the type and the shape of their operand, and there is one for each output."""

import threading
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from nnhal.builder import ModelBuilder
from nnhal.client.core.arrays import ModelIO
from nnhal.errors import HalError
from nnhal.types import AnyArray, ErrorStatus, ExecutionPreference, Extension, Model, Operand, OutputShape
from nnhal.types import ExtensionOperandTypeInformation as TypeInformation
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends import division
from nnhal_driver.backends.api import CompileOptions, OperationView, Output, Support
from nnhal_driver.backends.boundary import outputs as boundary_outputs
from nnhal_driver.backends.boundary.outputs import CheckedOutput, OutputSpec
from nnhal_driver.backends.division import divide
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceOptions
from nnhal_driver.execution.buffer import BufferOutput, BufferState, reserve_nothing
from nnhal_driver.execution.plan import RunContext
from nnhal_driver.execution.request_binding import GrowableOutput, OutputBinding, RegionOutput
from nnhal_driver.extension_types import ValueType
from nnhal_driver.graph import build_graphs, subgraph_view
from nnhal_driver.scheduling.paced_check import proceed
from tests.driver.fake_backend import chain, device_of
from tests.driver.hostile_backend import MODEL, Hostile, returns
from tests.driver.one_operation import execute, model_of, prepare, tensor

VALUES = np.array([1, -2], np.float32)


class Subclass(np.ndarray[Any, Any]):
    """Array with a method of its own."""

    def tobytes(self, order: Any = None) -> bytes:
        raise SystemExit("from an array")


INVALID: dict[str, tuple[object, str]] = {
    "float64": (VALUES.astype(np.float64), "has dtype float64; expected float32"),
    "int32 of the same size": (np.ones(2, np.int32), "has dtype int32; expected float32"),
    "other byte order": (VALUES.astype(">f4"), "has dtype >f4; expected float32"),
    "objects": (np.array([1.0, 2.0], object), "has dtype object; expected float32"),
    "too short": (VALUES[:1], "has shape [1]; declared is [2]"),
    "too long": (np.ones(3, np.float32), "has shape [3]; declared is [2]"),
    "other rank": (VALUES.reshape(1, 2), "has shape [1, 2]; declared is [2]"),
    "scalar": (np.float32(1), "has shape []; declared is [2]"),
    "list": ([1.0, -2.0], "is [1.0, -2.0]; expected an array"),
    "bytes": (bytes(8), "; expected an array"),
    "None": (None, "is None; expected an array"),
}


def write(*values: object) -> Any:
    """Return an act that writes these values to the first output, one after the other."""

    def act(inputs: Sequence[AnyArray | None], outputs: Sequence[Output]) -> None:
        for value in values:
            outputs[0].write(value)  # type: ignore[arg-type]

    return returns(act)


def failure(model: Model, *acts: Any, values: Sequence[AnyArray] = (VALUES,)) -> HalError:
    with device_of(*(Hostile({"execute": act}) for act in acts)) as device, pytest.raises(HalError) as caught:
        execute(prepare(model, device), values)
    return caught.value


@pytest.mark.parametrize("value", INVALID)
def test_invalid_value_fails_the_execution(value: str) -> None:
    error = failure(MODEL, write(INVALID[value][0]))
    assert error.status == ErrorStatus.GENERAL_FAILURE
    assert error.reason.startswith("output 0 of a partition of Hostile (operand ")
    assert INVALID[value][1] in error.reason


@pytest.mark.parametrize("value", INVALID)
def test_invalid_value_does_not_reach_another_partition(value: str) -> None:
    class Next(CpuRef):
        id = "Next"

    class First(Hostile):
        def supports(self, operation: OperationView) -> Support:
            return Support() if operation.index == 0 else Support("only the first")

    first = First({"execute": write(INVALID[value][0])})
    device = Device("test", [first, Next()], DeviceOptions(merge_partitions=False))
    outcome = prepare(chain(Op.ADD, Op.ADD), device)
    assert [partition.backend for partition in outcome.placement.partitions] == ["Hostile", "Next"]
    with pytest.raises(HalError) as caught:
        execute(outcome, [VALUES])
    device.close()
    assert INVALID[value][1] in caught.value.reason


def test_output_is_written_once() -> None:
    assert "was written twice" in failure(MODEL, write(VALUES, VALUES)).reason


def test_missing_output() -> None:
    assert failure(MODEL, write()).reason.endswith("was not written")


def test_valid_forms_are_accepted() -> None:
    class View(np.ndarray[Any, Any]):
        pass

    strided = np.array([[1, 0], [-2, 0]], np.float32)[:, 0]
    for value in (VALUES, strided, VALUES.view(View), VALUES.view(Subclass)):
        with device_of(Hostile({"execute": write(value)})) as device:
            assert execute(prepare(MODEL, device), [VALUES])[1][0].tolist() == [1, -2]


def test_unknown_dimensions_take_any_size() -> None:
    for declared in ((0,), ()):
        open_ = tensor(T.TENSOR_FLOAT32, declared)
        model = model_of(Op.RELU, [(tensor(T.TENSOR_FLOAT32, (0,)), 0)], [open_], constants=False)
        with device_of(Hostile({"execute": write(np.ones(5, np.float32))})) as device:
            assert execute(prepare(model, device), [VALUES])[1][0].tolist() == [1] * 5


def test_value_is_within_the_limit() -> None:
    x = tensor(T.TENSOR_FLOAT32, (0,))
    device = Device("test", [Hostile({"execute": write(np.ones(500, np.float32))})], DeviceOptions(tensor_bytes=1000))
    with pytest.raises(HalError) as caught:
        execute(prepare(model_of(Op.RELU, [(x, 0)], [x], constants=False), device), [VALUES])
    device.close()
    assert (caught.value.status, caught.value.limit) == (ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT, "tensor_bytes")


def test_value_after_the_execution_is_rejected() -> None:
    """The memory of the output may be in other use by then."""
    kept: list[Output] = []

    def keep(inputs: Sequence[AnyArray | None], outputs: Sequence[Output]) -> None:
        kept.append(outputs[0])
        if len(kept) > 1:
            raise ValueError("after the first")
        outputs[0].write(VALUES)

    with device_of(Hostile({"execute": returns(keep)})) as device:
        outcome = prepare(MODEL, device)
        execute(outcome, [VALUES])
        with pytest.raises(HalError):
            execute(outcome, [VALUES])
    errors: list[str] = []

    def late() -> None:
        for output in kept:
            with pytest.raises(HalError) as caught:
                output.write(VALUES)
            errors.append(caught.value.reason)

    thread = threading.Thread(target=late)
    thread.start()
    thread.join(60)
    assert all("was written twice, or after the execution" in reason for reason in errors) and len(errors) == 2


NAME = "com.example.words"
WORD, WORDS = 1, 2
TYPES = Extension(NAME, (TypeInformation(WORD, False, 3), TypeInformation(WORDS, True, 3)))


def _opaque(type_: int, shape: Sequence[int]) -> Model:
    b = ModelBuilder()
    extension = b.extension(NAME)
    x = b.input(T.TENSOR_FLOAT32, (2,))
    output = Operand(extension.operand_type(type_), tuple(shape))
    b.output(b.add(extension.operation_type(1), x, output=output))
    return b.build()


def _written(type_: int, shape: Sequence[int], value: object) -> tuple[bytes, tuple[int, ...]]:
    backend = Hostile({"execute": write(value), "extensions": returns((TYPES,))})
    with device_of(backend) as device:
        prepared = prepare(_opaque(type_, shape), device).prepared_model
        assert prepared is not None
        io = ModelIO(prepared.inputs, prepared.outputs, (), ())
        (result,) = io.to_outputs(prepared.execute_synchronously(io.request([VALUES])))
        return result.tobytes(), result.shape


@pytest.mark.parametrize(
    ("type_", "shape", "value"),
    [
        (WORDS, (2,), np.frombuffer(b"abcdef", "V3")),
        (WORDS, (2,), np.frombuffer(b"abcdef", np.uint8)),
        (WORDS, (0,), np.frombuffer(b"abcdef", "V3")),
        (WORDS, (), np.frombuffer(b"abcdef", "V3")),
        (WORD, (), np.frombuffer(b"abc", "V3")[0]),
        (WORD, (), np.frombuffer(b"abc", np.uint8)),
    ],
)
def test_values_of_extension_types_are_elements_or_bytes(type_: int, shape: Sequence[int], value: AnyArray) -> None:
    assert _written(type_, shape, value) == (value.tobytes(), (2,) if type_ == WORDS else ())


@pytest.mark.parametrize(
    ("type_", "shape", "value"),
    [
        (WORDS, (2,), np.zeros(3, "V3")),
        (WORDS, (2,), np.zeros(2, "V2")),
        (WORDS, (2,), np.zeros(7, np.uint8)),
        (WORDS, (0,), np.zeros(6, np.uint8)),
        (WORD, (), np.zeros(2, "V3")),
        (WORD, (), np.zeros((), np.float32)),
        (WORDS, (2,), np.array([b"abc", b"def"], object)),
    ],
)
def test_values_of_extension_types_have_their_size(type_: int, shape: Sequence[int], value: AnyArray) -> None:
    with pytest.raises(HalError, match="output 0 of a partition of Hostile") as caught:
        _written(type_, shape, value)
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE


LARGE_VALUE = np.arange(36, dtype=np.float32).reshape(4, 9)
SHAPE = OutputShape(LARGE_VALUE.shape)
DESTINATIONS: dict[str, Callable[[], Any]] = {
    "region": lambda: RegionOutput(OutputBinding((4, 9), SHAPE, 0, 0, 144, False), np.empty(144, np.uint8)),
    "returned": lambda: GrowableOutput(OutputBinding((4, 9), SHAPE, 0, 0, 0, True)),
    "buffer": lambda: BufferOutput(SHAPE, BufferState(ValueType(tensor(T.TENSOR_FLOAT32, (4, 9))), reserve_nothing)),
}


@pytest.mark.parametrize("destination", DESTINATIONS)
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("form", ["contiguous", "divided", "columns"])
def test_large_values_are_kept_or_copied_in_blocks(
    destination: str, keep: bool, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of 512 MiB in one step takes 0.2 s, in which no deadline ends the execution."""
    for module, name, size in ((boundary_outputs, "LARGE", 10), (division, "LARGE", 10), (division, "BLOCK", 9)):
        monkeypatch.setattr(module, name, size)
    value = LARGE_VALUE.T.copy().T if form == "columns" else LARGE_VALUE.copy()
    array = divide(value, proceed) if form == "divided" else value
    builder = ModelBuilder()
    x = builder.input(T.TENSOR_FLOAT32, (4, 9))
    builder.output(builder.add(Op.RELU, x, output=tensor(T.TENSOR_FLOAT32, (4, 9))))
    view = subgraph_view(build_graphs(builder.build())[0], [0], relaxed=False)
    compiled = CpuRef().compile(view, CompileOptions(ExecutionPreference.FAST_SINGLE_ANSWER))
    run, output = Mock(RunContext), DESTINATIONS[destination]()
    CheckedOutput(output, OutputSpec("the output", view.graph, view.outputs[0], {}, compiled, 2**20), run).write(
        array, keep=keep
    )
    assert bytes(output.data) == LARGE_VALUE.tobytes()
    is_kept = keep and destination != "region" and form != "columns"
    assert np.may_share_memory(output.data, value) == is_kept
    assert run.check.call_count == (0 if is_kept else 4)
