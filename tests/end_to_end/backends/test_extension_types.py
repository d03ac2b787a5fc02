"""Operand types of a vendor extension as inputs and outputs of a model, from ModelBuilder to a plug-in."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.client.sync.burst_transport import ShmBurstTransport
from nnhal.client.sync.plain_execution import PlainExecutor
from nnhal.types import AnyArray, CacheState, ErrorStatus, Model, Operand, OperandType, OperationType
from tests.end_to_end.backends.extension.Test_Words_backend import FIRST, NAME, SWAP, WORD, WORDS
from tests.end_to_end.support.service_process import Service, start_service, stop_service

RAW = b"abcdefghijkl"
VALUE = np.frombuffer(RAW, "V3")
SWAPPED = b"jklghidefabc"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = Path(__file__).parent / "extension"
    started = start_service(tmp_path_factory.mktemp("extension"), NNHAL_DYNAMIC_BACKENDS_PATH=str(folder))
    yield started
    assert stop_service(started) == 0


@pytest.fixture(params=["auto", "grpc"])
def device(service: Service, request: pytest.FixtureRequest) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target, transport=request.param) as connected:
        yield connected


def model(shape: Sequence[int] = (4,), name: str = NAME) -> Model:
    """Return a model with two outputs: the words of its input in reverse order, and the first of these."""
    b = nnhal.ModelBuilder()
    extension = b.extension(name)
    words = extension.operand_type(WORDS)
    x = b.input(words, shape)
    swapped = b.add(extension.operation_type(SWAP), x, output=Operand(words, tuple(shape)))
    b.output(swapped)
    b.output(b.add(extension.operation_type(FIRST), swapped, output=Operand(extension.operand_type(WORD))))
    return b.build()


def assert_swapped(outputs: Sequence[AnyArray]) -> None:
    swapped, first = outputs
    assert (swapped.dtype, swapped.shape, swapped.tobytes()) == (np.dtype("V3"), (4,), SWAPPED)
    assert (first.dtype, first.shape, first.tobytes()) == (np.dtype("V3"), (), b"jkl")


@pytest.mark.parametrize("value", [RAW, VALUE])
def test_values_pass_through_the_service(device: nnhal.Device, value: bytes | AnyArray) -> None:
    prepared = device.prepare(model()).result()
    assert {operation.backend for operation in prepared.placement.operations} == {"Words"}
    for _ in range(3):  # the second time, the encodings come from caches
        assert_swapped(prepared.execute([value]))


@pytest.mark.parametrize("shape", [(0,), ()])
def test_request_gives_the_shape(device: nnhal.Device, shape: tuple[int, ...]) -> None:
    prepared = device.prepare(model(shape)).result()
    assert_swapped(prepared.execute([VALUE]))
    assert prepared.execute([VALUE[:2]])[0].tobytes() == b"defabc"
    with pytest.raises(nnhal.HalError, match="input 0") as caught:  # bytes do not tell the shape
        prepared.execute([RAW])
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def test_burst(device: nnhal.Device) -> None:
    with device.prepare(model()).result().burst() as burst:
        for _ in range(3):
            assert_swapped(burst.execute([VALUE]))


def test_reusable_execution(device: nnhal.Device) -> None:
    prepared = device.prepare(model()).result()
    with prepared.reusable([VALUE]) as execution:
        assert_swapped(execution.run())
        execution.write({0: VALUE[::-1].copy()})
        assert execution.run()[0].tobytes() == RAW


async def test_asyncio_client(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device:
        prepared = await device.prepare(model())
        for _ in range(2):
            assert_swapped(await prepared.execute([VALUE]))
        async with prepared.burst() as burst:
            assert_swapped(await burst.execute([RAW]))
        assert_swapped(await (await prepared.execute_fenced([RAW])).result())
        async with await device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)]) as words:
            await prepared.execute([VALUE], outputs={0: words})
            assert (await words.read()).tobytes() == SWAPPED
            assert (await prepared.execute([words]))[0].tobytes() == RAW


def test_model_from_the_cache(device: nnhal.Device) -> None:
    device.prepare(model(), cache=True).result()
    again = device.prepare(model(), cache=True).result()
    assert again.cache.state == CacheState.HIT
    assert_swapped(again.execute([VALUE]))
    _assert_rejected(again, np.frombuffer(RAW, "V2")[:4], "V-REQMODEL-07")


def _assert_rejected(prepared: nnhal.PreparedModel, value: AnyArray | bytes, rule: str) -> None:
    with pytest.raises(nnhal.HalError) as caught:
        prepared.execute([value])
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, rule)


def test_service_checks_the_size(device: nnhal.Device) -> None:
    prepared = device.prepare(model()).result()
    assert_swapped(prepared.execute([VALUE]))
    for size in (1, 2, 4):  # of the same shape as a valid value
        _assert_rejected(prepared, np.zeros(4, f"V{size}"), "V-REQMODEL-07")
    _assert_rejected(prepared, bytes(16), "V-REQMODEL-07")
    assert_swapped(prepared.execute([VALUE]))


@pytest.mark.parametrize("value", [np.zeros(4, np.float32), np.zeros(5, "V3"), [1, 2, 3, 4], bytes(13)])
def test_client_rejects_invalid_values(device: nnhal.Device, value: AnyArray) -> None:
    with pytest.raises(nnhal.HalError, match="input 0"):
        device.prepare(model()).result().execute([value])


def test_scalar_has_no_dimensions(device: nnhal.Device) -> None:
    b = nnhal.ModelBuilder()
    extension = b.extension(NAME)
    kind = Operand(extension.operand_type(WORD))
    b.output(b.add(extension.operation_type(FIRST), b.input(kind.type), output=kind))
    prepared = device.prepare(b.build()).result()
    for value in (VALUE[0].reshape(()), VALUE[0], b"abc", bytearray(b"abc")):
        assert prepared.execute([value])[0].tobytes() == b"abc"
    with prepared.burst() as burst:
        assert burst.execute([b"abc"])[0].tobytes() == b"abc"
    with prepared.reusable([b"abc"]) as execution:
        assert execution.run()[0].tobytes() == b"abc"
        execution.write({0: b"xyz"})
        assert execution.run()[0].tobytes() == b"xyz"
    for size in (2, 4):
        _assert_rejected(prepared, bytes(size), "V-REQMODEL-07")
    _assert_rejected(prepared, VALUE[:1], "V-REQMODEL-08")


def test_types_describe_their_elements(device: nnhal.Device) -> None:
    prepared = device.prepare(model((0,))).result()
    assert [info.dtype for info in (*prepared.inputs, *prepared.outputs)] == [np.dtype("V3")] * 3
    assert [info.shape for info in prepared.outputs] == [(0,), ()]


def test_fenced_executions(device: nnhal.Device) -> None:
    prepared = device.prepare(model()).result()
    first = prepared.execute_fenced([RAW])
    second = prepared.execute_fenced([first.outputs[0]])
    assert_swapped(first.result())
    assert second.result()[0].tobytes() == RAW
    with prepared.reusable([VALUE]) as execution:
        assert_swapped(execution.run_fenced().result())
    with pytest.raises(nnhal.HalError, match="fenced executions need outputs of fixed shape"):
        device.prepare(model((0,))).result().execute_fenced([VALUE])


def test_buffers(device: nnhal.Device) -> None:
    first, second = (device.prepare(model()).result() for _ in "ab")
    with device.allocate(inputs=[(second, 0)], outputs=[(first, 0)]) as words:
        assert (words.dtype, words.shape) == (np.dtype("V3"), (4,))
        words.write(VALUE)
        assert words.read().tobytes() == RAW
        with pytest.raises(nnhal.HalError, match="elements of 2 bytes"):
            words.write(np.zeros(4, "V2"))
        first.execute([VALUE], outputs={0: words})
        assert words.read().tobytes() == SWAPPED
        assert second.execute([words])[0].tobytes() == RAW
        assert first.execute_fenced([VALUE], outputs={0: words}).result()[0] is words
        assert second.execute_fenced([words]).result()[0].tobytes() == RAW
        with second.burst() as burst:
            assert burst.execute([words])[0].tobytes() == RAW


def test_buffer_of_a_scalar(device: nnhal.Device) -> None:
    prepared = device.prepare(model()).result()
    with device.allocate(outputs=[(prepared, 1)]) as word:
        prepared.execute([VALUE], outputs={1: word})
        assert (word.shape, word.read().tobytes()) == ((), b"jkl")
        word.write(b"xyz")
        assert word.read().tobytes() == b"xyz"
    with pytest.raises(nnhal.HalError) as caught:
        device.allocate(outputs=[(prepared, 1)], dimensions=[1])
    assert caught.value.rule == "V-ALLOC-06"


def test_buffer_of_an_open_shape(device: nnhal.Device) -> None:
    prepared = device.prepare(model((0,))).result()
    with device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)]) as words:
        for value in (VALUE, VALUE[:2]):
            words.write(value)
            assert (words.shape, words.read().tobytes()) == (value.shape, value.tobytes())
            assert prepared.execute([words])[0].tobytes() == value[::-1].tobytes()
        prepared.execute([VALUE], outputs={0: words})
        assert (words.shape, words.read().tobytes()) == ((4,), SWAPPED)


def test_values_of_types_that_models_number_differently_share_a_buffer(device: nnhal.Device) -> None:
    b = nnhal.ModelBuilder()
    b.extension("com.example.first")
    second = b.extension(NAME)
    words = second.operand_type(WORDS)
    b.output(b.add(second.operation_type(SWAP), b.input(words, (4,)), output=Operand(words, (4,))))
    models = [device.prepare(each).result() for each in (model(), b.build())]
    assert models[0].inputs[0].type != models[1].inputs[0].type
    with device.allocate(inputs=[(models[1], 0)], outputs=[(models[0], 0)]) as shared:
        models[0].execute([VALUE], outputs={0: shared})
        assert models[1].execute([shared])[0].tobytes() == RAW


def test_shared_memory_carries_extension_types(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with nnhal.connect(service.target) as device, device.prepare(model((0,))).result() as prepared:
        monkeypatch.setattr(PlainExecutor, "_execute_message", lambda *_: pytest.fail("the inputs went through gRPC"))
        for _ in range(2):
            assert_swapped(prepared.execute([VALUE]))
            assert prepared.execute([VALUE[:2]])[0].tobytes() == b"defabc"
        with prepared.burst() as burst:
            assert isinstance(burst._burst.results.transport, ShmBurstTransport)
            assert_swapped(burst.execute([VALUE]))


def test_unknown_extension_is_refused_by_all_backends(device: nnhal.Device) -> None:
    refusals = device.explain(model(name="com.example.other")).operations[0].refusals
    assert "has an extension type that no backend lists" in refusals[0].reason


def test_extension_and_standard_types_in_one_model(device: nnhal.Device) -> None:
    b = nnhal.ModelBuilder()
    extension = b.extension(NAME)
    words, reals = Operand(extension.operand_type(WORDS), (4,)), Operand(OperandType.TENSOR_FLOAT32, (2,))
    b.output(b.add(OperationType.RELU, b.input(reals.type, (2,)), output=reals))
    b.output(b.add(extension.operation_type(SWAP), b.input(words.type, (4,)), output=words))
    relu, swapped = device.prepare(b.build()).result().execute([np.array([-1, 1], np.float32), VALUE])
    assert relu.tolist() == [0, 1] and swapped.tobytes() == SWAPPED
