"""LiteRT's interpreter in Python, with the delegate and without."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nnhal.types import AnyArray

litert = pytest.importorskip("ai_edge_litert.interpreter")


def load(library: Path, target: str | None = None, **options: str) -> Any:
    """Return a delegate that uses a service, by default the one that the environment names."""
    return litert.load_delegate(str(library), options if target is None else {"target": target, **options})


class Host:
    """Interpreter of a model, whose tensors are allocated.

    Args:
        model: the bytes or the path of a .tflite file.
        delegate: a delegate, or None.
        shapes: shapes of inputs, by position.
    """

    def __init__(
        self, model: bytes | Path, delegate: Any = None, shapes: dict[int, tuple[int, ...]] | None = None
    ) -> None:
        source = {"model_content": model} if isinstance(model, bytes) else {"model_path": str(model)}
        self._arguments = {**source, "experimental_delegates": [delegate] if delegate else None}
        self.interpreter = litert.Interpreter(**self._arguments)
        self.resize(shapes or {})

    def resize(self, shapes: dict[int, tuple[int, ...]]) -> None:
        """Resize inputs, and allocate the tensors."""
        details = self.interpreter.get_input_details()
        for position, shape in shapes.items():
            self.interpreter.resize_tensor_input(details[position]["index"], shape)
        self.interpreter.allocate_tensors()

    @property
    def kernels(self) -> int:
        """Number of kernels of the delegate in the main graph. Those of LiteRT's own delegate look the same."""
        resolver = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        interpreter = litert.Interpreter(**self._arguments, experimental_op_resolver_type=resolver)
        return sum(operator["op_name"] == "DELEGATE" for operator in interpreter._get_ops_details())

    def samples(self, seed: int = 0) -> list[AnyArray]:
        """Return random inputs."""
        random = np.random.default_rng(seed)
        return [
            _sample(random, each["shape"], np.dtype(each["dtype"])) for each in self.interpreter.get_input_details()
        ]

    def run(self, inputs: Sequence[AnyArray]) -> list[AnyArray]:
        """Run the model and return its outputs."""
        for detail, value in zip(self.interpreter.get_input_details(), inputs, strict=True):
            self.interpreter.set_tensor(detail["index"], value)
        self.interpreter.invoke()
        return [np.array(self.interpreter.get_tensor(each["index"])) for each in self.interpreter.get_output_details()]


def _sample(random: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any]) -> AnyArray:
    if dtype.kind in "iu":
        return random.integers(0, 100, shape).astype(dtype)
    return random.uniform(-1, 1, shape).astype(dtype)


def require_close(actual: Sequence[AnyArray], expected: Sequence[AnyArray]) -> None:
    """Fail if arrays of floats differ by more than kernels of different backends do."""
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def require_equal(actual: Sequence[AnyArray], expected: Sequence[AnyArray]) -> None:
    """Check outputs bit for bit."""
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
