"""The interpreter on devices: how it finds one, what it shares, what it releases, and what it cannot do."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from nnhal.embedded import EmbeddedService
from nnhal.errors import DeadObjectError
from nnhal.litert import Interpreter, InterpreterWithCustomOps, load_delegate
from nnhal.litert.devices import shared_device
from nnhal.litert.preparation import PreparedGraph
from nnhal.types import CacheState
from tests.nnhal.litert import models
from tests.nnhal.litert.models import floats
from tests.nnhal.litert.programs import run
from tests.nnhal.tflite.build import Op, Tensor, build, ints, options

FORK = """
import os, sys
import numpy as np
from nnhal.litert import Interpreter

interpreter = Interpreter(model_content=bytes.fromhex(sys.argv[1]))
interpreter.allocate_tensors()
interpreter.set_tensor(0, np.ones((1, 3), np.float32))
child = os.fork()
interpreter.invoke()
print(interpreter.get_tensor(4).tolist(), flush=True)
if child:
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status))
os._exit(0)
"""


@pytest.fixture(scope="module")
def reference_service() -> Iterator[str]:
    """Yield the address of a service without the LiteRT extension."""
    with closing(EmbeddedService("--backends", "CpuRef")) as service:
        yield service.target


def ready(content: bytes, **device: str) -> Interpreter:
    """Return an interpreter that is ready."""
    interpreter = Interpreter(model_content=content, **device)  # type: ignore[arg-type]
    interpreter.allocate_tensors()
    return interpreter


def device_graph(interpreter: Interpreter) -> PreparedGraph:
    """Return the main subgraph, which a device runs."""
    graph = interpreter._subgraphs[0].graph
    assert isinstance(graph, PreparedGraph)
    return graph


def test_environment_names_the_device(reference_service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_TARGET", f"{reference_service}, other:1")
    interpreter = ready(models.affine())
    assert {each.backend for each in interpreter.placement.operations} == {"CpuRef"}
    assert np.allclose(run(interpreter, floats(1, 3))[0], 2 * floats(1, 3) + [1, 2, 3])
    assert shared_device({"target": reference_service}) is shared_device({})


def test_argument_precedes_the_environment(reference_service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_TARGET", "unix:/absent.sock")
    run(ready(models.affine(), target=reference_service), floats(1, 3))
    with pytest.raises(RuntimeError, match=r"unix:/absent\.sock") as error:
        ready(models.affine())
    assert isinstance(error.value.__cause__, DeadObjectError)


def test_constructor_needs_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNHAL_TARGET", "unix:/absent.sock")
    interpreter = Interpreter(model_content=models.affine())
    assert interpreter.get_input_details()[0]["name"] == "x"
    with pytest.raises(RuntimeError, match="not ready"):
        _ = interpreter.placement


def test_device_without_an_operator_leaves_it_to_this_machine(reference_service: str) -> None:
    x, sums, y = Tensor((2, 3), name="x"), Tensor((2, 3)), Tensor((2, 3), name="y")
    content = build(
        Op("CUMSUM", [x, Tensor((), "INT32", [1])], [sums], options("Cumsum")),
        Op("ADD", [sums, sums], [y], options("Add")),
    )
    interpreter = ready(content, target=reference_service)
    assert "1 of 2 operations run on this machine" in interpreter.placement.summary  # type: ignore[attr-defined]
    value = floats(2, 3)
    assert np.allclose(run(interpreter, value)[0], 2 * np.cumsum(value, 1))


def test_cache_saves_the_second_compilation() -> None:
    def outcome() -> CacheState:
        interpreter = Interpreter(model_content=models.quantized(), cache=True)
        interpreter.allocate_tensors()
        return CacheState(device_graph(interpreter)._prepared.cache.state)

    assert [outcome(), outcome()] == [CacheState.SAVED, CacheState.HIT]


def test_interpreter_releases_its_models_when_it_is_deleted() -> None:
    interpreter = ready(models.affine())
    run(interpreter, floats(1, 3))
    source = interpreter.tensor(0)
    source().fill(1)
    gc.disable()  # the last reference ends it, not the garbage collector
    try:
        prepared = weakref.ref(device_graph(interpreter)._prepared)
        del interpreter, source
        assert prepared() is None
    finally:
        gc.enable()


def test_models_stay_prepared_for_several_shapes() -> None:
    interpreter = ready(models.affine())
    first = interpreter._subgraphs[0].graph
    interpreter.resize_tensor_input(0, [2, 3])
    interpreter.allocate_tensors()
    interpreter.resize_tensor_input(0, [1, 3])
    interpreter.allocate_tensors()
    assert interpreter._subgraphs[0].graph is first


def test_intermediate_tensor_stays_on_the_device() -> None:
    with pytest.warns(UserWarning, match="does not preserve intermediate tensors"):
        interpreter = Interpreter(model_content=models.affine(), experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    run(interpreter, floats(1, 3))
    with pytest.raises(ValueError, match=r"tensor 2 \(scaled\) is an intermediate result, which stays on the device"):
        interpreter.get_tensor(2)
    with pytest.raises(ValueError, match="tensor 2 is neither an input nor an output"):
        interpreter.set_tensor(2, floats(1, 3))
    with pytest.raises(ValueError, match="tensor 1 is neither an input nor an output"):
        interpreter.set_tensor(1, np.ones(1, np.float32))  # LiteRT crashes


def test_wide_integer_is_not_truncated() -> None:
    wide, rows = Tensor((2, 3), "INT64", name="wide"), Tensor((2, 3), "INT64", name="rows")
    interpreter = ready(build(Op("GATHER", [wide, ints(1, 0)], [rows], options("Gather"))))
    value = np.arange(6).reshape(2, 3)
    assert run(interpreter, value)[0].tolist() == value[::-1].tolist()
    with pytest.raises(ValueError, match="a value of type int64 does not fit into int32"):
        run(interpreter, value + 2**40)


def test_input_without_elements_is_refused() -> None:
    interpreter = Interpreter(model_content=models.affine())
    interpreter.resize_tensor_input(0, [0, 3])
    with pytest.raises(RuntimeError, match="an input has no elements, which a device does not take"):
        interpreter.allocate_tensors()


def test_local_code_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match=r"Failed to load delegate from libedgetpu\.so\.1\n") as error:
        load_delegate("libedgetpu.so.1")
    assert "NNHAL_TARGET names the device" in str(error.value)
    with pytest.raises(ValueError, match="a delegate would run it in this process"):
        Interpreter(model_content=models.affine(), experimental_delegates=[object()])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="no kernels of this process"):
        InterpreterWithCustomOps(["register"], model_content=models.affine())
    with pytest.raises(NotImplementedError, match=r"no tflite::Interpreter in this process"):
        Interpreter(model_content=models.affine())._native_handle()


@pytest.mark.slow
def test_fork_prepares_the_model_again() -> None:
    command = [sys.executable, "-c", FORK, models.affine().hex()]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (result.returncode, result.stdout) == (0, "[[3.0, 4.0, 5.0]]\n" * 2), result.stderr
