"""Memories of the program: mapped files, and tensors that stay on a device."""

import errno
import mmap
import os

import numpy as np

from nnhal.types import Bytes
from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.execution.tensor_memory import TensorMemory
from nnhal_ndk.results import NdkError, bad_data


class MappedFile:
    """Part of a file in the address space of this process, shared with everyone who maps it."""

    def __init__(self, mapping: mmap.mmap, start: int, size: int) -> None:
        self._mapping = mapping
        self.contents: Bytes = np.frombuffer(mapping, np.uint8)[start : start + size]


class NdkMemory:
    """Memory of the program."""

    def __init__(self, content: MappedFile | TensorMemory) -> None:
        self.content = content

    @property
    def mapped(self) -> MappedFile:
        """The mapped file.

        Raises:
            NdkError: BAD_DATA: it was created from a description, so that only executions use it.
        """
        if not isinstance(self.content, MappedFile):
            raise bad_data("the memory was created from a description, and has no bytes that can be addressed")
        return self.content


def map_descriptor(size: int, protection: int, descriptor: int, offset: int) -> MappedFile:
    """Map a part of a file, with PROT_READ and PROT_WRITE of <sys/mman.h>. The descriptor may be closed afterwards.

    Raises:
        NdkError: BAD_DATA: a size of 0, no file, or a part that is not in the file; UNMAPPABLE.
    """
    if size == 0 or descriptor < 0 or protection & ~(mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC):
        raise bad_data(f"{size} bytes of descriptor {descriptor} with protection {protection}")
    start = offset % mmap.ALLOCATIONGRANULARITY
    try:
        os.fstat(descriptor)
        access = protection or mmap.PROT_READ
        mapping = mmap.mmap(descriptor, start + size, mmap.MAP_SHARED, access, offset=offset - start)
    except (ValueError, OverflowError) as error:
        raise bad_data(f"{size} bytes from byte {offset} of descriptor {descriptor}: {error}") from None
    except OSError as error:
        code = ResultCode.BAD_DATA if error.errno == errno.EBADF else ResultCode.UNMAPPABLE
        raise NdkError(code, f"descriptor {descriptor} cannot be mapped: {error}") from None
    return MappedFile(mapping, start, size)


def copy_memory(source: NdkMemory, target: NdkMemory) -> None:
    """Copy a memory to another one. A tensor to which it fails is then uninitialized, as in Android.

    Raises:
        NdkError: BAD_DATA: they do not match, or the source is uninitialized.
        HalError: a device failed.
    """
    if source is target:
        return
    try:
        _copy(source, target)
    except BaseException:
        if isinstance(target.content, TensorMemory):
            target.content.clear()
        raise


def _copy(source: NdkMemory, target: NdkMemory) -> None:
    match source.content, target.content:
        case MappedFile() as from_file, MappedFile() as to_file:
            if from_file.contents.size != to_file.contents.size:
                raise bad_data(f"{from_file.contents.size} bytes do not fit into {to_file.contents.size}")
            _write(to_file, from_file.contents)
        case TensorMemory() as tensor, MappedFile() as to_file:
            data = tensor.read().reshape(-1).view(np.uint8)
            if data.size != to_file.contents.size:
                raise bad_data(f"{data.size} bytes do not fit into {to_file.contents.size}")
            _write(to_file, data)
        case MappedFile() as from_file, TensorMemory() as tensor:
            tensor.write_bytes(from_file.contents)
        case TensorMemory() as from_tensor, TensorMemory() as to_tensor:
            to_tensor.copy_from(from_tensor)


def _write(target: MappedFile, data: Bytes) -> None:
    if not target.contents.flags.writeable:
        raise bad_data("the memory is read-only")
    target.contents[:] = data
