"""Constants of the C library, by enumeration: names and numbers as documented by Android."""

from enum import IntEnum

from nnhal.enums import DeviceType, ExecutionPreference, FusedActivationFunc, OperandType, OperationType
from nnhal_ndk.api.functions import FEATURE_LEVELS


class ResultCode(IntEnum):
    """Result of a function."""

    NO_ERROR = 0
    OUT_OF_MEMORY = 1
    INCOMPLETE = 2
    UNEXPECTED_NULL = 3
    BAD_DATA = 4
    OP_FAILED = 5
    BAD_STATE = 6
    UNMAPPABLE = 7
    OUTPUT_INSUFFICIENT_SIZE = 8
    UNAVAILABLE_DEVICE = 9
    MISSED_DEADLINE_TRANSIENT = 10
    MISSED_DEADLINE_PERSISTENT = 11
    RESOURCE_EXHAUSTED_TRANSIENT = 12
    RESOURCE_EXHAUSTED_PERSISTENT = 13
    DEAD_OBJECT = 14


class DurationCode(IntEnum):
    """Duration of an execution that can be measured."""

    ON_HARDWARE = 0
    IN_DRIVER = 1
    FENCED_ON_HARDWARE = 2
    FENCED_IN_DRIVER = 3


class PriorityCode(IntEnum):
    """Priority of a compilation among those of one application."""

    LOW = 90
    MEDIUM = 100
    HIGH = 110


def _named(prefix: str, members: type[IntEnum], **renamed: str) -> dict[str, int]:
    return {f"ANEURALNETWORKS_{prefix}{renamed.get(each.name, each.name)}": int(each) for each in members}


ENUMERATIONS: dict[str, dict[str, int]] = {
    "OperandCode": _named("", OperandType, SUBGRAPH="MODEL"),
    "OperationCode": _named("", OperationType),
    "FuseCode": _named("FUSED_", FusedActivationFunc),
    "PaddingCode": {"ANEURALNETWORKS_PADDING_SAME": 1, "ANEURALNETWORKS_PADDING_VALID": 2},
    "PreferenceCode": _named("PREFER_", ExecutionPreference),
    "DeviceTypeCode": {"ANEURALNETWORKS_DEVICE_UNKNOWN": 0, **_named("DEVICE_", DeviceType)},
    "ResultCode": _named("", ResultCode),
    "FeatureLevelCode": {f"ANEURALNETWORKS_FEATURE_LEVEL_{level}": number for level, number in FEATURE_LEVELS.items()},
    "DurationCode": _named(
        "",
        DurationCode,
        ON_HARDWARE="DURATION_ON_HARDWARE",
        IN_DRIVER="DURATION_IN_DRIVER",
        FENCED_ON_HARDWARE="FENCED_DURATION_ON_HARDWARE",
        FENCED_IN_DRIVER="FENCED_DURATION_IN_DRIVER",
    ),
    "PriorityCode": {
        **_named("PRIORITY_", PriorityCode),
        "ANEURALNETWORKS_PRIORITY_DEFAULT": int(PriorityCode.MEDIUM),
    },
}
"""Constants by enumeration, in the order of the header."""
