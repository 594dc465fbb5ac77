"""What follows a convolution goes into its kernel: normalisation by given statistics, activation, residual, casts."""

import pytest
import torch
import torch.nn.functional as F

import trnsim

from .common import check

KINDS = {
    "plain": lambda x, w, b: F.conv2d(x, w, b, padding=1),
    "strided": lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1),
    "without bias": lambda x, w, b: F.conv2d(x, w, padding=1),
    "groups": lambda x, w, b: F.conv2d(x, w[:, :8], b, padding=1, groups=2),
    "depthwise": lambda x, w, b: F.conv2d(x, w[:16, :1], b[:16], padding=1, groups=16),
    "transposed": lambda x, w, b: F.conv_transpose2d(x, w.transpose(0, 1), b, stride=2, padding=1),
    "transposed with gaps": lambda x, w, b: F.conv_transpose2d(x, w.transpose(0, 1)[:, :, :1, :1], b, stride=3),
}
AFTER = {
    "activation": lambda y, c, r: F.relu(y),
    "scale and shift": lambda y, c, r: F.silu(y * c[0] + c[1]),
    "image values": lambda y, c, r: y + c[2],
    "residual": lambda y, c, r: F.gelu(y + r),
    "cast": lambda y, c, r: (y * 2).to(torch.float16),
    "normalised": lambda y, c, r: F.relu(F.batch_norm(y, c[3], c[4], c[5], c[6]) + r),
}


CASES = {
    "batch": ((4, 16, 9, 9), torch.float32),
    "image": ((1, 16, 12, 7), torch.float32),
    "bfloat16": ((4, 16, 9, 9), torch.bfloat16),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_epilogues(kind, case):
    (n, *image), dtype = CASES[case]
    draw = torch.Generator().manual_seed(0)
    xs = [torch.randn(n, *image, generator=draw) for _ in AFTER]
    w, b = torch.randn(24, 16, 3, 3, generator=draw) / 12, torch.randn(24, generator=draw)
    y = KINDS[kind](xs[0], w, b)
    o = y.shape[1]
    c = [torch.rand(*s, generator=draw) + 0.5 for s in ((1, o, 1, 1), (o, 1, 1), (n, o, 1, 1), (o,), (o,), (o,), (o,))]
    r = torch.randn(y.shape, generator=draw)

    def everything(xs, w, b, c, r):
        return [after(KINDS[kind](x, w, b), c, r) for x, after in zip(xs, AFTER.values(), strict=True)]

    # One result is rounded to float16; bfloat16 rounds the sum before the bias here or there.
    rtol, atol = {torch.float32: (1e-3, 2e-5), torch.bfloat16: (2e-2, 2e-2)}[dtype]
    lists = [[t.to(dtype) for t in values] for values in (xs, c)]
    check(everything, lists[0], w.to(dtype), b.to(dtype), lists[1], r.to(dtype), programs=1, rtol=rtol, atol=atol)


def test_one_kernel_is_left(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS", "1")
    monkeypatch.setenv("TORCH_NEURONX_DEBUG_DIR", str(tmp_path))

    def block(x, w, b, r):
        return F.relu(F.conv2d(x, w, b, padding=1) * 2 + r)

    check(block, torch.randn(2, 8, 8, 8), torch.randn(8, 8, 3, 3), torch.randn(8), torch.randn(2, 8, 8, 8), atol=1e-4)
    (fused,) = tmp_path.glob("graph*.fused.txt")
    kernels = [line for line in fused.read_text().splitlines() if line.startswith(("  conv", "  map", "  move"))]
    assert len(kernels) == 1 and kernels[0].startswith("  conv.forward")


def _read_bytes(function, *args):
    """What a call of the compiled function reads from HBM, once it agrees with the CPU."""
    check(function, *args, atol=1e-4)
    compiled = torch.compile(function, backend="neuron", fullgraph=True)
    ours = [a.to("neuron") for a in args]
    compiled(*ours)
    torch.neuron.synchronize()
    trnsim.reset_report()
    compiled(*ours)
    torch.neuron.synchronize()
    return trnsim.report()["dma"]["bytes_read"]


def test_normalised_images_stay_in_sbuf():
    def pooled(x, w, b):
        return F.max_pool2d(F.relu(F.batch_norm(x, None, None, w, b, training=True)), 2)

    x, w, b = torch.randn(64, 16, 8, 8), torch.rand(16) + 0.5, torch.randn(16)
    assert _read_bytes(pooled, x, w, b) < 1.5 * x.nbytes  # the images come once

    def classified(x, w, b, v):
        return F.relu(F.batch_norm(x, None, None, w, b, training=True)).flatten(1) @ v

    x, v = torch.randn(64, 16, 4, 4), torch.randn(256, 10) / 16
    assert _read_bytes(classified, x, w, b, v) < 1.5 * x.nbytes + 2 * v.nbytes


def test_one_transfer_brings_a_bias_to_all_outputs():
    def conv(x, w, b):
        return F.conv2d(x, w, b, padding=1)

    # Both with whole partitions of result channels and with some left over.
    for channels in (16, 12):
        check(conv, torch.randn(64, 4, 8, 8), torch.randn(channels, 4, 3, 3), torch.randn(channels), atol=1e-4)
