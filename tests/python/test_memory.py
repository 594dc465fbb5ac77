"""Blocks under reuse, and sizes that no memory has."""

import pytest
import torch

neuron = torch.neuron


@pytest.fixture(autouse=True)
def _settled():
    neuron.synchronize()
    yield
    neuron.synchronize()


def test_results_stay_right_when_blocks_are_reused_while_work_is_queued():
    total = torch.zeros(64, 64, device="neuron")
    for i in range(200):
        total = total + torch.full((64, 64), float(i), device="neuron")
    assert total[5, 5].item() == sum(range(200))


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.empty(1 << 62, device=d),
        lambda d: torch.empty((1 << 31, 1 << 31), device=d),
        lambda d: torch.empty((1 << 31, 1 << 31, 1, 1), device=d, memory_format=torch.channels_last),
        lambda d: torch.empty_strided((2,), (1 << 62,), device=d),
        lambda d: torch.empty_strided((1 << 40, 1 << 40), (1 << 40, 1), device=d),
        lambda d: torch.zeros(1 << 62, device=d),
        lambda d: torch.empty(1, device=d).resize_(1 << 62),
        lambda d: torch.empty(1, device=d).set_(torch.empty(1, device=d).untyped_storage(), 0, (1 << 62,), (1,)),
        lambda d: torch.empty(1, device=d).new_empty(1 << 62),
        lambda d: torch.empty_like(torch.empty(1, device=d).expand(1 << 62), memory_format=torch.contiguous_format),
    ],
)
def test_a_size_beyond_64_bits_is_refused(make):
    for device in ("cpu", "neuron"):
        with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
            make(device)


def test_a_refused_resize_leaves_the_tensor_alone():
    x = torch.arange(3.0, device="neuron")
    for sizes in ((1 << 62,), (1 << 50,)):
        with pytest.raises(RuntimeError):
            x.resize_(sizes)
        assert x.tolist() == [0, 1, 2]


def test_memory_goes_back_while_other_threads_compute(run_python):
    """Segments of freed tensors end only when every entry that was queued before has run."""
    out = run_python(
        """
import threading, torch
wrong = []
def work(seed):
    x = torch.full((1 << 19,), float(seed), device="neuron")  # 2 MiB: a segment of the large pool
    for i in range(40):
        y = (x + i) * 2  # x + i is freed while it is still to be read
        if y[-1].item() != (seed + i) * 2:
            wrong.append((seed, i))
threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
for t in threads:
    t.start()
releases = 0
while any(t.is_alive() for t in threads):
    torch.neuron.empty_cache()
    releases += 1
print(wrong, releases > 0)
"""
    ).stdout
    assert out.strip() == "[] True"
