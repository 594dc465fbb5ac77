"""W18: Mamba: one step at a time equals the scan over the sequence."""

import torch
from transformers import MambaConfig, MambaForCausalLM
from twins import assert_close, assert_same_step, on_device


def build():
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=97, hidden_size=64, state_size=8, num_hidden_layers=2, use_mambapy=False)
    return MambaForCausalLM(config)


def ids():
    return torch.randint(0, 97, (2, 32), generator=torch.Generator().manual_seed(1))


def run(model, data):
    out = model(data, labels=data, use_cache=False)
    return [out.logits], out.loss


def test_logits_and_gradients():
    assert_same_step(build(), run, ids())


def test_recurrent_steps_equal_the_scan():
    model = on_device(build()).eval()
    data = ids().to("neuron")
    with torch.no_grad():
        scan = model(data, use_cache=False).logits
        out = model(data[:, :28], use_cache=True)
        rows = [out.logits]
        for i in range(28, 32):
            out = model(data[:, i : i + 1], cache_params=out.cache_params, use_cache=True)
            rows.append(out.logits)
    assert_close(torch.cat(rows, dim=1), scan.cpu(), 1e-4, "logits")
