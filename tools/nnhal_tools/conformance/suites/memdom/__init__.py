"""Suite `memdom` (MEMDOM): allocation of, copies of, and executions with buffers of the device."""
