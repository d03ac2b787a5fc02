"""C headers and entry points of `libneuralnetworks.so`, from the table of its functions."""

from pathlib import Path

from nnhal_ndk.api import c_code
from tools.dev.documents.markdown import Documents

NATIVE = Path("client/nnhal_ndk/native")


def generate() -> Documents:
    """Return the C sources."""
    return {
        NATIVE / "include" / "android" / "NeuralNetworks.h": c_code.header(),
        NATIVE / "include" / "android" / "NeuralNetworksExtensions.h": c_code.extensions_header(),
        NATIVE / "functions.h": c_code.function_numbers(),
        NATIVE / "entry_points.c": c_code.entry_points(),
    }
