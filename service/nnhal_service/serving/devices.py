"""The devices of a service by name."""

from collections.abc import Iterator, Sequence

from nnhal.errors import invalid_argument
from nnhal_driver.device import Device


class Devices:
    """Looks up devices by the names that clients use. The first device is the default."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = {device.name: device for device in devices}
        self._default = devices[0]

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices.values())

    @property
    def names(self) -> list[str]:
        """Names of the devices, the default first."""
        return list(self._devices)

    def label(self, name: str) -> str:
        """Return the name of the device that a client means, or "" if there is none."""
        return (name or self._default.name) if not name or name in self._devices else ""

    def get(self, name: str) -> Device:
        """Return the device with a name; the default for "".

        Raises:
            HalError: INVALID_ARGUMENT: there is no such device.
        """
        device = self._devices.get(name) if name else self._default
        if device is None:
            raise invalid_argument(f"there is no device {name!r}; expected one of {', '.join(self._devices)}")
        return device
