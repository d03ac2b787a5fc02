"""The child process that runs models: `python -m tests.nnhal.tflite.corpus.worker RESULTS < NAMES`.

LiteRT crashes on some models. A record is written before each step, so that the parent knows which model and step
ended the process.
"""

import pickle
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from nnhal import litert_extension, tflite
from nnhal.errors import HalError
from nnhal.tflite.fold import normalize
from nnhal.tflite.reader import read
from nnhal.tflite_schema.shapes.rule import UNKNOWN, UNKNOWN_RANK
from nnhal.types import (
    DTYPES,
    AnyArray,
    DataLocation,
    Memory,
    Model,
    Request,
    RequestArgument,
    ReturnedPool,
    operation_name,
)
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from nnhal_driver.execution.prepared_model import PreparedModel
from tests.driver.one_operation import prepare
from tests.nnhal.tflite.comparisons.declared_shapes import DECLARATIONS, declare
from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import Case, cases
from tests.nnhal.tflite.corpus.compare import difference
from tests.nnhal.tflite.corpus.exceptions import litert_error, steps
from tests.nnhal.tflite.corpus.result import UNPREPARED, Result

_DEFAULT, _REFERENCE = OpResolverType.AUTO, OpResolverType.BUILTIN_REF
_DEVICES = {"CpuAcc": ("CpuAcc", "CpuRef"), "CpuRef": ("CpuRef",)}
"""Backends of the devices: those of a service, and of the reference."""


@dataclass
class LitertRun:
    """LiteRT's results.

    Attributes:
        model: the file, with the shapes of the outputs.
        results: the outputs of the default interpreter and, where they run the model, of the reference kernels.
    """

    model: bytes
    arrays: Sequence[AnyArray]
    results: list[list[AnyArray]] = field(default_factory=list)


def main() -> None:
    """Run the models that standard input names, and write their results."""
    names = sys.stdin.read().splitlines()
    operators = {name.partition(" ")[0] for name in names}
    known = {case.name: case for operator in operators for case in cases(operator)}
    devices = {name: Device(name, registry.create(backends)) for name, backends in _DEVICES.items()}
    with open(sys.argv[1], "wb") as file:
        for name in names:
            _record(file, (name, "LiteRT"))
            case, result = known[name], Result(name)
            try:
                run = _run_litert(case)
            except (RuntimeError, ValueError) as error:
                result = replace(result, litert=str(error).strip().partition("\n")[0] or "refused")
            else:
                _record(file, (name, "nnhal"))
                result = _run_nnhal(result, case, run, devices)
            _record(file, result)


def _record(file: BinaryIO, item: object) -> None:
    pickle.dump(item, file)
    file.flush()


# ---- LiteRT ---------------------------------------------------------------------------------------------


def _run_litert(case: Case) -> LitertRun:
    """Run a model with LiteRT, first to determine the shapes of the outputs.

    Raises:
        RuntimeError, ValueError: LiteRT does not run the model.
    """
    arrays, unshaped = case.arrays(), case.model()
    try:
        shapes = [array.shape for array in _invoke(unshaped, arrays, _REFERENCE)]
    except (RuntimeError, ValueError):
        shapes = [array.shape for array in _invoke(unshaped, arrays, _DEFAULT)]
    outputs = [replace(each, shape=shape) for each, shape in zip(case.op.outputs, shapes, strict=True)]
    model = Case(case.name, replace(case.op, outputs=outputs)).model()
    run = LitertRun(model, arrays, [_invoke(model, arrays, _DEFAULT)])
    with suppress(RuntimeError, ValueError):
        run.results.append(_invoke(model, arrays, _REFERENCE))
    return run


def _invoke(model: bytes, arrays: Sequence[AnyArray], resolver: OpResolverType) -> list[AnyArray]:
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [np.array(interpreter.get_tensor(detail["index"])) for detail in interpreter.get_output_details()]


# ---- nnhal ----------------------------------------------------------------------------------------------


def _run_nnhal(result: Result, case: Case, run: LitertRun, devices: Mapping[str, Device]) -> Result:
    """Import a model without the LiteRT extension or, if that is refused, with it, and compare its results."""
    used = devices
    try:
        if wrong := _wrong_shapes(case.name, run):
            return replace(result, verdicts={"import": wrong})
        try:
            model = tflite.parse(run.model, case.operator, extension=False)
        except tflite.TfliteError as error:
            result = replace(result, refusal=str(error))
            used = {name: device for name, device in used.items() if _has_extension(device)}
            model = tflite.parse(run.model, case.operator)
    except tflite.TfliteError as error:
        return replace(result, obstacle=str(error))
    except Exception as error:  # any other exception is an error of the import, and must not hide further results
        return replace(result, verdicts={"import": f"raises {error!r}"})
    operations = tuple(operation_name(operation.type) for operation in model.main.operations)
    verdicts = {name: _compare(case, run, model, name, device) for name, device in used.items()}
    return replace(result, operations=operations, verdicts=verdicts)


def _wrong_shapes(name: str, run: LitertRun) -> str:
    """Return how the inferred shapes of the outputs differ from LiteRT's, or ""."""
    expected = [array.shape for array in run.results[0]]
    declarations = () if name.startswith("STABLEHLO_RNG") else DECLARATIONS  # the file chooses the shape
    for data in (run.model, *(declare(run.model, each) for each in declarations)):
        graph = normalize(read(np.frombuffer(data, np.uint8))[0]).graph
        inferred = [graph.tensors[index].shape for index in graph.outputs]
        if not all(map(_fits, inferred, expected)):
            return f"infers the shapes {inferred}; LiteRT has {expected}"
    return ""


def _fits(inferred: Sequence[int], expected: Sequence[int]) -> bool:
    return inferred == UNKNOWN_RANK or (
        len(inferred) == len(expected) and all(a in (UNKNOWN, b) for a, b in zip(inferred, expected, strict=True))
    )


def _has_extension(device: Device) -> bool:
    return any(extension.name == litert_extension.NAME for extension in device.get_supported_extensions())


def _compare(case: Case, run: LitertRun, model: Model, name: str, device: Device) -> str:
    """Return how nnhal's outputs differ from each of LiteRT's results, or "" if they equal one of them."""
    outcome = prepare(model, device)
    if outcome.prepared_model is None:
        return f"{UNPREPARED} {outcome.reason}"
    try:
        actual = _execute(outcome.prepared_model, run)
    except HalError as error:
        return f"does not execute it: {error}"
    if len(actual) != len(run.results[0]):
        return f"returns {len(actual)} outputs; expected {len(run.results[0])}"
    if litert_error(case.name):
        return ""
    allowed = steps(case.name, name)
    differences = [
        "; ".join(filter(None, (difference(a, e, allowed) for a, e in zip(actual, expected, strict=True))))
        for expected in run.results
    ]
    return "" if "" in differences else " | ".join(differences)


def _execute(prepared: PreparedModel, run: LitertRun) -> list[AnyArray]:
    """Execute a prepared model. Tensors of the extension's types have LiteRT's types of elements."""
    arrays = [
        np.ascontiguousarray(array.astype(DTYPES.get(operand.type, array.dtype), copy=False))
        for operand, array in zip(prepared.inputs, run.arrays, strict=True)
    ]
    arguments = (RequestArgument(False, DataLocation(i, 0, array.nbytes)) for i, array in enumerate(arrays))
    results = (RequestArgument(False, DataLocation(len(arrays))),) * len(prepared.outputs)
    pools: tuple[Memory | ReturnedPool, ...] = (*map(Memory.of, arrays), ReturnedPool())
    result = prepared.execute_synchronously(Request(tuple(arguments), results, pools))
    outputs = []
    for operand, data, shape, expected in zip(
        prepared.outputs, result.returned, result.output_shapes, run.results[0], strict=True
    ):
        assert data is not None
        outputs.append(data.view(DTYPES.get(operand.type, expected.dtype)).reshape(shape.dimensions))
    return outputs


if __name__ == "__main__":
    main()
