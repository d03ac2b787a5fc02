"""Models that no device runs: LiteRT runs them in the program, with the same results as without nnhal."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nnhal import litert, tflite
from nnhal.client.fallback.placement import FallbackPlacement
from nnhal.litert import Interpreter, local
from tests.nnhal.litert import models
from tests.nnhal.litert.models import floats
from tests.nnhal.litert.programs import allocated, attempt, differences, run
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options

original = pytest.importorskip("ai_edge_litert.interpreter")
pytest.importorskip("ml_dtypes")  # gives bfloat16 to numpy

pytestmark = pytest.mark.filterwarnings("ignore:LiteRT runs model in this process")

WORDS = np.array(["bb", "other"])
FEW_BITS = ("INT4", "UINT4", "INT2", "FLOAT8_E4M3FN", "FLOAT8_E5M2", "BFLOAT16")


def use_a_table(module: Any) -> Iterator[object]:
    """Look words up in a hash table that two signatures share."""
    interpreter = allocated(module, models.vocabulary())
    yield run(interpreter, WORDS), interpreter.get_output_details(), interpreter._get_ops_details()[:5]
    yield interpreter.get_signature_runner("classify")(word=WORDS[::-1])
    yield interpreter.get_signature_runner("size")()


def share_a_variable(module: Any) -> Iterator[object]:
    """Use a variable in a signature that a device could run, and in one with strings."""
    interpreter = module.Interpreter(model_content=models.counter_and_texts())
    add, count = interpreter.get_signature_runner("add"), interpreter.get_signature_runner("count")
    for _ in range(2):
        yield add(x=np.ones(2, np.float32)), count(word=np.array(["a", "c"]))


def keep_a_state(module: Any) -> Iterator[object]:
    """Run a layer whose state stays until it is reset."""
    interpreter = allocated(module, models.state_and_texts())
    for number in range(4):
        if number == 3:
            interpreter.reset_all_variables()
        result, column = run(interpreter, floats(1, 2), WORDS)
        yield result, column.tolist()


def change_shapes(module: Any) -> Iterator[object]:
    """Run strings of changing numbers."""
    text, column = models.dynamic((1,), "text", type_="STRING"), models.dynamic((1, 1), "column", type_="STRING")
    reshape = Op("RESHAPE", [text, ints(-1, 1)], [column], options("Reshape", newShape=[-1, 1]))
    interpreter = module.Interpreter(model_content=build(reshape, inputs=[text]))
    for count in (1, 3, 2, 3):
        interpreter.resize_tensor_input(0, [count])
        interpreter.allocate_tensors()
        yield [output.tolist() for output in run(interpreter, np.array(list("abc")[:count]))]
        yield interpreter.get_output_details()


def use_few_bits(module: Any) -> Iterator[object]:
    """Read and write tensors of types that numpy lacks."""
    for type_ in FEW_BITS:
        interpreter = module.Interpreter(model_content=models.few_bits(type_))
        yield (
            attempt(interpreter.get_input_details, words="Invalid data-type for array"),
            interpreter.get_tensor_details(),
        )
        interpreter.allocate_tensors()
        dtype = interpreter.get_input_details()[0]["dtype"]
        yield attempt(run, interpreter, np.arange(6, dtype=dtype).reshape(2, 3), words="Cannot set tensor")
    for type_ in ("INT4", "INT2"):
        yield module.Interpreter(model_content=models.packed_weights(type_)).get_tensor(1)


def use_no_inputs(module: Any) -> Iterator[object]:
    """Run a model that has no inputs."""
    numbers = Op("RANDOM_UNIFORM", [ints(2, 2)], [Tensor((2, 2))], options("Random", seed=1, seed2=2))
    yield run(allocated(module, build(numbers, inputs=[])))


PROGRAMS = (use_a_table, share_a_variable, keep_a_state, change_shapes, use_few_bits, use_no_inputs)


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_equal_those_of_litert(program: Any) -> None:
    assert list(differences(list(program(original)), list(program(litert)))) == []


def test_the_program_learns_why() -> None:
    interpreter = Interpreter(model_content=models.texts())
    with pytest.warns(UserWarning, match=r"LiteRT runs model in this process: .*tensor 0 \('words'\) is STRING"):
        interpreter.allocate_tensors()
    assert isinstance(interpreter.placement, FallbackPlacement)
    assert interpreter.placement.summary.startswith("LiteRT runs the model in this process: operator 0 (GATHER)")


def test_values_exist_before_the_first_run() -> None:
    """LiteRT ends the process here."""
    interpreter = allocated(litert, models.texts())
    assert interpreter.get_tensor(0).tolist() == interpreter.get_tensor(2).tolist() == [b"", b""]
    interpreter.set_tensor(0, WORDS)
    assert interpreter.tensor(0)().tolist() == [b"bb", b"other"]


def test_litert_may_lack_the_operator_too() -> None:
    custom = Op("CUSTOM", [Tensor((2,), "STRING", name="text")], [Tensor((2,))], custom="Mine")
    with pytest.raises(RuntimeError, match=r"tensor 0 \('text'\) is STRING|'Mine'.*; LiteRT in this process: .*Mine"):
        allocated(litert, build(custom))


def test_an_absent_litert_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(RuntimeError, match=r"'words'\) is STRING.*; install ai-edge-litert to run it in this process"):
        allocated(litert, models.texts())


def test_other_models_do_not_load_litert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LocalModel", None)
    assert run(allocated(litert, models.affine()), floats(1, 3))


@pytest.mark.parametrize("model", [models.texts, lambda: models.few_bits("INT4"), models.vocabulary])
def test_an_import_names_the_interpreter(model: Any) -> None:
    with pytest.raises(tflite.TfliteError, match=r"; nnhal\.litert\.Interpreter has LiteRT run in the program"):
        tflite.parse(model())
