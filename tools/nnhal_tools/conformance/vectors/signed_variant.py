"""Signed variant of a quant8 vector (checklist 3.7)."""

import base64
import copy
from typing import Any

import numpy as np

from nnhal_tools.conformance.vectors.case import Case

SUFFIX = " (signed variant)"
"""Suffix of the name of a signed variant."""

_WITHOUT_VARIANT = frozenset({"HASHTABLE_LOOKUP", "LSH_PROJECTION", "PAD_V2", "CAST", "QUANTIZED_16BIT_LSTM"})
_UNSIGNED, _SIGNED = "TENSOR_QUANT8_ASYMM", "TENSOR_QUANT8_ASYMM_SIGNED"


def signed_variant(case: Case) -> Case | None:
    """Return the case with signed operands instead of TENSOR_QUANT8_ASYMM, and zero points and data lower by 128.

    Return None if the case has no signed variant: its main graph must have one operation, and an operation that has a
    variant must read or write such an operand.
    """
    if case.expect_failure or len(case.main_operations) != 1 or not _has_variant(case):
        return None
    data = copy.deepcopy(case.data)
    data["name"] += SUFFIX
    main = data["model"]["main"]
    for key in ("inputs", "outputs"):
        for index, value in zip(main[key], data[key], strict=True):
            if main["operands"][index]["type"] == _UNSIGNED and value is not None:
                value["data"] = _subtract_128(value["data"])
    for graph in (main, *data["model"]["referenced"]):
        for operand in graph["operands"]:
            if operand["type"] == _UNSIGNED:
                _make_signed(operand)
    return Case(data)


def _has_variant(case: Case) -> bool:
    for graph in case.graphs:
        for operation in graph["operations"]:
            indexes = [*operation["inputs"], *operation["outputs"]]
            types = {graph["operands"][i]["type"] for i in indexes}
            if operation["type"] not in _WITHOUT_VARIANT and _UNSIGNED in types:
                return True
    return False


def _make_signed(operand: dict[str, Any]) -> None:
    operand["type"] = _SIGNED
    operand["zero_point"] -= 128
    if "data" in operand:
        operand["data"] = _subtract_128(operand["data"])


def _subtract_128(text: str) -> str:
    """Return Base64 data with 128 subtracted from each byte, which flips the top bit in two's complement."""
    raw = np.frombuffer(base64.b64decode(text), np.uint8)
    return base64.b64encode((raw ^ np.uint8(128)).tobytes()).decode()
