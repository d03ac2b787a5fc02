"""The file format of TensorFlow Lite: its schema, a safe reader and a writer, for the importer and for drivers.

`enumerations` and `tables` are the schema, and `shapes` infers the shapes that operators compute. `reader` reads
flatbuffers from untrusted sources. `packing` writes models, with the flatbuffers of `writer`.
"""

from nnhal.tflite_schema.enumerations import ActivationFunctionType, BuiltinOperator, Padding, TensorType

__all__ = ["ActivationFunctionType", "BuiltinOperator", "Padding", "TensorType"]
