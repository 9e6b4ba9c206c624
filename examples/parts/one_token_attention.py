"""Attention of one token to a cache of keys and values, for llama_decode.py --compile on a GPU: one Triton kernel.

Keys are shared out among programs, so that a short cache still fills a good part of the chip, and heads that share keys and values read
the same ones: nothing is copied for each of them. Of the programs of a head the one that comes last adds up what all of them found, in
the order of the keys, whichever it is.
"""

import functools

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

BLOCK = 32  # slots of a program


@triton.jit
def _attend(
    query, key, value, visible, sums, most, total, arrived, y, slots, scale,
    GROUP: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    if EARLY:  # launched before the kernel in front has ended, as those of lowbit and torch.compile are
        gdc_wait()
        gdc_launch_dependents()
    head, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
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
    to = head * parts + part
    tl.store(sums + to * SIZE + column, tl.sum(weight[:, None] * values, 0))
    tl.store(most + to, largest)
    tl.store(total + to, tl.sum(weight, 0))
    tl.debug_barrier()  # all threads have stored before one of them says so
    if tl.atomic_add(arrived + head, 1, sem="acq_rel") == parts - 1:
        each = tl.arange(0, PARTS)
        there = each < parts
        found = head * parts + each
        peak = tl.load(most + found, mask=there, other=-1e30, cache_modifier=".cg")
        factor = tl.where(there, tl.exp(peak - tl.max(peak, 0)), 0.0)
        whole = tl.sum(tl.load(total + found, mask=there, other=0.0, cache_modifier=".cg") * factor, 0)
        rows = tl.load(sums + found[:, None] * SIZE + column[None, :], mask=there[:, None], other=0.0, cache_modifier=".cg")
        tl.store(y + head * SIZE + column, (tl.sum(rows * factor[:, None], 0) / whole).to(y.dtype.element_ty))
        tl.store(arrived + head, 0)  # for the next launch


@functools.cache
def _counters(device: torch.device, heads: int) -> torch.Tensor:
    """How many programs of a head are done: zeros between launches. One stream uses them at a time."""
    return torch.zeros(heads, dtype=torch.int32, device=device)


@torch.library.custom_op("lowbit_example::attend", mutates_args=())
def attend_heads(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, visible: torch.Tensor, scale: float) -> torch.Tensor:
    """[heads, size]."""
    heads, size, slots = query.shape[1], query.shape[3], key.shape[2]
    parts = triton.cdiv(slots, BLOCK)
    sums, most, total = (query.new_empty((heads, parts, width), dtype=torch.float32) for width in (size, 1, 1))
    y = query.new_empty((heads, size))
    early = query.is_cuda and torch.cuda.get_device_capability(query.device) >= (9, 0)
    _attend[(heads, parts)](
        query.contiguous(), key.contiguous(), value.contiguous(), visible, sums, most, total, _counters(query.device, heads), y, slots,
        scale, GROUP=heads // key.shape[1], SIZE=size, BLOCK=BLOCK, PARTS=triton.next_power_of_2(parts), EARLY=early,
        **(dict(launch_pdl=True) if early else {}),
    )  # fmt: skip
    return y


@attend_heads.register_fake
def _(query, key, value, visible, scale):
    return query.new_empty((query.shape[1], query.shape[3]))


def attend(module, query, key, value, attention_mask, scaling=None, **_):
    """For transformers' AttentionInterface: query [1, heads, 1, size], key and value [1, shared heads, slots, size], and a mask of bool
    [1, 1, 1, slots], of which at least one is true."""
    assert query.shape[0] == query.shape[2] == 1, "one token of one sequence"
    scale = query.shape[3] ** -0.5 if scaling is None else float(scaling)
    y = attend_heads(query, key, value, attention_mask[0, 0, 0], scale)
    return y.reshape(1, 1, *y.shape), None
