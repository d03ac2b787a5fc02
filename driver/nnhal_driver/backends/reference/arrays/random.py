"""Kernels of RANDOM_MULTINOMIAL and LSH_PROJECTION."""

import secrets
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnhal.types import AnyArray, OperationType
from nnhal_driver.backends.reference.kernel import Floats, as_float32, kernel
from nnhal_driver.backends.reference.numerics.farmhash import Words, fingerprint64
from nnhal_driver.operations.arrays.random import DENSE, SPARSE
from nnhal_driver.operations.call import OperationCall

Doubles: TypeAlias = NDArray[np.float64]

_LOW = np.uint64(2**32 - 1)
_HALF = np.uint64(32)
_ROUNDS = 10
_FACTORS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


@kernel(OperationType.RANDOM_MULTINOMIAL, random=True)
def random_multinomial(call: OperationCall) -> AnyArray:
    """Draw classes for each row, with probabilities proportional to exp(logits)."""
    batches, samples = call.shape("logits")[0], call.integer("num_samples")
    seeds = [int(seed) for seed in call.array("seeds")]
    if not any(seeds):
        seeds = [secrets.randbits(64), secrets.randbits(64)]
    draws = uniform(seeds[0], seeds[1], batches * samples).reshape(batches, samples)
    sums = np.cumsum(_odds(as_float32(call, "logits")), axis=1)
    out = np.empty((batches, samples), np.int32)
    for row, targets, classes in zip(sums, draws * sums[:, -1:], out, strict=True):
        call.check()
        classes[...] = np.searchsorted(row, targets, side="right")
    return out


def _odds(logits: Floats) -> Doubles:
    """Return exp(logit - the row's largest logit). It is 0 where the logit is not finite."""
    finite = np.isfinite(logits)
    largest = np.where(finite, logits, np.finfo(np.float32).min).max(axis=1, keepdims=True)
    odds: Doubles = np.exp(np.where(finite, logits, -np.inf).astype(np.float64) - largest)
    return odds


def uniform(key: int, stream: int, count: int) -> Doubles:
    """Return `count` numbers in [0, 1) with 52 bits each: two from each of the blocks 0, 1, .. of a stream."""
    words = np.stack(philox(key, stream, np.arange((count + 1) // 2, dtype=np.uint64)), axis=1).reshape(-1, 2)
    mantissas = ((words[:, 0] & np.uint64(0xFFFFF)) << _HALF) | words[:, 1]
    return (mantissas[:count] | np.uint64(0x3FF << 52)).view(np.float64) - 1.0


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
    fingerprints = _fingerprints(as_float32(call, "hash"), call.array("input")).view(np.int64).astype(np.float64)
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


def _fingerprints(seeds: Floats, rows: AnyArray) -> Words:
    """Return the fingerprints of each seed's 4 bytes followed by each row's bytes: [seeds, rows]."""
    count = len(rows)
    raw = np.ascontiguousarray(rows).reshape(count, -1).view(np.uint8)
    heads = np.ascontiguousarray(seeds).reshape(-1, 1).view(np.uint8)
    strings = np.concatenate([np.repeat(heads, count, axis=0), np.tile(raw, (len(heads), 1))], axis=1)
    return fingerprint64(strings).reshape(len(heads), count)
