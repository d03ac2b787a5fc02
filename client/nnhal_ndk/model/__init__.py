"""Models of the program, and their conversion to models of the HAL."""
