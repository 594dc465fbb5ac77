"""Second derivatives of whole modules against the CPU in float64: finite differences in float32, as PyTorch's own tests
take them on this device, say nothing where a step crosses a kink of ReLU."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel


def transformer_layer(kind, **options):
    return kind(4, 2, 16, dropout=0.0, **options)


MODULES = {
    "rnn-tanh": (lambda: nn.RNN(3, 5, 2), [(4, 2, 3)]),
    "rnn-relu": (lambda: nn.RNN(3, 5, nonlinearity="relu", bidirectional=True, batch_first=True), [(2, 4, 3)]),
    "lstm": (lambda: nn.LSTM(3, 5, 2), [(4, 2, 3)]),
    "gru": (lambda: nn.GRU(3, 5, 2), [(4, 2, 3)]),
    "encoder-relu": (lambda: transformer_layer(nn.TransformerEncoderLayer), [(2, 3, 4)]),
    "encoder-gelu": (
        lambda: transformer_layer(nn.TransformerEncoderLayer, activation="gelu", norm_first=True),
        [(2, 3, 4)],
    ),
    "decoder": (lambda: transformer_layer(nn.TransformerDecoderLayer), [(2, 3, 4), (2, 3, 4)]),
    "transformer": (lambda: nn.Transformer(4, 2, 1, 1, 16, 0.0), [(2, 3, 4), (2, 3, 4)]),
}


def flat(outputs):
    return [outputs] if torch.is_tensor(outputs) else [t for output in outputs for t in flat(output)]


def second_derivatives(module, inputs, device, dtype):
    """Gradients of a weighted sum of the gradients, for everything that these depend on."""
    module = copy.deepcopy(module).to(device=device, dtype=dtype)
    generator = torch.Generator().manual_seed(1)

    def weights(like):
        return torch.randn(like.shape, generator=generator).to(device=device, dtype=dtype)

    leaves = [x.to(device=device, dtype=dtype).requires_grad_() for x in inputs]
    with sdpa_kernel(SDPBackend.MATH):  # fused attention has no second derivative on any device
        outputs = flat(module(*leaves))
    leaves += module.parameters()
    grads_of_outputs = [weights(output).requires_grad_() for output in outputs]
    first = torch.autograd.grad(outputs, leaves, grads_of_outputs, create_graph=True)
    total = sum((grad * weights(grad)).sum() for grad in first)
    return torch.autograd.grad(total, leaves + grads_of_outputs, allow_unused=True)


@pytest.mark.parametrize("name", MODULES)
def test_second_derivatives_are_those_of_float64(name):
    make, shapes = MODULES[name]
    torch.manual_seed(0)
    module, inputs = make(), [torch.randn(shape) for shape in shapes]
    exact = second_derivatives(module, inputs, "cpu", torch.float64)
    got = second_derivatives(module, inputs, "neuron", torch.float32)
    assert any(grad is not None and grad.abs().max() > 0.1 for grad in exact)
    for a, b in zip(exact, got, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a - b.cpu()).abs().max() <= 2e-5 * (a.abs().max() + 1)
