"""Helpers of the tests of sub-models: models of one operator, and changes of models."""

from collections.abc import Callable
from typing import Any

import pytest

from nnhal_driver.backends.litert.submodel import InvalidSubModel, check_kernels, parse
from tests.nnhal.tflite.build import Op, Tensor, build, pack, unpack


def refusal(data: bytes) -> str:
    """Return the message with which a model is refused."""
    with pytest.raises(InvalidSubModel) as caught:
        check_kernels(parse(data))
    return str(caught.value)


def changed(data: bytes, change: Callable[[Any], object]) -> bytes:
    """Return a model after a change of its ModelT."""
    model = unpack(data)
    change(model)
    return pack(model)


def set_field(path: str, value: object) -> Callable[[Any], None]:
    """Return a change of a field, for example `subgraphs.0.tensors.1.shape`."""

    def change(model: Any) -> None:
        *parents, last = path.split(".")
        for step in parents:
            model = model[int(step)] if step.isdigit() else getattr(model, step)
        assert hasattr(model, last), last
        setattr(model, last, value)

    return change


def quantized(
    shape: tuple[int, ...], scale: float = 0.5, zero_point: int = 0, type_: str = "INT8", **more: Any
) -> Tensor:
    """Return a quantized tensor."""
    return Tensor(shape, type_, scale=(scale,), zero_point=(zero_point,), **more)


def exp() -> bytes:
    """Return a model of one EXP."""
    return build(Op("EXP", [Tensor((2, 3))], [Tensor((2, 3))]))
