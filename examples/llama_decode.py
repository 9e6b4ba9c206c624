"""Tokens per second of a Llama-3-8B-shaped model with random weights, in bf16 and in several schemes, and the memory that each takes.

    python examples/llama_decode.py [--device cuda] [--layers 32] [--tokens 256] [--schemes bf16,...] [--separate] [--compile] [--tiny]

Greedy decoding of one sequence with a static cache. On a GPU, one step is captured as a CUDA graph with dependent launch, and replayed for
each token; --compile lets torch fuse the small operations between the products, whose kernels take part in dependent launch then, and
has all of attention between its linear layers in one kernel (parts/one_token_attention.py). The linear layers of q, k, v and of gate, up
are merged (lowbit.merge_), in bf16 too; --separate leaves them as they are. --tiny is a model of two small layers, to try the program.
"""

import argparse
import gc
import sys
import time

import torch
from torch import nn

import lowbit

try:
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache
except ImportError as error:
    print(f"llama_decode: transformers does not import here ({error}); run: pip install transformers", file=sys.stderr)
    sys.exit(2)

PLAIN = "bf16"
SCHEMES = (PLAIN, "w8a16", "fp8_e4m3:row", "w4a16", "q4_0")  # a format by itself: of the weight, with tokens as they are
WARM_UP = 3
PARTS = 256  # of the vocabulary, for likeliest

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
parser.add_argument("--layers", type=int, help="32 unless given")
parser.add_argument("--tokens", type=int, help="256 unless given")
parser.add_argument("--schemes", default=",".join(SCHEMES))
parser.add_argument("--separate", action="store_true", help="linear layers as they are, not merged")
parser.add_argument("--compile", action="store_true", help="torch.compile for each model, which takes a while")
parser.add_argument("--tiny", action="store_true")
options = parser.parse_args()
device = torch.device(options.device)
on_gpu = device.type == "cuda"
tokens = options.tokens or (8 if options.tiny else 256)
if tokens < WARM_UP:
    parser.error(f"--tokens {tokens}: use at least {WARM_UP}")
schemes = options.schemes.split(",")
for scheme in schemes:
    if scheme != PLAIN:
        try:
            lowbit.schemes.find(scheme)
        except ValueError as error:
            parser.error(f"--schemes: {error}")

sizes = dict(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256)
if options.tiny:
    sizes = dict(hidden_size=256, intermediate_size=512, num_attention_heads=4, num_key_value_heads=2, vocab_size=512)
config = LlamaConfig(
    **sizes, num_hidden_layers=options.layers or (2 if options.tiny else 32), max_position_embeddings=8192, tie_word_embeddings=False,
)  # fmt: skip
one_kernel = options.compile and on_gpu
if one_kernel:
    from parts import one_token_attention
    from torch._inductor import config as inductor

    if hasattr(inductor.triton, "enable_pdl"):  # kernels that begin early, and wait for their inputs, as lowbit's do
        inductor.triton.enable_pdl = True


def fill(module: nn.Module) -> None:
    """Random weights, on the device, for a module that had none yet."""
    module.to_empty(device=device)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.02) if parameter.ndim > 1 else nn.init.ones_(parameter)


def build(scheme: str) -> LlamaForCausalLM:
    """Layer by layer: besides the quantized model there is never more than one layer in bf16."""
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    for layer in model.model.layers:
        fill(layer)
        if not options.separate:
            merged = lowbit.merge_(layer)
            assert not merged.left_alone, merged
        if scheme != PLAIN:
            report = lowbit.quantize_(layer, scheme)
            assert not report.left_alone, report
        if one_kernel:
            one_token_attention.use_in(layer.self_attn)
    for module in (model.model.embed_tokens, model.model.norm, model.lm_head):
        fill(module)
    if scheme != PLAIN:
        report = lowbit.quantize_(model, scheme)  # what is left: the last linear
        assert [layer.name for layer in report.quantized] == ["lm_head"], report
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)  # its numbers are computed, not random
    return model


def likeliest(logits: torch.Tensor) -> torch.Tensor:
    """The place of the largest of a row, found in parts: torch's argmax of the whole row takes 33 µs on an H200."""
    parts = logits.view(PARTS, -1)
    largest, places = parts.max(dim=-1)
    part = largest.argmax(dim=0, keepdim=True)
    return part * parts.shape[1] + places.gather(0, part)  # places[part] would wait for the GPU


class Decoder:
    """One sequence. Everything that a step reads and writes stays where it is, so that a graph of one step serves all of them."""

    def __init__(self, model: LlamaForCausalLM):
        self.model = model
        self.cache = StaticCache(config=config, max_cache_len=tokens + 1)
        self.slots = torch.arange(tokens + 1, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.token = torch.zeros(1, 1, dtype=torch.long, device=device)
        self.found = torch.zeros(tokens, dtype=torch.long, device=device)
        if options.compile:
            self.step()  # the cache takes its memory at the first step, which does not belong into a compiled one
            self.restart()
            self.step = torch.compile(self.step, dynamic=False)

    def step(self) -> None:
        logits = self.model(
            input_ids=self.token,
            position_ids=self.position[None],
            cache_position=self.position,
            attention_mask=(self.slots <= self.position)[None, None, None],
            past_key_values=self.cache,
            use_cache=True,
        ).logits
        self.token.copy_(likeliest(logits[0, -1]))
        self.found.index_copy_(0, self.position, self.token[0])
        self.position += 1

    def restart(self) -> None:
        self.cache.reset()
        self.position.zero_()
        self.token.zero_()

    def capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with lowbit.dependent_launch(), torch.cuda.graph(graph):  # weights have long been ready
            self.step()
        return graph


def seconds(decoder: Decoder) -> float:
    """For all tokens of a sequence."""
    rehearsed = tokens if on_gpu else WARM_UP  # step by step, to be compared with the graph
    for _ in range(rehearsed):
        decoder.step()
    expected = decoder.found[:rehearsed].tolist()
    step = decoder.capture().replay if on_gpu else decoder.step
    decoder.restart()
    int(decoder.position)  # waits for it
    start = time.perf_counter()
    for _ in range(tokens):
        step()
    found = decoder.found.tolist()  # waits for the last
    elapsed = time.perf_counter() - start
    assert found[:rehearsed] == expected, f"with the graph: {found[:rehearsed]}, step by step: {expected}"
    assert int(decoder.position) == tokens and all(0 <= token < config.vocab_size for token in found)
    return elapsed


def bytes_of(model: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))


@torch.no_grad()
def measure(scheme: str) -> None:
    torch.manual_seed(0)
    model = build(scheme)
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    rates[scheme] = rate = tokens / seconds(Decoder(model))
    used = f"{torch.cuda.max_memory_allocated() / 1e6:9.1f}" if on_gpu else f"{'':>9}"
    relative = f"{rate / rates[PLAIN]:8.2f}" if PLAIN in rates else ""
    print(f"{scheme:14} {bytes_of(model) / 1e6:11.1f} {used} {rate:11.1f} {relative}", flush=True)


if not on_gpu:
    torch.backends.mkldnn.set_flags(False)  # its bf16 product dies on some virtual machines that claim AMX
how = "a CUDA graph" if on_gpu else "no graph"
print(f"{config.num_hidden_layers} layers of {config.hidden_size}, {tokens} tokens, one sequence on {device.type}, {how}")
print(f"{'scheme':14} {'weights, MB':>11} {'used, MB':>9} {'tokens/s':>11} {'x bf16':>8}")
rates: dict[str, float] = {}
for scheme in schemes:
    measure(scheme)
    torch._dynamo.reset()
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
