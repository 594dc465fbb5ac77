"""What the forward graph keeps for the backward graph."""

import torch

_TO = torch.ops.aten._to_copy.default


def _widens(node):
    """Whether it is its argument in a wider type of the same device."""
    if node.op != "call_function" or node.target is not _TO or set(node.kwargs) - {"dtype", "layout", "device"}:
        return False
    value, source = node.meta.get("val"), node.args[0].meta.get("val")
    return (
        isinstance(value, torch.Tensor)
        and value.device == source.device
        and value.dtype.is_floating_point
        and source.dtype.is_floating_point
        and value.dtype.itemsize > source.dtype.itemsize
    )


def keep_narrow(joint):
    """Where a gradient reads a widened copy (the float32 of a norm over bfloat16), it widens the narrow tensor again:
    half of the memory, and no transfer of its own where the copy goes into its reader."""
    nodes = list(joint.graph.nodes)
    if any(node.target is torch.ops.aten.copy_.default for node in nodes):
        return  # an argument could have changed in between
    order = {node: i for i, node in enumerate(nodes)}
    forward = [i for node, i in order.items() if node.meta.get("partitioner_tag") == "is_forward"]
    last_forward = max(forward, default=len(nodes))
    changed = False
    for node in nodes:
        if order[node] > last_forward or not _widens(node) or "recompute" in node.meta:
            continue
        readers = [user for user in node.users if order[user] > last_forward and user.op == "call_function"]
        if not readers:
            continue
        with joint.graph.inserting_before(min(readers, key=order.__getitem__)):
            again = joint.graph.call_function(_TO, node.args, dict(node.kwargs))
        again.meta = {**node.meta, "partitioner_tag": "is_backward"}
        for reader in readers:
            reader.replace_input_with(node, again)
        changed = True
    if changed:
        joint.recompile()
