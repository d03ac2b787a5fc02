"""Options of `nnhal conformance` that select a few checks of each suite and a few of the built-in vectors."""

SAMPLE = (
    *("--select", "BASIC-*"),
    *("--select", "*-?5*"),
    *("--select", "add_float"),
    *("--select", "conv_float_same"),
    *("--select", "mul_float"),
    *("--select", "topk_float"),
    *("--select", "while_5_turns"),
)
