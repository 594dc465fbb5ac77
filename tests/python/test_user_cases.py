"""Faults that users of such devices met, each with the right value."""

import copy
import threading
import time
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import trnsim

NEURON = "neuron"


def same(got, expected, tolerance=1e-5):
    torch.testing.assert_close(got.detach().cpu(), expected.detach(), rtol=tolerance, atol=tolerance)


def twin(module):
    """The module's copy on the device; nothing shared with it."""
    result = copy.deepcopy(module).to(NEURON)
    for a, b in zip(result.parameters(), module.parameters(), strict=True):
        assert a.device.type == NEURON and a.data_ptr() != b.data_ptr()
    return result


def test_weight_norm_of_a_grouped_convolution():
    torch.manual_seed(0)
    host = nn.utils.parametrizations.weight_norm(nn.Conv1d(16, 16, 4, padding=2, groups=4), dim=2)
    device = twin(host)
    x = torch.randn(2, 16, 20)
    trnsim.reset_report()
    for module, data in ((host, x), (device, x.to(NEURON))):
        module(data).square().sum().backward()
    assert trnsim.fallbacks() == []
    same(device(x.to(NEURON)), host(x))
    for a, b in zip(device.parameters(), host.parameters(), strict=True):
        same(a.grad, b.grad, 1e-4)


def test_bicubic_resize_of_a_parameter_and_unfold():
    torch.manual_seed(0)
    p, w = torch.randn(1, 8, 14, 14), torch.randn(2, 3, 6, 5)
    expected = F.interpolate(p, size=(20, 20), mode="bicubic")
    device = nn.Parameter(p.to(NEURON))
    got = F.interpolate(device, size=(20, 20), mode="bicubic")
    same(got, expected)
    got.sum().backward()
    assert device.grad.sum().item() == pytest.approx(8 * 400, rel=1e-4)
    same(F.unfold(w.to(NEURON), (3, 1), padding=(1, 0)), F.unfold(w, (3, 1), padding=(1, 0)))


def test_isin():
    a, b = torch.tensor([1, 2, 3, 4]), torch.tensor([2, 4])
    for options in ({}, {"assume_unique": True}, {"invert": True}):
        expected = torch.isin(a, b, **options)
        assert torch.isin(a.to(NEURON), b.to(NEURON), **options).tolist() == expected.tolist()


def test_rotary_tables_in_float64():
    def table(device):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exponents = torch.arange(0, 16, 2, dtype=torch.float64, device=device) / 16
            angles = torch.outer(torch.arange(32, dtype=torch.float64, device=device), 1.0 / 10000.0**exponents)
            return angles.repeat_interleave(2, dim=1)

    assert table(NEURON).dtype == torch.float64
    same(table(NEURON).cos().float(), table("cpu").cos().float())


def test_truncated_normal_initialisation():
    torch.manual_seed(0)
    x = nn.init.trunc_normal_(torch.empty(200000, device=NEURON), 0, 1, -2, 2).cpu()
    assert x.isfinite().all() and x.abs().max() <= 2
    assert x.std().item() == pytest.approx(0.8796, abs=0.01)


def test_indexing_with_a_channels_last_index_then_backward():
    x = torch.randn(2, 3, device=NEURON, requires_grad=True)
    i = torch.zeros(2, 8, 1, 2, dtype=torch.int64).contiguous(memory_format=torch.channels_last).to(NEURON)
    x[i].sum().backward()
    assert x.grad.tolist() == [[32.0] * 3, [0.0] * 3]


def test_masked_fill_of_a_transposed_slice():
    mask = torch.tensor([[True, False, True], [False, True, False]])
    results = []
    for device in ("cpu", NEURON):
        b = torch.zeros(3, 4, device=device)
        b.t()[1:3].masked_fill_(mask.to(device), 7)
        results.append(b.tolist())
    assert results[0] == results[1]


def test_the_float32_minimum_as_a_mask_in_bfloat16():
    least = torch.full((1, 4), torch.finfo(torch.float32).min, device=NEURON)
    assert least.to(torch.bfloat16).tolist() == [[-float("inf")] * 4]
    scores = torch.zeros(2, 4, dtype=torch.bfloat16)
    mask = torch.zeros(2, 4)
    mask[0, 2:] = mask[1] = torch.finfo(torch.float32).min
    got = (scores.to(NEURON) + mask.to(NEURON).to(torch.bfloat16)).softmax(-1).cpu()
    expected = (scores + mask.to(torch.bfloat16)).softmax(-1)
    assert not got[0].isnan().any() and got[0].sum().item() == 1
    assert torch.equal(got.isnan(), expected.isnan())  # a row without any score is NaN there too


def test_what_detection_networks_use():
    grid = F.affine_grid(torch.eye(2, 3).unsqueeze(0), (1, 1, 4, 4), align_corners=False)
    ramp = torch.arange(16.0).reshape(1, 1, 4, 4)
    same(F.grid_sample(ramp.to(NEURON), grid.to(NEURON), align_corners=False), ramp)
    assert torch.tensor([[0, 1], [1, 0]], device=NEURON).nonzero().tolist() == [[0, 1], [1, 0]]
    x = torch.randn(2, 3, 9, 7, generator=torch.Generator().manual_seed(0))
    same(F.adaptive_max_pool2d(x.to(NEURON), (2, 3)), F.adaptive_max_pool2d(x, (2, 3)))
    same(x.to(NEURON).clamp_min(0.1), x.clamp_min(0.1))
    a, b = torch.tensor([True, False]), torch.tensor([False, False])
    assert (a.to(NEURON) | b.to(NEURON)).tolist() == [True, False]


def test_scatter_by_computed_rows():
    torch.manual_seed(0)
    rows, order = torch.randn(6, 4), torch.tensor([3, 0, 5, 1, 4, 2])
    index = order.unsqueeze(1).expand(6, 4)
    n = int(order.to(NEURON).max().item()) + 1
    got = torch.zeros(n, 4, device=NEURON).scatter_(0, index.to(NEURON), rows.to(NEURON))
    same(got, torch.zeros(6, 4).scatter_(0, index, rows))


def test_adamw_over_hundreds_of_parameters_outruns_no_queue():
    def run(device, blocking):
        torch.manual_seed(0)
        parameters = [torch.randn(8).to(device).requires_grad_() for _ in range(820)]
        optimizer = torch.optim.AdamW(parameters, lr=1e-2, foreach=False)
        for step in range(3):
            for p in parameters:
                p.grad = torch.full((8,), 0.5 + step, device=device)
                if blocking:
                    torch.neuron.synchronize()
            optimizer.step()
        return torch.stack([p.detach().cpu() for p in parameters])

    queued = run(NEURON, False)
    same(queued, run("cpu", False), 1e-6)
    assert torch.equal(queued, run(NEURON, True))


def test_a_bare_number_means_the_accelerator():
    assert torch.ones(2).to(0).device == torch.device("neuron:0")
    with pytest.raises(RuntimeError, match=rf"99.*{torch.neuron.device_count()}"):
        torch.ones(2).to(99)


def test_manual_seed_reaches_the_device_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draws = []
        for _ in range(2):
            torch.manual_seed(0)
            draws.append(torch.randn(8, device=NEURON).tolist())
    assert draws[0] == draws[1]
    state = torch.neuron.get_rng_state()
    a = torch.randn(8, device=NEURON)
    torch.neuron.set_rng_state(state)
    assert torch.equal(a, torch.randn(8, device=NEURON))


def test_a_generator_on_the_device():
    g = torch.Generator(device=NEURON).manual_seed(3)
    a = torch.randn(8, generator=g, device=NEURON)
    assert torch.equal(a, torch.randn(8, generator=g.manual_seed(3), device=NEURON))
    kept = F.dropout(torch.ones(100000, device=NEURON), 0.5).ne(0).float().mean().item()
    assert kept == pytest.approx(0.5, abs=0.01)


def test_channels_last_convolution():
    torch.manual_seed(0)
    x, w = torch.randn(2, 5, 9, 7), torch.randn(4, 5, 3, 3)
    got = F.conv2d(x.to(NEURON).to(memory_format=torch.channels_last), w.to(NEURON))
    same(got, F.conv2d(x, w), 1e-4)


@pytest.mark.parametrize(
    "call, error, words",
    [
        (lambda d: F.linear(torch.ones(3, 4, device=d), torch.ones(5, 10, device=d)), RuntimeError, "3x4 and 10x5"),
        (
            lambda d: torch.zeros(5, 2, device=d).index_copy_(
                0, torch.tensor([6], device=d), torch.ones(1, 2, device=d)
            ),
            IndexError,
            "6",
        ),
        (lambda d: torch.zeros(5, device=d)[torch.tensor([0.5], device=d)], IndexError, "tensors used as indices"),
    ],
)
def test_wrong_uses_name_what_is_wrong(call, error, words):
    with pytest.raises((error, RuntimeError)) as raised:
        call("cpu")
    with pytest.raises(type(raised.value)) as on_device:
        call(NEURON)
        torch.neuron.synchronize()
    assert words in str(on_device.value)


def test_a_meta_tensor_beside_a_device_tensor():
    with pytest.raises(RuntimeError) as raised:
        torch.randn(2, 4, device=NEURON) * torch.empty(2, 4, device="meta")
    assert "meta" in str(raised.value) and "neuron" in str(raised.value)


def test_a_buffer_left_on_the_host():
    module = nn.Linear(3, 3).to(NEURON)
    with pytest.raises(RuntimeError) as raised:
        module(torch.ones(2, 3))
    assert "cpu" in str(raised.value) and "neuron" in str(raised.value)


def test_accumulating_index_put_into_a_strided_view():
    results = []
    for _ in range(5):
        base = torch.zeros(4, 6, device=NEURON)
        rows = torch.tensor([0, 0, 2], device=NEURON)
        base[:, ::2].index_put_((rows,), torch.tensor(1.0, device=NEURON), accumulate=True)
        results.append(base.tolist())
    expected = [[2.0, 0.0] * 3, [0.0] * 6, [1.0, 0.0] * 3, [0.0] * 6]
    assert all(r == expected for r in results)


def test_a_thread_that_polls_an_event_sees_its_end():
    x = torch.randn(512, 512, device=NEURON)
    event = torch.Event(device=NEURON)
    for _ in range(4):
        x = x @ x * 1e-3
    event.record()
    seen = []

    def poll():
        end = time.monotonic() + 5
        while time.monotonic() < end and not event.query():
            time.sleep(0.001)
        seen.append(event.query())

    thread = threading.Thread(target=poll)
    thread.start()
    thread.join()
    assert seen == [True]


def test_what_benchmark_harnesses_ask_of_a_device():
    module = torch.get_device_module(NEURON)
    for name in ("synchronize", "empty_cache", "max_memory_allocated", "get_device_name", "get_amp_supported_dtype"):
        assert callable(getattr(module, name))
    assert {torch.float16, torch.bfloat16} <= set(module.get_amp_supported_dtype())


def test_a_loss_read_every_step_changes_nothing():
    def train(every):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 1)).to(NEURON)
        x = torch.randn(32, 8).to(NEURON)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for step in range(20):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            if step % every == 0:
                assert loss.isfinite().item()
        return torch.cat([p.detach().flatten().cpu() for p in model.parameters()])

    assert torch.equal(train(1), train(10))


def test_streams_are_different_and_events_order_them():
    a, b = torch.Stream(device=NEURON), torch.Stream(device=NEURON)
    assert a.stream_id != b.stream_id
    start, end = torch.Event(device=NEURON, enable_timing=True), torch.Event(device=NEURON, enable_timing=True)
    with a:
        start.record()
        x = torch.full((256, 256), 2.0, device=NEURON) @ torch.ones(256, 256, device=NEURON)
        end.record()
    b.wait_event(end)
    with b:
        y = x + 1
    torch.accelerator.synchronize()
    assert y[0, 0].item() == 513.0
    assert start.elapsed_time(end) > 0


def test_half_a_buffer_changes():
    bytes_on_device = torch.zeros(1000, dtype=torch.uint8, device=NEURON)
    bytes_on_device[501:1000].copy_(torch.full((499,), 0xAB, dtype=torch.uint8))
    read = bytes_on_device.cpu()
    assert int((read == 0xAB).sum()) == 499 and int((read[:501] == 0).sum()) == 501


def test_integers_are_counted_by_histc_as_on_other_accelerators():
    counts = torch.histc(torch.tensor([0, 2, 2, 3], dtype=torch.int32, device=NEURON), bins=4, min=0, max=3)
    assert counts.tolist() == [1, 0, 2, 1]
