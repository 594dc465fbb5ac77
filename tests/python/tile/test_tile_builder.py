"""The binding of the tile-program builder."""

import pytest

_tile = pytest.importorskip("trnsim._tile")


def doubled(b):
    x = b.tensor("in0", "input", "fp32", [128, 512])
    y = b.tensor("out0", "output", "fp32", [128, 512])
    t = b.sbuf(128, [512], "fp32")
    b.load(t, x)
    b.tensor_scalar(t, t, "multiply", 2.0)
    b.store(y, t)


def test_a_program_becomes_a_container():
    b = _tile.TileBuilder("doubled")
    doubled(b)
    assert "tensor_scalar" in b.text()
    assert b.num_instructions == 3
    container = b.finish()
    assert container[:5] == b"\x89TRNP"


def test_accesses_narrow_and_reshape():
    b = _tile.TileBuilder("access")
    t = b.sbuf(64, [8, 32], "bf16")
    assert (t.space, t.dtype, t.partitions, t.sizes, t.steps) == ("sbuf", "bf16", 64, [8, 32], [32, 1])
    s = t.slice(1, 4, 8)
    assert (s.sizes, s.offset) == ([8, 8], 8)
    assert t.reshape([256]).sizes == [256]
    assert t.pattern([2], [16], offset=1).offset == 2
    assert t.slice(0, 0, 1).broadcast(0, 5).steps == [0, 1]


def test_errors_say_what_is_wrong():
    b = _tile.TileBuilder("errors")
    with pytest.raises(ValueError, match="did you mean 'bf16'"):
        b.sbuf(128, [8], "bf61")
    x = b.tensor("in0", "input", "fp32", [128, 60000])
    tiles = [b.sbuf(128, [60000], "fp32") for _ in range(2)]
    for t in tiles:
        b.load(t, x)
    b.tensor_tensor(tiles[0], tiles[0], tiles[1], "add")
    with pytest.raises(NotImplementedError, match="SBUF is full"):
        b.finish()
