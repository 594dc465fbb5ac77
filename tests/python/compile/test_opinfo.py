"""PyTorch's own operator samples (OpInfo), compiled: results and gradients are those of eager execution."""

import sys
from pathlib import Path

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(Path(__file__).parents[1]))
import opinfo_cases as cases  # noqa: E402

# Random, or undefined until written.
NO_VALUES = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
    "pca_lowrank", "svd_lowrank",
}  # fmt: skip
# A sample of every family; the others take minutes.
QUICK = {
    "add", "addmm", "argmax", "as_strided", "batch_norm", "cat", "clamp", "cumsum", "diagonal", "einsum", "expand",
    "gather", "index_put", "masked_fill", "nn.functional.conv2d", "nn.functional.cross_entropy",
    "nn.functional.dropout", "nn.functional.embedding", "nn.functional.layer_norm", "nn.functional.max_pool2d",
    "nn.functional.scaled_dot_product_attention", "roll", "scatter_add", "softmax", "sort", "split", "std", "topk",
    "tril", "unfold", "var_mean", "where",
}  # fmt: skip


def run(function, op, sample, requires_grad):
    """Results, gradients and the error of one sample."""
    torch._dynamo.reset()
    torch.neuron.manual_seed(5)
    subject = cases.device_sample(op, sample)
    try:
        result = function(subject.input, *subject.args, **subject.kwargs)
        gradients = None
        if requires_grad:
            gradients = cases.gradients(result, subject, cases.random_cotangents(result, subject))
        torch.neuron.synchronize()
    except Exception as error:
        return None, None, error
    return result, gradients, None


def on_cpu(tree):
    return cases.pytree.tree_map(lambda t: t.cpu() if isinstance(t, torch.Tensor) else t, tree)


def compiled_differs(op, dtype, limit=2):
    """How results and gradients of the compiled samples differ from those of eager execution."""
    found = []
    requires_grad = dtype.is_floating_point and op.supports_autograd
    tolerance = (1e-4, 1e-5) if dtype == torch.float32 else (2e-2, 2e-2)
    values = op.name not in NO_VALUES
    for sample in cases.chosen_samples(op, dtype, requires_grad, limit):
        expected, expected_gradients, eager_error = run(op.op, op, sample, requires_grad)
        if eager_error is not None or any(t.device.type == "cpu" for t in cases.tensors_of(expected)):
            continue  # what eager execution does not take proves nothing
        what = cases.describe(sample)
        actual, gradients, error = run(torch.compile(op.op, backend="neuron"), op, sample, requires_grad)
        if error is not None:
            if run(torch.compile(op.op, backend="aot_eager"), op, sample, requires_grad)[2] is not None:
                continue  # PyTorch itself does not trace it
            found.append(f"{what}: {cases.worded(error)}")
            continue
        for name, a, e in (("", actual, expected), ("gradient ", gradients, expected_gradients)):
            found += [text for _, text in cases.compare_trees(a, on_cpu(e), None, name + what, tolerance, values)]
    return found


def entries():
    for op in op_db:
        if torch.float32 in op.supported_dtypes("cpu"):
            name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
            yield pytest.param(op, id=name, marks=[] if name in QUICK else [pytest.mark.slow])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", entries())
def test_compiled_equals_eager(op):
    found = compiled_differs(op, torch.float32)
    assert not found, "\n".join(found)
