"""Convolutions: CONV_2D, DEPTHWISE_CONV_2D."""

from collections.abc import Callable

from nnhal.operations.signature import Arguments, signature
from nnhal.types import OperationType, SymmPerChannelQuantParams

_TYPES = """
    T                           F                               B
    TENSOR_FLOAT32              TENSOR_FLOAT32                  TENSOR_FLOAT32
    TENSOR_FLOAT16              TENSOR_FLOAT16                  TENSOR_FLOAT16
    TENSOR_QUANT8_ASYMM         TENSOR_QUANT8_ASYMM             TENSOR_INT32
    TENSOR_QUANT8_ASYMM         TENSOR_QUANT8_SYMM_PER_CHANNEL  TENSOR_INT32
    TENSOR_QUANT8_ASYMM_SIGNED  TENSOR_QUANT8_ASYMM_SIGNED      TENSOR_INT32
    TENSOR_QUANT8_ASYMM_SIGNED  TENSOR_QUANT8_SYMM_PER_CHANNEL  TENSOR_INT32
"""
_EXPLICIT = "padding_left padding_right padding_top padding_bottom"
_STRIDES = "stride_width stride_height"
_OPTIONS = "[layout:BOOL] [dilation_width dilation_height]"


def _filter_channels(dimension: int) -> Callable[[Arguments], str | None]:
    """A per-channel filter is quantised along its output channels."""

    def check(arguments: Arguments) -> str | None:
        params = arguments["filter"].extra_params
        if isinstance(params, SymmPerChannelQuantParams) and params.channel_dim != dimension:
            return f"filter is quantised per channel along dimension {params.channel_dim}, not {dimension}"
        return None

    return check


signature(
    OperationType.CONV_2D,
    inputs={
        "explicit padding": f"input:T filter:F bias:B {_EXPLICIT} {_STRIDES} activation {_OPTIONS}",
        "implicit padding": f"input:T filter:F bias:B padding_scheme {_STRIDES} activation {_OPTIONS}",
    },
    outputs="output:T",
    types=_TYPES,
    ranks={"input": 4, "filter": 4},
    checks=[_filter_channels(0)],
)

signature(
    OperationType.DEPTHWISE_CONV_2D,
    inputs={
        "explicit padding": f"input:T filter:F bias:B {_EXPLICIT} {_STRIDES} depth_multiplier activation {_OPTIONS}",
        "implicit padding": f"input:T filter:F bias:B padding_scheme {_STRIDES} depth_multiplier activation {_OPTIONS}",
    },
    outputs="output:T",
    types=_TYPES,
    checks=[_filter_channels(3)],
)
