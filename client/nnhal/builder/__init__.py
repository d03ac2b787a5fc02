"""Builder of models, operation by operation, with checks at every step.

Example:
    from nnhal import ModelBuilder
    from nnhal.types import Operand, OperandType as T, OperationType as Op

    b = ModelBuilder()
    image = b.input(T.TENSOR_FLOAT32, [1, 8, 8, 1], name="image")
    filters, bias = b.constant(weights), b.constant(np.zeros(4, np.float32))
    maps = b.add(Op.CONV_2D, image, filters, bias, 1, 1, 1, 0, output=Operand(T.TENSOR_FLOAT32, (1, 8, 8, 4)))
    b.output(maps, name="maps")
    model = b.build()

Arguments that are not operands become constants. A number becomes a scalar of the type that the signature requires.
Arrays of float32, float16, int32 and bool and sequences of numbers become tensors. None becomes an omitted operand.

A call that breaks a rule raises HalError INVALID_ARGUMENT with the rule's id, the problem and the expected value.
`build` returns a model that passes the device's validation.

`arguments` fits arguments to a signature, `constants` stores values, and `graph` and `model` hold the builder classes.
The rules for operands and control flow are in `nnhal.rules`. The builder does not depend on a connection.
"""

from nnhal.builder.graph import Argument, GraphBuilder, OperandRef
from nnhal.builder.model import ModelBuilder, ModelExtension, SubgraphBuilder

__all__ = ["Argument", "GraphBuilder", "ModelBuilder", "ModelExtension", "OperandRef", "SubgraphBuilder"]
