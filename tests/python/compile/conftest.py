"""Every test of compiled graphs starts with an empty Dynamo."""

import pytest
import torch
import torch._dynamo


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    torch.neuron.reset_dynamo_metrics()
    yield
    torch._dynamo.reset()
    torch.compiler.set_default_backend(None)
