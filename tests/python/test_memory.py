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
