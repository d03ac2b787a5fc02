"""Suite `nnhal` (NNHAL): promises that the contract adds to the HAL."""
