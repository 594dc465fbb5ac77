"""A model on the CPU and its copy on the device, compared: results, loss, every gradient, training."""

import copy

import torch


def to_device(value, device="neuron"):
    """Tensors inside dicts, lists and tuples moved; everything else as it is."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: to_device(item, device) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(to_device(item, device) for item in value)
    return value


def on_device(model, *args):
    return copy.deepcopy(model).to("neuron", *args)


def largest_difference(a, b):
    return (a.detach().cpu().double() - b.detach().cpu().double()).abs().max().item() if a.numel() else 0.0


def assert_close(device, host, tolerance, what=""):
    """max |device - host| <= tolerance * max(1, max |host|), and the same shape and type."""
    assert device.device.type == "neuron" or device.ndim == 0, f"{what} is on {device.device}"
    assert device.shape == host.shape and device.dtype == host.dtype, what
    scale = max(1.0, host.detach().abs().max().item()) if host.numel() else 1.0
    difference = largest_difference(device, host)
    assert difference <= tolerance * scale, f"{what}: differs by {difference:g}, values up to {scale:g}"


def assert_same_step(model, run, inputs, tolerance=1e-4):
    """run(model, inputs) -> (tensors, loss or None) on CPU and device: tensors, loss, every gradient agree.

    Returns (host model, device model, host loss) with the gradients in place.
    """
    host, device = model, on_device(model)
    expected, expected_loss = run(host, inputs)
    got, loss = run(device, to_device(inputs))
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert_close(a, b, tolerance, f"result {i}")
    if expected_loss is None:
        return host, device, None
    assert_close(loss, expected_loss, tolerance, "loss")
    expected_loss.backward()
    loss.backward()
    checked = 0
    for (name, p), q in zip(host.named_parameters(), device.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), f"gradient of {name}"
        if p.grad is not None:
            assert_close(q.grad, p.grad, tolerance, f"gradient of {name}")
            checked += 1
    assert checked > 0
    return host, device, expected_loss.item()


def train(model, loss_of, steps, make_optimizer):
    """Losses before each step, as floats."""
    optimizer = make_optimizer(model.parameters())
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
