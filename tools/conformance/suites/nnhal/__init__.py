"""The suite `nnhal` (NNHAL): what our contract promises beyond the HAL. Runs with --strict."""
