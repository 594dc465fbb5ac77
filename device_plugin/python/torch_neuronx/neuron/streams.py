"""Streams and events. All streams of a device are one queue, in the order of the calls; times are simulated."""

import torch

from trnsim import _C


def _device(device=None):
    from torch_neuronx.neuron import _index_of

    return torch.device("neuron", _index_of(device))


class Stream(torch.Stream):
    def __new__(cls, device=None, priority=0, **kwargs):
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, device=_device(device), priority=priority)


class Event(torch.Event):
    """An event; with ``enable_timing`` its ``elapsed_time`` gives simulated milliseconds.

    Makes plain ``torch.Event`` objects: ``elapsed_time`` takes no others.
    """

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        return torch.Event(device=_device(), enable_timing=enable_timing)


def current_stream(device=None):
    return torch.accelerator.current_stream(_device(device))


def default_stream(device=None):
    device_type = int(torch._C._autograd.DeviceType.PrivateUse1)
    return torch.Stream(stream_id=0, device_index=_device(device).index, device_type=device_type)


def set_stream(stream):
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """Context manager: makes a stream and its device current. None does nothing."""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        if self.stream is None:
            return None
        self.previous_device = _C.exchange_device(self.stream.device.index)
        self.previous = current_stream()
        torch.accelerator.set_stream(self.stream)
        return self.stream

    def __exit__(self, *exception):
        if self.stream is not None:
            torch.accelerator.set_stream(self.previous)
            _C.exchange_device(self.previous_device)
        return False


def stream(stream):
    return StreamContext(stream)


def synchronize(device=None):
    """Waits for everything queued on the device and raises the first error of it."""
    _C.synchronize(_device(device).index)


def wait_stream(stream):
    current_stream().wait_stream(stream)


def wait_event(event):
    current_stream().wait_event(event)


def record_event(event=None):
    return current_stream().record_event(event)


def query():
    return current_stream().query()
