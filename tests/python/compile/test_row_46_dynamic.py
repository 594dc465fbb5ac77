"""Row 46: dynamic=True is refused, with the dynamic dimensions and static shapes named."""

import pytest
import torch


def test_dynamic_is_refused():
    compiled = torch.compile(lambda x: x * 2, backend="neuron", dynamic=True)
    words = r"needs static shapes, and dynamic dimensions were found: .*dimension 0 \(s\d+\)"
    with pytest.raises(Exception, match=words):
        compiled(torch.ones(4, 3, device="neuron"))


def test_a_size_that_depends_on_values_is_refused():
    compiled = torch.compile(lambda x: x.nonzero() * 2, backend="neuron", fullgraph=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        with pytest.raises(Exception, match=r"a size that depends on values .*static shapes"):
            compiled(torch.ones(4, device="neuron"))
