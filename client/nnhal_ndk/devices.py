"""Devices of the program: those of the configured services, and the reference implementation on the CPU."""

import logging
import threading
from functools import cached_property

import nnhal
from nnhal.errors import DeadObjectError, HalError
from nnhal.types import DeviceType, ErrorStatus
from nnhal_ndk.api.functions import FEATURE_LEVELS
from nnhal_ndk.device_list import REFERENCE, DeviceSource, configured_sources
from nnhal_ndk.objects import OBJECTS
from nnhal_ndk.results import bad_data

_log = logging.getLogger("nnhal.ndk")

_LEVELS = {version: FEATURE_LEVELS[version + 4] for version in range(1, 5)}
"""Feature level of each version of the HAL interface."""


class NdkDevice:
    """Device. Connects when it is first used, and again when that failed. Thread safe.

    Attributes:
        handle: its handle, which is valid until the process ends.
    """

    def __init__(self, source: DeviceSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._device: nnhal.Device | None = None
        self._is_lost = False
        self.handle = OBJECTS.add(self)

    @property
    def hal(self) -> nnhal.Device:
        """The device of the client.

        Raises:
            HalError: the service cannot be reached, or this process is the child of the one that connected.
        """
        if self._device is not None:
            return self._device
        with self._lock:
            if self._is_lost:
                raise DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "the device was connected before a fork")
            if self._device is None:
                source = self._source
                self._device = nnhal.connect(
                    source.target, device=source.device, client_name="libneuralnetworks", **source.options
                )
            return self._device

    @property
    def is_reference(self) -> bool:
        """True if this is the reference implementation on the CPU, which runs what no other device supports."""
        return self._source is REFERENCE

    @cached_property
    def name(self) -> bytes:
        """Name for the program."""
        return (self._source.name or self._source.device or f"nnhal {self._source.target}").encode()

    @cached_property
    def type(self) -> int:
        """An ANeuralNetworks DeviceTypeCode."""
        return int(DeviceType.CPU if self.is_reference else self.hal.type)

    @cached_property
    def version(self) -> bytes:
        """Version of driver and backends."""
        return nnhal.__version__.encode() if self.is_reference else self.hal.version.encode()

    @cached_property
    def feature_level(self) -> int:
        """Feature level that it supports."""
        version = max(_LEVELS) if self.is_reference else self.hal.interface_version
        return _LEVELS[min(version, max(_LEVELS))]

    def close(self) -> None:
        """End the session, and the service if this process has started it."""
        with self._lock:
            device, self._device = self._device, None
            self._is_lost = True
        if device is not None:
            device.close()

    def forget(self) -> None:
        """Leave the connection to the parent process. The objects stay in memory, so that nothing closes them."""
        self._lock = threading.Lock()
        if self._device is not None:
            _FORGOTTEN.append(self._device)
            self._device = None
            self._is_lost = True


_FORGOTTEN: list[object] = []
_devices: list[NdkDevice] = []
_lock = threading.Lock()


def all_devices() -> list[NdkDevice]:
    """Return all devices, the reference implementation last."""
    if not _devices:
        with _lock:
            if not _devices:
                _devices.extend(map(NdkDevice, [*_sources(), REFERENCE]))
    return _devices


def _sources() -> list[DeviceSource]:
    try:
        return configured_sources()
    except HalError as error:
        _log.error("%s; there are no devices but %s", error, REFERENCE.name)
        return []


def device_at(index: int) -> NdkDevice:
    """Return a device.

    Raises:
        NdkError: BAD_DATA: there is no such device.
    """
    devices = all_devices()
    if index >= len(devices):
        raise bad_data(f"there is no device {index}; there are {len(devices)}")
    return devices[index]


def close_devices() -> None:
    """Close all devices, at the end of the process."""
    for device in _devices:
        try:
            device.close()
        except Exception as error:
            _log.debug("a device cannot be closed: %s", error)


def forget_devices() -> None:
    """Leave all connections to the parent process, in the child of a fork."""
    global _lock  # noqa: PLW0603 - another thread of the parent may hold it
    _lock = threading.Lock()
    for device in _devices:
        device.forget()
