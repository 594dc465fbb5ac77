"""The small models with their inputs and a loss, as the benchmarks train them, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable

import torch

from workloads import digits, transformer, vision

Loss = Callable[[], torch.Tensor]


def matmul_graph(device: str) -> tuple[torch.nn.Module, Loss]:
    """4 layers of 2048x2048, batch 512."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(4))).to(device)
    x = torch.randn(512, 2048).to(device)
    return model, lambda: model(x).sum()


def llama(device: str) -> tuple[torch.nn.Module, Loss]:
    model = transformer.llama().to(device)
    ids = transformer.llama_ids().to(device)
    return model, lambda: model(input_ids=ids, labels=ids).loss


def bert(device: str) -> tuple[torch.nn.Module, Loss]:
    model = transformer.bert().to(device)
    ids = transformer.llama_ids().to(device)
    return model, lambda: model(input_ids=ids, labels=ids).loss


def digits_cnn(device: str) -> tuple[torch.nn.Module, Loss]:
    """Batches of 64 images of 8x8."""
    torch.manual_seed(0)
    model = digits.cnn().to(device)
    x, y, _, _ = digits.load()
    x, y = x[:64].to(device), y[:64].to(device)
    return model, lambda: torch.nn.functional.cross_entropy(model(x), y)


def resnet(device: str) -> tuple[torch.nn.Module, Loss]:
    model = vision.resnet().to(device).train()
    inputs = {name: t.to(device) for name, t in vision.images().items()}
    return model, lambda: model(**inputs).loss


def unet(device: str) -> tuple[torch.nn.Module, Loss]:
    model = vision.unet().to(device)
    inputs = {name: t.to(device) for name, t in vision.noisy().items()}
    return model, lambda: (model(**inputs).sample - inputs["sample"]).square().mean()
