"""Real models and test vectors in ../shared, which is not part of the project."""

import os
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

INEXACT_MODELS = frozenset({"mobilenet_edgetpu_224_1.0_uint8"})
"""Models whose results differ from those of LiteRT by more than a few steps."""


def shared(path: str) -> Path:
    """Return a file or folder of ../shared. If it is absent, skip the test, or with CI=true fail it."""
    full_path = SHARED / path
    if not full_path.exists():
        message = f"../shared/{path} is not present"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{message}, and CI=true")
        pytest.skip(message)
    return full_path
