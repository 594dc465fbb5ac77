"""PyTorch's module and optimizer databases on the device and on the CPU, with the findings of opinfo_cases."""

from __future__ import annotations

import copy

import torch
from opinfo_cases import DEVICE, attempt, compare_trees, quiet, seed_everything, tensors_of, worded
from torch import nn
from torch.testing._internal.common_optimizers import _get_optim_inputs_including_global_cliquey_kwargs
from torch.utils import _pytree as pytree

import trnsim

SAMPLES = 6
STEPS = 3


class NothingToCompare(Exception):
    """Why an entry has no result."""


def moved(tree, dtype, device):
    def move(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        leaf = leaf.detach()
        if leaf.is_floating_point():
            return leaf.to(dtype).clone().to(device).requires_grad_()
        return leaf.clone().to(device)

    return pytree.tree_map(move, tree)


def is_random(module, training):
    """Whether the result depends on random numbers."""
    if any(isinstance(m, (nn.FractionalMaxPool2d, nn.FractionalMaxPool3d)) for m in module.modules()):
        return True
    if not training:
        return False
    for m in module.modules():
        rate = m.p if isinstance(m, nn.modules.dropout._DropoutNd) else getattr(m, "dropout", 0)
        if isinstance(m, nn.RReLU) or (isinstance(rate, (int, float)) and rate > 0):
            return True
    return False


def run_module(module, inputs, dtype, device):
    """Outputs, gradients of parameters and inputs, and buffers after one forward and backward pass."""
    module = copy.deepcopy(module).to(dtype).to(device)
    args, kwargs = moved((inputs.args, inputs.kwargs), dtype, device)
    seed_everything(1)
    result = module(*args, **kwargs)
    outputs = [t for t in tensors_of(result) if t.requires_grad]
    leaves = [t for t in (*module.parameters(), *tensors_of((args, kwargs))) if t.requires_grad]
    gradients = ()
    if outputs and leaves:
        generator = torch.Generator().manual_seed(2)
        cotangents = [torch.randn(t.shape, generator=generator).to(device, t.dtype) for t in outputs]
        gradients = torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True)
    zero = torch.zeros((), device=device)
    gradients = [zero if g is None else g for g in gradients]
    return (
        pytree.tree_map(lambda t: t.detach() if isinstance(t, torch.Tensor) else t, result),
        gradients,
        [b.clone() for b in module.buffers()],
    )


def check_module(info, dtype):
    if info.is_lazy:
        raise NothingToCompare("a lazy module becomes another one of the database at its first call")
    found, compared = [], 0
    with quiet():
        trnsim.reset_report()
        for training in (True, False) if info.train_and_eval_differ else (True,):
            seed_everything()
            inputs = info.module_inputs_func(
                info, device="cpu", dtype=torch.float32, requires_grad=True, training=training
            )
            step = max(1, len(inputs) // SAMPLES)
            for chosen in inputs[::step][:SAMPLES]:
                constructor = chosen.constructor_input
                seed_everything()
                module = info.module_cls(*constructor.args, **constructor.kwargs).train(training)

                def run(device, dtype=dtype, module=module, inputs=chosen.forward_input):
                    return run_module(module, inputs, dtype, device)

                expected, error = attempt(lambda: run("cpu"))  # noqa: B023
                if error is not None:
                    continue
                compared += 1
                what = f"{info.name} {'training' if training else 'eval'} {constructor.args} {constructor.kwargs}"[:250]
                actual, error = attempt(lambda: run(DEVICE))  # noqa: B023
                if error is None:
                    _, error = attempt(torch.neuron.synchronize)
                if error is not None:
                    found.append(("error", f"{what}: {worded(error)}"))
                    continue
                exact, _ = attempt(lambda: run("cpu", torch.float64))  # noqa: B023
                values = not is_random(module, training)
                # The derivatives of norms over a few elements divide by what is left of their variance.
                found += compare_trees(actual, expected, exact, what, SLACK.get(dtype), values)
    if compared == 0:
        raise NothingToCompare(f"the CPU runs none of its inputs in {dtype}")
    return found


# A module is a chain of operators, each with its rounding.
SLACK = {torch.float32: (1e-4, 1e-4), torch.bfloat16: (5e-2, 5e-2), torch.float16: (1e-2, 1e-2)}


def check_optimizer(info, dtype):
    if info.only_supports_sparse_grads:
        raise NothingToCompare("the device has no sparse tensors")
    found, compared = [], 0
    with quiet():
        trnsim.reset_report()
        for chosen in _get_optim_inputs_including_global_cliquey_kwargs("cpu", dtype, info, skip=("differentiable",)):
            if chosen.kwargs.get("capturable"):
                continue  # for graphs of another vendor

            def run(device, dtype=dtype, kwargs=chosen.kwargs):
                return run_optimizer(info.optim_cls, kwargs, dtype, device)

            expected, error = attempt(lambda: run("cpu"))  # noqa: B023
            if error is not None:
                continue
            compared += 1
            what = f"{info.optim_cls.__name__} {chosen.kwargs}"
            actual, error = attempt(lambda: run(DEVICE))  # noqa: B023
            if error is not None:
                found.append(("error", f"{what}: {worded(error)}"))
                continue
            exact, _ = attempt(lambda: run("cpu", torch.float64))  # noqa: B023
            found += compare_trees(actual, expected, exact, what, SLACK.get(dtype) if dtype != torch.float32 else None)
    if compared == 0:
        raise NothingToCompare(f"the CPU runs none of its settings in {dtype}")
    return found


def run_optimizer(cls, kwargs, dtype, device):
    """Parameters and state after a few steps."""
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(s, generator=generator).to(dtype).to(device)) for s in ((7, 5), (11,), ())]
    if cls is torch.optim.Muon:
        parameters = parameters[:1]
    kwargs = pytree.tree_map(lambda v: v.to(device) if isinstance(v, torch.Tensor) else v, dict(kwargs))
    optimizer = cls(parameters, **kwargs)
    for _ in range(STEPS):
        gradients = [torch.randn(p.shape, generator=generator).to(dtype).to(device) for p in parameters]

        def closure(gradients=gradients):
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient.clone()
            return sum((p * g).sum() for p, g in zip(parameters, gradients, strict=True)).detach()

        closure()
        optimizer.step(closure if cls is torch.optim.LBFGS else None)
    state = [v for p in parameters for k, v in sorted(optimizer.state[p].items()) if k != "step"]
    return [p.detach() for p in parameters], [t.detach() for t in state if isinstance(t, torch.Tensor) and t.numel()]
