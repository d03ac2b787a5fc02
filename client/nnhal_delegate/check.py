"""Self-test of the delegate: a model in LiteRT's interpreter, with the delegate and without."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from nnhal.errors import HalError
from nnhal.tflite_schema.packing import PackedOperator, PackedSubgraph, PackedTensor, TensorSpec, pack
from nnhal.types import AnyArray, ErrorStatus

_ROUNDS = 100
_SHAPE = (1, 64, 64, 8)


def check(library: Path, options: Mapping[str, str]) -> Iterator[str]:
    """Run a model with the delegate, and yield lines about it.

    Raises:
        HalError: it does not work.
        ImportError: LiteRT is not installed.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType, load_delegate  # noqa: PLC0415

    try:
        delegate, ms = _timed(lambda: load_delegate(str(library), dict(options)))
        yield f"connected: {ms:.0f} ms"
        resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        hosts = [
            Interpreter(model_content=_model(), experimental_op_resolver_type=resolver, experimental_delegates=each)
            for each in ([delegate], None)
        ]
        (actual, ms), (expected, _) = (_timed(partial(_run, host)) for host in hosts)
    except (ValueError, RuntimeError) as error:
        raise HalError(ErrorStatus.GENERAL_FAILURE, str(error)) from None
    yield f"first execution: {ms:.0f} ms"
    kernels = sum(operator["op_name"] == "DELEGATE" for operator in hosts[0]._get_ops_details())
    if kernels != 1 or not np.allclose(actual, expected):
        raise HalError(ErrorStatus.GENERAL_FAILURE, f"{kernels} kernels of the delegate; expected 1, and equal results")
    _, ms = _timed(lambda: [hosts[0].invoke() for _ in range(_ROUNDS)])
    yield f"executions: {ms / _ROUNDS * 1e3:.0f} us"
    yield f"{library.name} works"


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return work(), (time.perf_counter() - start) * 1e3


def _run(host: Any) -> AnyArray:
    host.allocate_tensors()
    size = int(np.prod(_SHAPE))
    host.set_tensor(host.get_input_details()[0]["index"], np.linspace(-1, 1, size, dtype=np.float32).reshape(_SHAPE))
    host.invoke()
    return np.array(host.get_tensor(host.get_output_details()[0]["index"]))


def _model() -> bytes:
    """Return a .tflite file that pools the squares of its input."""
    pooled = (1, _SHAPE[1] // 2, _SHAPE[2] // 2, _SHAPE[3])
    tensors = [PackedTensor(TensorSpec("FLOAT32"), shape, 0, False) for shape in (_SHAPE, _SHAPE, pooled)]
    pool = {"stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    operators = [
        PackedOperator("MUL", (0, 0), (1,), "MulOptions", {}),
        PackedOperator("AVERAGE_POOL_2D", (1,), (2,), "Pool2DOptions", pool),
    ]
    return pack([PackedSubgraph(tensors, operators, (0,), (2,))], [])
