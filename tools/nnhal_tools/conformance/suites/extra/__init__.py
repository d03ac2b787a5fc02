"""Suite `extra` (EXTRA): requirements of the HAL that the vendor test suite does not cover."""
