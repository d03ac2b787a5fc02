"""GPUs of this machine, as its Vulkan drivers report them, and the one that this process uses."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

_SELECTION = "VK_LOADER_DEVICE_SELECT"
"""Variable with the GPU that the loader of Vulkan lists first."""
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
        id: numbers of its vendor and of its model, by which the loader of Vulkan selects it.
    """

    name: str
    driver: str
    memory_bytes: int
    is_software: bool
    id: str

    @property
    def selection(self) -> dict[str, str]:
        """Environment of a process whose engine uses this GPU: it takes the first one that is listed."""
        return {_SELECTION: self.id}


def matching_adapters(adapters: Sequence[Adapter], name: str) -> tuple[Adapter, ...]:
    """Return the adapters whose names contain a text, or those that are hardware if the text is "".

    Raises:
        NoAdapterError: there is none.
    """
    lower = name.lower()
    found = tuple(each for each in adapters if (lower in each.name.lower() if name else not each.is_software))
    if found:
        return found
    names = ", ".join(adapter.name + (" (software)" if adapter.is_software else "") for adapter in adapters)
    if name:
        raise NoAdapterError(f"no GPU is named {name!r}; there are: {names}")
    raise NoAdapterError(f"there is no GPU but {names}; name it with --backend-option GpuAcc.adapter=NAME to use it")


_claimed: list[Adapter] = []
"""The GPU of this process, once there is one."""
_lock = Lock()


def claim_adapter(adapter: Adapter) -> None:
    """Have the engine of this process use a GPU, which is final.

    Raises:
        NoAdapterError: it uses another one.
    """
    with _lock:
        used = next(iter(_claimed), adapter)
        if used != adapter:
            raise NoAdapterError(
                f"a process uses one GPU, and this one uses {used.name}; run another service for {adapter.name}"
            )
        _claimed[:] = [adapter]
        os.environ.update(adapter.selection)


def list_adapters() -> Iterator[Adapter]:
    """Yield the GPUs that the loader of Vulkan finds in this process, which a faulty driver may abort.

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
            f"{properties.vendor:#06x}:{properties.device:#06x}",
        )
    vulkan.vkDestroyInstance(instance[0], ffi.NULL)


def _driver_version(vendor: int, version: int) -> str:
    """Return a version in the vendor's notation: NVIDIA packs it in another way than Vulkan's own."""
    if vendor == _NVIDIA:
        return f"{version >> 22}.{version >> 14 & 0xFF}.{version >> 6 & 0xFF}"
    return f"{version >> 22}.{version >> 12 & 0x3FF}.{version & 0xFFF}"
