"""What `nnhal explain` shows: where each operation of a model runs, why, and the graph as a page."""
