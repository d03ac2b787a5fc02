"""Answers of models by name that add a number, and why versions of models are not current."""

import numpy as np

import nnhal

_ONES = np.ones(2, np.float32)


def added(device: nnhal.Device, name: str, version: int | None = None) -> float | None:
    """Return the number that a model adds; None if it cannot be used now."""
    try:
        value: float = device.model(name, version).execute([_ONES])[0][0]
    except nnhal.HalError:
        return None
    return value - 1


def reasons(device: nnhal.Device) -> dict[str, str]:
    """Return the reasons in the list of models by name and version."""
    return {f"{each.name}/{each.version}": each.reason for each in device.models() if each.reason}
