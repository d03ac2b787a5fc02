"""Files with several signatures: each is a subgraph, whose inputs and outputs have names for callers."""

import re
from pathlib import Path

import numpy as np
import pytest

from nnhal import tflite
from tests.driver.one_operation import device, execute, prepare
from tests.nnhal.tflite.build import Branch, Op, Tensor, build, options, pack, schema, unpack
from tests.nnhal.tflite.comparisons.against_litert import interpreter
from tests.shared import shared


def file(tmp_path: Path) -> Path:
    """Return a file with the signatures `double` and `negate`, which are subgraphs 0 and 1."""
    x, y, z, w = (Tensor((2, 3), name=name) for name in ("double_x:0", "Identity", "negate_x:0", "Identity_1"))
    negation = Branch([Op("NEG", [z], [w])], [z], [w])
    model = unpack(build(Op("ADD", [x, x], [y], options("Add"), branches=[negation])))
    model.signatureDefs = []
    for index, key in enumerate(("double", "negate")):
        signature = schema.SignatureDefT()
        signature.signatureKey, signature.subgraphIndex = key, index
        signature.inputs, signature.outputs = [schema.TensorMapT()], [schema.TensorMapT()]
        graph = model.subgraphs[index]
        signature.inputs[0].name, signature.inputs[0].tensorIndex = "values", graph.inputs[0]
        signature.outputs[0].name, signature.outputs[0].tensorIndex = "result", graph.outputs[0]
        model.signatureDefs.append(signature)
    path = tmp_path / "two.tflite"
    path.write_bytes(pack(model))
    return path


def test_signature_chooses_a_subgraph(tmp_path: Path) -> None:
    path = file(tmp_path)
    assert tflite.signatures(path) == ["double", "negate"]
    x = np.ones((2, 3), np.float32)
    for key, expected in (("double", 2), ("negate", -1)):
        model = tflite.load(path, signature=key)
        assert (model.input_names, model.output_names) == (("values",), ("result",))
        np.testing.assert_array_equal(execute(prepare(model, device("CpuAcc")), [x])[1][0], expected * x)


def test_main_subgraph_is_the_default(tmp_path: Path) -> None:
    """LiteRT's interpreter runs it, too, and has the names of its tensors."""
    model = tflite.load(file(tmp_path))
    assert (model.input_names, model.output_names) == (("double_x:0",), ("Identity",))


def test_shape_of_an_input_has_the_name_of_the_signature(tmp_path: Path) -> None:
    model = tflite.load(file(tmp_path), signature="negate", shapes={"values": (4, 3)})
    assert model.main.operands[model.main.input_indexes[0]].dimensions == (4, 3)


def test_unknown_signature_is_refused(tmp_path: Path) -> None:
    reason = "two.tflite: has no signature 'invert'; there are 'double', 'negate'"
    with pytest.raises(tflite.TfliteError, match=re.escape(reason)):
        tflite.load(file(tmp_path), signature="invert")


def test_signatures_agree_with_litert() -> None:
    path = shared("models/multi_signature.tflite")
    engine = interpreter.Interpreter(str(path))
    assert tflite.signatures(path) == list(engine.get_signature_list())
    rng = np.random.default_rng(2)
    for key in tflite.signatures(path):
        model = tflite.load(path, signature=key)
        runner = engine.get_signature_runner(key)
        arrays = [rng.random(model.main.operands[i].dimensions, np.float32) for i in model.main.input_indexes]
        expected = runner(**dict(zip(model.input_names, arrays, strict=True)))
        (actual,) = execute(prepare(model, device("CpuAcc")), arrays)[1]
        np.testing.assert_allclose(actual, expected[model.output_names[0]], rtol=1e-6)
