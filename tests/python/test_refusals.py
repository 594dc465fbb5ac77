"""What the CPU refuses, the device refuses with the same class and words: overlapping writes, types, numbers."""

import pytest
import torch

DEVICES = ("cpu", "neuron")


def refusal(function, device):
    """Class and first line of what the call raises; None when it works."""
    try:
        function(device)
        if device == "neuron":
            torch.neuron.synchronize()
    except Exception as e:
        return type(e), str(e).split("\n")[0]
    return None


def assert_refused_alike(function, words):
    """Both devices refuse, twice (a refusal must not be cached), in the CPU's words."""
    expected = refusal(function, "cpu")
    assert expected is not None and words in expected[1], expected
    for _ in range(2):
        got = refusal(function, "neuron")
        assert got is not None, "accepted"
        assert got[0] is expected[0] and expected[1] in got[1], (got, expected)


def matrix(device):
    return torch.arange(36.0, device=device).reshape(6, 6)


def long(values, device):
    return torch.tensor(values, device=device)


# ---- overlapping writes ------------------------------------------------------------------------------------------
INTERNAL, PARTIAL = "more than one element of the written-to tensor", "some elements of the input tensor"

OVERLAPS = {
    "add_ expanded": (INTERNAL, lambda d: torch.ones(1, device=d).expand(3).add_(1)),
    "mul_ expanded rows": (INTERNAL, lambda d: torch.ones(4, 1, device=d).expand(4, 3).mul_(2)),
    "relu_ expanded": (INTERNAL, lambda d: torch.ones(1, device=d).expand(3).relu_()),
    "copy_ expanded": (INTERNAL, lambda d: torch.ones(1, device=d).expand(3).copy_(torch.ones(3, device=d))),
    "copy_ from the host, expanded": (INTERNAL, lambda d: torch.ones(1, device=d).expand(3).copy_(torch.ones(3))),
    "uniform_ expanded": (INTERNAL, lambda d: torch.ones(1, device=d).expand(3).uniform_()),
    "out= expanded": (INTERNAL, lambda d: torch.add(matrix(d)[0], 1, out=torch.ones(1, device=d).expand(6))),
    "scatter_ expanded": (
        INTERNAL,
        lambda d: torch.ones(1, device=d).expand(3).scatter_(0, long([0, 1, 2], d), 2.0),
    ),
    "copy_ transposed": (PARTIAL, lambda d: (lambda a: a.copy_(a.t()))(matrix(d))),
    "copy_ shifted": (PARTIAL, lambda d: (lambda a: a[1:].copy_(a[:-1]))(matrix(d))),
    "add_ transposed": (PARTIAL, lambda d: (lambda a: a.add_(a.t()))(matrix(d))),
    "mul_ shifted": (PARTIAL, lambda d: (lambda a: a[1:].mul_(a[:-1]))(matrix(d))),
    "out= shifted": (PARTIAL, lambda d: (lambda a: torch.exp(a[1:], out=a[:-1]))(matrix(d))),
    "gather out= input": (PARTIAL, lambda d: (lambda a: torch.gather(a, 0, a.long().mul_(0), out=a))(matrix(d))),
    "cat out= input": (PARTIAL, lambda d: (lambda a: torch.cat([a[:3], a[3:]], out=a))(matrix(d))),
    "index_select out= input": (
        PARTIAL,
        lambda d: (lambda a: torch.index_select(a, 0, long([5, 4, 3, 2, 1, 0], d), out=a))(matrix(d)),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", OVERLAPS, ids=lambda name: name.replace(" ", "-"))
def test_overlapping_writes_are_refused(case):
    words, function = OVERLAPS[case]
    assert_refused_alike(function, words)


def test_overlap_is_decided_by_the_memory_of_each_call():
    """Equal shapes and strides, once apart and once overlapping: two plans, whichever comes first."""
    a = torch.zeros(40, device="neuron")
    a[:8].add_(a[16:24])
    for distance in (4, 1, 7):
        with pytest.raises(RuntimeError, match=PARTIAL):
            a[:8].add_(a[distance : distance + 8])
    a[:8].add_(a[8:16] + 1)
    assert a.sum().item() == 8


def test_overlap_that_the_cpu_accepts_is_computed_as_if_copied():
    for function in (
        lambda a: a.add_(a),
        lambda a: a.view(-1).mul_(a.view(-1)),
        lambda a: a[:, 0].add_(a[:, 1]),
        lambda a: a.fill_(2),
        lambda a: a[:1].expand(3, 6).fill_(4),
        lambda a: a[0, :1].expand(6).zero_(),
    ):
        host = matrix("cpu")
        device = host.to("neuron")
        function(host)
        function(device)
        torch.testing.assert_close(device.cpu(), host)
    # Undefined on the CPU, whose kernel writes while it reads.
    a = matrix("neuron")
    torch.mm(a, a, out=a)
    torch.testing.assert_close(a.cpu(), matrix("cpu") @ matrix("cpu"))


# ---- types -------------------------------------------------------------------------------------------------------
def ints(device, dtype=torch.int32):
    return torch.arange(4, device=device).to(dtype)


TYPES = {
    "int mul_ float number": lambda d: ints(d).mul_(0.5),
    "int mul_ float tensor": lambda d: ints(d).mul_(torch.ones(4, device=d)),
    "int add_ float number": lambda d: ints(d).add_(0.5),
    "int div_": lambda d: ints(d).div_(2),
    "int addcmul_ float": lambda d: ints(d).addcmul_(torch.ones(4, device=d), torch.ones(4, device=d)),
    "bool add_ int": lambda d: torch.ones(4, dtype=torch.bool, device=d).add_(1),
    "bool sub_ bool": lambda d: (lambda b: b.sub_(b))(torch.ones(4, dtype=torch.bool, device=d)),
    "float sub bool": lambda d: torch.ones(4, device=d) - torch.ones(4, dtype=torch.bool, device=d),
    "out= of a smaller kind": lambda d: torch.mul(torch.ones(4, device=d), 2, out=ints(d)),
    "neg out= of another type": lambda d: torch.neg(ints(d), out=ints(d, torch.int16)),
    "isin out= of another type": lambda d: torch.isin(ints(d), ints(d), out=ints(d)),
    "softmax out= of another type": lambda d: torch.softmax(torch.ones(4, device=d), 0, out=ints(d)),
    "addmm of two types": lambda d: torch.addmm(
        torch.ones(2, 2, dtype=torch.uint8, device=d), torch.ones(2, 2, device=d), torch.ones(2, 2, device=d)
    ),
    "masked_fill_ by numbers": lambda d: torch.ones(4, device=d).masked_fill_(torch.ones(4, device=d), 1.0),
    "relu of bool": lambda d: torch.relu(torch.ones(4, dtype=torch.bool, device=d)),
    "in-place broadcast of self": lambda d: torch.ones(5, 1, device=d).clamp_max_(torch.ones(5, 5, device=d)),
    "softmax dimension": lambda d: torch.softmax(torch.ones(4, device=d), 300),
    "int // 0": lambda d: ints(d) // 0,
    "int % 0": lambda d: ints(d) % 0,
    "bincount of float": lambda d: torch.bincount(torch.ones(4, device=d)),
    "repeat_interleave by float": lambda d: torch.repeat_interleave(torch.ones(4, device=d)),
    "rand of int": lambda d: torch.rand(4, dtype=torch.int32, device=d),
    "polar of two types": lambda d: torch.polar(torch.ones(4, device=d), torch.ones(4, device=d, dtype=torch.float64)),
    "large int mul_ float": lambda d: torch.ones(20_000_000, dtype=torch.int32, device=d).mul_(0.5),
}


@pytest.mark.parametrize("case", TYPES, ids=lambda name: name.replace(" ", "-"))
def test_forbidden_types_are_refused(case):
    assert_refused_alike(TYPES[case], "")


def test_what_the_cpu_finds_in_values_of_its_own_is_not_refused():
    """A trial on the CPU divides by zeros that are not the call's."""
    x = ints("neuron") + 1
    assert (5 % x).tolist() == [0, 1, 2, 1]
    assert (x // x).tolist() == (x % x + 1).tolist() == [1] * 4
    assert torch.div(7, x, rounding_mode="floor").tolist() == [7, 3, 2, 1]
    assert torch.tensor([7, 5], device="neuron").fmod(torch.tensor([4, 3], device="neuron")).tolist() == [3, 2]


PARAMETERS = {
    "cauchy_": lambda d: matrix(d).cauchy_(0, 0),
    "exponential_": lambda d: matrix(d).exponential_(-1.5),
    "log_normal_": lambda d: matrix(d).log_normal_(0, -2.5),
    "normal_": lambda d: matrix(d).normal_(0, -1),
    "geometric_": lambda d: matrix(d).geometric_(1),
    "bernoulli_": lambda d: matrix(d).bernoulli_(1.5),
    "bernoulli": lambda d: matrix(d).bernoulli(-0.5),
    "mm of two types": lambda d: matrix(d) @ matrix(d).half(),
    "dot of two types": lambda d: torch.dot(matrix(d)[0], matrix(d)[0].half()),
    "dot of matrices of two types": lambda d: torch.dot(matrix(d), matrix(d).half()),
    "dot of two sizes": lambda d: torch.dot(matrix(d)[0], matrix(d)[0, 1:]),
    "vdot of two types": lambda d: torch.vdot(matrix(d)[0], matrix(d)[0].half()),
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_parameters_are_refused_in_the_words_of_the_cpu(case):
    assert_refused_alike(PARAMETERS[case], "")


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("of_tensor", [False, True])
def test_a_complex_value_does_not_go_into_real_elements(dtype, of_tensor):
    def fill(device, value):
        mask = torch.tensor([True, False], device=device)
        return torch.ones(2, dtype=dtype, device=device).masked_fill(
            mask, torch.tensor(value, device=device) if of_tensor else value
        )

    for _ in range(2):  # before and after a number that fits
        assert_refused_alike(lambda d: fill(d, 1j), "without overflow")
        result = fill("neuron", 3 + 0j)
        assert result.dtype == dtype and result.tolist() == [3, 1]


RANGES = {
    "random_ below uint8": lambda d: ints(d, torch.uint8).random_(-4, 5),
    "random_ beyond int8": lambda d: ints(d, torch.int8).random_(200),
    "random_ of bool": lambda d: ints(d, torch.bool).random_(0, 3),
    "random_ without numbers": lambda d: ints(d).random_(5, 5),
    "randint of bool": lambda d: torch.randint(0, 5, (3,), dtype=torch.bool, device=d),
    "uniform_ to infinity": lambda d: torch.ones(4, device=d).uniform_(0, float("inf")),
    "uniform_ beyond float16": lambda d: torch.ones(4, dtype=torch.float16, device=d).uniform_(0, 70000),
    "uniform_ wider than float32": lambda d: torch.ones(4, device=d).uniform_(-3e38, 3e38),
    "uniform_ turned round": lambda d: torch.ones(4, device=d).uniform_(2, 1),
    "samples for no image": lambda d: torch.nn.FractionalMaxPool3d(
        2, output_size=1, _random_samples=torch.rand(0, 3, 3, device=d)
    )(torch.ones(1, 3, 4, 4, 4, device=d)),
    "histc to infinity": lambda d: torch.histc(torch.ones(4, device=d), 4, 0, float("inf")),
}


@pytest.mark.parametrize("case", RANGES, ids=lambda name: name.replace(" ", "-"))
def test_ranges_that_a_type_does_not_have_are_refused(case):
    assert_refused_alike(RANGES[case], "")


def test_a_histogram_over_elements_that_are_not_finite_is_refused():
    for bad in (float("inf"), float("nan")):
        with pytest.raises(RuntimeError, match="range of the elements is not finite"):
            torch.histc(torch.tensor([1.0, bad], device="neuron")).cpu()
    assert torch.histc(torch.tensor([1.0, float("inf")], device="neuron"), 2, 0, 2).tolist() == [0, 1]


NUMBERS = {
    "full": lambda d, v: torch.full((2,), v, dtype=torch.uint8, device=d),
    "fill_": lambda d, v: ints(d, torch.uint8).fill_(v),
    "masked_fill": lambda d, v: ints(d, torch.uint8).masked_fill(torch.ones(4, dtype=torch.bool, device=d), v),
    "pad": lambda d, v: torch.nn.functional.pad(ints(d, torch.uint8), (1, 1), value=v),
    "threshold": lambda d, v: torch.nn.functional.threshold(ints(d, torch.uint8), 1, v),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_beyond_the_type_are_refused_and_others_are_not(name):
    """One number may have made the plan; the next one is looked at all the same."""
    function = NUMBERS[name]
    for value in (7, 300, 9, 301):
        if value > 255:
            assert_refused_alike(lambda d: function(d, value), "without overflow")  # noqa: B023
        else:
            torch.testing.assert_close(function("neuron", value).cpu(), function("cpu", value))
    for value in (300, 3):  # arithmetic wraps around on both
        torch.testing.assert_close((ints("neuron", torch.uint8) + value).cpu(), ints("cpu", torch.uint8) + value)


# ---- checks of programs (test_checks.py has the operators) ---------------------------------------------------------
def test_a_check_of_a_program_has_its_class_at_every_way_to_wait():
    def bad():
        return torch.ones(3, 2, device="neuron")[torch.tensor([0, 7], device="neuron")]

    for wait in (
        lambda x: x.cpu(),
        lambda x: x[0, 0].item(),
        lambda x: torch.neuron.synchronize(),
        lambda x: torch.accelerator.synchronize(),
    ):
        with pytest.raises(IndexError, match="index 7 is out of bounds for dimension 0 with size 3") as raised:
            wait(bad())
        assert "aten::index.Tensor on neuron:0" in str(raised.value)
        assert "NEURON_LAUNCH_BLOCKING" in str(raised.value)
    assert torch.ones(2, device="neuron").sum().item() == 2  # the device goes on


# ---- folders of the user ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("folder", ["/dev/null/folder", "/proc/folder", "/proc"])
def test_a_debug_folder_that_cannot_be_written_is_an_error_of_the_user(folder, run_python):
    script = """
import torch
try:
    (torch.ones(3, device="neuron") + 1).cpu()
except RuntimeError as e:
    print(e)
"""
    done = run_python(
        script,
        TORCH_NEURONX_PRESERVE_COMPILATION_ARTIFACTS="1",
        TORCH_NEURONX_DISABLE_NEFF_CACHE="1",
        TORCH_NEURONX_DEBUG_DIR=folder,
    )
    assert "user error: cannot" in done.stdout and "TORCH_NEURONX_DEBUG_DIR" in done.stdout
    assert folder in done.stdout and "internal" not in done.stdout


# ---- values and types --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("bad", [1.5, -0.1, float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_binary_cross_entropy_wants_probabilities(bad, dtype):
    loss = torch.nn.functional.binary_cross_entropy
    for wrong, words in ((0, "all elements of input should"), (1, "all elements of target should")):

        def call(device, wrong=wrong):
            operands = [torch.tensor([0.25, 0.5], dtype=dtype, device=device) for _ in range(2)]
            operands[wrong][1] = bad
            return loss(*operands)

        assert_refused_alike(call, words)
    edges = torch.tensor([0.0, 1.0], dtype=dtype)
    torch.testing.assert_close(loss(edges.neuron(), edges.neuron()).cpu(), loss(edges, edges))


UNSIGNED = ("add", "sub", "lt", "maximum", "remainder", "pow", "floor_divide", "fmod", "logical_and")
UNARIES = ("neg", "abs", "sign", "max", "argmax", "bitwise_not", "logical_not", "relu", "square", "amax")
BOOL = ("abs", "ceil", "floor", "round", "trunc", "frac", "median", "neg", "sign", "exp", "square")
ACTIVATIONS = ("gelu", "silu", "softplus", "hardswish", "hardsigmoid", "mish", "elu", "leaky_relu", "selu", "celu")


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
@pytest.mark.parametrize("name", UNSIGNED + UNARIES)
def test_wide_unsigned_integers_are_refused_where_the_cpu_has_no_kernel(name, dtype):
    def call(device):
        x = torch.tensor([1, 2, 3], dtype=dtype, device=device)
        return getattr(torch, name)(x, x) if name in UNSIGNED else getattr(torch, name)(x)

    assert_refused_alike(call, "not implemented for 'UInt")


@pytest.mark.parametrize("name", BOOL)
def test_booleans_and_functions_of_numbers(name):
    def call(device):
        return getattr(torch, name)(torch.tensor([True, False], device=device))

    if refusal(call, "cpu") is None:
        torch.testing.assert_close(call("neuron").cpu(), call("cpu"))
    else:
        assert_refused_alike(call, "ool")


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.int64])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_of_integers_are_refused(name, dtype):
    function = getattr(torch.nn.functional, name)
    assert_refused_alike(lambda d: function(torch.ones(3, dtype=dtype, device=d)), "not implemented for")
