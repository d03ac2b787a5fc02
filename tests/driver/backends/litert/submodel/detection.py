"""Models with TFLite_Detection_PostProcess."""

from functools import cache

from flatbuffers import flexbuffers

from tests.nnhal.tflite.build import Op, Tensor, build, pack, unpack

OPERATOR = "TFLite_Detection_PostProcess"
OPTIONS: dict[str, float] = {
    **{"max_detections": 5, "max_classes_per_detection": 1, "detections_per_class": 3, "num_classes": 3},
    **{"use_regular_nms": False, "nms_score_threshold": 0.1, "nms_iou_threshold": 0.5},
    **{"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0},
}


def detection(
    classes: int = 4, boxes: int = 20, type_: str = "FLOAT32", data: bytes | None = None, **changes: float
) -> bytes:
    """Return a model.

    Args:
        classes: number of scores of each box.
        boxes: number of boxes.
        type_: type of the inputs.
        data: its custom options; by default the encoded options.
        changes: options that differ.
    """
    options = {**OPTIONS, **changes}
    count = int(options["max_detections"] * options["max_classes_per_detection"])
    quantized = type_ == "UINT8"
    scale, zero_point = ((0.02,), (128,)) if quantized else ((), ())
    inputs = [
        Tensor(shape, type_, None, scale, zero_point) for shape in ((1, boxes, 4), (1, boxes, classes), (boxes, 4))
    ]
    shapes, suffixes = ((1, count, 4), (1, count), (1, count), (1,)), ("", ":1", ":2", ":3")
    outputs = [Tensor(shape, name=f"{OPERATOR}{suffix}") for shape, suffix in zip(shapes, suffixes, strict=True)]
    model = unpack(build(Op("CUSTOM", inputs, outputs, custom=OPERATOR)))
    model.subgraphs[0].operators[0].customOptions = list(flexbuffers.Dumps(options) if data is None else data)
    return pack(model)


@cache
def detection_models() -> tuple[bytes, ...]:
    """Return valid models."""
    return (
        detection(),
        detection(use_regular_nms=True),
        detection(max_classes_per_detection=3),
        detection(classes=3, max_detections=30),
        detection(type_="UINT8", use_regular_nms=True, max_detections=20),
    )
