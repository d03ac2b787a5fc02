"""Operations on constants are computed when a model is prepared, and the engine never runs them."""

from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")

from nnhal import ModelBuilder
from nnhal.builder.graph import OperandRef
from nnhal.errors import HalError
from nnhal.types import AnyArray, Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import CompileOptions
from nnhal_driver.backends.litert import folding
from nnhal_driver.backends.litert.backend import CpuAcc
from nnhal_driver.backends.litert.engine import Interpreter
from nnhal_driver.backends.litert.serialization import load
from nnhal_driver.backends.litert.shape_analysis import analyze_shapes
from nnhal_driver.backends.litert.subgraph import LitertSubgraph
from nnhal_driver.graph import build_graphs, subgraph_view
from tests.driver.backends.litert.support.comparison import run
from tests.driver.backends.litert.support.compiled import compiled_parts, operators, prepare_on_engine
from tests.driver.litert_kernels import schema
from tests.driver.one_operation import execute, tensor

F32, F16 = T.TENSOR_FLOAT32, T.TENSOR_FLOAT16
RANDOM = np.random.default_rng(3)


def half(*shape: int) -> AnyArray:
    return RANDOM.standard_normal(shape).astype(np.float16)


class Detector:
    """Builder of a detector in MediaPipe's style: float16 weights, and operations that convert and arrange them.

    With `plain`, the weights are float32 constants.
    """

    def __init__(self, *, plain: bool) -> None:
        self.builder = ModelBuilder()
        self.plain = plain
        self.random = np.random.default_rng(5)

    def weights(self, *shape: int, order: Sequence[int] = ()) -> OperandRef:
        """Add float16 weights; with `order` they are stored flat, with permuted dimensions."""
        value = (self.random.standard_normal(shape) / 4).astype(np.float16)
        if self.plain:
            return self.builder.constant(value.astype(np.float32))
        if not order:
            stored = self.builder.constant(value)
            return self.builder.add(Op.CAST, stored, output=tensor(F32, shape))
        permuted = value.transpose(np.argsort(order))
        stored = self.builder.constant(permuted.reshape(-1))
        flat = self.builder.add(
            Op.RESHAPE, stored, np.array(permuted.shape, np.int32), output=tensor(F16, permuted.shape)
        )
        wide = self.builder.add(Op.CAST, flat, output=tensor(F32, permuted.shape))
        return self.builder.add(Op.TRANSPOSE, wide, np.array(order, np.int32), output=tensor(F32, shape))

    def model(self) -> Model:
        """Return a model with two residual blocks and a box and a score head."""
        build = self.builder
        x: OperandRef = build.input(F32, (1, 16, 16, 3))
        x = build.add(
            Op.CONV_2D, x, self.weights(8, 3, 3, 3), self.weights(8), 1, 2, 2, 0, output=tensor(F32, (1, 8, 8, 8))
        )
        for order in ((), (1, 2, 0, 3)):
            y = build.add(
                Op.DEPTHWISE_CONV_2D, x, self.weights(1, 3, 3, 8), self.weights(8), 1, 1, 1, 1, 0,
                output=tensor(F32, (1, 8, 8, 8)),
            )  # fmt: skip
            weights = self.weights(8, 1, 1, 8, order=order)
            y = build.add(Op.CONV_2D, y, weights, self.weights(8), 1, 1, 1, 0, output=tensor(F32, (1, 8, 8, 8)))
            y = build.add(Op.ADD, x, y, 0, output=tensor(F32, (1, 8, 8, 8)))
            x = build.add(Op.PRELU, y, self.weights(1, 1, 8), output=tensor(F32, (1, 8, 8, 8)))
        for channels in (4, 1):
            weights, bias = self.weights(channels, 1, 1, 8, order=(3, 1, 2, 0)), self.weights(channels)
            head = build.add(Op.CONV_2D, x, weights, bias, 2, 1, 1, 0, output=tensor(F32, (1, 8, 8, channels)))
            build.output(
                build.add(
                    Op.RESHAPE, head, np.array([1, 64, channels], np.int32), output=tensor(F32, (1, 64, channels))
                )
            )
        return build.build()


def test_float16_weights_are_constants_of_the_engine() -> None:
    outcome, plain = (prepare_on_engine(Detector(plain=plain).model()) for plain in (False, True))
    assert operators(outcome) == operators(plain)
    assert not {"CAST", "DEQUANTIZE", "TRANSPOSE"} & set(operators(outcome))
    x = RANDOM.standard_normal((1, 16, 16, 3)).astype(np.float32)
    actual, expected = execute(outcome, [x])[1], execute(plain, [x])[1]
    for a, b in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(actual, run(Detector(plain=False).model(), [x], "CpuRef")[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_detector_equals_litert_with_dequantized_weights() -> None:
    """LiteRT gets the float16 weights behind DEQUANTIZE, as in a file of TensorFlow's converter."""
    outcome = prepare_on_engine(Detector(plain=False).model())
    (part,) = compiled_parts(outcome)
    data = _with_dequantize(part.pools[0].model.file.contents().tobytes())
    x = RANDOM.standard_normal((1, 16, 16, 3)).astype(np.float32)
    engine = Interpreter(data, 1)
    (source,), targets = part.pools[0].model.inputs, [t for t, _ in part.pools[0].model.outputs]
    assert source is not None
    engine.view(source)[...] = x
    engine.invoke()
    for actual, target in zip(execute(outcome, [x])[1], targets, strict=True):
        assert target is not None
        np.testing.assert_array_equal(actual, engine.view(target))


def _with_dequantize(data: bytes) -> bytes:
    """Return a TFLite model whose float32 constants come from float16 constants through DEQUANTIZE."""
    import flatbuffers

    s = schema()
    model = s.ModelT.InitFromObj(s.Model.GetRootAs(data, 0))
    (graph,) = model.subgraphs
    for buffer in model.buffers:
        if buffer.offset:
            buffer.data = np.frombuffer(data, np.uint8, buffer.size, buffer.offset)
            buffer.offset = buffer.size = 0
    model.operatorCodes.append(s.OperatorCodeT(s.BuiltinOperator.DEQUANTIZE, builtinCode=s.BuiltinOperator.DEQUANTIZE))
    for tensor_ in list(graph.tensors):
        buffer = model.buffers[tensor_.buffer]
        if tensor_.type != s.TensorType.FLOAT32 or buffer.data is None:
            continue
        stored = buffer.data.view(np.float32).astype(np.float16).view(np.uint8)
        model.buffers.append(s.BufferT(data=stored))
        graph.tensors.append(
            s.TensorT(shape=tensor_.shape, type=s.TensorType.FLOAT16, buffer=len(model.buffers) - 1, hasRank=True)
        )
        number = graph.tensors.index(tensor_)
        graph.operators.insert(
            0, s.OperatorT(opcodeIndex=len(model.operatorCodes) - 1, inputs=[len(graph.tensors) - 1], outputs=[number])
        )
        tensor_.buffer = 0
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def test_constant_outputs_are_delivered_without_the_engine() -> None:
    build = ModelBuilder()
    value = half(2, 3)
    wide = build.add(Op.CAST, build.constant(value), output=tensor(F32, (2, 3)))
    doubled = build.add(Op.ADD, wide, wide, 0, output=tensor(F32, (2, 3)))
    x = build.input(F32, (2, 3))
    build.output(doubled)
    build.output(build.add(Op.MUL, x, doubled, 0, output=tensor(F32, (2, 3))))
    build.output(wide)
    outcome = prepare_on_engine(build.build())
    assert operators(outcome) == ["MUL"]
    ones = np.ones((2, 3), np.float32)
    for _ in range(2):
        first, product, last = execute(outcome, [ones])[1]
        np.testing.assert_array_equal(first, 2 * value.astype(np.float32))
        np.testing.assert_array_equal(product, first)
        np.testing.assert_array_equal(last, value.astype(np.float32))


def test_model_of_constants_alone_needs_no_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    build = ModelBuilder()
    build.output(build.add(Op.EXP, build.constant(np.zeros((2,), np.float32)), output=tensor(F32, (2,))))
    monkeypatch.setattr(Interpreter, "__init__", lambda *_: pytest.fail("an interpreter was created"))
    monkeypatch.setattr(LitertSubgraph, "_fall_back", lambda *_: pytest.fail("CpuRef was used"))
    (result,) = execute(prepare_on_engine(build.build()), [])[1]
    assert result.tolist() == [1, 1]


def test_computed_shapes_axes_and_paddings_are_constants() -> None:
    build = ModelBuilder()
    x = build.input(F32, (2, 6))
    sizes = build.add(
        Op.ADD, np.array([1, 2], np.int32), np.array([2, 2], np.int32), 0, output=tensor(T.TENSOR_INT32, (2,))
    )
    shaped = build.add(Op.RESHAPE, x, sizes, output=tensor(F32, (3, 4)))
    pads = build.add(
        Op.RESHAPE, np.array([1, 0, 0, 2], np.int32), np.array([2, 2], np.int32), output=tensor(T.TENSOR_INT32, (2, 2))
    )
    build.output(build.add(Op.PAD, shaped, pads, output=tensor(F32, (4, 6))))
    outcome = prepare_on_engine(build.build(), "CpuAcc")
    assert operators(outcome) == ["RESHAPE", "PAD"]
    values = np.arange(12, dtype=np.float32).reshape(2, 6)
    np.testing.assert_array_equal(execute(outcome, [values])[1][0], np.pad(values.reshape(3, 4), ((1, 0), (0, 2))))


def test_operations_that_the_engine_lacks_run_on_constants() -> None:
    build = ModelBuilder()
    values = np.array([3, 1, 2], np.float32)
    top, _ = build.add(Op.TOPK_V2, values, 2, outputs=[tensor(F32, (2,)), tensor(T.TENSOR_INT32, (2,))])
    x = build.input(F32, (2,))
    build.output(build.add(Op.ADD, x, top, 0, output=tensor(F32, (2,))))
    outcome = prepare_on_engine(build.build(), "CpuAcc")
    assert operators(outcome) == ["ADD"]
    assert execute(outcome, [np.zeros(2, np.float32)])[1][0].tolist() == [3, 2]


def test_random_numbers_are_drawn_in_each_execution() -> None:
    build = ModelBuilder()
    logits, seeds = np.zeros((1, 1000), np.float32), np.zeros(2, np.int32)
    build.output(build.add(Op.RANDOM_MULTINOMIAL, logits, 16, seeds, output=tensor(T.TENSOR_INT32, (1, 16))))
    outcome = prepare_on_engine(build.build())
    first, second = (execute(outcome, [])[1][0].tolist() for _ in range(2))
    assert first != second


def test_error_of_a_constant_operation_remains_one_of_the_execution() -> None:
    """An index out of range is an error of the execution; the model can be prepared."""
    build = ModelBuilder()
    gathered = build.add(Op.GATHER, np.ones((2, 2), np.float32), 0, np.array([5], np.int32), output=tensor(F32, (1, 2)))
    build.output(build.add(Op.ADD, build.input(F32, (1, 2)), gathered, 0, output=tensor(F32, (1, 2))))
    outcome = prepare_on_engine(build.build())
    with pytest.raises(HalError, match=r"indices lie in 5\.\.5"):
        execute(outcome, [np.ones((1, 2), np.float32)])


def test_results_are_limited_to_a_multiple_of_the_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a small model could make the driver write a very large file."""
    monkeypatch.setattr(folding, "_MIN_TOTAL", 4096)
    build = ModelBuilder()
    wide = build.add(Op.TILE, np.ones(8, np.float32), np.array([200], np.int32), output=tensor(F32, (1600,)))
    build.output(build.add(Op.ADD, build.input(F32, (1600,)), wide, 0, output=tensor(F32, (1600,))))
    outcome = prepare_on_engine(build.build())
    assert operators(outcome) == ["TILE", "ADD"]
    assert execute(outcome, [np.ones(1600, np.float32)])[1][0].tolist() == [2] * 1600


def test_chain_of_operations_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operation reads the two results before it, so computing them again and again would take forever."""
    build = ModelBuilder()
    x = build.input(F32, (2,))
    chain = [build.add(Op.CAST, half(2), output=tensor(F32, (2,))) for _ in range(2)]
    for _ in range(300):
        chain.append(build.add(Op.MAXIMUM, chain[-2], chain[-1], output=tensor(F32, (2,))))
    build.output(build.add(Op.ADD, x, chain[-1], 0, output=tensor(F32, (2,))))
    runs = []
    compute = folding._run
    monkeypatch.setattr(folding, "_run", lambda view, *rest: runs.append(view.index) or compute(view, *rest))  # type: ignore[func-returns-value]
    assert operators(prepare_on_engine(build.build())) == ["ADD"]
    assert len(runs) == len(set(runs)) == 302


def test_results_are_not_kept_after_the_model_is_written() -> None:
    graph = build_graphs(Detector(plain=False).model())[0]
    view = subgraph_view(graph, range(len(graph.operations)), relaxed=False)
    compiled = CpuAcc().compile(view, CompileOptions(1))
    assert not analyze_shapes(graph).constants._recent
    assert isinstance(compiled, LitertSubgraph)
    sections = compiled.save()
    assert sections is not None
    restored, _ = load(sections)
    assert restored.operators == compiled.pools[0].model.operators


def test_constant_outputs_are_saved() -> None:
    build = ModelBuilder()
    value = half(3)
    wide = build.add(Op.CAST, build.constant(value), output=tensor(F32, (3,)))
    build.output(wide)
    build.output(build.add(Op.ADD, build.input(F32, (3,)), wide, 0, output=tensor(F32, (3,))))
    graph = build_graphs(build.build())[0]
    compiled = CpuAcc().compile(subgraph_view(graph, [0, 1], relaxed=False), CompileOptions(1))
    sections = compiled.save()
    assert sections is not None
    restored, _ = load(sections)
    assert [tensor for tensor, _ in restored.outputs].index(None) in restored.constants
    (saved,) = restored.constants.values()
    np.testing.assert_array_equal(saved, value.astype(np.float32))
    assert saved.base is None, "a view would hold the memory of the whole cache entry"
