"""Landmarks of bodies and hands."""

import numpy as np
from PIL import Image

from nnhal_tools.output_kinds.drawing import PALETTE
from nnhal_tools.output_kinds.landmarks import BODY, recognize_pose
from tests.tools.output_kinds.executions import execution, find

POSE = np.zeros((1, 1, 17, 3))
POSE[0, 0, 5], POSE[0, 0, 6], POSE[0, 0, 0] = (0.5, 0.25, 0.9), (0.5, 0.75, 0.9), (0.1, 0.1, 0.1)
"""Shoulders in the middle, and an uncertain nose."""


def test_points_of_a_body_have_names() -> None:
    found = find(execution(POSE))
    assert found["kind"] == "landmarks" and "[1,1,17,3]" in found["reason"]
    assert found["landmarks"][5] == {"name": "left shoulder", "x": 0.25, "y": 0.5, "score": 0.9}
    assert len(BODY) == 17


def test_points_with_a_score_are_drawn_and_joined() -> None:
    finding = recognize_pose(execution(POSE))
    assert finding
    drawn = np.asarray(finding.draw(Image.new("RGB", (400, 400), "white")))
    assert (drawn[200, 100] == PALETTE[0]).all() and (drawn[200, 200] == PALETTE[5]).all()
    assert (drawn[:190] == 255).all(), "the nose is uncertain"


def test_points_far_outside_are_not_drawn_in_the_picture() -> None:
    points = POSE.copy()
    points[0, 0, 7:, 2], points[0, 0, 7, :2], points[0, 0, 8, :2] = 0.9, np.nan, np.inf
    points[0, 0, 9:, :2] = 1e30
    finding = recognize_pose(execution(points))
    assert finding
    drawn = np.asarray(finding.draw(Image.new("RGB", (400, 400), "white")))
    assert (drawn[200, 100] == PALETTE[0]).all() and (drawn[390:, :10] == 255).all()


def test_hand_needs_all_shapes_and_the_image() -> None:
    points = np.arange(63.0)[np.newaxis]
    outputs = (points, [[0.8]], [[0.4]], points)
    found = find(execution(*outputs, image=(1, 224, 224, 3)))
    assert (found["presence"], found["handedness"]) == (0.8, 0.4)
    assert found["landmarks"][1] == {"name": "thumb 1", "x": 3 / 224, "y": 4 / 224, "score": 0.8}
    assert find(execution(*outputs))["kind"] == "classification"
    assert find(execution(*outputs[:3], image=(1, 224, 224, 3)))["kind"] == "classification"
