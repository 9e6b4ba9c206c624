"""Attention of one token to a cache of keys and values, for llama_decode.py --compile on a GPU: one Triton kernel, and what torch.compile
makes of a few sums.

Keys are shared out among programs, so that a short cache still fills a good part of the chip, and heads that share keys and values read
the same ones: nothing is copied for each of them. (32 heads, 129 slots, on an H200, with the last sums still in two kernels: 6 µs;
with scaled_dot_product_attention and a mask, what torch.compile made of it took 16.)
"""

import torch
import triton
import triton.language as tl

BLOCK = 32  # slots of a program


@triton.jit
def _attend(query, key, value, visible, sums, most, total, slots, scale, GROUP: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    head, part = tl.program_id(0), tl.program_id(1)
    column, slot = tl.arange(0, SIZE), part * BLOCK + tl.arange(0, BLOCK)
    inside = slot < slots
    place = (head // GROUP * slots + slot)[:, None] * SIZE + column[None, :]
    keys = tl.load(key + place, mask=inside[:, None], other=0.0).to(tl.float32)
    values = tl.load(value + place, mask=inside[:, None], other=0.0).to(tl.float32)
    token = tl.load(query + head * SIZE + column).to(tl.float32) * scale
    seen = tl.load(visible + slot, mask=inside, other=0) != 0
    score = tl.where(seen, tl.sum(keys * token[None, :], 1), -1e30)
    largest = tl.max(score, 0)
    weight = tl.where(seen, tl.exp(score - largest), 0.0)
    # The same number for every column: all three results are then added up by one kernel.
    to = (head * tl.num_programs(1) + part) * SIZE + column
    tl.store(sums + to, tl.sum(weight[:, None] * values, 0))
    tl.store(most + to, largest + tl.zeros_like(token))
    tl.store(total + to, tl.sum(weight, 0) + tl.zeros_like(token))


def _parts(query: torch.Tensor, key: torch.Tensor) -> list[torch.Tensor]:
    shape = (query.shape[1], -(-key.shape[2] // BLOCK), query.shape[3])
    return [query.new_empty(shape, dtype=torch.float32) for _ in range(3)]


@torch.library.custom_op("lowbit_example::attend", mutates_args=())
def attend_parts(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visible: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of each head and part of the slots, and for each column: the sum of values times weights, the largest score, the sum of weights."""
    sums, most, total = _parts(query, key)
    heads, parts, size = sums.shape
    _attend[(heads, parts)](
        query.contiguous(), key.contiguous(), value.contiguous(), visible, sums, most, total, key.shape[2], scale,
        GROUP=heads // key.shape[1], SIZE=size, BLOCK=BLOCK,
    )  # fmt: skip
    return sums, most, total


@attend_parts.register_fake
def _(query, key, value, visible, scale):
    return tuple(_parts(query, key))


def attend(module, query, key, value, attention_mask, scaling=None, **_):
    """For transformers' AttentionInterface: query [1, heads, 1, size], key and value [1, shared heads, slots, size], and a mask of bool
    [1, 1, 1, slots], of which at least one is true."""
    assert query.shape[0] == query.shape[2] == 1, "one token of one sequence"
    scale = query.shape[3] ** -0.5 if scaling is None else float(scaling)
    sums, most, total = attend_parts(query, key, value, attention_mask[0, 0, 0], scale)
    factor = torch.exp(most - most.amax(1, keepdim=True))
    y = (sums * factor).sum(1) / (total * factor).sum(1)
    return y.to(query.dtype).reshape(1, 1, *y.shape), None
