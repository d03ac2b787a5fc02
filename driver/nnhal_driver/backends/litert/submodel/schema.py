"""Tables of the TFLite schema that sub-models may use, and their fields by number.

A line is a table: its name, then `field:type=default` for each field number from 0. Types in brackets are vectors. A
field of type `ignored` may be present and is not read; one of type `refused` must be absent. A `!` means that the field
must have its default. A field that no line lists must be absent too.
"""

from collections.abc import Mapping
from dataclasses import dataclass

_STRUCTURE = """
Model version:uint32 operator_codes:[OperatorCode] subgraphs:[SubGraph] description:ignored buffers:[Buffer] \
metadata_buffer:ignored metadata:ignored signature_defs:ignored external_buffer_groups:refused external_buffers:refused
OperatorCode deprecated_builtin_code:int8 custom_code:string version:int32=1 builtin_code:int32
SubGraph tensors:[Tensor] inputs:[int32] outputs:[int32] operators:[Operator] name:ignored debug_metadata_index:ignored
Tensor shape:[int32] type:int8 buffer:uint32 name:ignored quantization:QuantizationParameters is_variable:bool \
sparsity:refused shape_signature:ignored has_rank:ignored variant_tensors:refused external_buffer:uint32!
QuantizationParameters min:ignored max:ignored scale:[float32] zero_point:[int64] details_type:uint8! \
details:refused quantized_dimension:int32
Buffer data:[uint8] offset:uint64! size:uint64!
Operator opcode_index:uint32 inputs:[int32] outputs:[int32] builtin_options_type:uint8 builtin_options:offset \
custom_options:[uint8] custom_options_format:ignored mutating_variable_inputs:ignored intermediates:[int32] \
large_custom_options_offset:uint64! large_custom_options_size:uint64! builtin_options_2_type:uint8! \
builtin_options_2:refused debug_metadata_index:ignored
"""

_OPTIONS = """
Conv2DOptions padding:int8 stride_w:int32 stride_h:int32 fused_activation_function:int8 \
dilation_w_factor:int32=1 dilation_h_factor:int32=1 quantized_bias_type:int8
Conv3DOptions padding:int8 stride_d:int32 stride_w:int32 stride_h:int32 fused_activation_function:int8 \
dilation_d_factor:int32=1 dilation_w_factor:int32=1 dilation_h_factor:int32=1
Pool2DOptions padding:int8 stride_w:int32 stride_h:int32 filter_width:int32 filter_height:int32 \
fused_activation_function:int8
DepthwiseConv2DOptions padding:int8 stride_w:int32 stride_h:int32 depth_multiplier:int32 \
fused_activation_function:int8 dilation_w_factor:int32=1 dilation_h_factor:int32=1
SVDFOptions rank:int32 fused_activation_function:int8 asymmetric_quantize_inputs:bool
RNNOptions fused_activation_function:int8 asymmetric_quantize_inputs:bool
SequenceRNNOptions time_major:bool fused_activation_function:int8 asymmetric_quantize_inputs:bool
BidirectionalSequenceRNNOptions time_major:bool fused_activation_function:int8 merge_outputs:bool \
asymmetric_quantize_inputs:bool
FullyConnectedOptions fused_activation_function:int8 weights_format:int8 keep_num_dims:bool \
asymmetric_quantize_inputs:bool quantized_bias_type:int8 quant_spec:[uint8]
SoftmaxOptions beta:float32
ConcatenationOptions axis:int32 fused_activation_function:int8
AddOptions fused_activation_function:int8 pot_scale_int16:bool=1
MulOptions fused_activation_function:int8
L2NormOptions fused_activation_function:int8
LocalResponseNormalizationOptions radius:int32 bias:float32 alpha:float32 beta:float32
LSTMOptions fused_activation_function:int8 cell_clip:float32 proj_clip:float32 kernel_type:int8 \
asymmetric_quantize_inputs:bool
UnidirectionalSequenceLSTMOptions fused_activation_function:int8 cell_clip:float32 proj_clip:float32 \
time_major:bool asymmetric_quantize_inputs:bool diagonal_recurrent_tensors:bool
BidirectionalSequenceLSTMOptions fused_activation_function:int8 cell_clip:float32 proj_clip:float32 \
merge_outputs:bool time_major:bool=1 asymmetric_quantize_inputs:bool
ResizeBilinearOptions new_height:ignored new_width:ignored align_corners:bool half_pixel_centers:bool
ResizeNearestNeighborOptions align_corners:bool half_pixel_centers:bool
PadOptions
PadV2Options
ReshapeOptions new_shape:[int32]
SpaceToBatchNDOptions
BatchToSpaceNDOptions
SpaceToDepthOptions block_size:int32
DepthToSpaceOptions block_size:int32
SubOptions fused_activation_function:int8 pot_scale_int16:bool=1
DivOptions fused_activation_function:int8
TopKV2Options
GatherOptions axis:int32 batch_dims:int32
TransposeOptions
ExpOptions
CosOptions
ReducerOptions keep_dims:bool
SqueezeOptions squeeze_dims:[int32]
SplitOptions num_splits:int32
SplitVOptions num_splits:int32
StridedSliceOptions begin_mask:int32 end_mask:int32 ellipsis_mask:int32 new_axis_mask:int32 \
shrink_axis_mask:int32 offset:bool
LogSoftmaxOptions
CastOptions in_data_type:int8 out_data_type:int8
DequantizeOptions
MaximumMinimumOptions
TileOptions
ArgMaxOptions output_type:int8
ArgMinOptions output_type:int8
GreaterOptions
GreaterEqualOptions
LessOptions
LessEqualOptions
NegOptions
SelectOptions
SliceOptions
TransposeConvOptions padding:int8 stride_w:int32 stride_h:int32 fused_activation_function:int8 \
quantized_bias_type:int8
ExpandDimsOptions
EqualOptions
NotEqualOptions
ShapeOptions out_type:int8
RankOptions
PowOptions
FakeQuantOptions min:float32 max:float32 num_bits:int32 narrow_range:bool
PackOptions values_count:int32 axis:int32
LogicalOrOptions
OneHotOptions axis:int32
AbsOptions
HardSwishOptions
LogicalAndOptions
LogicalNotOptions
UnpackOptions num:int32 axis:int32
FloorDivOptions
SquareOptions
ZerosLikeOptions
FillOptions
FloorModOptions
RangeOptions
LeakyReluOptions alpha:float32
SquaredDifferenceOptions
MirrorPadOptions mode:int8
ReverseV2Options
AddNOptions
GatherNdOptions
ReverseSequenceOptions seq_dim:int32 batch_dim:int32
MatrixDiagOptions
QuantizeOptions
MatrixSetDiagOptions
IfOptions then_subgraph_index:int32 else_subgraph_index:int32
WhileOptions cond_subgraph_index:int32 body_subgraph_index:int32
NonMaxSuppressionV4Options
NonMaxSuppressionV5Options
ScatterNdOptions
SelectV2Options
SegmentSumOptions
BatchMatMulOptions adj_x:bool adj_y:bool asymmetric_quantize_inputs:bool
CumsumOptions exclusive:bool reverse:bool
BroadcastToOptions
BucketizeOptions boundaries:[float32]
GeluOptions approximate:bool
DynamicUpdateSliceOptions
UnsortedSegmentProdOptions
UnsortedSegmentMaxOptions
UnsortedSegmentSumOptions
ATan2Options
UnsortedSegmentMinOptions
SignOptions
Rfft2dOptions
BitcastOptions
BitwiseXorOptions
RightShiftOptions
"""

SCALARS: Mapping[str, str] = {
    "bool": "B",
    "int8": "b",
    "uint8": "B",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
}
"""Codes of scalars in struct and numpy."""


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field of a table.

    Attributes:
        name: name in the schema.
        type: a scalar, a table, `string`, `offset` (position of a table of any type), `ignored` or `refused`.
        is_vector: whether the field is a vector of this type.
        default: value of an absent field.
        fixed: whether the field must have its default.
    """

    name: str
    type: str
    is_vector: bool
    default: object
    fixed: bool = False


def _field(text: str) -> SchemaField:
    name, _, rest = text.removesuffix("!").partition(":")
    type_, _, default = rest.partition("=")
    if type_.startswith("["):
        return SchemaField(name, type_[1:-1], True, None)
    if type_ in SCALARS:
        number = float(default or 0) if type_ == "float32" else int(default or 0)
        return SchemaField(name, type_, False, bool(number) if type_ == "bool" else number, text.endswith("!"))
    return SchemaField(name, type_, False, None)


def _tables(text: str) -> dict[str, tuple[SchemaField, ...]]:
    lines = (line.split() for line in text.strip().splitlines())
    return {name: tuple(map(_field, fields)) for name, *fields in lines}


OPTIONS: Mapping[str, tuple[SchemaField, ...]] = _tables(_OPTIONS)
"""Tables of options by name."""

TABLES: Mapping[str, tuple[SchemaField, ...]] = {**_tables(_STRUCTURE), **OPTIONS}
"""All tables by name."""
