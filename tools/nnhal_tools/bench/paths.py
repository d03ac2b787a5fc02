"""Paths of a load test: ways to run a model, each a function that yields a call."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from nnhal_tools.bench.specification import ENGINE, ClientTask

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter

    from nnhal.client import Outputs, PartitionedModel, PreparedModel
    from nnhal.types import AnyArray, Model, Timing

Call: TypeAlias = "Callable[[bool], Timing | None]"
"""Function that runs the model once. Its argument says whether the service measures its own time, which is returned."""
OpenPath: TypeAlias = "Callable[[ClientTask, Sequence[AnyArray]], AbstractContextManager[Call]]"


@contextmanager
def _open_service(
    task: ClientTask, arrays: "Sequence[AnyArray]", *, transport: Literal["auto", "grpc"], in_burst: bool
) -> "Iterator[Call]":
    import nnhal

    with ExitStack() as stack:
        device = stack.enter_context(nnhal.connect(task.subject.target, device=task.device, transport=transport))
        prepared: PreparedModel | PartitionedModel
        if task.is_named:
            prepared = device.model(task.model)
        else:
            prepared = device.prepare(load(task), fallback=task.fallback).result()
        stack.callback(prepared.close)
        execute: Callable[..., Outputs]
        if prepared.states:
            execute = stack.enter_context(prepared.stream()).step
        else:
            execute = stack.enter_context(prepared.burst()).execute if in_burst else prepared.execute

        def call(measure: bool) -> "Timing | None":
            if not measure:
                execute(arrays)
                return None
            return execute(arrays, measure_timing=True).timing

        yield call


@contextmanager
def _open_engine(task: ClientTask, arrays: "Sequence[AnyArray]") -> "Iterator[Call]":
    """Run LiteRT in this process, on inputs that are copied in, and outputs that are copied out."""
    run = open_engine(task.model, arrays, task.subject.threads, task.signature)

    def call(measure: bool) -> None:
        run()

    yield call


@contextmanager
def _without_messages() -> Iterator[None]:
    """Keep what the engine itself writes to the standard error output from the user: its errors are exceptions."""
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def open_engine(
    model: str, arrays: "Sequence[AnyArray]", threads: int, signature: str | None = None
) -> "Callable[[], list[AnyArray]]":
    """Return a function that runs a .tflite file with LiteRT and its default kernels, and returns the outputs.

    `signature` is the key of the subgraph; None for the main one.

    Raises:
        ValueError, RuntimeError: LiteRT cannot run the file.
    """
    from ai_edge_litert.interpreter import Interpreter

    with _without_messages():
        interpreter = Interpreter(model_path=model, num_threads=threads)
        if signature is not None:
            return _open_signature(interpreter, model, arrays, signature)
        details = interpreter.get_input_details()
        for detail, array in zip(details, arrays, strict=True):
            if tuple(detail["shape"]) != array.shape:
                interpreter.resize_tensor_input(detail["index"], array.shape)
        interpreter.allocate_tensors()
    values = [array.astype(detail["dtype"]) for detail, array in zip(details, arrays, strict=True)]
    outputs = [detail["index"] for detail in interpreter.get_output_details()]

    def run() -> "list[AnyArray]":
        for detail, value in zip(details, values, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        return [interpreter.get_tensor(output) for output in outputs]

    return run


def _open_signature(
    interpreter: "Interpreter", model: str, arrays: "Sequence[AnyArray]", signature: str
) -> "Callable[[], list[AnyArray]]":
    """Return a function like `open_engine` for a signature. LiteRT knows its inputs by names only, without an order."""
    from nnhal import tflite

    names = tflite.load(model, signature=signature)
    runner = interpreter.get_signature_runner(signature)
    details = runner.get_input_details()
    inputs = {
        name: array.astype(details[name]["dtype"]) for name, array in zip(names.input_names, arrays, strict=False)
    }
    outputs = [name for name in names.output_names if name in runner.get_output_details()]

    def run() -> "list[AnyArray]":
        values = runner(**inputs)
        return [values[name] for name in outputs]

    run()
    return run


PATHS: dict[str, OpenPath] = {
    # "auto" is shared memory where the service is on this machine, else gRPC
    "same-machine": partial(_open_service, transport="auto", in_burst=False),
    "same-machine-burst": partial(_open_service, transport="auto", in_burst=True),
    "grpc": partial(_open_service, transport="grpc", in_burst=False),
    "grpc-burst": partial(_open_service, transport="grpc", in_burst=True),
    ENGINE: _open_engine,
}
"""The paths by name, in the order of reports."""


def load(task: ClientTask) -> "Model":
    """Return the model of a task."""
    from nnhal import tflite

    shapes = {name: tuple(shape) for name, shape in task.shapes.items()}
    return tflite.load(task.model, shapes=shapes, signature=task.signature)
