"""Convolutions: CONV_2D, DEPTHWISE_CONV_2D, GROUPED_CONV_2D."""

from collections.abc import Callable

from nnhal.operations.signature import Arguments, signature
from nnhal.types import OperationType, SymmPerChannelQuantParams

CONVOLUTION_TYPES = """
    T                           F                               B
    TENSOR_FLOAT32              TENSOR_FLOAT32                  TENSOR_FLOAT32
    TENSOR_FLOAT16              TENSOR_FLOAT16                  TENSOR_FLOAT16
    TENSOR_QUANT8_ASYMM         TENSOR_QUANT8_ASYMM             TENSOR_INT32
    TENSOR_QUANT8_ASYMM         TENSOR_QUANT8_SYMM_PER_CHANNEL  TENSOR_INT32
    TENSOR_QUANT8_ASYMM_SIGNED  TENSOR_QUANT8_ASYMM_SIGNED      TENSOR_INT32
    TENSOR_QUANT8_ASYMM_SIGNED  TENSOR_QUANT8_SYMM_PER_CHANNEL  TENSOR_INT32
"""
PADDING = "padding_left padding_right padding_top padding_bottom"
STRIDES = "stride_width stride_height"
_OPTIONS = "[layout:BOOL] [dilation_width dilation_height]"


def filter_channel_dimension(dimension: int) -> Callable[[Arguments], str | None]:
    """Return a check that a per-channel filter is quantized along dimension `dimension`, its output channels."""

    def check(arguments: Arguments) -> str | None:
        params = arguments["filter"].extra_params
        if isinstance(params, SymmPerChannelQuantParams) and params.channel_dim != dimension:
            return f"filter is quantized per channel along dimension {params.channel_dim}, not {dimension}"
        return None

    return check


signature(
    OperationType.CONV_2D,
    inputs={
        "explicit padding": f"input:T filter:F bias:B {PADDING} {STRIDES} activation {_OPTIONS}",
        "implicit padding": f"input:T filter:F bias:B padding_scheme {STRIDES} activation {_OPTIONS}",
    },
    types=CONVOLUTION_TYPES,
    ranks={"input": 4, "filter": 4},
    checks=[filter_channel_dimension(0)],
    batchwise=True,
)

signature(
    OperationType.DEPTHWISE_CONV_2D,
    inputs={
        "explicit padding": f"input:T filter:F bias:B {PADDING} {STRIDES} depth_multiplier activation {_OPTIONS}",
        "implicit padding": f"input:T filter:F bias:B padding_scheme {STRIDES} depth_multiplier activation {_OPTIONS}",
    },
    types=CONVOLUTION_TYPES,
    checks=[filter_channel_dimension(3)],
    batchwise=True,
)

_GROUPS = f"{STRIDES} num_groups activation layout:BOOL"

signature(
    OperationType.GROUPED_CONV_2D,
    inputs={
        "explicit padding": f"input:T filter:F bias:B {PADDING} {_GROUPS}",
        "implicit padding": f"input:T filter:F bias:B padding_scheme {_GROUPS}",
    },
    types=CONVOLUTION_TYPES,
    checks=[filter_channel_dimension(0)],
    batchwise=True,
)
