"""Kernels of RANDOM_MULTINOMIAL and LSH_PROJECTION."""

import secrets
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.division import divide_large, plain
from nnhal_driver.backends.reference.kernel import Floats, as_float32, kernel, tiles
from nnhal_driver.backends.reference.numerics.farmhash import Words, fingerprint64
from nnhal_driver.operations.arrays.random import DENSE, SPARSE
from nnhal_driver.operations.call import OperationCall

Doubles: TypeAlias = NDArray[np.float64]

_LOW = np.uint64(2**32 - 1)
_HALF = np.uint64(32)
_ROUNDS = 10
_FACTORS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_DRAW_COST, _BYTE_COST = 2**9, 2**4
"""Costs of a sample and of a byte of a fingerprint, in multiply-adds."""
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


@kernel(OperationType.RANDOM_MULTINOMIAL, random=True)
def random_multinomial(call: OperationCall) -> AnyArray:
    """Draw classes for each row, with probabilities proportional to exp(logits)."""
    batches, samples = call.shape("logits")[0], call.integer("num_samples")
    seeds = [int(seed) for seed in call.array("seeds")]
    if not any(seeds):
        seeds = [secrets.randbits(64), secrets.randbits(64)]
    sums = np.cumsum(_odds(as_float32(call, "logits")), axis=1)
    out = np.empty((batches, samples), np.int32)
    for region in tiles(call, out.shape, _DRAW_COST):
        rows, columns = out[region].shape
        start = region[0].start * samples + region[1].start
        draws = uniform(seeds[0], seeds[1], start, rows * columns).reshape(rows, columns)
        for row, targets, classes in zip(sums[region[0]], draws * sums[region[0], -1:], out[region], strict=True):
            call.check()
            classes[...] = np.searchsorted(row, targets, side="right")
    return out


def _odds(logits: Floats) -> Doubles:
    """Return exp(logit - the row's largest logit). It is 0 where the logit is not finite."""
    finite = np.isfinite(logits)
    largest = np.where(finite, logits, np.finfo(np.float32).min).max(axis=1, keepdims=True)
    odds: Doubles = np.exp(np.where(finite, logits, -np.inf).astype(np.float64) - largest)
    return odds


def uniform(key: int, stream: int, start: int, count: int) -> Doubles:
    """Return numbers `start`, `start` + 1, .. in [0, 1) with 52 bits each: two from each block of a stream."""
    numbers = np.arange(start // 2, (start + count + 1) // 2, dtype=np.uint64)
    words = np.stack(philox(key, stream, numbers), axis=1).reshape(-1, 2)[start % 2 :][:count]
    mantissas = ((words[:, 0] & np.uint64(0xFFFFF)) << _HALF) | words[:, 1]
    return (mantissas | np.uint64(0x3FF << 52)).view(np.float64) - 1.0


def philox(key: int, stream: int, blocks: Words) -> list[Words]:
    """Return four words of 32 bits for each block number, by Philox 4x32 with 10 rounds."""
    high = np.full_like(blocks, stream % 2**64)
    c0, c1, c2, c3 = blocks & _LOW, blocks >> _HALF, high & _LOW, high >> _HALF
    keys = [key % 2**32, (key >> 32) % 2**32]
    for _ in range(_ROUNDS):
        first, second = c0 * _FACTORS[0], c2 * _FACTORS[1]
        c0, c1 = (second >> _HALF) ^ c1 ^ np.uint64(keys[0]), second & _LOW
        c2, c3 = (first >> _HALF) ^ c3 ^ np.uint64(keys[1]), first & _LOW
        keys = [(k + step) % 2**32 for k, step in zip(keys, _KEY_STEPS, strict=True)]
    return [c0, c1, c2, c3]


@kernel(OperationType.LSH_PROJECTION)
def lsh_projection(call: OperationCall) -> AnyArray:
    """Return one bit for each element of `hash`: the sign of a weighted sum of the rows' fingerprints."""
    hashes, bits = call.shape("hash")
    words = _fingerprints(call, as_float32(call, "hash"), plain(call.array("input")))
    fingerprints = words.view(np.int64).astype(np.float64)
    if call.has("weight"):
        fingerprints = fingerprints * call.array("weight").astype(np.float64)
    # the order of the sum decides which scores round to 0: cumsum adds row by row, sum() does not promise an order
    score = np.cumsum(fingerprints, axis=1)[:, -1].reshape(hashes, bits)
    kind = call.integer("type")
    if kind == DENSE:
        return (score > 0).astype(np.int32).reshape(-1)
    signature = (score > 0).astype(np.int64) @ (1 << np.arange(bits - 1, -1, -1, dtype=np.int64))
    if kind == SPARSE:
        signature += np.arange(hashes, dtype=np.int64) << bits
    return signature.astype(np.int32)


def _fingerprints(call: OperationCall, seeds: Floats, rows: AnyArray) -> Words:
    """Return the fingerprints of each seed's 4 bytes followed by each row's bytes: [seeds, rows]."""
    raw = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    heads = np.ascontiguousarray(seeds).reshape(-1, 1).view(np.uint8)
    out = np.empty((len(heads), len(raw)), np.uint64)
    for part, some in tiles(call, out.shape, _BYTE_COST * (4 + raw.shape[1])):
        count = len(raw[some])
        repeated = np.repeat(heads[part], count, axis=0), np.tile(raw[some], (len(heads[part]), 1))
        out[part, some] = fingerprint64(np.concatenate(repeated, axis=1)).reshape(-1, count)
    return divide_large(out, call.check)
