"""The C sources: generated from the table, exported as it says, and accepted by compilers of C and C++."""

import subprocess
from pathlib import Path

import pytest

from nnhal_ndk.api.functions import EXTENSION_FUNCTIONS, FUNCTIONS, PUBLIC_FUNCTIONS, Function
from nnhal_ndk.build import include_folder
from nnhal_ndk.functions import REGISTERED
from nnhal_tools.conformance.device.ndk_library import NdkLibrary, short_name
from tools.dev.documents import ndk
from tools.dev.ndk_results import recorded_results


def test_the_table_has_all_public_functions() -> None:
    assert len({function.name for function in FUNCTIONS}) == len(FUNCTIONS)
    assert (len(PUBLIC_FUNCTIONS), len(EXTENSION_FUNCTIONS)) == (69, 6)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: short_name(each.name))
def test_every_documented_result_is_tested(function: Function) -> None:
    """The results are recorded by `python -m tools.dev.ndk_results`."""
    name = short_name(function.name)
    documented = set(ndk.documented_codes(ndk.rules()[name]))
    if name not in ndk.ANDROID_ONLY:
        documented.add("NO_ERROR")
    if any(each.is_pointer and not function.may_be_null(each) for each in function.parameters):
        documented.add("UNEXPECTED_NULL")
    assert documented - set(recorded_results()[name]) == set()


def test_all_functions_are_exported_and_nothing_else(library: NdkLibrary) -> None:
    command = ["nm", "-D", "--defined-only", str(library.path)]
    symbols = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[2::3]
    assert sorted(symbols) == sorted(function.name for function in FUNCTIONS)
    assert set(REGISTERED) <= set(symbols)


@pytest.mark.parametrize("standard", ["c99", "c11", "c++11", "c++17"])
@pytest.mark.parametrize(
    "header",
    ["NeuralNetworks.h", "NeuralNetworksTypes.h", "NeuralNetworksExtensions.h", "android/NeuralNetworksExtensions.h"],
)
def test_the_header_is_strict_c_and_cpp(library_path: Path, standard: str, header: str) -> None:
    language = "c++" if "++" in standard else "c"
    warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
    command = ["cc", f"-std={standard}", *warnings, "-fsyntax-only", "-x", language]
    subprocess.run([*command, str(include_folder() / header)], check=True)
