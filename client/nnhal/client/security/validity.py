"""End of a certificate's validity, read from its encoding: Python's own library reads only those of other machines."""

import re
import ssl
from datetime import UTC, datetime

_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


def end_of_validity(pem: bytes) -> float | None:
    """Return the end of the first certificate's validity in seconds since 1970, or None if it cannot be read."""
    try:
        text = pem.decode("ascii")
        begin = text.index("-----BEGIN CERTIFICATE-----")
        end = text.index("-----END CERTIFICATE-----", begin) + len("-----END CERTIFICATE-----")
        certificate = _Der(ssl.PEM_cert_to_DER_cert(text[begin:end]))
        fields = certificate.enter().enter()  # Certificate, TBSCertificate
        if fields.tag == _VERSION:
            fields.skip()
        for _ in ("serialNumber", "signature", "issuer"):
            fields.skip()
        validity = fields.enter()
        validity.skip()  # notBefore
        return _seconds(validity.tag, validity.value().decode("ascii"))
    except (ValueError, IndexError):
        return None


def _seconds(tag: int, text: str) -> float:
    digits = re.sub(r"\D", "", text)
    if tag == _UTC_TIME:
        digits = ("19" if int(digits[:2]) >= 50 else "20") + digits
    return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC).timestamp()


class _Der:
    """Elements of a DER encoding, one after another."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @property
    def tag(self) -> int:
        """Tag of the element."""
        return self._data[0]

    def _bounds(self) -> tuple[int, int]:
        length, start = self._data[1], 2
        if length & 0x80:
            start += length & 0x7F
            length = int.from_bytes(self._data[2:start], "big")
        return start, start + length

    def value(self) -> bytes:
        """Return the contents of the element."""
        start, end = self._bounds()
        return self._data[start:end]

    def skip(self) -> None:
        """Go to the next element."""
        self._data = self._data[self._bounds()[1] :]

    def enter(self) -> "_Der":
        """Return the elements in a sequence.

        Raises:
            ValueError: it is not a sequence.
        """
        if self.tag != _SEQUENCE:
            raise ValueError("not a sequence")
        return _Der(self.value())
