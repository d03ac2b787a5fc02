"""Data that is not part of the project: real models and test vectors, beside it where they are present."""

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"

MODELS = (
    "ad01_fp32",
    "ad01_int8",
    "deeplabv3_mnv2_dm05_pascal_quant",
    "kws_ref_model",
    "mobilenet_v1_0.25_128_quant",
    "mobilenet_v2_1.0_224_quant",
    "pretrainedResnet",
    "pretrainedResnet_quant",
    "vww_96_float",
    "vww_96_int8",
)
"""The real models, by their names in ../shared/models."""


def shared(path: str) -> Path:
    """A file or folder of ../shared; the test is skipped where it is absent."""
    found = SHARED / path
    if not found.exists():
        pytest.skip(f"../shared/{path} is not present")
    return found
