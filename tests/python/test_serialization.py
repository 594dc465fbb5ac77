"""Checklist rows 40 and 41."""

import copy
import io
import pickle

import torch


def saved(obj):
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return file


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


def test_copies_and_pickles():
    x = torch.arange(4.0, device="neuron")[1:]
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.device == x.device and torch.equal(y.cpu(), x.cpu())


def test_storage_resize():
    x = torch.arange(4.0, device="neuron")
    storage = x.untyped_storage()
    storage.resize_(0)
    assert storage.size() == 0
    storage.resize_(16)
    x.fill_(2)
    assert x.cpu().tolist() == [2.0] * 4


def test_row_41_data_loader_with_pinned_memory():
    data = torch.utils.data.TensorDataset(torch.arange(10.0))
    batches = [b[0] for b in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True)]
    assert all(b.is_pinned() for b in batches)
    assert torch.cat([b.to("neuron") for b in batches]).cpu().tolist() == list(range(10))
