"""float8_e4m3fn is a type of trn3: trn2 moves it and refuses to compute with it, in words that lead on."""

import pytest
import torch

WORDS = r"illegal on hardware: .*float8_e4m3fn.*from trn3 on.*trn2.*NCC_EVRF051.*float8_e5m2.*--config trn3"


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x + x,
        lambda x: x.to(torch.float32),
        lambda x: torch.ones(8, 8, device=x.device).to(torch.float8_e4m3fn),
        lambda x: torch._scaled_mm(x, x.t(), torch.ones((), device=x.device), torch.ones((), device=x.device)),
    ],
    ids=["add", "from float8", "to float8", "product"],
)
def test_trn2_refuses_to_compute_with_float8_e4m3fn(device, compute):
    x = torch.ones(16, 16).to(torch.float8_e4m3fn).to(device)
    with pytest.raises(RuntimeError, match=WORDS):
        compute(x)
        torch.neuron.synchronize()


def test_trn2_moves_float8_e4m3fn(device):
    x = torch.arange(64.0).reshape(8, 8).to(torch.float8_e4m3fn)
    y = x.to(device).t().contiguous().clone().cpu()
    assert torch.equal(y.to(torch.float32), x.to(torch.float32).t())


def test_trn2_joins_and_clears_float8_e4m3fn(device):
    x = torch.arange(6.0).to(torch.float8_e4m3fn)
    a, z = x.to(device), torch.zeros(3, dtype=torch.float8_e4m3fn, device=device)
    assert torch.cat([a, z, a]).cpu().float().tolist() == [0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 1, 2, 3, 4, 5]
    assert torch.stack([a, a], 1).cpu().float()[:, 1].tolist() == [0, 1, 2, 3, 4, 5]


def test_trn3_computes_with_float8_e4m3fn(run_python):
    done = run_python(
        "import torch; x = torch.full((4, 4), 3.0, device='neuron').to(torch.float8_e4m3fn);"
        "print((x + x).to(torch.float32).sum().item())",
        TRNSIM_CONFIG="trn3",
    )
    assert done.stdout.strip() == "96.0"


def test_trn3_multiplies_float8_e4m3fn(run_python):
    done = run_python(
        "import torch, trnsim; g = torch.Generator().manual_seed(0)\n"
        "a, b = (torch.randn(n, 64, generator=g).to(torch.float8_e4m3fn) for n in (32, 48))\n"
        "c = b.float().to(torch.float8_e5m2); s, t = torch.tensor(1.5), torch.tensor(0.5)\n"
        "for y in (b, c):\n"
        "    wide = torch._scaled_mm(a, y.t(), s, t, out_dtype=torch.float32)\n"
        "    on_device = (x.to('neuron') for x in (a, y.t(), s, t))\n"
        "    here = torch._scaled_mm(*on_device, out_dtype=torch.float32)\n"
        "    torch.testing.assert_close(here.cpu(), wide, rtol=1e-5, atol=1e-4)\n"
        "print(trnsim.fallbacks())",
        TRNSIM_CONFIG="trn3",
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz], ids=str)
def test_types_that_the_compiler_refuses(device, dtype):
    x = torch.arange(6.0).to(dtype)
    assert torch.equal(x.to(device).cpu().float(), x.float())  # a move
    for compute in (
        lambda: x.to(device).float(),
        lambda: torch.ones(4, device=device).to(dtype),
        lambda: torch.full((4,), 2.0, dtype=dtype, device=device),
    ):
        with pytest.raises(RuntimeError, match=r"illegal on hardware: .*fnuz \(NCC_EVRF005\).*float8_e5m2"):
            compute()
