"""Models that are left out because LiteRT crashes, and known differences of integer results."""

from fnmatch import fnmatchcase

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
    "CONCATENATION * fusedActivationFunction=*": "only the default interpreter runs it, and ignores the activation",
    "BIDIRECTIONAL_SEQUENCE_LSTM * mergeOutputs=True timeMajor=False": "half of the result is not initialized",
}
"""Why LiteRT's results are wrong or random, by patterns of names. They are not compared."""

STEPS: dict[tuple[str, str], tuple[int, str]] = {
    ("MEAN *8q*", "CpuRef"): (1, "NNAPI rounds the quotient of integers toward zero, TFLite to the nearest"),
    ("QUANTIZE *8q* -> *8q*", "CpuRef"): (1, "DEQUANTIZE and QUANTIZE replace it, and round some values otherwise"),
    ("MEAN *8q* INT32:1 -> *", "CpuAcc"): (1, "CpuRef runs it: the engine needs constant axes"),
}
"""Allowed difference and its reason, by patterns of names and backends."""


def crash(name: str) -> str:
    """Return why LiteRT crashes on a model, or ""."""
    return next((reason for pattern, reason in LITERT_CRASHES.items() if matching(pattern, name)), "")


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
