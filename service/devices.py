"""The devices of a service, by the names that clients use."""

from collections.abc import Sequence

from driver.device import Device
from nnhal.errors import invalid_argument


class Devices:
    """Finds devices. The first is the default."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._devices = {device.name: device for device in devices}
        self._default = devices[0]

    @property
    def names(self) -> list[str]:
        """Their names, the default first."""
        return list(self._devices)

    def get(self, name: str) -> Device:
        """The device of a name; the default for "".

        Raises:
            HalError: INVALID_ARGUMENT: there is none.
        """
        device = self._devices.get(name) if name else self._default
        if device is None:
            raise invalid_argument(f"there is no device {name!r}; there are {', '.join(self._devices)}")
        return device
