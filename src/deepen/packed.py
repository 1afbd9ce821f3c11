"""Linear maps with weights of one byte, for inference on a CPU.

Weights are rounded to 8 bits row by row, inputs to 7 bits range by range as they come; products are
summed exactly in 32 bits. Seven bits, because without the newest instructions pairs of products are
added in 16, which eight would overflow.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from deepen.core import Affine


def int8(weight: Tensor, bias: Tensor | None) -> Affine:
    """A linear map with its weight packed as bytes; under inference mode only."""
    scale = (weight.abs().amax(dim=1) / 127).clamp(min=1e-12).double()
    with warnings.catch_warnings():
        # The framework means to replace its tensors of bytes one day, but has no other fast product yet.
        warnings.filterwarnings("ignore", message=".*quantize_per_channel")
        rounded = torch.quantize_per_channel(
            weight.float(), scale, torch.zeros(len(weight), dtype=torch.long), 0, torch.qint8
        )
    with _engine("onednn"):
        packed = torch.ops.quantized.linear_prepack(rounded, None if bias is None else bias.float())
    return partial(_product, packed=packed)


@contextmanager
def _engine(name: str) -> Iterator[None]:
    """The library that packs; a packed weight remembers which it was."""
    before = torch.backends.quantized.engine
    if name not in torch.backends.quantized.supported_engines:
        raise ValueError(f"precision 'int8' needs a build of torch with {name}")
    torch.backends.quantized.engine = name
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


def _product(x: Tensor, packed: object) -> Tensor:
    out: Tensor = torch.ops.quantized.linear_dynamic(x, packed, True)
    return out
