"""The suite `extra` (EXTRA): what the HAL requires and the vendor test suite does not cover."""
