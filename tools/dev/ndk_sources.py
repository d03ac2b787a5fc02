"""Generator of the C headers and the entry points of `libneuralnetworks.so`, from the table of its functions.

`python -m tools.dev.ndk_sources --write` writes them again. Without the option, it reports files that differ.
"""

import argparse
from pathlib import Path

from nnhal_ndk.api import c_code

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "client" / "nnhal_ndk" / "native"


def sources() -> dict[Path, str]:
    """Return the generated files."""
    return {
        NATIVE / "include" / "android" / "NeuralNetworks.h": c_code.header(),
        NATIVE / "include" / "android" / "NeuralNetworksExtensions.h": c_code.extensions_header(),
        NATIVE / "functions.h": c_code.function_numbers(),
        NATIVE / "entry_points.c": c_code.entry_points(),
    }


def main() -> None:
    """Write the files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    for path, text in sources().items():
        if write:
            path.write_text(text)
        elif path.read_text() != text:
            raise SystemExit(f"{path.relative_to(ROOT)} is out of date: run `python -m tools.dev.ndk_sources --write`")


if __name__ == "__main__":
    main()
