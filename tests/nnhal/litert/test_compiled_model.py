"""`CompiledModel` and `TensorBuffer`: the same programs with LiteRT and with nnhal."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from nnhal import litert
from nnhal.types import AnyArray
from tests.nnhal.litert import models
from tests.shared import shared

original = pytest.importorskip("ai_edge_litert.compiled_model")
MODELS = {"affine": models.affine, "several_signatures": models.several_signatures}
SHARED = ("kws_ref_model", "vww_96_float", "ad01_int8", "multi_signature", "selfie_segmentation")


def members(name: str) -> list[str]:
    """Return the public members of a class of LiteRT."""
    return [member for member in vars(getattr(original, name)) if not member.startswith("_") or member == "__enter__"]


@pytest.mark.parametrize("name", ["CompiledModel", "TensorBuffer"])
def test_no_member_is_missing(name: str) -> None:
    ours = getattr(litert, name)
    missing = [member for member in members(name) if not hasattr(ours, member)]
    assert missing == (["capsule"] if name == "TensorBuffer" else [])  # a pointer for C++
    for member in set(members(name)) - {"environment", "capsule"}:
        theirs = inspect.signature(getattr(getattr(original, name), member))
        assert list(theirs.parameters) == [
            each for each in inspect.signature(getattr(ours, member)).parameters if each != "device"
        ]


def attempt(function: Callable[..., object], *arguments: object) -> object:
    """Return the result of a function, or the type of its error."""
    try:
        return function(*arguments)
    except (RuntimeError, ValueError) as error:
        return type(error)


def sample(details: dict[str, Any], seed: int) -> AnyArray:
    random = np.random.default_rng(seed)
    dtype = np.dtype(details["dtype"])
    if dtype.kind == "f":
        return np.asarray(random.standard_normal(details["shape"]), dtype)
    return np.asarray(random.integers(-100 if dtype.kind == "i" else 0, 100, details["shape"]), dtype)


def observe_signatures(model: Any) -> Iterator[object]:
    """Yield what a model tells about its signatures."""
    yield model.get_signature_list()
    yield model.get_num_signatures()
    yield model.get_signature_index("missing")
    for index, key in enumerate(model.get_signature_list()):
        yield model.get_signature_by_index(index), model.get_signature_index(key)
        yield model.get_input_tensor_details(key), model.get_output_tensor_details(key)
        yield model.get_input_buffer_requirements(0, index), model.get_output_buffer_requirements(0, index)
    yield attempt(model.get_input_tensor_details, "missing")
    yield attempt(model.create_input_buffer_by_name, "missing", "missing")


def observe_runs(model: Any) -> Iterator[object]:
    """Yield the results of all signatures, by index and by name, and of wrong calls."""
    for index, (key, ports) in enumerate(model.get_signature_list().items()):
        inputs, outputs = model.create_input_buffers(index), model.create_output_buffers(index)
        for seed, buffer in enumerate(inputs):
            yield buffer.get_tensor_details()
            buffer.write(sample(buffer.get_tensor_details(), seed))
        model.run_by_index(index, inputs, outputs)
        yield from map(values, outputs)
        named = {name: model.create_output_buffer_by_name(key, name) for name in ports["outputs"]}
        model.run_by_name(key, dict(zip(ports["inputs"], inputs, strict=True)), named)
        yield from map(values, named.values())
        yield attempt(model.run_by_index, index, [], outputs)
        yield attempt(model.run_by_index, index, inputs, [])
        yield attempt(model.run_by_name, key, {}, {})
        yield attempt(model.run_by_name, "missing", {}, {})
        yield attempt(model.create_input_buffer_by_name, key, "missing")
    yield attempt(model.run_by_index, 99, [], [])
    yield attempt(model.resize_input_tensor_by_name, "missing", "missing", [1])


def values(buffer: Any) -> list[float]:
    details = buffer.get_tensor_details()
    return list(buffer.read(int(np.prod(details["shape"])), details["dtype"]).tolist())


def observe_buffers(model: Any) -> Iterator[object]:
    """Yield what a buffer takes and gives."""
    buffer = model.create_input_buffers(0)[0]
    array = sample(buffer.get_tensor_details(), 0)
    for value in (array, array.ravel()[:1], array.astype(np.float64), array.astype(np.int32), [1.0], np.tile(array, 9)):
        yield attempt(buffer.write, value)
    buffer.write(array)
    yield buffer.read(2, np.float32).tolist(), buffer.read(3, np.int8).tolist()
    yield attempt(buffer.read, 10**6, np.float32), attempt(buffer.read, 1, np.float64)
    buffer.destroy()
    yield attempt(model.run_by_index, 0, [buffer], model.create_output_buffers(0))


def observe_shapes(model: Any) -> Iterator[object]:
    """Yield the results for other shapes of the first input."""
    for rows in (2, 5):
        model.resize_input_tensor(0, [rows, 3])
        inputs, outputs = model.create_input_buffers(0), model.create_output_buffers(0)
        inputs[0].write(np.arange(3 * rows, dtype=np.float32).reshape(rows, 3))
        model.run_by_index(0, inputs, outputs)
        yield values(outputs[0]), outputs[0].get_tensor_details()
    yield attempt(model.resize_input_tensor, 0, [2, 4])


def both(data: bytes, observe: Callable[[Any], Iterator[object]]) -> Sequence[list[object]]:
    results = []
    for module in (original, litert):
        with module.CompiledModel.from_buffer(data) as model:
            results.append(list(observe(model)))
    return results


@pytest.mark.parametrize("observe", [observe_signatures, observe_runs])
@pytest.mark.parametrize("name", MODELS)
def test_models_are_the_same(name: str, observe: Callable[[Any], Iterator[object]]) -> None:
    expected, actual = both(MODELS[name](), observe)
    assert actual == expected


def test_buffers_are_the_same() -> None:
    expected, actual = both(models.affine(), observe_buffers)
    assert actual == expected


def test_shapes_are_the_same() -> None:
    expected, actual = both(models.affine(), observe_shapes)
    assert actual == expected


@pytest.mark.parametrize("name", SHARED)
def test_shared_models_are_the_same(name: str) -> None:
    data = shared(f"models/{name}.tflite").read_bytes()
    expected, actual = both(
        data, lambda model: (each for part in (observe_signatures, observe_runs) for each in part(model))
    )
    assert actual == expected


def test_host_memory_is_not_copied() -> None:
    array = np.zeros((1, 3), np.float32)
    with litert.CompiledModel.from_buffer(models.affine()) as model:
        outputs = model.create_output_buffers(0)
        source = litert.TensorBuffer.create_from_host_memory(array)
        for value in (1, 2):
            array[:] = value
            model.run_by_index(0, [source], outputs)
            assert outputs[0].read(3, np.float32).tolist() == [2 * value + 1, 2 * value + 2, 2 * value + 3]
        with pytest.raises(ValueError, match="C-contiguous"):
            litert.TensorBuffer.create_from_host_memory(np.zeros((2, 2), np.float32).T)


def test_a_closed_model_says_so() -> None:
    model = litert.CompiledModel.from_buffer(models.affine())
    model.close()
    with pytest.raises(RuntimeError, match="Signature index 0 is out of range of 0"):
        model.create_input_buffers(0)


def test_errors_name_the_problem() -> None:
    with pytest.raises(ValueError, match="not a valid Flatbuffer"):
        litert.CompiledModel.from_buffer(b"nothing")
    with pytest.raises(ValueError, match="Pass either options or hardware_accel"):
        litert.CompiledModel.from_buffer(models.affine(), hardware_accel=1, options=object())
