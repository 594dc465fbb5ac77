"""Row 44: PyTorch lists the backend, and finding it loads nothing of Dynamo at `import torch`."""

import torch


def test_list_backends():
    assert "neuron" in torch._dynamo.list_backends()


def test_import_torch_does_not_import_dynamo(run_python):
    out = run_python("import sys, torch; print('torch._dynamo' in sys.modules)").stdout
    assert out.strip() == "False"
