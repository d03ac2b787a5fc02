"""Valid sub-models, from which the fuzz test starts: the corpus's models of one operator, and IF and WHILE."""

import json
import re
import struct
from functools import cache
from typing import Any

from nnhal_driver.backends.litert.submodel import InvalidSubModel, SubModelLimits, parse, verify
from nnhal_driver.backends.litert.submodel.rules import RULES
from tests.driver.backends.litert.submodel.control_flow import control_flow_models
from tests.driver.backends.litert.submodel.detection import detection_models
from tests.nnhal.tflite.build import build, pack, unpack
from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import GENERATORS, cases, with_constants

_EXPECTED_SHAPE = re.compile(
    r"(?:subgraph (?P<graph>\d+), )?operator (?P<operator>\d+) .*: (?P<kind>input|output) (?P<index>\d+) has shape "
    r".*; expected (?P<shape>\[[-0-9, ]*\])$"
)
_MAX_SIZE = 2**31 - 1
_OTHER_MODELS = {"control flow": control_flow_models, "detection": detection_models}
"""Functions that return the models that the corpus lacks."""
_VARIANTS = 3
_REPETITIONS = 5
"""The weight of these models, which have many rules."""


@cache
def operators() -> tuple[str, ...]:
    """Return the names of operators that have both a rule and models, and of the other models."""
    return (*sorted(set(GENERATORS) & set(RULES) - {"IF", "WHILE"}), *list(_OTHER_MODELS) * _REPETITIONS)


def seed_count(operator: str) -> int:
    """Return the number of models of an operator."""
    other = _OTHER_MODELS.get(operator)
    return len(cases(operator)) * _VARIANTS if other is None else len(other())


def seed_model(operator: str, index: int) -> bytes:
    """Return a model of an operator.

    The corpus's models come three times: as they are, with the inputs after the first constant, and with all constant.
    """
    other = _OTHER_MODELS.get(operator)
    if other is not None:
        return other()[index]
    op = cases(operator)[index // _VARIANTS].op
    count = len(op.inputs)
    positions = ((), range(1, count), range(count))[index % _VARIANTS]
    return build(with_constants(op, *positions))


def repaired(data: bytes, limits: SubModelLimits, attempts: int = 8) -> bytes | None:
    """Return a model after giving its tensors the shapes that `verify` expects, or None if it is still refused."""
    for _ in range(attempts):
        try:
            verify(parse(data), limits)
        except InvalidSubModel as error:
            match = _EXPECTED_SHAPE.match(str(error))
            if match is None:
                return None
            try:
                model = unpack(data)
            except (struct.error, TypeError, ValueError):  # a field that `parse` ignores is damaged
                return None
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
