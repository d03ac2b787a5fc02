"""Suite `cache` (CACHE): compilation caching with files of the client, as the HAL defines it."""
