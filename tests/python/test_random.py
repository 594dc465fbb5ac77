"""Checklist rows 11 and 12: seeds and generator states."""

import torch


def test_row_12_manual_seed_reaches_the_device():
    torch.manual_seed(3)
    first = torch.rand(1000, device="neuron").cpu()
    torch.manual_seed(3)
    assert torch.equal(first, torch.rand(1000, device="neuron").cpu())
    assert not torch.equal(first, torch.rand(1000, device="neuron").cpu())


def test_states_of_all_devices_are_saved_and_restored():
    states = torch.neuron.get_rng_state_all()
    first = [torch.randn(8, device=f"neuron:{i}").cpu() for i in range(2)]
    torch.neuron.set_rng_state_all(states)
    for i in range(2):
        assert torch.equal(first[i], torch.randn(8, device=f"neuron:{i}").cpu())


def test_generator_objects():
    a = torch.Generator(device="neuron").manual_seed(11)
    first = torch.rand(16, device="neuron", generator=a).cpu()
    b = torch.Generator(device="neuron").manual_seed(11)
    assert torch.equal(first, torch.rand(16, device="neuron", generator=b).cpu())
    state = a.get_state()
    second = torch.rand(16, device="neuron", generator=a).cpu()
    a.set_state(state)
    assert torch.equal(second, torch.rand(16, device="neuron", generator=a).cpu())


def test_distributions_have_the_right_moments():
    torch.manual_seed(0)
    n = 20000
    uniform, normal = torch.rand(n, device="neuron").cpu(), torch.randn(n, device="neuron").cpu()
    assert uniform.min() >= 0 and uniform.max() < 1
    assert abs(uniform.mean() - 0.5) < 0.02 and abs(uniform.var() - 1 / 12) < 0.005
    assert abs(normal.mean()) < 0.03 and abs(normal.std() - 1) < 0.03
    kept = torch.nn.functional.dropout(torch.ones(n, device="neuron"), 0.25).cpu()
    assert abs((kept == 0).float().mean() - 0.25) < 0.02
    torch.testing.assert_close(kept[kept != 0], torch.full_like(kept[kept != 0], 4 / 3))
