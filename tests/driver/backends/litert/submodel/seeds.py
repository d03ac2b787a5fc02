"""Valid sub-models, from which the fuzz test starts: the corpus's models of one operator, and IF and WHILE."""

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from nnhal_driver.backends.litert.submodel import InvalidSubModel, SubModelLimits, parse, verify
from nnhal_driver.backends.litert.submodel.rules import RULES
from tests.driver.backends.litert.submodel.control_flow import control_flow_models
from tests.nnhal.tflite.build import pack, unpack
from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import GENERATORS, Case, cases

_EXPECTED_SHAPE = re.compile(
    r"(?:subgraph (?P<graph>\d+), )?operator (?P<operator>\d+) .*: (?P<kind>input|output) (?P<index>\d+) has shape "
    r".*; expected (?P<shape>\[[-0-9, ]*\])$"
)
_MAX_SIZE = 2**31 - 1
_REPETITIONS = 6
"""The weight of control flow, which has few models but many rules."""


@cache
def operators() -> tuple[str, ...]:
    """Return the names of operators that have both a rule and models, and "" for control flow."""
    return (*sorted(set(GENERATORS) & set(RULES) - {"IF", "WHILE"}), *[""] * _REPETITIONS)


def seed_models(operator: str) -> Sequence[bytes | Case]:
    """Return the models of an operator."""
    return control_flow_models() if not operator else _cases(operator)


@cache
def _cases(operator: str) -> tuple[Case, ...]:
    return cases(operator)


def repaired(data: bytes, limits: SubModelLimits, attempts: int = 8) -> bytes | None:
    """Return a model after giving its tensors the shapes that `verify` expects, or None if it is still refused."""
    for _ in range(attempts):
        try:
            verify(parse(data), limits)
        except InvalidSubModel as error:
            match = _EXPECTED_SHAPE.match(str(error))
            if match is None:
                return None
            model = unpack(data)
            tensor = _tensor(model, match)
            shape = json.loads(match["shape"])
            if (
                max(shape, default=1) > _MAX_SIZE
                or min(shape, default=1) < 0
                or model.buffers[tensor.buffer].data is not None
            ):
                return None
            tensor.shape = shape
            data = pack(model)
        else:
            return data
    return None


def _tensor(model: Any, match: re.Match[str]) -> Any:
    graph = model.subgraphs[int(match["graph"] or 0)]
    operator = graph.operators[int(match["operator"])]
    numbers = operator.inputs if match["kind"] == "input" else operator.outputs
    return graph.tensors[numbers[int(match["index"])]]
