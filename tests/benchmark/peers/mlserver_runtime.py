"""Runtime of MLServer: LiteRT with one thread. MLServer imports this file in its worker processes."""

import os

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from mlserver import MLModel  # type: ignore[import-not-found]
from mlserver.codecs import NumpyCodec  # type: ignore[import-not-found]
from mlserver.types import InferenceRequest, InferenceResponse  # type: ignore[import-not-found]


class LiteRTRuntime(MLModel):  # type: ignore[misc]
    """Model that the environment names."""

    async def load(self) -> bool:
        """Load the model."""
        self._interpreter = Interpreter(model_path=os.environ["PEER_MODEL"], num_threads=1)
        self._interpreter.allocate_tensors()
        self._inputs = [each["index"] for each in self._interpreter.get_input_details()]
        self._outputs = [each["index"] for each in self._interpreter.get_output_details()]
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Return the outputs for the inputs of a request."""
        for index, tensor in zip(self._inputs, payload.inputs, strict=True):
            self._interpreter.set_tensor(index, NumpyCodec.decode_input(tensor))
        self._interpreter.invoke()
        outputs = [
            NumpyCodec.encode_output(f"output_{i}", np.array(self._interpreter.get_tensor(index)))
            for i, index in enumerate(self._outputs)
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)
