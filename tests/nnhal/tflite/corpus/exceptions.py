"""Models that are left out because LiteRT crashes, and known differences of integer results."""

from fnmatch import fnmatchcase

_NO_KERNEL = "LiteRT has no kernel"
_RESOURCE = "has an effect together with other operators only"
_STABLEHLO_WITHOUT_KERNEL = """
    ABS BROADCAST_IN_DIM CBRT CLAMP COMPARE CONCATENATE CONVERT CONVOLUTION COSINE CUSTOM_CALL DIVIDE DOT_GENERAL
    DYNAMIC_SLICE DYNAMIC_UPDATE_SLICE EXPONENTIAL FLOOR IOTA LOG LOGISTIC NEGATE OR POWER REDUCE REMAINDER RESHAPE
    RSQRT SELECT SLICE SORT SUBTRACT TANH TRANSPOSE WHILE
"""

NOT_GENERATED: dict[str, str] = {
    **{f"STABLEHLO_{name}": _NO_KERNEL for name in _STABLEHLO_WITHOUT_KERNEL.split()},
    "CALL": _NO_KERNEL,
    "CONCAT_EMBEDDINGS": _NO_KERNEL,
    "CUSTOM": _NO_KERNEL,
    "DELEGATE": _NO_KERNEL,
    "PLACEHOLDER_FOR_GREATER_OP_CODES": _NO_KERNEL,
    "ASSIGN_VARIABLE": _RESOURCE,
    "CALL_ONCE": _RESOURCE,
    "HASHTABLE": _RESOURCE,
    "HASHTABLE_FIND": _RESOURCE,
    "HASHTABLE_IMPORT": _RESOURCE,
    "HASHTABLE_SIZE": _RESOURCE,
    "READ_VARIABLE": _RESOURCE,
    "VAR_HANDLE": _RESOURCE,
    "DENSIFY": "its input is a constant, so that it would be a model without inputs",
    "SKIP_GRAM": "works on strings",
}
"""Why the corpus has no models of an operator."""

FAULTS = ("writes out of bounds", "does not write all elements", "scales; expected one for each of")
"""Reasons for which a region is refused although LiteRT runs the model: its kernel is faulty."""

LITERT_CRASHES: dict[str, str] = {
    "DEPTHWISE_CONV_2D FLOAT32:2x6x7x3 FLOAT32:1x3x2x?c -> *": "reads the bias that is absent",
    "DEPTHWISE_CONV_2D *8q:2x6x7x3 *8q0.02*:1x3x2x?c -> *": "reads the bias that is absent",
    "*EQUAL 2*INT8:9 -> BOOL": "reads the scale that is absent",
    "GREATER 2*INT8:9 -> BOOL": "reads the scale that is absent",
    "LESS 2*INT8:9 -> BOOL": "reads the scale that is absent",
    "LOG INT16:2x3 -> *": "reads the scale that is absent",
    "SQUARED_DIFFERENCE 2*INT8:9 -> INT8": "reads the scale that is absent",
    "SQRT INT16:2x3 -> *": "reads the scale that is absent",
    "BIDIRECTIONAL_SEQUENCE_RNN * INT8* timeMajor=True * mergeOutputs=True": "writes outside of a buffer",
}
"""Why LiteRT ends its process, by patterns of names."""

LITERT_ERRORS: dict[str, str] = {
    "DEPTHWISE_CONV_2D FLOAT32:* INT8q0.02@0:*": "reads scales of channels that are absent",
    "CONCATENATION * fusedActivationFunction=*": "only the default interpreter runs it, and ignores the activation",
    "BIDIRECTIONAL_SEQUENCE_LSTM * mergeOutputs=True timeMajor=False": "half of the result is not initialized",
}
"""Why LiteRT's results are wrong or random, by patterns of names. They are not compared."""

STEPS: dict[tuple[str, str], tuple[int, str]] = {
    ("MEAN *8q*", "CpuRef"): (1, "NNAPI rounds the quotient of integers toward zero, TFLite to the nearest"),
    ("QUANTIZE *8q* -> *8q*", "CpuRef"): (1, "DEQUANTIZE and QUANTIZE replace it, and round some values otherwise"),
}
"""Allowed difference and its reason, by patterns of names and backends."""


def crash(name: str) -> str:
    """Return why LiteRT crashes on a model, or ""."""
    return next((reason for pattern, reason in LITERT_CRASHES.items() if matching(pattern, name)), "")


def may_be_unprepared(line: str) -> bool:
    """Return whether a device may refuse the region that a line of `Result.unprepared` is about."""
    return any(reason in line for reason in FAULTS)


def litert_error(name: str) -> str:
    """Return why LiteRT's results for a model are wrong, or ""."""
    return next((reason for pattern, reason in LITERT_ERRORS.items() if matching(pattern, name)), "")


def steps(name: str, backend: str) -> int:
    """Return the allowed difference of integer results."""
    allowed = [count for (pattern, on), (count, _) in STEPS.items() if on == backend and matching(pattern, name)]
    return max(allowed, default=0)


def matching(pattern: str, name: str) -> bool:
    """Return whether a pattern with `*` matches the name of a model."""
    return fnmatchcase(name, pattern)
