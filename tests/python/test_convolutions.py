"""Convolutions, forward and backward, over shapes at which the compiler decides otherwise: few and many channels,
window positions that share partitions, groups of images and bands on tiles of the systolic array, remainders."""

import itertools

import pytest
import torch
import torch.nn.functional as F

PLAIN, TRANSPOSED = (F.conv1d, F.conv2d, F.conv3d), (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3}

# batch, channels, results, size, window; what else F.conv2d and F.conv_transpose2d take.
UP = dict(stride=2, padding=1, transposed=True)
CASES = {
    **{
        f"batch {n}, {c} to {o}": dict(n=n, c=c, o=o, size=(16, 16), window=(3, 3), padding=1)
        for n, (c, o) in itertools.product((1, 3, 5), ((1, 16), (3, 16), (16, 32), (5, 7)))
    },
    "stem": dict(n=4, c=3, o=16, size=(64, 64), window=(7, 7), stride=2, padding=3),
    "stem without bias": dict(n=2, c=3, o=64, size=(33, 31), window=(7, 7), stride=2, padding=3, bias=False),
    "16 rows of partitions": dict(n=4, c=16, o=16, size=(32, 32), window=(3, 3), padding=1),
    "two positions per row": dict(n=4, c=32, o=32, size=(8, 8), window=(3, 3), padding=1),
    "strided 1x1": dict(n=4, c=16, o=32, size=(16, 16), window=(1, 1), stride=2),
    "strided": dict(n=4, c=16, o=32, size=(16, 16), window=(3, 3), stride=2, padding=1),
    "odd sizes": dict(n=1, c=3, o=8, size=(127, 129), window=(5, 3), stride=(2, 3), padding=(2, 1)),
    "more than one block": dict(n=2, c=130, o=140, size=(9, 9), window=(3, 3), padding=1),
    "whole blocks": dict(n=2, c=128, o=128, size=(14, 14), window=(3, 3), padding=1),
    "513 channels": dict(n=1, c=513, o=20, size=(5, 5), window=(3, 3), padding=1),
    "513 results": dict(n=1, c=20, o=513, size=(5, 5), window=(3, 3), stride=2, padding=1),
    "1-d": dict(n=1, c=4, o=6, size=(513,), window=(5,), stride=2, padding=2),
    "1-d dilated": dict(n=3, c=7, o=9, size=(129,), window=(3,), padding=4, dilation=4),
    "1-d, one channel": dict(n=1, c=1, o=1, size=(1000,), window=(9,), padding=4),
    "all positions share": dict(n=64, c=1, o=16, size=(8, 8), window=(3, 3), padding=1),
    "small images": dict(n=64, c=16, o=32, size=(4, 4), window=(3, 3), padding=1),
    "3-d": dict(n=2, c=3, o=4, size=(5, 9, 11), window=(3, 3, 3), padding=1),
    "3-d strided": dict(n=3, c=3, o=4, size=(6, 7, 8), window=(2, 3, 3), stride=(2, 1, 2), padding=(1, 1, 0)),
    "3-d dilated": dict(n=2, c=20, o=6, size=(5, 5, 5), window=(3, 2, 3), stride=2, padding=1, dilation=(1, 2, 1)),
    "dilated": dict(n=2, c=8, o=16, size=(15, 15), window=(3, 3), padding=2, dilation=2),
    "depthwise": dict(n=2, c=8, o=8, size=(15, 15), window=(3, 3), padding=1, groups=8),
    "depthwise, three each": dict(n=2, c=8, o=24, size=(15, 15), window=(3, 3), stride=2, padding=1, groups=8),
    "groups": dict(n=2, c=12, o=18, size=(15, 13), window=(3, 3), padding=1, groups=3),
    "transposed": dict(n=2, c=16, o=8, size=(7, 5), window=(3, 3), output_padding=1, **UP),
    "transposed, gaps": dict(n=2, c=6, o=8, size=(9, 9), window=(2, 2), stride=3, transposed=True),
    "transposed 1-d": dict(n=2, c=16, o=8, size=(17,), window=(4,), **UP),
    "transposed groups": dict(n=2, c=6, o=6, size=(9, 9), window=(3, 3), groups=3, **UP),
    "one pixel": dict(n=1, c=3, o=2, size=(1, 1), window=(3, 3), padding=1),
    "window of the size": dict(n=2, c=3, o=5, size=(7, 7), window=(7, 7)),
    "stride over the window": dict(n=1, c=2, o=3, size=(12, 12), window=(2, 2), stride=3),
    "mostly padding": dict(n=1, c=3, o=4, size=(8, 8), window=(3, 3), padding=8),
    "long rows": dict(n=1, c=1, o=3, size=(2, 300), window=(2, 11), padding=(1, 5)),
    "patches": dict(n=2, c=3, o=96, size=(32, 32), window=(4, 4), stride=4),
    "channels last": dict(n=4, c=16, o=16, size=(16, 16), window=(3, 3), padding=1, layout=torch.channels_last),
    "no images": dict(n=0, c=3, o=4, size=(8, 8), window=(3, 3), padding=1),
}  # fmt: skip
REDUCED = ("stem", "16 rows of partitions", "more than one block", "depthwise", "strided 1x1", "transposed 1-d")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, torch.float32) for name in CASES]
    + [(name, dtype) for name in REDUCED for dtype in (torch.bfloat16, torch.float16)],
    ids=lambda v: str(v).removeprefix("torch."),
)
def test_convolution(name, dtype):
    c = dict(stride=1, padding=0, dilation=1, groups=1, output_padding=0, bias=True, transposed=False, layout=None)
    c |= CASES[name]
    draw = torch.Generator().manual_seed(0)
    channels = (c["c"], c["o"] // c["groups"]) if c["transposed"] else (c["o"], c["c"] // c["groups"])
    operands = [
        torch.randn(c["n"], c["c"], *c["size"], generator=draw),
        torch.randn(*channels, *c["window"], generator=draw),
    ]
    if c["bias"]:
        operands.append(torch.randn(c["o"], generator=draw))
    operands = [t.to(dtype) for t in operands]
    if c["layout"]:
        operands[0] = operands[0].contiguous(memory_format=c["layout"])
    axes = len(c["size"]) - 1

    def run(device, dtype):
        # Sums on the CPU in float64: what is compared is our rounding alone.
        leaves = [t.to(device, dtype).detach().requires_grad_() for t in operands]
        x, w, b = leaves if c["bias"] else (*leaves, None)
        if c["transposed"]:
            rest = (c["stride"], c["padding"], c["output_padding"], c["groups"], c["dilation"])
            y = TRANSPOSED[axes](x, w, b, *rest)
        else:
            y = PLAIN[axes](x, w, b, c["stride"], c["padding"], c["dilation"], c["groups"])
        gradient = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(operands[0].dtype)
        y.backward(gradient.to(device, dtype))
        return [t.detach().cpu().double() for t in (y, *(leaf.grad for leaf in leaves))]

    for ours, theirs in zip(run("neuron", dtype), run("cpu", torch.float64), strict=True):
        assert ours.shape == theirs.shape
        scale = theirs.abs().max().item() if theirs.numel() else 0
        torch.testing.assert_close(ours, theirs, rtol=0, atol=TOLERANCE[dtype] * max(scale, 1e-6))


def test_special_values_stay_in_their_image():
    """Images that share the partitions do not meet: one with an infinity leaves the others alone."""
    x, w = torch.randn(4, 16, 8, 8, generator=torch.Generator().manual_seed(0)), torch.ones(8, 16, 3, 3)
    x[1, 3, 4, 4], x[2, 0, 0, 0] = float("inf"), float("nan")
    ours = F.conv2d(x.to("neuron"), w.to("neuron"), padding=1).cpu()
    torch.testing.assert_close(ours, F.conv2d(x, w, padding=1), equal_nan=True)
