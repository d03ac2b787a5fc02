"""Models with many inputs and outputs, long names and high ranks, on every path to a real service."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.builder import ModelBuilder
from nnhal.client.core.arrays import ModelIO
from nnhal.client.core.session import Transport
from nnhal.types import AnyArray, ErrorStatus, Model, Operand, OperandType, OperationType
from tests.end_to_end.support.service_process import Service

TRANSPORTS: list[Transport] = ["auto", "grpc"]


def absolutes(inputs: int, outputs: int, *, rank: int = 1, length: int = 1, name: str = "") -> Model:
    """Return a model whose output i is the absolute value of input i, modulo the number of inputs."""
    b = ModelBuilder()
    shape = (length,) * rank
    values = [b.input(OperandType.TENSOR_FLOAT32, shape, name=name and f"{name}{i}") for i in range(inputs)]
    for i in range(outputs):
        result = Operand(OperandType.TENSOR_FLOAT32, shape)
        b.output(b.add(OperationType.ABS, values[i % inputs], output=result), name=name and f"{name}{i}")
    return b.build()


MODELS = {
    "outputs of unknown size": absolutes(1, 3000, length=0),
    "outputs": absolutes(1, 5000),
    "inputs": absolutes(3000, 1),
    "both": absolutes(1500, 1500),
    "high ranks": absolutes(2, 1000, rank=4),
    "high ranks of unknown size": absolutes(2, 1000, rank=4, length=0),
    "long names": absolutes(2, 1500, name="n" * 1000),
    "as many as packets take": absolutes(1, 1200, length=0),
}


def values_for(model: Model) -> Iterator[AnyArray]:
    for i, index in enumerate(model.main.input_indexes):
        yield np.full((1,) * len(model.main.operands[index].dimensions), -1 - i, np.float32)


def check(outputs: Sequence[AnyArray], model: Model) -> None:
    count = len(model.main.input_indexes)
    assert [float(output.item()) for output in outputs] == [
        1 + i % count for i in range(len(model.main.output_indexes))
    ]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("name", MODELS)
def test_threads(service: Service, name: str, transport: Transport) -> None:
    model = MODELS[name]
    inputs = list(values_for(model))
    with (
        nnhal.connect(service.target, transport=transport) as device,
        device.prepare(model).result() as prepared,
        prepared.burst() as burst,
    ):
        for _ in range(2):
            check(prepared.execute(inputs), model)
            check(burst.execute(inputs), model)
        check(prepared.profile(inputs).outputs, model)


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_asyncio(service: Service, transport: Transport) -> None:
    model = MODELS["outputs of unknown size"]
    inputs = list(values_for(model))
    async with nnhal.aio.connect(service.target, transport=transport) as device:
        prepared = await device.prepare(model)
        check(await prepared.execute(inputs), model)
        async with await prepared.burst() as burst:
            check(await burst.execute(inputs), model)


def test_clients_that_do_not_count_get_the_reason(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelIO, "fits_shared_memory", True)
    model = MODELS["outputs of unknown size"]
    inputs = list(values_for(model))
    with nnhal.connect(service.target) as device, device.prepare(model).result() as prepared:
        with pytest.raises(nnhal.HalError, match=r"3000 outputs has up to 108044 bytes; .* over gRPC") as caught:
            prepared.execute(inputs)
        assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT
