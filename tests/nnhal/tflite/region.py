"""A file of which a part becomes a region of the LiteRT extension."""

from tests.nnhal.tflite.build import Op, Tensor, build, options


def squaring_file() -> bytes:
    """Return a file that computes -(|x| * |x|), with the product in int64: a region between two NNAPI operations."""
    x, absolute, product, y = (Tensor((2, 3), name=name) for name in ("x", "", "", "y"))
    wide, square = (Tensor((2, 3), "INT64") for _ in range(2))
    return build(
        Op("ABS", [x], [absolute]),
        Op("CAST", [absolute], [wide], options("Cast")),
        Op("MUL", [wide, wide], [square], options("Mul")),
        Op("CAST", [square], [product], options("Cast")),
        Op("NEG", [product], [y]),
        outputs=[y],
    )
