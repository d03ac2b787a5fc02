"""The suite `cache` (CACHE): compilation caching with files of the client, as the HAL has it."""
