"""Models whose tensors declare no shape or a wrong one run as in LiteRT, which computes the shapes itself.

The corpus tests single operators in the same way.
"""

import numpy as np
import pytest
from flatbuffers import flexbuffers

from nnhal import tflite
from tests.driver.one_operation import execute, prepare
from tests.nnhal.tflite.build import Branch, Op, Tensor, build, ints, options, pack, unpack
from tests.nnhal.tflite.comparisons.against_litert import DEVICE, assert_runs_as_in_litert, interpreter, run_litert
from tests.nnhal.tflite.comparisons.declared_shapes import DECLARATIONS, declare
from tests.shared import shared

RNG = np.random.default_rng(3)
BOXES, CLASSES, MOST = 3, 4, 5


def weights(*shape: int) -> Tensor:
    return Tensor(shape, data=RNG.standard_normal(shape) / 4)


def detector(*, regular: bool) -> bytes:
    """Return an SSD: two convolutions on features predict boxes and scores, which the post-processing filters."""
    image, features = Tensor((1, 6, 6, 2), name="image"), Tensor((1, 6, 6, 8))
    encoded, logits = Tensor((1, 6, 6, BOXES * 4)), Tensor((1, 6, 6, BOXES * CLASSES))
    boxes, rows = Tensor((1, 36 * BOXES, 4)), Tensor((1, 36 * BOXES, CLASSES))
    scores = Tensor((1, 36 * BOXES, CLASSES))
    anchors = Tensor((36 * BOXES, 4), data=RNG.random((36 * BOXES, 4)))
    names = ("boxes", "classes", "scores", "count")
    outputs = [Tensor((1,), name=name) for name in names]  # as the converter writes them
    table = options("Conv2D", strideW=1, strideH=1)
    model = unpack(
        build(
            Op("CONV_2D", [image, weights(8, 3, 3, 2), weights(8)], [features], table),
            Op("CONV_2D", [features, weights(BOXES * 4, 1, 1, 8), weights(BOXES * 4)], [encoded], table),
            Op("RESHAPE", [encoded, ints(1, -1, 4)], [boxes], options("Reshape")),
            Op("CONV_2D", [features, weights(BOXES * CLASSES, 1, 1, 8), weights(BOXES * CLASSES)], [logits], table),
            Op("RESHAPE", [logits, ints(1, -1, CLASSES)], [rows], options("Reshape")),
            Op("LOGISTIC", [rows], [scores]),
            Op("CUSTOM", [boxes, scores, anchors], outputs, custom="TFLite_Detection_PostProcess"),
            inputs=[image],
        )
    )
    numbers = {"max_detections": MOST, "max_classes_per_detection": 1, "detections_per_class": 3, "num_classes": 3}
    reals = {"nms_score_threshold": 0.3, "nms_iou_threshold": 0.5, "y_scale": 10.0, "x_scale": 10.0}
    table = {**numbers, **reals, "h_scale": 5.0, "w_scale": 5.0, "use_regular_nms": regular}
    model.subgraphs[0].operators[-1].customOptions = list(flexbuffers.Dumps(table))
    return pack(model)


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize("declaration", [None, *DECLARATIONS])
def test_detector(regular: bool, declaration: str | None) -> None:
    data, image = detector(regular=regular), RNG.random((1, 6, 6, 2), np.float32)
    assert_runs_as_in_litert(declare(data, declaration) if declaration else data, [image])
    model = tflite.parse(data)
    shapes = [model.main.operands[index].dimensions for index in model.main.output_indexes]
    assert shapes == [(1, MOST, 4), (1, MOST), (1, MOST), (1,)]


def branching() -> bytes:
    """Return a condition and a loop, whose subgraphs are resized to their inputs, and a composite."""
    x = Tensor((2, 3), name="x")
    pair = [Tensor((2, 3)) for _ in range(2)]
    summed = Tensor((2, 3))
    addition = Branch([Op("ADD", pair, [summed], options("Add"))], pair, [summed])
    branches = []
    for name in ("EXP", "NEG"):
        source, result = Tensor((2, 3)), Tensor((2, 3))
        branches.append(Branch([Op(name, [source], [result])], [source], [result]))
    count, value, more = Tensor((), "INT32"), Tensor((2, 3)), Tensor((), "BOOL")
    test = Branch([Op("LESS", [count, Tensor((), "INT32", data=3)], [more])], [count, value], [more])
    start, carried, next_, grown = Tensor((), "INT32"), Tensor((2, 3)), Tensor((), "INT32"), Tensor((2, 3))
    steps = [
        Op("ADD", [start, Tensor((), "INT32", data=1)], [next_], options("Add")),
        Op("MUL", [carried, Tensor((), data=1.5)], [grown], options("Mul")),
    ]
    body = Branch(steps, [start, carried], [next_, grown])
    largest, positive = Tensor(()), Tensor((), "BOOL")
    chosen, doubled, counted, result = Tensor((2, 3)), Tensor((2, 3)), Tensor((), "INT32"), Tensor((2, 3))
    choice = options("If", thenSubgraphIndex=1, elseSubgraphIndex=2)
    loop = options("While", condSubgraphIndex=3, bodySubgraphIndex=4)
    attributes = np.frombuffer(flexbuffers.Dumps({}), np.uint8)
    composite = options(
        "StableHLOComposite", name="test.double", decompositionSubgraphIndex=5, compositeAttributes=attributes
    )
    zero = Tensor((), "INT32", data=0)
    return build(
        Op("REDUCE_MAX", [x, ints(0, 1)], [largest], options("Reducer")),
        Op("GREATER", [largest, Tensor((), data=0.5)], [positive]),
        Op("IF", [positive, x], [chosen], choice, branches=branches),
        Op("STABLEHLO_COMPOSITE", [chosen, chosen], [doubled], composite),
        Op("WHILE", [zero, doubled], [counted, result], loop, branches=[test, body, addition]),
        inputs=[x],
        outputs=[result],
    )


@pytest.mark.parametrize("declaration", [None, *DECLARATIONS])
@pytest.mark.parametrize("rows", [2, 5])
@pytest.mark.parametrize("value", [0.25, 0.75])
def test_subgraphs(declaration: str | None, rows: int, value: float) -> None:
    data = declare(branching(), declaration) if declaration else branching()
    x = np.full((rows, 3), value, np.float32)
    assert_runs_as_in_litert(data, [x], shapes={"x": (rows, 3)})


@pytest.mark.slow
@pytest.mark.parametrize("declaration", DECLARATIONS)
def test_models(declaration: str) -> None:
    for path in sorted(shared("models").glob("*.tflite")):
        data = path.read_bytes()
        assert shapes(declare(data, declaration)) == shapes(data), path.name


def shapes(data: bytes) -> list[tuple[int, ...]]:
    """Return the dimensions of the operands of an imported model."""
    return [operand.dimensions for operand in tflite.parse(data).main.operands]


def test_quantized_model_without_shapes() -> None:
    """LiteRT runs layers of undeclared shapes without XNNPACK, and CpuAcc with it, as if the file had the shapes."""
    data = shared("models/mobilenet_edgetpu_224_1.0_uint8.tflite").read_bytes()
    engine = interpreter.Interpreter(
        model_content=data, experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    engine.allocate_tensors()
    computed = {detail["index"]: detail["shape"].tolist() for detail in engine.get_tensor_details()}
    model = unpack(data)
    for index, tensor in enumerate(model.subgraphs[0].tensors):
        tensor.shape = computed[index]
    x = RNG.integers(0, 256, (1, 224, 224, 3), np.uint8)
    (ours,) = execute(prepare(tflite.parse(data), DEVICE), [x])[1]
    np.testing.assert_array_equal(ours, run_litert(pack(model), [x])[0])
