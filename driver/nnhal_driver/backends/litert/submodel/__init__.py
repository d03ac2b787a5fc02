"""Sub-models: regions of TFLite operators from clients. Parsing them is safe, whatever they contain.

LiteRT trusts a model: a wrong index, shape or option makes it read out of bounds or end its process. So only a process
that serves the owner of a sub-model runs it, or one that serves nothing else.
"""

from nnhal_driver.backends.litert.submodel.kernel_faults import check_kernels
from nnhal_driver.backends.litert.submodel.model import (
    ITEM_BITS,
    InvalidSubModel,
    SubModel,
    SubModelGraph,
    SubModelOperator,
    SubModelQuantization,
    SubModelTensor,
)
from nnhal_driver.backends.litert.submodel.parser import parse
from nnhal_driver.backends.litert.submodel.static_shapes import has_static_shapes

__all__ = [
    "ITEM_BITS",
    "InvalidSubModel",
    "SubModel",
    "SubModelGraph",
    "SubModelOperator",
    "SubModelQuantization",
    "SubModelTensor",
    "check_kernels",
    "has_static_shapes",
    "parse",
]
