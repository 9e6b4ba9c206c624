"""Schemes: the common names of (weight format, activation format) pairs."""

from __future__ import annotations

from dataclasses import dataclass

from ._format import parse


@dataclass(frozen=True)
class Scheme:
    """activation_format None: activations stay as they are."""

    name: str
    weight_format: str
    activation_format: str | None = None

    def __str__(self) -> str:
        activation = f" x {self.activation_format}" if self.activation_format else ""
        return f"{self.name} ({self.weight_format}{activation})"


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("w4a16", "int4:g128"),
        Scheme("w8a16", "int8:row"),
        Scheme("w8a8", "int8:row", "int8:row"),
        Scheme("w4a8", "int4:g128", "int8:row"),
        Scheme("w4a4", "int4:row", "int4:row"),
        Scheme("fp8", "fp8_e4m3:row", "fp8_e4m3:row"),
        Scheme("nf4", "nf4:g64"),
        Scheme("q4_0", "q4_0", "q8_1"),
        Scheme("w1a1", "int1:row", "int1:row"),
    )
}


def find(scheme: str | Scheme) -> Scheme:
    """A scheme by its name, one of the caller's own, or a plain format string for the weight alone."""
    if isinstance(scheme, Scheme):
        return scheme
    if scheme in SCHEMES:
        return SCHEMES[scheme]
    try:
        return Scheme(scheme, parse(scheme).name)
    except ValueError:
        names = ", ".join(SCHEMES)
        raise ValueError(f'scheme = "{scheme}"; use one of {names}, a format such as "int4:g64", or a lowbit.Scheme') from None
