"""Options of the operator, as the factory of a native plug-in reads them."""

import ctypes as c

from nnhal_driver.backends.native import abi
from nnhal_driver.backends.options import BackendOptions, OptionError


class OptionsCall:
    """Options for one call of BackendFactoryWithOptions.

    Attributes:
        struct: the struct for the plug-in, valid as long as this object.
    """

    def __init__(self, options: BackendOptions) -> None:
        self._options = options
        self._texts: list[c.Array[c.c_char]] = []
        self._rejection: OptionError | None = None
        self.struct = abi.Options(
            c.sizeof(abi.Options),
            None,
            abi.GetOptionFunction(self._get),
            abi.RejectOptionFunction(self._reject),
            abi.ExcludeOptionFunction(self._exclude),
        )

    def check(self) -> None:
        """Check that the plug-in has not rejected an option.

        Raises:
            OptionError: it has.
        """
        if self._rejection is not None:
            raise self._rejection

    def _get(self, _: object, key: bytes) -> int | None:
        value = self._options.find(_text(key))
        if value is None:
            return None
        self._texts.append(c.create_string_buffer(value.encode()))
        return c.addressof(self._texts[-1])

    def _reject(self, _: object, key: bytes, reason: bytes) -> None:
        self._rejection = self._rejection or OptionError(_text(key), _text(reason) or "the backend gave no reason")

    def _exclude(self, _: object, key: bytes) -> None:
        self._options.exclude_from_cache_key(_text(key))


def _text(value: bytes | None) -> str:
    return (value or b"").decode(errors="replace")
