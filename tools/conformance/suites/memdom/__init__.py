"""The suite `memdom` (MEMDOM): buffers of the device, how they are made, copied and used."""
