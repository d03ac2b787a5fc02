"""Uses the client for asyncio: many executions at once in one thread, and timeouts.

    python examples/use_asyncio.py

The names are those of the synchronous client. What it waits for is awaited here.
"""

import argparse
import asyncio

import numpy as np

import nnhal
from nnhal_tools.demo import digits


async def classify_digits(prepared: nnhal.aio.PreparedModel) -> None:
    """Classify all pictures at once."""
    pictures, labels = digits.load_images()
    images = digits.scale_pixels(pictures)[:, None]  # one input of shape [1, 8, 8, 1] after another
    results = await asyncio.gather(*(prepared.execute([image]) for image in images))
    answers = np.array([outputs["probabilities"].argmax() for outputs in results])
    print(f"{len(results)} executions at once, {np.sum(answers == labels)} answers are correct")


async def give_up_waiting(device: nnhal.aio.Device, prepared: nnhal.aio.PreparedModel) -> None:
    """Limit the time of a call with asyncio's own means, and repeat the call later."""
    pictures, labels = digits.load_images()
    go = await device.fence()  # the execution below begins when this fence is signalled
    execution = await prepared.execute_fenced([digits.scale_pixels(pictures)[:1]], wait_for=[go])
    try:
        async with asyncio.timeout(0.1):
            await execution.result()
    except TimeoutError:
        print("gave up waiting: the execution has not begun")
    await go.signal()
    outputs = await execution.result()
    print(f"answer {outputs['probabilities'].argmax()}, label {labels[0]}")


async def main(target: str | None) -> None:
    """Connect to a service and prepare the model. Both calls leave the event loop free for other tasks."""
    async with nnhal.aio.connect(target) as device:
        prepared = await device.prepare(digits.MODEL)
        await classify_digits(prepared)
        await give_up_waiting(device, prepared)


parser = argparse.ArgumentParser()
parser.add_argument("--target", help="address of a service; by default this program starts one")
asyncio.run(main(parser.parse_args().target))
