"""Description of the import of .tflite files, and the table of TFLite's operators: docs/tflite.md.

The table comes from the converters, and the models of one operator of the tests, which are imported without running
them.
"""

import inspect
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from nnhal.tflite.call import CUSTOM_CONVERTERS
from nnhal.tflite.errors import TfliteError
from nnhal.tflite.folding.evaluator import EVALUATORS
from nnhal.tflite.import_model import import_model
from nnhal.tflite.operators import CONVERTERS
from nnhal.tflite.operators.refusals import REASONS
from nnhal.tflite.report import EXPLANATIONS, ImportOutcome, OperatorReport
from nnhal.tflite.submodel import CUSTOM_OPERATORS
from nnhal.tflite.variables import VARIABLE_OPERATORS
from nnhal.tflite_schema import BuiltinOperator
from tests.nnhal.tflite.build import build
from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import GENERATORS, Case, cases
from tests.nnhal.tflite.corpus.exceptions import NOT_GENERATED, STEPS, crash
from tools.dev.documents.markdown import Documents, escape, render, table

DOCUMENT = Path("docs/tflite.md")
CODES = {operator.name: operator for operator in BuiltinOperator}
_ALWAYS_FOLDED = frozenset({BuiltinOperator.DENSIFY})
_FOLDED = _ALWAYS_FOLDED | {BuiltinOperator.SHAPE, BuiltinOperator.RANK} | set(EVALUATORS)
_MAX_OPERATIONS = 6


@dataclass(frozen=True)
class OperatorRow:
    """A row of the table.

    Attributes:
        outcomes: what may become of the operator.
        operations: the NNAPI operations that it may become.
        note: what the converter does, or why there is none.
    """

    outcomes: Sequence[str]
    operations: Sequence[str]
    note: str


def import_case(case: Case) -> OperatorReport | None:
    """Return what becomes of the operator of a model, or None if LiteRT or the importer find the model invalid.

    LiteRT determines the shapes of the outputs, but does not run the model.
    """
    try:
        shapes = _output_shapes(case.model())
    except (RuntimeError, ValueError):
        return None
    outputs = [replace(tensor, shape=shape) for tensor, shape in zip(case.op.outputs, shapes, strict=True)]
    data = np.frombuffer(build(replace(case.op, outputs=outputs)), np.uint8)
    try:
        report = import_model(data, extension=True, shapes={})[1]
    except TfliteError:
        return None
    operators = [each for each in report.operators if each.operator.index == 0]
    return operators[0] if operators and not report.problem else None


def _output_shapes(model: bytes) -> list[tuple[int, ...]]:
    """Return the shapes of the outputs according to LiteRT, or raise RuntimeError or ValueError as it does."""
    try:
        interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError):  # some operators have no reference kernel
        interpreter = Interpreter(model_content=model)
        interpreter.allocate_tensors()
    return [tuple(map(int, detail["shape"])) for detail in interpreter.get_output_details()]


def describe_operator(name: str) -> OperatorRow:
    """Return the row of an operator."""
    models = [case for case in cases(name) if not crash(case.name)] if name in GENERATORS else []
    reports = [report for report in map(import_case, models) if report is not None]
    found = {report.outcome.value for report in reports}
    if CODES[name] in VARIABLE_OPERATORS:
        found = {ImportOutcome.STATE.value}
    elif CODES[name] in _ALWAYS_FOLDED:
        found = set()
    elif name == "CUSTOM":
        found = {"composed", "extension", "refused"}
    elif not reports:
        found = {ImportOutcome.REFUSED.value}
    found -= {ImportOutcome.UNREAD.value, ImportOutcome.FOLDED.value}
    found |= {ImportOutcome.FOLDED.value} if CODES[name] in _FOLDED else set()
    order = [outcome.value for outcome in ImportOutcome]
    return OperatorRow(sorted(found, key=order.index), _operations(reports), _note(name))


def _operations(reports: Iterable[OperatorReport]) -> list[str]:
    """Return the NNAPI operations of direct and composed operators, in alphabetical order."""
    names = sorted({name for report in reports for name in report.operations})
    return names if len(names) <= _MAX_OPERATIONS else [*names[:_MAX_OPERATIONS], "..."]


def _note(name: str) -> str:
    code = CODES[name]
    if name == "CUSTOM":
        regions = CUSTOM_OPERATORS - set(CUSTOM_CONVERTERS)
        return f"composed: {_list(CUSTOM_CONVERTERS)}; extension: {_list(regions)}; refused: others"
    if code in REASONS:
        return REASONS[code]
    if code in VARIABLE_OPERATORS:
        return EXPLANATIONS[ImportOutcome.STATE]
    if code in _ALWAYS_FOLDED:
        return "sparse weights become ordinary constants"
    documentation = inspect.getdoc(CONVERTERS[code]) if code in CONVERTERS else None
    if documentation:
        return _without_names(" ".join(documentation.split()).removeprefix("Convert "))
    return "" if code in CONVERTERS else NOT_GENERATED.get(name, "NNAPI has no counterpart")


def _without_names(text: str) -> str:
    """Return the text of a docstring without a first sentence that only names the operators."""
    first, _, rest = text.partition(". ")
    names = re.fullmatch(r"[A-Z0-9_, ]+( and [A-Z0-9_]+)?\.?", first)
    return rest if names or (rest and first.startswith(("a ", "an "))) else text


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def render_page(rows: Mapping[str, OperatorRow]) -> str:
    """Return the text of the document from the row of each operator by name."""
    exceptions = [
        [f"`{escape(pattern)}`", backend, str(step), escape(reason)]
        for (pattern, backend), (step, reason) in STEPS.items()
    ]
    outcomes = [[outcome.value, text] for outcome, text in EXPLANATIONS.items()]
    lines = [[name, ", ".join(row.outcomes), ", ".join(row.operations), escape(row.note)] for name, row in rows.items()]
    return render(
        "tflite",
        outcomes=table(["Outcome", "Meaning"], outcomes),
        exceptions=table(["Models", "Backend", "Largest difference", "Reason"], exceptions),
        operators=table(["Operator", "Outcomes", "NNAPI operations", "Note"], lines),
    )


def generate() -> Documents:
    """Return the page for the current code. It takes 15 seconds of one core."""
    names = sorted(CODES)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        return {DOCUMENT: render_page(dict(zip(names, pool.map(describe_operator, names), strict=True)))}
