"""``torch.compile(backend="neuron")``. PyTorch finds :func:`neuron` through the entry point ``torch_dynamo_backends``;
importing this package loads nothing of the compiler stack of PyTorch."""

from .metrics import get_dynamo_metrics, reset_dynamo_metrics
from .settings import set_model_name

__all__ = ["get_dynamo_metrics", "neuron", "reset_dynamo_metrics", "set_model_name"]


def neuron(gm, example_inputs, **kwargs):
    """Compiles a graph of Dynamo. ``mode`` and ``options`` of ``torch.compile`` arrive as keywords."""
    from .backend import compile_for_neuron

    return compile_for_neuron(gm, example_inputs, **kwargs)
