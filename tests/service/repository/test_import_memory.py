"""Memory of an import: small files may declare large values, which are reserved before they are made."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnhal.errors import HalError, limit_exceeded
from nnhal.tflite.import_model import import_model
from nnhal.tflite.memory import reserving
from nnhal_service.repository.repository import UnavailableModelError
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options, schema
from tests.service.repository.model_files import adding, put

LARGE = 2**27
LIMIT = 2**20


def filled() -> bytes:
    value = Tensor((), data=1.0)
    large = Tensor((LARGE,))
    return build(Op("FILL", [ints(LARGE), value], [large]), Op("ADD", [Tensor((1,)), large], [Tensor((LARGE,))]))


def tiled() -> bytes:
    tile = Op("TILE", [Tensor((2,), data=[1.0, 2.0]), ints(LARGE // 2)], [large := Tensor((LARGE,))])
    return build(tile, Op("ADD", [Tensor((1,)), large], [Tensor((LARGE,))]))


def recurrent() -> bytes:
    weights = [Tensor((2, 3), data=[0.5] * 6), Tensor((2, 2), data=[0.5] * 4), Tensor((2,), data=[0.5] * 2)]
    state = Tensor((1, LARGE), more={"isVariable": True})
    return build(Op("RNN", [Tensor((1, 3)), *weights, state], [Tensor((1, 2))], options("RNN")))


def sparse() -> bytes:
    levels: list[Any] = []
    for size in (1, LARGE):
        levels.append(schema.DimensionMetadataT())
        levels[-1].denseSize = size
    layout = schema.SparsityParametersT()
    layout.traversalOrder, layout.blockMap, layout.dimMetadata = [0, 1], [], levels
    weights = Tensor((1, LARGE), data=[1.0], more={"sparsity": layout})
    return build(Op("ADD", [Tensor((1, 1)), weights], [Tensor((1, LARGE))]))


@pytest.mark.parametrize("model", [filled, tiled, recurrent, sparse], ids=lambda make: make.__name__)
def test_values_are_reserved_before_they_are_made(model: Any) -> None:
    def reserve(size: int) -> None:
        if size > LIMIT:
            raise limit_exceeded("service_memory_bytes", f"needs {size} bytes")

    with reserving(reserve), pytest.raises(HalError, match=r"needs \d{9,} bytes"):
        import_model(np.frombuffer(model(), np.uint8), extension=True, shapes={})


def test_service_counts_them_as_memory_of_a_client(tmp_path: Path) -> None:
    put(tmp_path / "large.tflite", filled())
    put(tmp_path / "small.tflite", adding(1))
    settings = Settings(
        listen=("127.0.0.1:0",), models=str(tmp_path), backends=("CpuRef",), limits={"service_memory_bytes": 2**28}
    )
    with Server(settings) as server:
        assert server.repository is not None
        with pytest.raises(UnavailableModelError, match=r"the import needs 536870912 bytes; .*service_memory_bytes"):
            server.repository.get("large")
        assert server.repository.get("small").name == "small"
