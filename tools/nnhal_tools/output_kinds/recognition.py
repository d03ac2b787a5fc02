"""Kinds of outputs, in the order in which they are tried."""

from collections.abc import Callable
from dataclasses import dataclass

from nnhal_tools.output_kinds.anchors import recognize_anchored
from nnhal_tools.output_kinds.classification import recognize_classification
from nnhal_tools.output_kinds.detection import recognize_boxes_and_scores, recognize_postprocessed
from nnhal_tools.output_kinds.finding import Execution, Finding
from nnhal_tools.output_kinds.landmarks import recognize_hand, recognize_pose
from nnhal_tools.output_kinds.segmentation import recognize_segmentation


@dataclass(frozen=True)
class OutputKind:
    """Kind of outputs.

    Attributes:
        expected: the outputs that it looks for, as text.
        recognize: returns what the outputs mean, or None if they are of another kind.
    """

    expected: str
    recognize: Callable[[Execution], Finding | None]


KINDS = (
    OutputKind("boxes [1,N,4], classes [1,N], scores [1,N] and a count", recognize_postprocessed),
    OutputKind("boxes [1,N,4] and scores [1,N,C]", recognize_boxes_and_scores),
    OutputKind("boxes of MediaPipe's face or palm detectors", recognize_anchored),
    OutputKind("body points [1,1,17,3]", recognize_pose),
    OutputKind("MediaPipe's hand landmarks", recognize_hand),
    OutputKind("classes or a mask [1,H,W] or [1,H,W,C] of about the image's size", recognize_segmentation),
    OutputKind("a value for each class [1,N]", recognize_classification),
)


def recognize(execution: Execution) -> Finding | None:
    """Return the meaning of the outputs, or None if no kind fits."""
    if not all(output.values.size for output in execution.outputs):
        return None
    return next(filter(None, (kind.recognize(execution) for kind in KINDS)), None)


def describe_kinds() -> str:
    """Return the outputs that the kinds look for, as text."""
    return "; ".join(kind.expected for kind in KINDS)
