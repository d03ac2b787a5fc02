"""Model of Triton's Python backend: LiteRT with one thread. Triton runs this file in processes of its own."""

import os
import sys

sys.path.insert(0, os.environ["PEER_PACKAGES"])  # Triton does not pass PYTHONPATH on

import numpy as np
import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from ai_edge_litert.interpreter import Interpreter


class TritonPythonModel:
    """Model of one instance."""

    def initialize(self, args: object) -> None:
        """Load the model that the environment names."""
        self._interpreter = Interpreter(model_path=os.environ["PEER_MODEL"], num_threads=1)
        self._interpreter.allocate_tensors()
        self._inputs = [each["index"] for each in self._interpreter.get_input_details()]
        self._outputs = [each["index"] for each in self._interpreter.get_output_details()]

    def execute(self, requests: list[object]) -> list[object]:
        """Return one response for each request."""
        responses = []
        for request in requests:
            for i, index in enumerate(self._inputs):
                self._interpreter.set_tensor(index, pb_utils.get_input_tensor_by_name(request, f"input_{i}").as_numpy())
            self._interpreter.invoke()
            tensors = [
                pb_utils.Tensor(f"output_{i}", np.array(self._interpreter.get_tensor(index)))
                for i, index in enumerate(self._outputs)
            ]
            responses.append(pb_utils.InferenceResponse(output_tensors=tensors))
        return responses
