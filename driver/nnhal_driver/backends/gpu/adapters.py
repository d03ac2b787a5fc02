"""GPUs of this machine, as its Vulkan drivers report them.

    python -m nnhal_driver.backends.gpu.adapters

prints them as JSON. A faulty driver may abort its process, so `find_adapters` asks in one of its own.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

_TIMEOUT_S = 20.0
_COMMAND = ("-P", "-m", "nnhal_driver.backends.gpu.adapters")
_DECLARATIONS = """
typedef struct { int type; const void *next; uint32_t flags; const void *application; uint32_t layer_count;
    const char *const *layers; uint32_t extension_count; const char *const *extensions; } InstanceInfo;
typedef struct { uint32_t api, driver, vendor, device; int type; char name[256]; char other[1024]; } Properties;
typedef struct { uint32_t type_count; uint32_t types[64]; uint32_t heap_count;
    struct { uint64_t size; uint32_t flags; } heaps[16]; } MemoryProperties;
int vkCreateInstance(const InstanceInfo *info, const void *allocator, void **instance);
void vkDestroyInstance(void *instance, const void *allocator);
int vkEnumeratePhysicalDevices(void *instance, uint32_t *count, void **devices);
void vkGetPhysicalDeviceProperties(void *device, Properties *properties);
void vkGetPhysicalDeviceMemoryProperties(void *device, MemoryProperties *properties);
"""
_LOADER = "libvulkan.so.1"
_INSTANCE_INFO = 1
_DEVICE_LOCAL = 1
_SOFTWARE = 4
"""VK_PHYSICAL_DEVICE_TYPE_CPU."""
_NVIDIA = 0x10DE


class NoAdapterError(RuntimeError):
    """There is no GPU that can be used. The message tells why, and what to do."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A GPU.

    Attributes:
        name: its name.
        driver: version of its driver.
        memory_bytes: its own memory.
        is_software: whether it is a processor that imitates a GPU.
    """

    name: str
    driver: str
    memory_bytes: int
    is_software: bool


def find_adapters() -> tuple[Adapter, ...]:
    """Return the GPUs, found in a process of its own.

    Raises:
        NoAdapterError: Vulkan is not installed, finds no GPU, or fails.
    """
    try:
        done = subprocess.run(
            [sys.executable, *_COMMAND], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise NoAdapterError(f"the drivers of Vulkan gave no answer in {_TIMEOUT_S:.0f} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise NoAdapterError(f"the drivers of Vulkan failed: {last}")
    answer = json.loads(done.stdout)
    if problem := answer.get("problem"):
        raise NoAdapterError(problem)
    return tuple(Adapter(**fields) for fields in answer["adapters"])


def choose_adapter(adapters: tuple[Adapter, ...], name: str) -> Adapter:
    """Return the adapter whose name contains a text, or the first one that is hardware if the text is "".

    Raises:
        NoAdapterError: there is none.
    """
    for adapter in adapters:
        if name.lower() in adapter.name.lower() if name else not adapter.is_software:
            return adapter
    names = ", ".join(adapter.name + (" (software)" if adapter.is_software else "") for adapter in adapters)
    if name:
        raise NoAdapterError(f"no GPU is named {name!r}; there are: {names}")
    raise NoAdapterError(f"there is no GPU but {names}; name it with --backend-option GpuAcc.adapter=NAME to use it")


def list_adapters() -> Iterator[Adapter]:
    """Yield the GPUs that the loader of Vulkan finds in this process.

    Raises:
        NoAdapterError: there is no loader, or no driver.
    """
    from cffi import FFI  # noqa: PLC0415 - only this process needs it

    ffi: Any = FFI()
    ffi.cdef(_DECLARATIONS)
    try:
        vulkan: Any = ffi.dlopen(_LOADER)
    except OSError as error:
        raise NoAdapterError(f"the loader of Vulkan is missing: install Debian's libvulkan1 ({error})") from error
    info, instance = ffi.new("InstanceInfo *", {"type": _INSTANCE_INFO}), ffi.new("void **")
    if status := vulkan.vkCreateInstance(info, ffi.NULL, instance):
        raise NoAdapterError(f"Vulkan finds no driver of a GPU (status {status}); install the one of its vendor")
    count = ffi.new("uint32_t *")
    vulkan.vkEnumeratePhysicalDevices(instance[0], count, ffi.NULL)
    devices = ffi.new("void *[]", count[0])
    vulkan.vkEnumeratePhysicalDevices(instance[0], count, devices)
    for device in devices:
        properties, memory = ffi.new("Properties *"), ffi.new("MemoryProperties *")
        vulkan.vkGetPhysicalDeviceProperties(device, properties)
        vulkan.vkGetPhysicalDeviceMemoryProperties(device, memory)
        heaps = [heap.size for heap in memory.heaps[0 : memory.heap_count] if heap.flags & _DEVICE_LOCAL]
        yield Adapter(
            ffi.string(properties.name).decode(errors="replace"),
            _driver_version(properties.vendor, properties.driver),
            max(heaps, default=0),
            properties.type == _SOFTWARE,
        )
    vulkan.vkDestroyInstance(instance[0], ffi.NULL)


def _driver_version(vendor: int, version: int) -> str:
    """Return a version in the vendor's notation: NVIDIA packs it in another way than Vulkan's own."""
    if vendor == _NVIDIA:
        return f"{version >> 22}.{version >> 14 & 0xFF}.{version >> 6 & 0xFF}"
    return f"{version >> 22}.{version >> 12 & 0x3FF}.{version & 0xFFF}"


def main() -> None:
    """Print the GPUs, or why there is none."""
    try:
        answer: dict[str, object] = {"adapters": [asdict(adapter) for adapter in list_adapters()]}
    except NoAdapterError as error:
        answer = {"problem": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
