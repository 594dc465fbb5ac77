"""Checklist rows 39 to 42: copies, saving and loading, data loaders, forks."""

import io

import pytest
import torch

DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int8, torch.int16,
    torch.int32, torch.int64, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


def saved(obj):
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:neuron")
def test_row_39_round_trip_of_every_dtype_and_layout(dtype):
    base = (torch.arange(60) % 7).reshape(3, 4, 5).to(dtype)
    assert torch.equal(base.to("neuron").cpu().view(torch.uint8), base.view(torch.uint8))
    for view in (
        lambda t: t.transpose(0, 2),
        lambda t: t[:, 1::2],
        lambda t: t[1],
        lambda t: t[:, :, :1].expand(3, 4, 6),
    ):
        expected = view(base).float()
        assert torch.equal(view(base.to("neuron")).cpu().float(), expected)  # device to host, strided source
        assert torch.equal(view(base).to("neuron").cpu().float(), expected)  # host to device
        assert torch.equal(view(base.to("neuron")).contiguous().cpu().float(), expected)  # device to device
    if dtype == torch.float8_e4m3fn:
        return  # the compute engines know it from trn3 on; the next test
    target = torch.zeros(3, 4, 10, dtype=dtype, device="neuron")
    target[..., ::2] = base  # host to a strided destination
    assert torch.equal(target[..., ::2].cpu().float(), base.float())
    assert target[..., 1::2].cpu().float().sum() == 0


def test_row_39_casts_between_dtypes():
    x = torch.tensor([0.0, 1.5, -2.5, 100.25, 3.0])
    for dtype in (torch.bfloat16, torch.float16, torch.int32, torch.int64, torch.int8, torch.bool):
        assert torch.equal(x.to("neuron").to(dtype).cpu(), x.to(dtype))
        assert torch.equal(x.to("neuron", dtype).cpu(), x.to(dtype))


def test_row_39_between_devices_and_non_blocking():
    x = torch.randn(100, 100)
    a = x.to("neuron:0", non_blocking=True)
    b = a.to("neuron:1")
    assert b.device.index == 1
    assert torch.equal(b.cpu(), x)
    with pytest.raises(RuntimeError, match="same device"):
        a + b
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned()
    assert torch.equal(pinned.to("neuron", non_blocking=True).cpu(), x)


def test_row_40_save_and_load_with_map_location():
    x = torch.arange(6.0, device="neuron").reshape(2, 3)
    assert torch.load(saved(x)).device == x.device
    assert torch.load(saved(x), map_location="cpu").device.type == "cpu"
    moved = torch.load(saved(x), map_location="neuron:1")
    assert moved.device.index == 1 and torch.equal(moved.cpu(), x.cpu())
    assert torch.equal(torch.load(saved(x.cpu()), map_location="neuron").cpu(), x.cpu())


def test_row_40_views_share_their_storage_after_loading():
    base = torch.arange(10.0, device="neuron")
    a, b = torch.load(saved((base, base[2:5])))
    b.fill_(7)
    assert a.cpu()[2:5].tolist() == [7, 7, 7]


def test_row_40_state_dicts_and_optimizers():
    model = torch.nn.Linear(3, 2).to("neuron")
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3, device="neuron")).sum().backward()
    optimizer.step()
    state = torch.load(saved({"model": model.state_dict(), "optimizer": optimizer.state_dict()}))
    other = torch.nn.Linear(3, 2).to("neuron")
    other.load_state_dict(state["model"])
    torch.optim.AdamW(other.parameters()).load_state_dict(state["optimizer"])
    assert torch.equal(other.weight.cpu(), model.weight.cpu())


def test_row_41_data_loader_with_pinned_memory():
    data = torch.utils.data.TensorDataset(torch.arange(10.0))
    batches = [b[0] for b in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)]
    assert all(b.is_pinned() for b in batches)
    assert torch.cat([b.to("neuron") for b in batches]).cpu().tolist() == list(range(10))


def test_row_39_a_copy_from_pinned_memory_does_not_wait_for_the_device():
    busy = torch.randn(512, 512, device="neuron")
    pinned = torch.randn(300, 1000).pin_memory()
    for _ in range(30):
        busy = torch.tanh(busy @ busy)
    copy = pinned.to("neuron", non_blocking=True)
    assert not torch.neuron.query()  # what was queued before is still running
    assert torch.equal(copy.cpu(), pinned)
    ordinary = torch.randn(300, 1000)
    kept = ordinary.clone()
    copy = ordinary.to("neuron", non_blocking=True)
    ordinary.zero_()  # not pinned: the call has read it
    assert torch.equal(copy.cpu(), kept)


LOADER = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return torch.ones(2, device="neuron") * i
try:
    print(next(iter(torch.utils.data.DataLoader(Data(), batch_size=2, num_workers=1))))
except RuntimeError as e:
    print(e)
"""


def test_row_41_a_worker_that_returns_device_tensors_raises_in_the_parent(run_python):
    out = run_python(LOADER).stdout
    assert "a tensor on neuron:0 was sent to another process" in out and "Send CPU tensors" in out


def test_row_41_workers_with_pinned_memory(run_python):
    out = run_python(
        """
import torch
data = torch.utils.data.TensorDataset(torch.arange(10.0))
loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=2, pin_memory=True)
print(torch.cat([b.to("neuron", non_blocking=True) for b, in loader]).cpu().tolist())
"""
    ).stdout
    assert out.strip() == str([float(i) for i in range(10)])


def test_row_42_a_forked_child_gets_a_clear_error_and_a_spawned_one_works(run_python):
    out = run_python(
        """
import os, torch
x = torch.ones(2, device="neuron")
x.sum().item()
pid = os.fork()
if pid == 0:
    for use in (lambda: x + 1, lambda: torch.ones(1, device="neuron")):
        try:
            use()
        except RuntimeError as e:
            print(torch.neuron._is_in_bad_fork(), e, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
print((x + 1).sum().item(), torch.neuron._is_in_bad_fork())
"""
    ).stdout.split("\n")
    assert all(line.startswith("True user error") and "fork" in line and "spawn" in line for line in out[:2])
    assert out[2] == "4.0 False"
