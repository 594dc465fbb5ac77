"""Row 55: with every shape warmed up, the stance fail_on_recompile turns a new one into an error."""

import pytest
import torch


def test_fail_on_recompile():
    compiled = torch.compile(lambda x: x * 2, backend="neuron")
    compiled(torch.ones(3, device="neuron"))
    with torch.compiler.set_stance("fail_on_recompile"):
        assert compiled(torch.ones(3, device="neuron")).sum().item() == 6
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            compiled(torch.ones(4, device="neuron"))
