"""Well-formedness of a device's description (EXTRA-08)."""

import re

from nnhal.types import MAX_NUMBER_OF_CACHE_FILES, DeviceType
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check

_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")


@check("EXTRA-08", "type")
def device_type(target: Target, recorder: CheckRecorder) -> None:
    """Check that the type is between 1 and 4."""
    answer, response = target.call("Device.GetType")
    type_ = int(response.type) if response else answer
    recorder.expect(type_ in list(DeviceType), "getType", "1 to 4", type_)


@check("EXTRA-08", "version string")
def version_string(target: Target, recorder: CheckRecorder) -> None:
    """Check that the version string is not empty."""
    answer, response = target.call("Device.GetVersionString")
    recorder.expect(bool(response and response.version), "getVersionString", "a non-empty string", response or answer)


@check("EXTRA-08", "numbers of cache files")
def cache_files(target: Target, recorder: CheckRecorder) -> None:
    """Check that the device needs 0 to 32 cache files of each kind."""
    answer, files = target.call("Device.GetNumberOfCacheFilesNeeded")
    counts = (files.num_model_cache, files.num_data_cache) if files else ()
    valid = len(counts) == 2 and all(0 <= count <= MAX_NUMBER_OF_CACHE_FILES for count in counts)
    recorder.expect(valid, "getNumberOfCacheFilesNeeded", "0 to 32 of each kind", counts or answer)


@check("EXTRA-08", "extensions")
def extensions(target: Target, recorder: CheckRecorder) -> None:
    """Check that names and types of extensions are well-formed and unique."""
    response = recorder.require_response(target.call("Device.GetSupportedExtensions"), "getSupportedExtensions")
    names = [extension.name for extension in response.extensions]
    recorder.expect(len(set(names)) == len(names), "names of extensions", "unique names", names)
    for extension in response.extensions:
        expect_well_formed(recorder, extension)


def expect_well_formed(recorder: CheckRecorder, extension: types_pb2.Extension) -> None:
    """Check the name, the types and the sizes of an extension."""
    name = extension.name
    recorder.expect(bool(_NAME.fullmatch(name)), "name of an extension", "a-z, 0-9, '_' and periods", name)
    types = [type_.type for type_ in extension.operand_types]
    valid = len(set(types)) == len(types) and all(0 <= type_ < 2**16 for type_ in types)
    recorder.expect(valid, f"types of {name}", "unique numbers of 16 bits", types)
    sizes = [type_.byte_size for type_ in extension.operand_types]
    recorder.expect(all(size > 0 for size in sizes), f"byte sizes of {name}", "above 0", sizes)


@check("EXTRA-08", "unique operand performance")
def operand_performance_is_unique(target: Target, recorder: CheckRecorder) -> None:
    """Check that operandPerformance has one entry for each type."""
    response = recorder.require_response(target.call("Device.GetCapabilities"), "getCapabilities")
    types = [int(entry.type) for entry in response.operand_performance]
    recorder.expect(len(set(types)) == len(types), "operandPerformance", "unique types", types)
