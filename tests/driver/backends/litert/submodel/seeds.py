"""Valid sub-models, from which the fuzz tests start: the corpus's models of one operator, and IF and WHILE."""

from functools import cache

from tests.driver.backends.litert.submodel.control_flow import control_flow_models
from tests.driver.backends.litert.submodel.detection import detection_models
from tests.nnhal.tflite.build import build
from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import GENERATORS, cases, with_constants

_OTHER_MODELS = {"control flow": control_flow_models, "detection": detection_models}
"""Functions that return the models that the corpus lacks."""
_VARIANTS = 3


@cache
def operators() -> tuple[str, ...]:
    """Return the names of operators that have models, and of the other models."""
    return (*sorted(set(GENERATORS) - {"IF", "WHILE"}), *_OTHER_MODELS)


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
