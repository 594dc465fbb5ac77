"""Forms of functions and results: nested results, transforms, custom operators, generation with a static cache."""

import copy
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
from workloads import transformer  # noqa: E402


@torch.library.custom_op("trnsim_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("trnsim_tests::bump_", mutates_args=("x",))
def bump_(x: torch.Tensor) -> None:
    x.add_(1)


def test_nested_results():
    result = torch.compile(lambda x: {"a": x + 1, "b": [x * 2, None, 3]}, backend="neuron")(
        torch.ones(2, device="neuron")
    )
    assert result["a"].tolist() == [2, 2] and result["b"][0].tolist() == [2, 2] and result["b"][1:] == [None, 3]


def test_transforms():
    v = torch.ones(3, 4)
    for transform in (torch.func.vmap(lambda t: t.sin().sum()), torch.func.grad(lambda t: t.sin().sum())):
        actual = torch.compile(transform, backend="neuron", fullgraph=True)(v.to("neuron"))
        torch.testing.assert_close(actual.cpu(), transform(v))


def test_inference_mode():
    with torch.inference_mode():
        assert torch.compile(lambda x: x + 1, backend="neuron")(torch.ones(2, device="neuron")).is_inference()


def test_a_custom_operator_made_of_others_is_part_of_the_program():
    compiled = torch.compile(lambda x: twice(x + 1) - 1, backend="neuron", fullgraph=True)
    assert compiled(torch.ones(3, device="neuron")).tolist() == [3, 3, 3]
    metrics = torch.neuron.get_dynamo_metrics()
    assert metrics["programs"] == 1 and metrics["host_steps"] == 0


def test_a_custom_operator_that_changes_its_argument():
    def f(x):
        y = x * 2
        bump_(y)
        bump_(x)
        return y + x

    x = torch.ones(3, device="neuron")
    assert torch.compile(f, backend="neuron", fullgraph=True)(x).tolist() == [5, 5, 5]
    assert x.tolist() == [2, 2, 2]


def test_a_convolutional_network():
    torch.manual_seed(0)
    host = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2),
        torch.nn.GroupNorm(2, 8),
        torch.nn.SiLU(),
        torch.nn.ConvTranspose2d(8, 4, 3),
        torch.nn.AvgPool2d(2),
        torch.nn.Upsample(scale_factor=2),
        torch.nn.Flatten(),
        torch.nn.Linear(256, 3),
    )
    device = copy.deepcopy(host).to("neuron")
    x = torch.randn(2, 3, 16, 16)
    expected, actual = host(x), torch.compile(device, backend="neuron", fullgraph=True)(x.to("neuron"))
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-5, atol=1e-5)
    expected.sum().backward()
    actual.sum().backward()
    for p, q in zip(device.parameters(), host.parameters(), strict=True):
        torch.testing.assert_close(p.grad.cpu(), q.grad, rtol=1e-4, atol=1e-5)


def test_generation_with_a_static_cache():
    model = transformer.llama().to("neuron").eval()
    ids = transformer.llama_ids(1, 6).to("neuron")
    options = {
        "attention_mask": torch.ones_like(ids),
        "max_new_tokens": 6,
        "do_sample": False,
        "pad_token_id": 0,
    }
    expected = model.generate(ids, **options)
    model.forward = torch.compile(model.forward, backend="neuron", fullgraph=True)
    assert model.generate(ids, cache_implementation="static", **options).tolist() == expected.tolist()
    metrics = torch.neuron.get_dynamo_metrics()
    assert metrics["graphs"] == 2 and metrics["host_steps"] == 0, metrics
