"""Options of custom operators, which each operator encodes in its own way.

LiteRT trusts these bytes as well. So they are decoded here with all checks, and encoded again.
"""

import math
import struct
from collections.abc import Callable, Mapping

import numpy as np

from nnhal.types import Bytes
from nnhal_driver.backends.litert.submodel.model import InvalidSubModel

_MAX_BYTES = 4096
_DETECTION_INTEGERS = ("max_detections", "max_classes_per_detection", "num_classes")
_DETECTION_NUMBERS = ("nms_score_threshold", "nms_iou_threshold", "y_scale", "x_scale", "h_scale", "w_scale")
_DEFAULT_DETECTIONS_PER_CLASS = 100


def _detection(data: Bytes) -> tuple[Bytes, Mapping[str, object]]:
    """Return the options of TFLite_Detection_PostProcess: a map in the format of flexbuffers."""
    from flatbuffers import flexbuffers  # noqa: PLC0415 - comes with the engine

    if len(data) > _MAX_BYTES:
        raise InvalidSubModel(f"custom_options has {len(data)} bytes; at most {_MAX_BYTES} are supported")
    options: dict[str, object] = {}
    try:
        fields = flexbuffers.GetRoot(bytes(data)).AsMap
        names = {fields.Keys[index].AsKey for index in range(min(len(fields), _MAX_BYTES))}
        options.update((name, int(fields[name].AsInt)) for name in _DETECTION_INTEGERS)
        options.update((name, float(np.float32(fields[name].AsFloat))) for name in _DETECTION_NUMBERS)
        per_class = fields["detections_per_class"].AsInt if "detections_per_class" in names else None
        options["detections_per_class"] = _DEFAULT_DETECTIONS_PER_CLASS if per_class is None else int(per_class)
        options["use_regular_nms"] = "use_regular_nms" in names and bool(fields["use_regular_nms"].AsBool)
    except (TypeError, ValueError, KeyError, IndexError, struct.error, OverflowError, UnicodeDecodeError) as error:
        raise InvalidSubModel(f"custom_options is not a valid flexbuffer: {error or type(error).__name__}") from None
    for name, value in options.items():
        if not math.isfinite(float(value)):  # type: ignore[arg-type] # all are numbers
            raise InvalidSubModel(f"{name} is {value}; expected a finite number")
        if name in _DETECTION_INTEGERS and abs(int(value)) > 2**31 - 1:  # type: ignore[call-overload]
            raise InvalidSubModel(f"{name} is {value}; expected a 32-bit integer")
    return np.frombuffer(bytes(flexbuffers.Dumps(options)), np.uint8), options


CUSTOM_OPTIONS: Mapping[str, Callable[[Bytes], tuple[Bytes, Mapping[str, object]]]] = {
    "TFLite_Detection_PostProcess": _detection,
}
"""The custom operators of sub-models, with functions that return their options: encoded again, and decoded."""
