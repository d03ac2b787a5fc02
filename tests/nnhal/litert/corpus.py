"""Models of the corpus in an interpreter."""

from dataclasses import replace
from types import ModuleType

from ai_edge_litert import interpreter

from nnhal.types import AnyArray
from tests.nnhal.litert.programs import allocated, run
from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import Case


def run_case(module: ModuleType, case: Case) -> list[AnyArray]:
    """Run a model."""
    return run(allocated(module, case.model()), *case.arrays())


def with_shapes(case: Case) -> Case:
    """Return a model with the shapes of its outputs, as converters write them.

    Raises:
        RuntimeError, ValueError: LiteRT does not run the model.
    """
    arrays = run_case(interpreter, case)
    shaped = [replace(tensor, shape=array.shape) for tensor, array in zip(case.op.outputs, arrays, strict=True)]
    return replace(case, op=replace(case.op, outputs=shaped))
