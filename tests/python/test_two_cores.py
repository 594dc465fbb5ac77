"""Programs on both physical cores of a logical core: the values of one core, checked strictly."""

import json
import textwrap

SCRIPT = textwrap.dedent(
    """
    import json
    import torch
    import trnsim
    torch.manual_seed(0)

    def block(x, w1, w2, scale):
        y = torch.nn.functional.gelu(torch.nn.functional.rms_norm(x, (x.shape[-1],), scale) @ w1)
        return (x + y @ w2).softmax(-1)

    def loss(*args):
        return block(*args).square().mean()

    # Sizes that do not halve evenly beside some that do.
    shapes = [(515, 384), (384, 1000), (1000, 384), (384,)]
    host = [torch.randn(s).mul_(0.05).requires_grad_() for s in shapes]
    results = {}
    for how in ("host", "eager", "compiled"):
        device = "cpu" if how == "host" else "neuron"
        args = [h.detach().to(device).requires_grad_() for h in host]
        f = torch.compile(loss, backend="neuron") if how == "compiled" else loss
        value = f(*args)
        value.backward()
        results[how] = [value.detach().cpu()] + [a.grad.cpu() for a in args]
    q, k, v = (torch.randn(2, 6, 200, 64) for _ in range(3))
    attention = torch.nn.functional.scaled_dot_product_attention
    images, filters = torch.randn(3, 8, 20, 20), torch.randn(16, 8, 3, 3)
    more = {}
    for device in ("cpu", "neuron"):
        b = images.to(device)
        more[device] = [
            attention(q.to(device), k.to(device), v.to(device), is_causal=True).cpu(),
            torch.nn.functional.conv2d(b, filters.to(device), padding=1).cpu(),
            torch.nn.functional.max_pool2d(b, 2).cpu(),
            b.cumsum(2).cpu(),
            b.transpose(1, 3).contiguous().cpu(),
            b.sum((0, 1)).cpu(),
        ]
    report = trnsim.report()
    gap = lambda x, y: max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-6)) for a, b in zip(x, y))
    print(json.dumps({
        "eager": gap(results["eager"], results["host"]),
        "compiled": gap(results["compiled"], results["host"]),
        "more": gap(more["neuron"], more["cpu"]),
        "cores": [c["core"] for c in report["physical_cores"]],
        "fallbacks": report["fallbacks"],
        "simulated_ns": report["simulated_ns"],
    }))
    """
)


def test_two_cores_give_the_values_of_one_in_less_time(run_python):
    def run(**environment):
        done = run_python(SCRIPT, TRNSIM_CHECK="strict", **environment)
        return json.loads(done.stdout.splitlines()[-1])

    one, two = run(NEURON_LOGICAL_NC_CONFIG="1"), run()  # two is the default of the chip
    for result in (one, two):
        assert result["eager"] < 1e-4
        assert result["compiled"] < 1e-4
        assert result["more"] < 1e-4
        assert result["fallbacks"] == []
    assert one["cores"] == [0]
    assert two["cores"] == [0, 1]
    assert two["simulated_ns"] < 0.95 * one["simulated_ns"]


def test_a_barrier_between_loops_waits_for_the_transfers_before_it(run_python):
    """The halves of the second axis read what both cores have written of the first, in programs that keep loops."""
    result = run_python(
        "import torch\n"
        "x = torch.arange(100000 * 16, dtype=torch.float32).reshape(1, 100000, 4, 4)\n"
        "pad = lambda t: torch.nn.functional.pad(t, (3, 4, 5, 6), mode='replicate')\n"
        "print(torch.equal(pad(x.to('neuron')).cpu(), pad(x)))",
        TRNSIM_CHECK="strict",
    )
    assert result.stdout.strip() == "True", result.stderr[-2000:]
