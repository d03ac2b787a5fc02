"""What a device says of itself is well formed (EXTRA-08)."""

import re

from nnhal.types import MAX_NUMBER_OF_CACHE_FILES, DeviceType
from nnhal.v1 import device_pb2, types_pb2
from tools.conformance.check import Judge
from tools.conformance.registry import check
from tools.conformance.target import Target, called

_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")


@check("EXTRA-08", "type")
def device_type(target: Target, judge: Judge) -> None:
    """1 to 4."""
    answer, response = called(target.device.GetType, device_pb2.DeviceRequest(device=target.name))
    type_ = int(response.type) if response else answer
    judge.expect("EXTRA-08", type_ in list(DeviceType), "getType", "1 to 4", type_)


@check("EXTRA-08", "version string")
def version_string(target: Target, judge: Judge) -> None:
    """Not empty."""
    answer, response = called(target.device.GetVersionString, device_pb2.DeviceRequest(device=target.name))
    judge.expect("EXTRA-08", bool(response and response.version), "getVersionString", "a text", response or answer)


@check("EXTRA-08", "numbers of cache files")
def cache_files(target: Target, judge: Judge) -> None:
    """0 to 32 of each kind."""
    answer, files = called(target.device.GetNumberOfCacheFilesNeeded, device_pb2.DeviceRequest(device=target.name))
    counts = (files.num_model_cache, files.num_data_cache) if files else ()
    right = len(counts) == 2 and all(0 <= count <= MAX_NUMBER_OF_CACHE_FILES for count in counts)
    judge.expect("EXTRA-08", right, "getNumberOfCacheFilesNeeded", "0 to 32 of each kind", counts or answer)


@check("EXTRA-08", "extensions")
def extensions(target: Target, judge: Judge) -> None:
    """Names and types are well formed, and none comes twice."""
    answer, response = called(target.device.GetSupportedExtensions, device_pb2.DeviceRequest(device=target.name))
    judge.expect("EXTRA-08", response is not None, "getSupportedExtensions", "NONE", answer)
    names = [extension.name for extension in response.extensions]
    judge.expect("EXTRA-08", len(set(names)) == len(names), "names of extensions", "each once", names)
    for extension in response.extensions:
        _expect_well_formed(judge, extension)


def _expect_well_formed(judge: Judge, extension: types_pb2.Extension) -> None:
    name = extension.name
    judge.expect("EXTRA-08", bool(_NAME.fullmatch(name)), "name of an extension", "a-z, 0-9, '_' and periods", name)
    types = [type_.type for type_ in extension.operand_types]
    right = len(set(types)) == len(types) and all(0 <= type_ < 2**16 for type_ in types)
    judge.expect("EXTRA-08", right, f"types of {name}", "16 bits, each once", types)
    sizes = [type_.byte_size for type_ in extension.operand_types]
    judge.expect("EXTRA-08", all(size > 0 for size in sizes), f"byte sizes of {name}", "above 0", sizes)


@check("EXTRA-08", "no operand performance twice")
def operand_performance_is_unique(target: Target, judge: Judge) -> None:
    """One entry for each type."""
    answer, response = called(target.device.GetCapabilities, device_pb2.DeviceRequest(device=target.name))
    judge.expect("EXTRA-08", response is not None, "getCapabilities", "NONE", answer)
    types = [int(entry.type) for entry in response.operand_performance]
    judge.expect("EXTRA-08", len(set(types)) == len(types), "operandPerformance", "each type once", types)
