"""W22: the plain training loop on real data: momentum, a schedule, clipped gradients."""

import pytest
import torch
from workloads_of_tools import digits


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_training_follows_the_cpu(model):
    runs = []
    for device in ("cpu", "neuron"):
        # From other weights a maximum of two values that differ by less than rounding may fall the other way, once in
        # thousands, and the curve leaves the CPU's by more than rounding from there on.
        torch.manual_seed(1)
        build = getattr(digits, model)
        runs.append(digits.train(build(), device, epochs=3, learning_rate=digits.LEARNING_RATE[model]))
    cpu, neuron = runs
    assert neuron.accuracy > 0.90
    assert neuron.losses == pytest.approx(cpu.losses, rel=1e-4, abs=1e-7)
    assert neuron.norms == pytest.approx(cpu.norms, rel=1e-4, abs=1e-7)
