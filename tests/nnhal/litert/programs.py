"""Programs for LiteRT, one or more for each public member. They run unchanged with LiteRT and with nnhal.

A program takes a module with the classes of `ai_edge_litert.interpreter`, and yields what it observes: arrays, details
or failures. `differences` compares the observations of two modules.
"""

import gc
import pickle
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np

from tests.nnhal.litert import models
from tests.nnhal.litert.models import floats

Program = Callable[[Any], Iterator[object]]

PROGRAMS: dict[str, list[Program]] = {}
"""Programs by the member that they show: `Interpreter.invoke`, or `Interpreter(num_threads)` for an argument."""


def program(*members: str) -> Callable[[Program], Program]:
    """Register a program for members."""

    def register(function: Program) -> Program:
        for member in members:
            PROGRAMS.setdefault(member, []).append(function)
        return function

    return register


@dataclass(frozen=True)
class Failure:
    """An exception, and whether its text has the words that tests of programs match."""

    kind: type[BaseException]
    has_words: bool


def attempt(function: Callable[..., object], *arguments: Any, words: str = "", **options: Any) -> object:
    """Return the result of a function, or its failure."""
    try:
        return function(*arguments, **options)
    except Exception as error:
        return Failure(type(error), words in str(error))


def differences(expected: object, actual: object, path: str = "") -> Iterator[str]:
    """Yield how two observations differ. Arrays must be equal bit for bit."""
    if isinstance(expected, np.ndarray | np.generic):
        if not isinstance(actual, type(expected)) or _value(expected) != _value(actual):
            yield f"{path}: {actual!r} instead of {expected!r}"
    elif isinstance(expected, dict) and isinstance(actual, dict) and list(expected) == list(actual):
        for key in expected:
            yield from differences(expected[key], actual[key], f"{path}[{key!r}]")
    elif isinstance(expected, list | tuple) and type(expected) is type(actual) and len(expected) == len(actual):
        for i, pair in enumerate(zip(expected, actual, strict=True)):
            yield from differences(*pair, f"{path}[{i}]")
    elif type(expected) is not type(actual) or expected != actual:
        yield f"{path}: {actual!r} instead of {expected!r}"


def _value(array: Any) -> object:
    return array.dtype, array.shape, array.tobytes()


def allocated(module: Any, model: bytes) -> Any:
    """Return an interpreter that is ready."""
    interpreter = module.Interpreter(model_content=model)
    interpreter.allocate_tensors()
    return interpreter


def run(interpreter: Any, *values: Any) -> list[Any]:
    """Run a model with its inputs in order."""
    for details, value in zip(interpreter.get_input_details(), values, strict=True):
        interpreter.set_tensor(details["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(details["index"]) for details in interpreter.get_output_details()]


# ---- Arguments of the constructor -----------------------------------------------------------------------


@program("Interpreter", "Interpreter(model_path)")
def open_files(module: Any) -> Iterator[object]:
    """Open files by path, absent ones and damaged ones."""
    with NamedTemporaryFile(suffix=".tflite") as file:
        file.write(models.affine())
        file.flush()
        for path in (file.name, Path(file.name)):
            yield module.Interpreter(path).get_input_details()
            yield module.Interpreter(model_path=path).get_output_details()
        yield attempt(module.Interpreter, file.name, models.affine(), words="Can't both provide")
    yield attempt(module.Interpreter, "/absent.tflite", words="Could not open '/absent.tflite'.")
    yield attempt(module.Interpreter, words="`model_path` or `model_content` must be specified.")
    yield attempt(module.Interpreter, __file__, words="The model is not a valid Flatbuffer buffer")


@program("Interpreter(model_content)")
def open_contents(module: Any) -> Iterator[object]:
    """Open contents, also those that are damaged or not bytes."""
    yield run(allocated(module, models.affine()), floats(1, 3))
    words = "The model is not a valid Flatbuffer buffer"
    for content in (b"x" * 100, b"abc", models.affine()[:300]):
        yield attempt(module.Interpreter, model_content=content, words=words)
    for wrong in ("text", bytearray(models.affine()), 7):
        yield attempt(module.Interpreter, model_content=wrong, words="incompatible function arguments")


@program("Interpreter(num_threads)")
def choose_threads(module: Any) -> Iterator[object]:
    """Choose numbers of threads, also those that are invalid."""
    interpreter = module.Interpreter(model_content=models.affine(), num_threads=2)
    interpreter.allocate_tensors()
    yield run(interpreter, floats(1, 3))
    for number, words in ((0, "num_threads should >= 1"), ("2", "type of num_threads should be int")):
        yield attempt(module.Interpreter, model_content=models.affine(), num_threads=number, words=words)


@program("Interpreter(experimental_op_resolver_type)", "OpResolverType")
def choose_kernels(module: Any) -> Iterator[object]:
    """Choose a set of kernels."""
    yield [(each.name, each.value) for each in module.OpResolverType]
    for kernels in module.OpResolverType:
        interpreter = module.Interpreter(model_content=models.affine(), experimental_op_resolver_type=kernels)
        interpreter.allocate_tensors()
        yield run(interpreter, floats(1, 3))
    words = "Unrecognized passed in op resolver type: 5"
    yield attempt(module.Interpreter, model_content=models.affine(), experimental_op_resolver_type=5, words=words)


@program(
    "Interpreter(experimental_preserve_all_tensors)",
    "Interpreter(experimental_disable_delegate_clustering)",
    "Interpreter(experimental_default_delegate_latest_features)",
    "Interpreter(experimental_compress_quantization_zero_points)",
    "Interpreter(experimental_disable_delegate_node_fusion)",
    "Interpreter(experimental_force_delegate_node_profiling)",
    "Interpreter.experimental_compress_quantization_zero_points",
)
def choose_options(module: Any) -> Iterator[object]:
    """Give each of the other options."""
    for name in (
        "experimental_preserve_all_tensors",
        "experimental_disable_delegate_clustering",
        "experimental_default_delegate_latest_features",
        "experimental_compress_quantization_zero_points",
        "experimental_disable_delegate_node_fusion",
        "experimental_force_delegate_node_profiling",
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            interpreter = module.Interpreter(model_content=models.affine(), **{name: True})
        yield [each.category for each in caught]
        yield interpreter.experimental_compress_quantization_zero_points
        interpreter.allocate_tensors()
        yield run(interpreter, floats(1, 3))


@program("Interpreter(experimental_delegates)", "Delegate", "load_delegate")
def load_delegates(module: Any) -> Iterator[object]:
    """Continue without a delegate that does not load, as LiteRT's documentation shows it."""
    try:
        delegates = [module.load_delegate("libabsent_delegate.so", {"option": 1})]
    except (ValueError, OSError):
        delegates = []
    with suppress(ValueError, OSError):
        delegates.append(module.Delegate("libabsent_delegate.so"))
    interpreter = module.Interpreter(model_content=models.affine(), experimental_delegates=delegates)
    interpreter.allocate_tensors()
    yield run(interpreter, floats(1, 3))


@program("InterpreterWithCustomOps", "InterpreterWithCustomOps(custom_op_registerers)")
def add_no_kernels(module: Any) -> Iterator[object]:
    """Use the class for further kernels, without any."""
    interpreter = module.InterpreterWithCustomOps(custom_op_registerers=[], model_content=models.affine())
    interpreter.allocate_tensors()
    yield run(interpreter, floats(1, 3))


# ---- Details --------------------------------------------------------------------------------------------

ALL_MODELS = (
    models.affine,
    models.several_signatures,
    models.counter,
    models.quantized,
    models.scalars,
    models.wide,
    models.passed_on,
    models.unknown_shape,
)


@program("Interpreter.get_input_details", "Interpreter.get_output_details", "Interpreter.get_tensor_details")
def get_details(module: Any) -> Iterator[object]:
    """Read all details, before and after the allocation."""
    for model in ALL_MODELS:
        interpreter = module.Interpreter(model_content=model())
        yield [interpreter.get_tensor_details(i) for i in range(interpreter.num_subgraphs())]
        count = len(interpreter.get_tensor_details())
        interpreter.allocate_tensors()
        yield interpreter.get_tensor_details()[:count]  # LiteRT adds tensors of its own
        yield interpreter.get_input_details(), interpreter.get_output_details()
    yield attempt(interpreter.get_tensor_details, 9, words="subgraph_index is out of range: 9 for the model, which has")
    yield attempt(interpreter.get_tensor_details, -1, words="subgraph_index is out of range: -1")


@program("Interpreter._get_tensor_details", "Interpreter.num_subgraphs")
def get_details_of_subgraphs(module: Any) -> Iterator[object]:
    """Read details of single tensors."""
    interpreter = module.Interpreter(model_content=models.several_signatures())
    yield interpreter.num_subgraphs()
    yield interpreter._get_tensor_details(0, 0), interpreter._get_tensor_details(np.int64(2), 1)
    yield attempt(interpreter._get_tensor_details, 9, 0, words="Invalid tensor index 9 exceeds max tensor index 3")


@program("Interpreter._get_ops_details", "Interpreter._get_op_details")
def get_operators(module: Any) -> Iterator[object]:
    """Read the operators, as tools do."""
    for model in ALL_MODELS:
        interpreter = module.Interpreter(model_content=model())
        yield interpreter._get_ops_details()
        yield interpreter._get_op_details(0)


# ---- Values ---------------------------------------------------------------------------------------------


@program("Interpreter.allocate_tensors", "Interpreter.invoke")
def run_models(module: Any) -> Iterator[object]:
    """Run models, and forget to allocate tensors."""
    interpreter = module.Interpreter(model_content=models.affine())
    yield attempt(interpreter.invoke, words="Invoke called on model that is not ready.")
    yield interpreter.allocate_tensors(), interpreter.allocate_tensors()
    yield run(interpreter, floats(1, 3)), interpreter.invoke()
    yield run(allocated(module, models.quantized()), np.arange(-3, 3, dtype=np.int8).reshape(2, 3))
    yield run(allocated(module, models.scalars()), np.float32(1.5), np.array(2, np.float32))
    interpreter = module.Interpreter(model_content=models.passed_on())
    yield interpreter.get_tensor(1), interpreter.allocate_tensors(), interpreter.get_tensor(1)
    for seed in range(3):
        yield run(interpreter, floats(1, 3, seed=seed))
    big = np.arange(6).reshape(2, 3)
    yield run(allocated(module, models.wide()), big, -big)


@program("Interpreter.set_tensor")
def set_values(module: Any) -> Iterator[object]:
    """Set values, also of wrong types, shapes and tensors."""
    interpreter = module.Interpreter(model_content=models.affine())
    words = "Cannot set tensor: Tensor is unallocated. Try calling allocate_tensors() first"
    yield attempt(interpreter.set_tensor, 0, floats(1, 3), words=words)
    interpreter.allocate_tensors()
    for value, name in (
        (np.zeros((1, 3)), "FLOAT64"),
        (np.zeros((1, 3), np.uint16), "UINT16"),
        (np.zeros((1, 3), np.bool_), "BOOL"),
        (np.zeros((1, 3), np.float16), "FLOAT16"),
        (np.zeros((1, 3), np.complex64), "COMPLEX64"),
        ([[1, 2, 3]], "INT64"),
        (np.array([["a", "b", "c"]]), "STRING"),
        (None, "STRING"),
    ):
        words = f"Cannot set tensor: Got value of type {name} but expected type FLOAT32 for input 0, name: x "
        yield attempt(interpreter.set_tensor, 0, value, words=words)
    words = "Cannot set tensor: Dimension mismatch. Got 1 but expected 2 for input 0."
    yield attempt(interpreter.set_tensor, 0, floats(3), words=words)
    words = "Cannot set tensor: Dimension mismatch. Got 4 but expected 3 for dimension 1 of input 0."
    yield attempt(interpreter.set_tensor, 0, floats(1, 4), words=words)
    for index in (-1, 99):
        words = f"Invalid tensor index {index} exceeds max tensor index 5"
        yield attempt(interpreter.set_tensor, index, floats(1, 3), words=words)
    for no_index in ("0", 0.5, None):
        yield attempt(interpreter.set_tensor, no_index, floats(1, 3))
    for value in (floats(3, 1).T, floats(2, 6)[:1, ::2], floats(1, 3).astype(">f4").astype("<f4")):
        yield interpreter.set_tensor(np.int32(0), value)
        interpreter.invoke()
        yield interpreter.get_tensor(4)
    value = floats(1, 3)
    interpreter.set_tensor(0, value)
    value[:] = 0  # the interpreter has a copy
    yield interpreter.get_tensor(0)
    yield interpreter.set_tensor(4, floats(1, 3, seed=5)), interpreter.get_tensor(4)


@program("Interpreter.set_tensor", "Interpreter.get_tensor")
def use_strings(module: Any) -> Iterator[object]:
    """Set and get strings of several types, which LiteRT runs in both cases."""
    interpreter = module.Interpreter(model_content=models.texts())
    yield interpreter.get_input_details(), interpreter.get_tensor_details(), interpreter.get_tensor(3).tolist()
    interpreter.allocate_tensors()
    for value in (
        np.array(["héllo", "spam"]),
        np.array([b"\xff\0x", b""]),
        np.array(["a", b"b"], object),
        np.array(["a", "b", "c", "d"])[::2],
    ):
        yield [output.tolist() for output in run(interpreter, value)], interpreter.get_tensor(0).tolist()
        interpreter.invoke()
        yield interpreter.get_tensor(2).dtype, interpreter.get_tensor(2).tolist()
    words = "Cannot set tensor: Got value of type FLOAT32 but expected type STRING for input 0, name: words "
    yield attempt(interpreter.set_tensor, 0, floats(2), words=words)
    words = "Cannot set tensor: Dimension mismatch. Got 3 but expected 2 for dimension 0 of input 0."
    yield attempt(interpreter.set_tensor, 0, np.array(["a", "b", "c"]), words=words)
    yield attempt(interpreter.set_tensor, 0, None, words="Cannot set tensor: Dimension mismatch. Got 0 but expected 1")
    yield attempt(interpreter.set_tensor, 0, np.array([1, "a"], object), words="PyBytes_AsStringAndSize() failed.")
    interpreter.resize_tensor_input(0, [4])
    yield attempt(interpreter.allocate_tensors)


@program("Interpreter.get_tensor")
def get_values(module: Any) -> Iterator[object]:
    """Read inputs, outputs and constants."""
    interpreter = module.Interpreter(model_content=models.affine())
    for index in (0, 4):
        yield attempt(interpreter.get_tensor, index, words="Tensor data is null. Run allocate_tensors() first")
    yield interpreter.get_tensor(1), interpreter.get_tensor(3)
    interpreter.allocate_tensors()
    yield run(interpreter, floats(1, 3)), interpreter.get_tensor(0), interpreter.get_tensor(np.int16(1))
    result = interpreter.get_tensor(4)
    yield result.flags.writeable, result.flags.owndata
    result[:] = 0  # the caller has a copy
    yield interpreter.get_tensor(4), interpreter.get_tensor(tensor_index=4, subgraph_index=0)
    yield attempt(interpreter.get_tensor, 5, words="Invalid tensor index 5 exceeds max tensor index 5")
    yield attempt(interpreter.get_tensor, 0, 3, words="Invalid subgraph index 3 exceeds max subgraph index 1")
    yield allocated(module, models.quantized()).get_tensor(1)


@program("Interpreter.tensor")
def use_views(module: Any) -> Iterator[object]:
    """Write and read values in place, and keep views for too long."""
    interpreter = module.Interpreter(model_content=models.affine())
    source, target = interpreter.tensor(0), interpreter.tensor(4)
    yield attempt(source, words="Tensor data is null. Run allocate_tensors() first")
    interpreter.allocate_tensors()
    source().fill(3.0)
    interpreter.invoke()
    yield target().copy(), target().flags.writeable, source().copy()
    target()[0, 0] = 7
    yield interpreter.get_tensor(4)
    words = "There is at least 1 reference to internal data\n      in the interpreter"
    view = source()
    for call in (interpreter.invoke, interpreter.allocate_tensors):
        yield attempt(call, words=words)
    yield attempt(interpreter.resize_tensor_input, 0, [2, 3], words=words)
    interpreter.set_tensor(0, floats(1, 3))
    yield view.copy(), interpreter.get_tensor(0)
    part = view[0]
    del view
    yield attempt(interpreter.invoke, words=words)
    del part
    gc.collect()
    yield interpreter.invoke(), interpreter.get_tensor(4)
    interpreter = allocated(module, models.scalars())
    yield run(interpreter, np.float32(1), np.float32(2)), interpreter.tensor(2)()
    yield attempt(interpreter.tensor(9), words="Invalid tensor index 9 exceeds max tensor index 3")


# ---- Shapes ---------------------------------------------------------------------------------------------


@program("Interpreter.resize_tensor_input")
def change_shapes(module: Any) -> Iterator[object]:
    """Change shapes, to and fro, to impossible ones, and with `strict`."""
    interpreter = module.Interpreter(model_content=models.affine())
    for rows in (2, 5, 2, 1):
        interpreter.resize_tensor_input(0, [rows, 3])
        yield interpreter.get_input_details()[0]["shape"]
        yield attempt(interpreter.invoke, words="Invoke called on model that is not ready.")
        words = "Tensor is unallocated. Try calling allocate_tensors() first"
        yield attempt(interpreter.set_tensor, 0, floats(rows, 3), words=words)
        interpreter.allocate_tensors()
        yield interpreter.get_output_details()[0]
        yield run(interpreter, floats(rows, 3))
    interpreter.resize_tensor_input(0, (4, 3), strict=True)
    interpreter.allocate_tensors()
    yield run(interpreter, floats(4, 3))
    words = "ResizeInputTensorStrict only allows mutating unknown dimensions identified by -1."
    yield attempt(interpreter.resize_tensor_input, 0, [4, 5], strict=True, words=words)
    yield attempt(interpreter.resize_tensor_input, 0, [[4, 3]], words="Shape should be 1D instead of 2.")
    yield attempt(interpreter.resize_tensor_input, 1, [3], words="Attempting to resize a fixed-size tensor.")
    yield attempt(interpreter.resize_tensor_input, 99, [3])
    yield attempt(interpreter.resize_tensor_input, 0, ["a"])
    yield attempt(interpreter.resize_tensor_input, 0, [-1, 3], words="BytesRequired number of elements overflowed")
    interpreter.resize_tensor_input(0, [2, 4])  # which cannot be added to [3]
    yield attempt(lambda: (interpreter.allocate_tensors(), interpreter.invoke()))
    interpreter.resize_tensor_input(0, [6, 3])
    interpreter.allocate_tensors()
    yield run(interpreter, floats(6, 3))


@program("Interpreter.resize_tensor_input")
def change_ranks(module: Any) -> Iterator[object]:
    """Change the number of dimensions, and the shapes of inputs without names."""
    interpreter = module.Interpreter(model_content=models.nameless())
    for shape, other in (((2, 3), (1, 3)), ((2, 2, 3), (3,)), ((3,), (3,)), ((4, 1), (1, 5)), ((1, 3), (3,))):
        interpreter.resize_tensor_input(0, shape)
        interpreter.resize_tensor_input(1, other)
        interpreter.allocate_tensors()
        yield interpreter.get_output_details()
        yield run(interpreter, floats(*shape), floats(*other, seed=1))


@program("Interpreter.get_output_details")
def observe_unknown_shapes(module: Any) -> Iterator[object]:
    """Run a model that determines the shape of its output."""
    interpreter = allocated(module, models.unknown_shape())
    for flags in ([1, 0, 1, 1], [0, 0, 1, 0]):
        yield run(interpreter, np.array(flags, np.bool_))
        yield interpreter.get_output_details()[0]["shape"]


# ---- Variables ------------------------------------------------------------------------------------------


@program("Interpreter.reset_all_variables")
def keep_variables(module: Any) -> Iterator[object]:
    """Run a model with a resource variable, reset it, and run another interpreter of the same model."""
    interpreter, other = allocated(module, models.counter()), allocated(module, models.counter())
    for i in range(3):
        yield run(interpreter, floats(1, 2, seed=i))
    yield interpreter.reset_all_variables()
    yield run(interpreter, floats(1, 2)), run(other, floats(1, 2))
    yield interpreter.allocate_tensors(), run(interpreter, floats(1, 2))


# ---- Signatures -----------------------------------------------------------------------------------------


@program("Interpreter.get_signature_list", "Interpreter._get_full_signature_list")
def list_signatures(module: Any) -> Iterator[object]:
    """Read the signatures."""
    for model in ALL_MODELS:
        interpreter = module.Interpreter(model_content=model())
        yield interpreter.get_signature_list(), interpreter._get_full_signature_list()


@program("Interpreter.get_signature_runner", "SignatureRunner", "SignatureRunner(interpreter)")
@program("SignatureRunner(signature_key)")
def create_runners(module: Any) -> Iterator[object]:
    """Create runners, also of signatures that do not exist."""
    interpreter = module.Interpreter(model_content=models.several_signatures())
    words = "SignatureDef signature_key is None and model has 2 Signatures. None is only allowed when"
    yield attempt(interpreter.get_signature_runner, words=words)
    words = 'Invalid signature_key provided: "other".'
    yield attempt(interpreter.get_signature_runner, "other", words=words)
    yield attempt(module.SignatureRunner, words="None interpreter provided.")
    yield attempt(module.SignatureRunner, interpreter, words="None signature_key provided.")
    yield module.SignatureRunner(interpreter, "scale")(x=floats(4))
    only = module.Interpreter(model_content=models.affine())
    yield only.get_signature_runner()(x=floats(1, 3))


@program("SignatureRunner.__call__")
def call_runners(module: Any) -> Iterator[object]:
    """Run signatures with several shapes, and with wrong names, numbers and types."""
    interpreter = module.Interpreter(model_content=models.several_signatures())
    add, scale = interpreter.get_signature_runner("add"), interpreter.get_signature_runner("scale")
    for rows in (1, 3, 1):
        yield add(left=floats(rows, 2), above=floats(rows, 2, seed=1)), scale(x=floats(4))
    words = "Invalid number of inputs provided for running a SignatureDef, expected 2 vs provided 1"
    yield attempt(add, left=floats(1, 2), words=words)
    yield attempt(add, left=floats(1, 2), below=floats(1, 2), words="Invalid Input name (below) for SignatureDef")
    yield attempt(add, floats(1, 2), floats(1, 2), words="takes 1 positional argument but 3 were given")
    yield attempt(add, left=[[1.0, 2.0]], above=floats(1, 2), words="'list' object has no attribute 'shape'")
    words = "Cannot set tensor: Got value of type INT64 but expected type FLOAT32 for input 0, name: a "
    yield attempt(add, left=np.zeros((1, 2), int), above=floats(1, 2), words=words)
    yield attempt(add, left=floats(2, 2), above=floats(3, 2))
    yield add(left=floats(2, 2), above=floats(2, 2))


@program("SignatureRunner.__call__")
def share_variables(module: Any) -> Iterator[object]:
    """Run a signature that changes a variable, another one that reads it, and one that only assigns it."""
    interpreter = module.Interpreter(model_content=models.counter())
    step, value, assign = (interpreter.get_signature_runner(key) for key in ("step", "value", "assign"))
    for i in range(3):
        yield step(x=floats(1, 2, seed=i)), value()
    yield assign(new=floats(1, 2, seed=4)), value(), step(x=floats(1, 2))
    yield run(allocated(module, models.counter()), floats(1, 2))


@program("SignatureRunner.get_input_details", "SignatureRunner.get_output_details")
def get_details_of_signatures(module: Any) -> Iterator[object]:
    """Read the details of signatures, before and after they run."""
    interpreter = module.Interpreter(model_content=models.several_signatures())
    for key in ("add", "scale"):
        runner = interpreter.get_signature_runner(key)
        yield runner.get_input_details(), runner.get_output_details()
    runner = interpreter.get_signature_runner("add")
    runner(left=floats(3, 2), above=floats(3, 2))
    yield runner.get_input_details(), runner.get_output_details()


# ---- Several interpreters --------------------------------------------------------------------------------


@program("Interpreter")
def copy_interpreters(module: Any) -> Iterator[object]:
    """Use interpreters side by side, delete one, and try to pickle one."""
    first, second = allocated(module, models.affine()), allocated(module, models.affine())
    yield run(first, floats(1, 3)), run(second, floats(1, 3, seed=1))
    yield first.get_tensor(4)
    del first
    yield run(second, floats(1, 3))
    try:
        pickle.dumps(second)
        yield "pickled"
    except Exception:
        yield "refused"
