"""Times of the simulation: constants of the product, and times that were measured on one CPU.

`taskset -c 0 python -m tests.benchmark.simulation.measure` measures them. The model is a quantized
DeepLab v3 for images of 257 by 257 pixels.
"""

OPEN_S = 0.0127
"""CPU time to open a session."""
COMPILE_S = 0.135
"""CPU time to prepare the model."""
LOAD_S = 0.0273
"""The same, from the cache."""
EXECUTE_S = 0.0359
"""CPU time of an execution."""
START_S = 1.7
"""Time that a service takes to start."""
NETWORK_S = 0.0005
"""Time of a message and its answer between two machines."""
PING_S = 20.0
"""Time between two pings of a connection, and until a connection counts as dead without an answer (`core.session`)."""
NODE_DEATH_S = 2.0
"""Time until Ray reports the death of a host."""
HOST_ARRIVAL_S = 60.0
"""Time until a new host serves: a machine in a cloud."""
