"""Building models, operation by operation, checked as they are built.

    from nnhal import ModelBuilder
    from nnhal.types import Operand, OperandType as T, OperationType as Op

    b = ModelBuilder()
    image = b.input(T.TENSOR_FLOAT32, [1, 8, 8, 1], name="image")
    filters, bias = b.constant(weights), b.constant(np.zeros(4, np.float32))
    maps = b.add(Op.CONV_2D, image, filters, bias, 1, 1, 1, 0, output=Operand(T.TENSOR_FLOAT32, (1, 8, 8, 4)))
    b.output(maps, name="maps")
    model = b.build()

Numbers become scalars of the type that the signature has at their place, arrays of float32, float16, int32 and bool and
sequences of numbers become constant tensors, and None an operand without a value. What breaks a rule raises HalError
INVALID_ARGUMENT at the line that adds it, with the rule's id, what is wrong and what would be right. A model that was
built passes the device's validation.

`rules` judges operands, `arguments` fits what was given to a signature, `control_flow` judges IF and WHILE, `constants`
keeps values, `graph` and `model` are what users hold. Nothing here knows the service.
"""

from nnhal.builder.graph import Argument, GraphBuilder, OperandRef
from nnhal.builder.model import Extension, ModelBuilder, SubgraphBuilder

__all__ = ["Argument", "Extension", "GraphBuilder", "ModelBuilder", "OperandRef", "SubgraphBuilder"]
