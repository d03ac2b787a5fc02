"""Kinds of outputs, in the order in which they are tried."""

from nnhal_tools.output_kinds.classification import recognize_classification
from nnhal_tools.output_kinds.detection import recognize_detection
from nnhal_tools.output_kinds.finding import Execution, Finding
from nnhal_tools.output_kinds.image import recognize_image
from nnhal_tools.output_kinds.segmentation import recognize_segmentation

_RECOGNIZERS = (recognize_detection, recognize_segmentation, recognize_image, recognize_classification)

EXPECTED = (
    "the boxes, classes, scores and count of TFLite_Detection_PostProcess; "
    "classes or a mask [1,H,W] or [1,H,W,C] of about the image's size; an image; a value for each class [1,N]"
)
"""The outputs that the recognizers look for, as text."""


def recognize(execution: Execution) -> Finding | None:
    """Return the meaning of the outputs, or None if no kind fits."""
    if not all(output.values.size for output in execution.outputs):
        return None
    return next(filter(None, (recognizer(execution) for recognizer in _RECOGNIZERS)), None)
