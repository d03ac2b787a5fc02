"""Mutated sub-models, which are the same in each run."""

import random

from tests.driver.backends.litert.submodel.seeds import operators, seed_count, seed_model
from tests.nnhal.tflite.mutation import mutate


def example(number: int) -> tuple[bytes, bytes]:
    """Return a model, and a mutation of it."""
    generator = random.Random(number)
    operator = generator.choice(operators())
    data = seed_model(operator, generator.randrange(seed_count(operator)))
    return data, mutate(data, generator)
