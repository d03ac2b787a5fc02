"""The signed twin of a quant8 vector (checklist 3.7)."""

import base64
import copy
from typing import Any

import numpy as np

from tools.conformance.vectors import Case

_UNCOUPLED = frozenset({"HASHTABLE_LOOKUP", "LSH_PROJECTION", "PAD_V2", "CAST", "QUANTIZED_16BIT_LSTM"})
_UNSIGNED, _SIGNED = "TENSOR_QUANT8_ASYMM", "TENSOR_QUANT8_ASYMM_SIGNED"


def signed_twin(case: Case) -> Case | None:
    """The case with every TENSOR_QUANT8_ASYMM signed, zero points and data 128 lower; None for one that is not coupled.

    The main graph must have one operation, and some operation that couples must read or write such an operand.
    """
    if case.expect_failure or len(case.main_operations) != 1 or not _is_coupled(case):
        return None
    data = copy.deepcopy(case.data)
    data["name"] += " (signed twin)"
    main = data["model"]["main"]
    for key in ("inputs", "outputs"):
        for index, value in zip(main[key], data[key], strict=True):
            if main["operands"][index]["type"] == _UNSIGNED and value is not None:
                value["data"] = _lowered(value["data"])
    for graph in (main, *data["model"]["referenced"]):
        for operand in graph["operands"]:
            if operand["type"] == _UNSIGNED:
                _sign(operand)
    return Case(data)


def _is_coupled(case: Case) -> bool:
    for graph in case.graphs:
        for operation in graph["operations"]:
            indexes = [*operation["inputs"], *operation["outputs"]]
            types = {graph["operands"][i]["type"] for i in indexes}
            if operation["type"] not in _UNCOUPLED and _UNSIGNED in types:
                return True
    return False


def _sign(operand: dict[str, Any]) -> None:
    operand["type"] = _SIGNED
    operand["zero_point"] -= 128
    if "data" in operand:
        operand["data"] = _lowered(operand["data"])


def _lowered(text: str) -> str:
    """Bytes, each 128 less: for two's complement the top bit is turned over."""
    raw = np.frombuffer(base64.b64decode(text), np.uint8)
    return base64.b64encode((raw ^ np.uint8(128)).tobytes()).decode()
