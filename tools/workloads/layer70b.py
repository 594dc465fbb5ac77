"""One layer of a 70B Llama at full size, forward and backward, in time-only mode. Prints one JSON object."""

from __future__ import annotations

import json
import os
import resource
import time

os.environ["TRNSIM_MODE"] = "time"

import torch  # noqa: E402
from transformers import LlamaConfig  # noqa: E402
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding  # noqa: E402

import trnsim  # noqa: E402

TOKENS = 4096


def main() -> None:
    start = time.perf_counter()
    config = LlamaConfig(
        hidden_size=8192,
        intermediate_size=28672,
        num_attention_heads=64,
        num_key_value_heads=8,
        max_position_embeddings=TOKENS,
        attn_implementation="sdpa",
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        layer = LlamaDecoderLayer(config, layer_idx=0)
    layer = layer.to_empty(device="neuron")
    rotary = LlamaRotaryEmbedding(config).to("neuron")
    x = torch.empty(1, TOKENS, config.hidden_size, device="neuron").requires_grad_()
    positions = rotary(x, torch.arange(TOKENS, device="neuron")[None])
    out = layer(x, position_embeddings=positions)
    (out[0] if isinstance(out, tuple) else out).sum().backward()
    torch.neuron.synchronize()
    report = trnsim.report()
    free, capacity = torch.neuron.mem_get_info()
    print(
        json.dumps(
            {
                "wall_s": time.perf_counter() - start,
                "host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                "simulated_ns": report["simulated_ns"],
                "hbm_peak_bytes": report["hbm"]["peak_bytes"],
                "hbm_capacity_bytes": capacity,
                "fallbacks": len(report["fallbacks"]),
            }
        )
    )


if __name__ == "__main__":
    main()
