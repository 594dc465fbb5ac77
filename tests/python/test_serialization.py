"""Copies, pickles and the size of storages."""

import copy
import pickle

import torch


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
