"""``torch.compile(backend="neuron")``. PyTorch finds the backend, ``backend.neuron``, through the entry point
``torch_dynamo_backends``; importing this package loads nothing of the compiler stack of PyTorch."""

from .metrics import get_dynamo_metrics, reset_dynamo_metrics
from .settings import set_model_name

__all__ = ["get_dynamo_metrics", "reset_dynamo_metrics", "set_model_name"]
