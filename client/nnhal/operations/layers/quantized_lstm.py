"""Quantized LSTM cells: QUANTIZED_LSTM, QUANTIZED_16BIT_LSTM."""

from nnhal.operations.signature import signature
from nnhal.types import OperationType

signature(
    OperationType.QUANTIZED_LSTM,
    inputs="""
        input:A input_to_input_weights:W? input_to_forget_weights:W input_to_cell_weights:W input_to_output_weights:W
        recurrent_to_input_weights:W? recurrent_to_forget_weights:W recurrent_to_cell_weights:W
        recurrent_to_output_weights:W
        cell_to_input_weights:C? cell_to_forget_weights:C? cell_to_output_weights:C?
        input_gate_bias:B? forget_gate_bias:B cell_bias:B output_gate_bias:B projection_weights:W? projection_bias:B?
        output_state_in:A cell_state_in:C
        input_layer_norm_weights:C? forget_layer_norm_weights:C? cell_layer_norm_weights:C? output_layer_norm_weights:C?
        cell_clip:FLOAT32? proj_clip:FLOAT32?
        input_intermediate_scale:FLOAT32 forget_intermediate_scale:FLOAT32
        cell_intermediate_scale:FLOAT32 output_intermediate_scale:FLOAT32
        hidden_state_zero_point hidden_state_scale:FLOAT32
    """,
    outputs="output_state_out:A cell_state_out:C output:A",
    types="""
        A                           W                   C                    B
        TENSOR_QUANT8_ASYMM_SIGNED  TENSOR_QUANT8_SYMM  TENSOR_QUANT16_SYMM  TENSOR_INT32
    """,
)

signature(
    OperationType.QUANTIZED_16BIT_LSTM,
    inputs="""
        input:A input_to_input_weights:A input_to_forget_weights:A input_to_cell_weights:A input_to_output_weights:A
        recurrent_to_input_weights:A recurrent_to_forget_weights:A recurrent_to_cell_weights:A
        recurrent_to_output_weights:A
        input_gate_bias:B forget_gate_bias:B cell_bias:B output_gate_bias:B prev_cell_state:C prev_output:A
    """,
    outputs="cell_state_out:C output:A",
    types="""
        A                    B             C
        TENSOR_QUANT8_ASYMM  TENSOR_INT32  TENSOR_QUANT16_SYMM
    """,
)
