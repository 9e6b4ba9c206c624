"""Attention of one token to a cache of keys and values, for llama_decode.py --compile on a GPU: one Triton kernel, from what the linear
layers give to what the next one takes. It turns query and key by their position, puts key and value into the cache, and attends.

Slots of the cache are shared out among programs, so that a short cache still fills a part of the chip; a program serves all heads that
share its keys and values, and reads them once. Of the programs of such heads the one that comes last adds up what all of them found, in
the order of the slots, whichever it is.
"""

import functools
import types

import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

BLOCK = 32  # slots of a program
PARTS = 16  # programs whose sums are added up at a time
ROWS = 16  # at least so many rows has a product of the tensor core


@triton.jit
def _attend(
    query, key, value, cos, sin, position, keys, values, sums, most, total, arrived, y, slots, scale,
    GROUP: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, MEMBERS: tl.constexpr,
    PARTS: tl.constexpr, ALL_PARTS: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    shared, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    column, slot = tl.arange(0, SIZE), part * BLOCK + tl.arange(0, BLOCK)
    inside = (slot < slots)[:, None]
    place = (shared * slots + slot)[:, None] * SIZE + column[None, :]
    held_keys = tl.load(keys + place, mask=inside, other=0.0)  # of earlier tokens: no need to wait for the kernel in front
    held_values = tl.load(values + place, mask=inside, other=0.0)
    if EARLY:  # launched before the kernel in front has ended, as those of lowbit and torch.compile are
        gdc_wait()
        gdc_launch_dependents()

    # The two halves of a head's numbers are coordinates, turned by the angles of the position and rounded as in the cache.
    opposite = (column + SIZE // 2) % SIZE
    along = tl.load(cos + column).to(tl.float32)
    across = tl.load(sin + column).to(tl.float32) * tl.where(column < SIZE // 2, -1.0, 1.0)
    now = tl.load(position)
    new_value = tl.load(value + shared * SIZE + column)
    new_key = tl.load(key + shared * SIZE + column).to(tl.float32) * along
    new_key += tl.load(key + shared * SIZE + opposite).to(tl.float32) * across
    new_key = new_key.to(held_keys.dtype)
    row = tl.arange(0, ROWS)
    head = shared * GROUP + row
    is_head = (row < GROUP)[:, None]
    token = tl.load(query + head[:, None] * SIZE + column[None, :], mask=is_head, other=0.0).to(tl.float32) * along[None, :]
    token += tl.load(query + head[:, None] * SIZE + opposite[None, :], mask=is_head, other=0.0).to(tl.float32) * across[None, :]
    token = token.to(held_keys.dtype)

    if now // BLOCK == part:
        tl.store(keys + (shared * slots + now) * SIZE + column, new_key)
        tl.store(values + (shared * slots + now) * SIZE + column, new_value)
    is_new, seen = (slot == now)[:, None], (slot <= now)[None, :]
    all_keys = tl.where(is_new, new_key[None, :], held_keys)
    all_values = tl.where(is_new, new_value[None, :], held_values)
    score = tl.where(seen, tl.dot(token, tl.trans(all_keys), input_precision="ieee") * scale, -1e30)
    largest = tl.max(score, 1)
    weight = tl.where(seen, tl.exp(score - largest[:, None]), 0.0)
    to = head * parts + part
    found = tl.dot(weight.to(all_values.dtype), all_values, input_precision="ieee")
    tl.store(sums + to[:, None] * SIZE + column[None, :], found, mask=is_head)
    tl.store(most + to, largest, mask=row < GROUP)
    tl.store(total + to, tl.sum(weight, 1), mask=row < GROUP)
    tl.debug_barrier()  # all threads have stored before one of them says so
    if tl.atomic_add(arrived + shared, 1, sem="acq_rel") == parts - 1:
        member = tl.arange(0, MEMBERS)
        is_member = member < GROUP
        first = (shared * GROUP + member) * parts
        each = tl.arange(0, ALL_PARTS)
        there = is_member[:, None] & (each < parts)[None, :]
        peak = tl.load(most + first[:, None] + each[None, :], mask=there, other=-1e30, cache_modifier=".cg")
        highest = tl.max(peak, 1)
        weights = tl.load(total + first[:, None] + each[None, :], mask=there, other=0.0, cache_modifier=".cg")
        whole = tl.sum(weights * tl.exp(peak - highest[:, None]), 1)
        result = tl.zeros((MEMBERS, SIZE), tl.float32)
        for begin in tl.static_range(0, ALL_PARTS, PARTS):
            some = begin + tl.arange(0, PARTS)
            is_part = is_member[:, None] & (some < parts)[None, :]
            at = first[:, None] + some[None, :]
            factor = tl.exp(tl.load(most + at, mask=is_part, other=-1e30, cache_modifier=".cg") - highest[:, None])
            rows = tl.load(
                sums + at[:, :, None] * SIZE + column[None, None, :], mask=is_part[:, :, None], other=0.0, cache_modifier=".cg"
            )
            result += tl.sum(rows * factor[:, :, None], 1)
        numbers = y + (shared * GROUP + member)[:, None] * SIZE + column[None, :]
        tl.store(numbers, (result / whole[:, None]).to(y.dtype.element_ty), mask=is_member[:, None])
        tl.store(arrived + shared, 0)  # for the next launch


@functools.cache
def _counters(device: torch.device, shared: int) -> torch.Tensor:
    """How many programs of a shared head are done: zeros between launches. One stream uses them at a time."""
    return torch.zeros(shared, dtype=torch.int32, device=device)


@torch.library.custom_op("lowbit_example::attend", mutates_args=("keys", "values"))
def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, position: torch.Tensor,
    keys: torch.Tensor, values: torch.Tensor, scale: float,
) -> torch.Tensor:  # fmt: skip
    """The token's query [heads * size], key and value [shared heads * size], the angles of its position [size], the position; the cache
    [shared heads, slots, size], of which the slots before the position are attended to and the one at the position is written. Numbers of
    a tensor stand one after the other. Gives [heads * size]."""
    shared, slots, size = keys.shape
    heads, parts = query.numel() // size, triton.cdiv(slots, BLOCK)
    sums, most, total = (query.new_empty((heads, parts, width), dtype=torch.float32) for width in (size, 1, 1))
    y = torch.empty_like(query)
    early = query.is_cuda and torch.cuda.get_device_capability(query.device) >= (9, 0)
    _attend[(shared, parts)](
        query, key, value, cos, sin, position, keys, values, sums, most, total, _counters(query.device, shared), y, slots, scale,
        GROUP=heads // shared, SIZE=size, BLOCK=BLOCK, ROWS=max(ROWS, triton.next_power_of_2(heads // shared)),
        MEMBERS=triton.next_power_of_2(heads // shared), PARTS=PARTS, ALL_PARTS=triton.next_power_of_2(parts), EARLY=early,
        **(dict(launch_pdl=True) if early else {}),
    )  # fmt: skip
    return y


@attend.register_fake
def _(query, key, value, cos, sin, position, keys, values, scale):
    return torch.empty_like(query)


def _forward(self, hidden_states, position_embeddings, past_key_values, position_ids, **_):
    """As that of transformers' LlamaAttention, for one token of one sequence."""
    assert hidden_states.shape[:2] == (1, 1), "one token of one sequence"
    query, key, value = (linear(hidden_states).flatten() for linear in (self.q_proj, self.k_proj, self.v_proj))
    cache = past_key_values.layers[self.layer_idx]
    if not cache.is_initialized:
        cache.lazy_initialization(*(x.view(1, -1, 1, self.head_dim) for x in (key, value)))
    cos, sin = (angles.flatten() for angles in position_embeddings)
    y = attend(query, key, value, cos, sin, position_ids, cache.keys[0], cache.values[0], self.scaling)
    return self.o_proj(y.view(1, 1, -1)), None


def use_in(attention: nn.Module) -> None:
    """Has a LlamaAttention of transformers run this kernel. Its static cache does not count the tokens then; position_ids says where."""
    attention.forward = types.MethodType(_forward, attention)
