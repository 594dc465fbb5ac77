"""One layer of an 8B Llama at full size, compiled, forward and backward, in time-only mode. Prints one JSON object.

On both physical cores of a logical core with NEURON_LOGICAL_NC_CONFIG=2. `mfu` is the share of the bf16 peak of the
cores in use; causal attention counts the scores below the diagonal.
"""

from __future__ import annotations

import json
import os
import time

os.environ["TRNSIM_MODE"] = "time"

import torch  # noqa: E402
from transformers import LlamaConfig  # noqa: E402
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding  # noqa: E402

import trnsim  # noqa: E402

TOKENS = 2048


def model_flops(config: LlamaConfig) -> float:
    """Of forward and backward: twice the forward for the gradients of inputs and weights."""
    hidden, head = config.hidden_size, config.hidden_size // config.num_attention_heads
    projections = hidden * (2 * hidden + 2 * config.num_key_value_heads * head)
    weights = projections + 3 * hidden * config.intermediate_size
    return 3 * (2.0 * TOKENS * weights + 2.0 * TOKENS * TOKENS * hidden)


def main() -> None:
    config = LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=TOKENS,
        attn_implementation="sdpa",
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        layer = LlamaDecoderLayer(config, layer_idx=0)
    layer = layer.to_empty(device="neuron")
    x = torch.empty(1, TOKENS, config.hidden_size, device="neuron").requires_grad_()
    positions = LlamaRotaryEmbedding(config).to("neuron")(x, torch.arange(TOKENS, device="neuron")[None])

    def step(x: torch.Tensor) -> torch.Tensor:
        out = layer(x, position_embeddings=positions)
        return (out[0] if isinstance(out, tuple) else out).sum()

    compiled = torch.compile(step, backend="neuron")
    start = time.perf_counter()
    compiled(x).backward()
    torch.neuron.synchronize()
    compile_s = time.perf_counter() - start
    x.grad = None
    layer.zero_grad(set_to_none=True)
    trnsim.reset_report()
    compiled(x).backward()
    torch.neuron.synchronize()
    report = trnsim.report()
    seconds = report["simulated_ns"] * 1e-9
    cores = report["physical_cores"]
    print(
        json.dumps(
            {
                "compile_s": compile_s,
                "simulated_ns": report["simulated_ns"],
                "cores": len(cores),
                "mfu": model_flops(config) / seconds / report["roofline"]["peak_flops_per_s"],
                "bound": report["roofline"]["bound"],
                "busy": [
                    {n: round(e["utilisation"], 3) for n, e in c["engines"].items()}
                    | {"dma": round(c["dma_busy_ns"] / c["simulated_ns"], 3)}
                    for c in cores
                ],
                "programs": [(p["name"], p["simulated_ns"]) for p in report["programs"]],
                "fallbacks": len(report["fallbacks"]),
            }
        )
    )


if __name__ == "__main__":
    main()
