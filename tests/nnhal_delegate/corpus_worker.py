"""The child process that runs models of one operator: `python -m tests.nnhal_delegate.corpus_worker LIBRARY < NAMES`.

It prints a line before each model, so that the parent knows which one ended the process, and a line for each problem.
"""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from ai_edge_litert.interpreter import Interpreter, OpResolverType

from nnhal.types import AnyArray
from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import Case, cases
from tests.nnhal.tflite.corpus.compare import difference
from tests.nnhal.tflite.corpus.exceptions import litert_error
from tests.nnhal_delegate.python_host import Host, load

RUNNING, PROBLEM = "> ", "! "
_REPEATS = 2
_LITERT_ERRORS = (RuntimeError, ValueError)


def main() -> None:
    """Run the models that standard input names. NNHAL_TARGET names the service."""
    delegate = load(Path(sys.argv[1]))
    names = sys.stdin.read().splitlines()
    known = {case.name: case for case in cases(names[0].partition(" ")[0])}
    for name in names:
        print(RUNNING + name, flush=True)
        if problem := _problem(known[name], delegate):
            print(f"{PROBLEM}{name}: {problem}", flush=True)


def _problem(case: Case, delegate: Any) -> str:
    arrays = case.arrays()
    try:
        shapes = [output.shape for output in Host(case.model()).run(arrays)]
        outputs = [replace(each, shape=shape) for each, shape in zip(case.op.outputs, shapes, strict=True)]
        model = Case(case.name, replace(case.op, outputs=outputs)).model()
        host = Host(model)
        expected = [host.run(arrays) for _ in range(_REPEATS)]
    except _LITERT_ERRORS:
        return ""
    try:
        host = Host(model, delegate)
        actual = [host.run(arrays) for _ in range(_REPEATS)]
    except _LITERT_ERRORS as error:
        return str(error)
    if litert_error(case.name):
        return ""
    return _difference(actual, expected) and _difference(actual, [_reference(model, arrays)] * _REPEATS)


def _difference(actual: list[list[AnyArray]], expected: list[list[AnyArray]]) -> str:
    pairs = (pair for run in zip(actual, expected, strict=True) for pair in zip(*run, strict=True))
    differences = (difference(a if a.shape else a.reshape(1), b) for a, b in pairs)
    return next(filter(None, differences), "")


def _reference(model: bytes, arrays: list[AnyArray]) -> list[AnyArray]:
    """Return the results of LiteRT's reference kernels, which some operators on the device use."""
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
        interpreter.set_tensor(detail["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


if __name__ == "__main__":
    main()
