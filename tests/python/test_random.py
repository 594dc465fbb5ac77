"""Seeds, generators and the random state in checkpoints."""

import pytest
import torch
import torch.utils.checkpoint


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


@pytest.mark.parametrize(
    "dtype, low, high",
    [
        (torch.int32, -(2**31), 2**31 - 1),
        (torch.int32, -(2**31), None),
        (torch.int32, -5, 2**31 - 1),
        (torch.int64, -(2**31), 2**31),
        (torch.uint8, 200, None),
        (torch.int16, -(2**15), None),
        (torch.uint16, 5, None),
        (torch.uint32, 5, None),
        (torch.uint32, 2**32 - 200, 2**32),
        (torch.float64, -(2**53), None),
        (torch.float32, 2**40, 2**40 + 2**20),
        (torch.bfloat16, -100, None),
        (torch.float32, -(2**24), None),
        (torch.float32, 0, 2**40),
        (torch.float32, -(2**40), 2**40),
    ],
)
def test_random_integers_fill_their_range(dtype, low, high):
    ends = {torch.bfloat16: 2**8, torch.float32: 2**24, torch.float64: 2**53}
    last = high - 1 if high is not None else ends.get(dtype) or torch.iinfo(dtype).max
    x = torch.empty(4000, dtype=dtype, device="neuron").random_(low, high).cpu().double()
    assert low <= x.min() < low + 0.01 * (last - low + 100)
    assert last - 0.01 * (last - low + 100) < x.max() <= last + 1  # what is rounded may be the end
    assert abs(x.mean() - (low + last) / 2) < 0.03 * (last - low)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_repeats_the_mask_of_dropout(reentrant):
    torch.manual_seed(5)
    masks = []

    def block(x):
        y = torch.nn.functional.dropout(x, 0.5)
        masks.append((y.detach() != 0).cpu())
        return y * y

    x = torch.ones(256, device="neuron", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant)
    torch.rand(8, device="neuron")
    y.sum().backward()
    assert len(masks) == 2
    assert torch.equal(masks[0], masks[1])
    torch.testing.assert_close(x.grad.cpu(), masks[0] * 8.0)
    assert not torch.equal(masks[1], (torch.nn.functional.dropout(x, 0.5) != 0).cpu())


def test_checkpoint_on_the_second_device_and_with_an_offset_state():
    torch.manual_seed(6)
    x = torch.ones(64, device="neuron:1", requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(torch.nn.functional.dropout, x, use_reentrant=False)
    kept = (y != 0).cpu()
    y.sum().backward()
    assert torch.equal(x.grad.cpu() != 0, kept)


def test_fork_rng_gives_the_state_back():
    torch.manual_seed(7)
    with torch.random.fork_rng(devices=[0, 1], device_type="neuron"):
        forked = [torch.rand(8, device=f"neuron:{i}").cpu() for i in range(2)]
    assert all(torch.equal(forked[i], torch.rand(8, device=f"neuron:{i}").cpu()) for i in range(2))


def test_states_of_one_device():
    for device in (1, "neuron:1", torch.device("neuron", 1)):
        state = torch.neuron.get_rng_state(device)
        first = torch.rand(8, device="neuron:1").cpu()
        torch.neuron.set_rng_state(state, device)
        assert torch.equal(first, torch.rand(8, device="neuron:1").cpu())
        with torch.neuron.device(device):
            assert torch.neuron.current_device() == 1
    assert torch.neuron.current_device() == 0


def test_seeds_outside_64_bits_are_refused():
    for seed in (2**70, 2**64, -(2**63) - 1):
        for function in (torch.manual_seed, torch.neuron.manual_seed, torch.neuron.manual_seed_all):
            with pytest.raises((RuntimeError, ValueError), match="Overflow when unpacking long"):
                function(seed)
    torch.neuron.manual_seed(-1)
    assert torch.neuron.initial_seed() == 2**64 - 1


def test_an_operator_runs_again_from_a_saved_random_state():
    rng_prims = torch._prims.rng_prims
    torch.manual_seed(5)
    state, first = rng_prims.run_and_save_rng_state(torch.rand, 10, device="neuron")
    following = torch.rand(10, device="neuron")
    assert torch.equal(rng_prims.run_with_rng_state(state, torch.rand, 10, device="neuron"), first)
    torch.manual_seed(5)
    assert torch.equal(torch.rand(10, device="neuron"), first)
    assert torch.equal(torch.rand(10, device="neuron"), following)
    state, first = rng_prims.run_and_save_rng_state(torch.rand_like, torch.ones(3))  # others are left to PyTorch
    assert torch.equal(rng_prims.run_with_rng_state(state, torch.rand_like, torch.ones(3)), first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("low", "high"), [(2**31, 2**32), (2**33, 2**33 + 2**30), (-(2**33), -(2**33) + 2**28)])
def test_floating_numbers_are_drawn_from_ranges_beyond_32_bits(low, high, dtype):
    x = torch.empty(500, dtype=dtype, device="neuron").random_(low, high).cpu()
    assert x.min() >= low and x.max() <= high
    assert x.max() - x.min() > (high - low) * 0.9
