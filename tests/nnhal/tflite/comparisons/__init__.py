"""Models of several operators and of rare kinds, compared with LiteRT on a device with all backends."""
