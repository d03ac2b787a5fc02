"""Sub-models: regions of TFLite operators from untrusted clients, parsed and verified before LiteRT sees them."""

from nnhal_driver.backends.litert.submodel.limits import SubModelLimits
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
from nnhal_driver.backends.litert.submodel.verification import verify

__all__ = [
    "ITEM_BITS",
    "InvalidSubModel",
    "SubModel",
    "SubModelGraph",
    "SubModelLimits",
    "SubModelOperator",
    "SubModelQuantization",
    "SubModelTensor",
    "parse",
    "verify",
]
