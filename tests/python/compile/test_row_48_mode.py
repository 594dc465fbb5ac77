"""Row 48: a mode other than the default warns and computes the same."""

import pytest
import torch


def test_mode_warns():
    compiled = torch.compile(lambda x: x.exp(), backend="neuron", mode="max-autotune")
    x = torch.randn(6)
    with pytest.warns(UserWarning, match='mode "max-autotune" is not known to this backend'):
        y = compiled(x.to("neuron"))
    torch.testing.assert_close(y.cpu(), x.exp())
