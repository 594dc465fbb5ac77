"""The training and generation workloads of the device tests, small, on the CPU."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

SIZE = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}


def classifier(model, shape):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    for _ in range(2):
        x, y = torch.randn(8, *shape), torch.randint(0, 10, (8,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
    model.eval()
    (model(x).argmax(1) == y).sum().item()


def mlp():
    classifier(nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), (64,))


def cnn():
    classifier(
        nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.1),
            nn.Flatten(),
            nn.Linear(128, 10),
        ),
        (1, 8, 8),
    )


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    model = LlamaForCausalLM(LlamaConfig(**SIZE, num_key_value_heads=2, tie_word_embeddings=False))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    ids = torch.randint(0, 97, (2, 16))
    for _ in range(2):
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    model.generate(ids, max_new_tokens=4, do_sample=False)


def bert():
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(BertConfig(**SIZE))
    ids = torch.randint(0, 97, (2, 16))
    mask = torch.ones(2, 16, dtype=torch.long)
    mask[1, 10:] = 0
    model(ids, attention_mask=mask, labels=ids).loss.backward()
    model.eval().bfloat16()(ids, attention_mask=mask)


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    size = {k: v for k, v in SIZE.items() if k != "vocab_size"}
    model = ViTForImageClassification(ViTConfig(image_size=32, patch_size=8, num_labels=8, **size))
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    model(pixel_values=torch.randn(4, 3, 32, 32), labels=torch.arange(4)).loss.backward()
    optimizer.step()


def run_all(mode):
    for workload in (mlp, cnn, llama, bert, vit):
        with mode, sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
            workload()
