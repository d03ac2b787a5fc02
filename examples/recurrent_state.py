"""Keeps the state of a recurrent network on the device, in a driver-managed buffer.

    python examples/recurrent_state.py

The network is one RNN cell: state = RELU(weight * input + recurrent_weight * state). With these weights the state is
the moving average of the input.
"""

import argparse

import numpy as np

import nnhal
from nnhal import FusedActivationFunc, Operand, OperandType, OperationType

CHANNELS, STEPS, CHANGE = 2, 12, 0.3


def build_cell() -> nnhal.Model:
    """Return a model of one step: from an input and a state to the next state."""
    values = Operand(OperandType.TENSOR_FLOAT32, (1, CHANNELS))
    builder = nnhal.ModelBuilder()
    signal = builder.input(values.type, values.dimensions, name="signal")
    state = builder.input(values.type, values.dimensions, name="state")
    weights = np.eye(CHANNELS, dtype=np.float32) * np.float32(CHANGE)
    recurrent_weights = np.eye(CHANNELS, dtype=np.float32) * np.float32(1 - CHANGE)
    bias = np.zeros(CHANNELS, np.float32)
    cell = (signal, weights, recurrent_weights, bias, state, FusedActivationFunc.RELU)
    next_state, average = builder.add(OperationType.RNN, *cell, outputs=[values, values])
    builder.output(next_state, name="next state")
    builder.output(average, name="average")
    return builder.build()


parser = argparse.ArgumentParser()
parser.add_argument("--target", help="address of a service; by default this program starts one")

signal = np.zeros((STEPS, 1, CHANNELS), np.float32)
signal[2:8, 0, 0] = 1  # a pulse
signal[4, 0, 1] = 1  # a spike

with nnhal.connect(parser.parse_args().target) as device:
    cell = device.prepare(build_cell()).result()
    state, next_state = (device.allocate(inputs=[(cell, "state")], outputs=[(cell, "next state")]) for _ in range(2))
    with state, next_state:
        state.write(np.zeros((1, CHANNELS), np.float32))
        for step in signal:
            # Only the signal is sent, and only the average is returned. One execution cannot read and write one buffer.
            outputs = cell.execute({"signal": step, "state": state}, outputs={"next state": next_state})
            state, next_state = next_state, state
            pulse, spike = np.asarray(outputs["average"])[0]
            print(f"pulse {step[0, 0]:.0f} {pulse:.3f} {'#' * round(pulse * 20):<20} ", end="")
            print(f"spike {step[0, 1]:.0f} {spike:.3f} {'#' * round(spike * 20)}".rstrip())
        print("the state at the end:", *state.read()[0].round(3))
