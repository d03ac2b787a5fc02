"""The enumerations of the HAL (hal-surface section 4), with its numbers.

Fields of the canonical types hold plain ints, which these classes name. So a number without a name (-1, 16) still
reaches the rule that rejects it. Import the enumerations from `nnhal.types`.
"""

from enum import IntEnum


class ErrorStatus(IntEnum):
    """Status of a call, a preparation or an execution."""

    NONE = 0
    DEVICE_UNAVAILABLE = 1
    GENERAL_FAILURE = 2
    OUTPUT_INSUFFICIENT_SIZE = 3
    INVALID_ARGUMENT = 4
    MISSED_DEADLINE_TRANSIENT = 5
    MISSED_DEADLINE_PERSISTENT = 6
    RESOURCE_EXHAUSTED_TRANSIENT = 7
    RESOURCE_EXHAUSTED_PERSISTENT = 8


class ErrorKind(IntEnum):
    """Kinds of errors that clients may distinguish in addition to the status (contract, error.proto)."""

    UNSPECIFIED = 0
    SESSION_LOST = 1
    UNKNOWN_HANDLE = 2
    LIMIT = 3
    UNIMPLEMENTED = 4
    STOPPING = 5
    UNAUTHENTICATED = 6
    PERMISSION_DENIED = 7


class FenceState(IntEnum):
    """State of a fence (contract, fence.proto)."""

    ACTIVE = 1
    SIGNALED = 2
    ERROR = 3


class CacheState(IntEnum):
    """Result of the compilation cache in a preparation (contract, device.proto)."""

    UNSPECIFIED = 0
    SAVED = 1
    NOT_SAVED = 2
    HIT = 3
    MISS = 4


class BackendState(IntEnum):
    """State of a backend in a device (contract, device.proto)."""

    UNSPECIFIED = 0
    READY = 1
    SKIPPED = 2
    FAILED = 3


class NamedModelState(IntEnum):
    """State of a version of a model by name."""

    UNSPECIFIED = 0
    READY = 1
    AVAILABLE = 2
    LOADING = 3
    FAILED = 4
    UNLOADED = 5


class SpanKind(IntEnum):
    """Subject of a span of a profiled execution (contract, types.proto)."""

    UNSPECIFIED = 0
    PARTITION = 1
    OPERATION = 2
    WORK = 3
    STAGE = 4


class DeviceType(IntEnum):
    """Kind of a device; a device must not report 0."""

    OTHER = 1
    CPU = 2
    GPU = 3
    ACCELERATOR = 4


class ExecutionPreference(IntEnum):
    """Intended use of a prepared model."""

    LOW_POWER = 0
    FAST_SINGLE_ANSWER = 1
    SUSTAINED_SPEED = 2


class Priority(IntEnum):
    """Priority among one client's prepared models."""

    LOW = 0
    MEDIUM = 1
    HIGH = 2


class OperandLifeTime(IntEnum):
    """Source of an operand's value."""

    TEMPORARY_VARIABLE = 0
    SUBGRAPH_INPUT = 1
    SUBGRAPH_OUTPUT = 2
    CONSTANT_COPY = 3
    CONSTANT_POOL = 4
    NO_VALUE = 5
    SUBGRAPH = 6


class FusedActivationFunc(IntEnum):
    """Value of the INT32 activation argument of operations."""

    NONE = 0
    RELU = 1
    RELU1 = 2
    RELU6 = 3


class OperandType(IntEnum):
    """Type of an operand; above 0xFFFF are extension types."""

    FLOAT32 = 0
    INT32 = 1
    UINT32 = 2
    TENSOR_FLOAT32 = 3
    TENSOR_INT32 = 4
    TENSOR_QUANT8_ASYMM = 5
    BOOL = 6
    TENSOR_QUANT16_SYMM = 7
    TENSOR_FLOAT16 = 8
    TENSOR_BOOL8 = 9
    FLOAT16 = 10
    TENSOR_QUANT8_SYMM_PER_CHANNEL = 11
    TENSOR_QUANT16_ASYMM = 12
    TENSOR_QUANT8_SYMM = 13
    TENSOR_QUANT8_ASYMM_SIGNED = 14
    SUBGRAPH = 15


class OperationType(IntEnum):
    """Type of an operation; above 0xFFFF are extension operations."""

    ADD = 0
    AVERAGE_POOL_2D = 1
    CONCATENATION = 2
    CONV_2D = 3
    DEPTHWISE_CONV_2D = 4
    DEPTH_TO_SPACE = 5
    DEQUANTIZE = 6
    EMBEDDING_LOOKUP = 7
    FLOOR = 8
    FULLY_CONNECTED = 9
    HASHTABLE_LOOKUP = 10
    L2_NORMALIZATION = 11
    L2_POOL_2D = 12
    LOCAL_RESPONSE_NORMALIZATION = 13
    LOGISTIC = 14
    LSH_PROJECTION = 15
    LSTM = 16
    MAX_POOL_2D = 17
    MUL = 18
    RELU = 19
    RELU1 = 20
    RELU6 = 21
    RESHAPE = 22
    RESIZE_BILINEAR = 23
    RNN = 24
    SOFTMAX = 25
    SPACE_TO_DEPTH = 26
    SVDF = 27
    TANH = 28
    BATCH_TO_SPACE_ND = 29
    DIV = 30
    MEAN = 31
    PAD = 32
    SPACE_TO_BATCH_ND = 33
    SQUEEZE = 34
    STRIDED_SLICE = 35
    SUB = 36
    TRANSPOSE = 37
    ABS = 38
    ARGMAX = 39
    ARGMIN = 40
    AXIS_ALIGNED_BBOX_TRANSFORM = 41
    BIDIRECTIONAL_SEQUENCE_LSTM = 42
    BIDIRECTIONAL_SEQUENCE_RNN = 43
    BOX_WITH_NMS_LIMIT = 44
    CAST = 45
    CHANNEL_SHUFFLE = 46
    DETECTION_POSTPROCESSING = 47
    EQUAL = 48
    EXP = 49
    EXPAND_DIMS = 50
    GATHER = 51
    GENERATE_PROPOSALS = 52
    GREATER = 53
    GREATER_EQUAL = 54
    GROUPED_CONV_2D = 55
    HEATMAP_MAX_KEYPOINT = 56
    INSTANCE_NORMALIZATION = 57
    LESS = 58
    LESS_EQUAL = 59
    LOG = 60
    LOGICAL_AND = 61
    LOGICAL_NOT = 62
    LOGICAL_OR = 63
    LOG_SOFTMAX = 64
    MAXIMUM = 65
    MINIMUM = 66
    NEG = 67
    NOT_EQUAL = 68
    PAD_V2 = 69
    POW = 70
    PRELU = 71
    QUANTIZE = 72
    QUANTIZED_16BIT_LSTM = 73
    RANDOM_MULTINOMIAL = 74
    REDUCE_ALL = 75
    REDUCE_ANY = 76
    REDUCE_MAX = 77
    REDUCE_MIN = 78
    REDUCE_PROD = 79
    REDUCE_SUM = 80
    ROI_ALIGN = 81
    ROI_POOLING = 82
    RSQRT = 83
    SELECT = 84
    SIN = 85
    SLICE = 86
    SPLIT = 87
    SQRT = 88
    TILE = 89
    TOPK_V2 = 90
    TRANSPOSE_CONV_2D = 91
    UNIDIRECTIONAL_SEQUENCE_LSTM = 92
    UNIDIRECTIONAL_SEQUENCE_RNN = 93
    RESIZE_NEAREST_NEIGHBOR = 94
    QUANTIZED_LSTM = 95
    IF = 96
    WHILE = 97
    ELU = 98
    HARD_SWISH = 99
    FILL = 100
    RANK = 101
    BATCH_MATMUL = 102
    PACK = 103
    MIRROR_PAD = 104
    REVERSE = 105
