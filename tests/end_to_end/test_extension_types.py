"""Operand types of a vendor extension as inputs and outputs of a model: from ModelBuilder to a plug-in, and back."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.types import AnyArray, CacheState, ErrorStatus, Model, Operand, OperandType, OperationType
from tests.end_to_end.conftest import Service, start, stop
from tests.end_to_end.extension.Test_Words_backend import FIRST, NAME, SWAP, WORD, WORDS

RAW = b"abcdefghijkl"
VALUE = np.frombuffer(RAW, "V3")
SWAPPED = b"jklghidefabc"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = Path(__file__).parent / "extension"
    started = start(tmp_path_factory.mktemp("extension"), NNHAL_DYNAMIC_BACKENDS_PATH=str(folder))
    yield started
    assert stop(started) == 0


@pytest.fixture(params=["auto", "grpc"])
def device(service: Service, request: pytest.FixtureRequest) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target, transport=request.param) as connected:
        yield connected


def model(shape: Sequence[int] = (4,), name: str = NAME) -> Model:
    """The words of an input in reverse order, and of these the first."""
    b = nnhal.ModelBuilder()
    extension = b.extension(name)
    words = extension.operand_type(WORDS)
    x = b.input(words, shape)
    swapped = b.add(extension.operation_type(SWAP), x, output=Operand(words, tuple(shape)))
    b.output(swapped)
    b.output(b.add(extension.operation_type(FIRST), swapped, output=Operand(extension.operand_type(WORD))))
    return b.build()


def check(outputs: Sequence[AnyArray]) -> None:
    swapped, first = outputs
    assert (swapped.dtype, swapped.shape, swapped.tobytes()) == (np.dtype("V3"), (4,), SWAPPED)
    assert (first.dtype, first.shape, first.tobytes()) == (np.dtype("V3"), (), b"jkl")


@pytest.mark.parametrize("value", [RAW, VALUE])
def test_there_and_back(device: nnhal.Device, value: bytes | AnyArray) -> None:
    prepared = device.prepare(model()).result()
    assert {one.backend for one in prepared.placement.operations} == {"Words"}
    for _ in range(3):  # the second time requests and answers are of a known form
        check(prepared.execute([value]))


@pytest.mark.parametrize("shape", [(0,), ()])
def test_the_request_gives_the_shape(device: nnhal.Device, shape: tuple[int, ...]) -> None:
    prepared = device.prepare(model(shape)).result()
    check(prepared.execute([VALUE]))
    assert prepared.execute([VALUE[:2]])[0].tobytes() == b"defabc"
    with pytest.raises(nnhal.HalError, match=r"input 0 has 12 bytes; the model takes elements of shape"):
        prepared.execute([RAW])


def test_in_a_burst(device: nnhal.Device) -> None:
    with device.prepare(model()).result().burst() as burst:
        for _ in range(3):
            check(burst.execute([VALUE]))


def test_reusable(device: nnhal.Device) -> None:
    prepared = device.prepare(model()).result()
    with prepared.reusable([VALUE]) as execution:
        check(execution.run())
        execution.write({0: VALUE[::-1].copy()})
        assert execution.run()[0].tobytes() == RAW


async def test_asyncio(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device:
        prepared = await device.prepare(model())
        for _ in range(2):
            check(await prepared.execute([VALUE]))
        async with prepared.burst() as burst:
            check(await burst.execute([RAW]))


def test_from_the_cache(device: nnhal.Device) -> None:
    device.prepare(model(), cache=True).result()
    again = device.prepare(model(), cache=True).result()
    assert again.cache.state == CacheState.HIT
    check(again.execute([VALUE]))
    _refused(again, np.frombuffer(RAW, "V2")[:4], "V-REQMODEL-07")


def _refused(prepared: nnhal.PreparedModel, value: AnyArray | bytes, rule: str) -> None:
    with pytest.raises(nnhal.HalError) as caught:
        prepared.execute([value])
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, rule)


def test_the_service_knows_the_size(device: nnhal.Device) -> None:
    prepared = device.prepare(model()).result()
    check(prepared.execute([VALUE]))
    for size in (1, 2, 4):  # of the same shape as one that was right
        _refused(prepared, np.zeros(4, f"V{size}"), "V-REQMODEL-07")
    _refused(prepared, bytes(16), "V-REQMODEL-07")
    check(prepared.execute([VALUE]))


@pytest.mark.parametrize("value", [np.zeros(4, np.float32), np.zeros(5, "V3"), [1, 2, 3, 4], bytes(13)])
def test_what_the_client_refuses(device: nnhal.Device, value: AnyArray) -> None:
    with pytest.raises(nnhal.HalError, match="input 0"):
        device.prepare(model()).result().execute([value])


def test_a_scalar_has_no_dimensions(device: nnhal.Device) -> None:
    b = nnhal.ModelBuilder()
    extension = b.extension(NAME)
    kind = Operand(extension.operand_type(WORD))
    b.output(b.add(extension.operation_type(FIRST), b.input(kind.type), output=kind))
    prepared = device.prepare(b.build()).result()
    assert prepared.execute([VALUE[0].reshape(())])[0].tobytes() == b"abc"
    _refused(prepared, VALUE[:1], "V-REQMODEL-08")


def test_fenced_executions_do_not_take_them(device: nnhal.Device) -> None:
    prepared = device.prepare(model()).result()
    with pytest.raises(nnhal.HalError, match="fenced executions take no inputs and outputs"):
        prepared.execute_fenced([VALUE])
    with pytest.raises(nnhal.HalError, match="fenced executions take no inputs and outputs"):
        prepared.reusable([VALUE]).run_fenced()


def test_nobody_knows_another_extension(device: nnhal.Device) -> None:
    refusals = device.explain(model(name="com.example.other")).operations[0].refusals
    assert "has an extension type that no backend lists" in refusals[0].reason


def test_beside_other_types(device: nnhal.Device) -> None:
    b = nnhal.ModelBuilder()
    extension = b.extension(NAME)
    words, reals = Operand(extension.operand_type(WORDS), (4,)), Operand(OperandType.TENSOR_FLOAT32, (2,))
    b.output(b.add(OperationType.RELU, b.input(reals.type, (2,)), output=reals))
    b.output(b.add(extension.operation_type(SWAP), b.input(words.type, (4,)), output=words))
    relu, swapped = device.prepare(b.build()).result().execute([np.array([-1, 1], np.float32), VALUE])
    assert relu.tolist() == [0, 1] and swapped.tobytes() == SWAPPED
