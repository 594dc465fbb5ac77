"""A file as PyTorch's test folder has them, for the test of tools/upstream. Its name keeps it out of our own tests."""

import os

import torch
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCUDA
from torch.testing._internal.common_utils import TestCase, a_helper_of_other_versions, gradcheck, run_tests


class TestSample(TestCase):
    def setUp(self):
        super(self.__class__, self).setUp()

    @dtypes(torch.float32, torch.bfloat16)
    def test_add(self, device, dtype):
        x = torch.ones(3, device=device, dtype=dtype)
        self.assertEqual(x + x, torch.full((3,), 2, device=device, dtype=dtype))
        self.assertEqual(x.device.type, "neuron")

    @onlyCUDA
    def test_of_another_device(self, device):
        raise AssertionError("runs on another device only")

    def test_that_fails(self, device):
        self.assertEqual(torch.ones(1, device=device).item(), float(device.startswith("cpu")))

    def test_that_ends_the_process(self, device):
        if device.startswith("neuron"):
            os.abort()

    def test_that_fails_everywhere(self, device):
        self.assertEqual(torch.__version__, "the version of the checkout")

    def test_that_does_not_end(self, device):
        while device.startswith("neuron"):
            pass

    def test_subtests(self, device):
        for value in (5, 1):
            with self.subTest(value=value):
                self.assertEqual(value, 5 if device.startswith("neuron") else value)

    def test_of_float64(self, device):
        x = torch.full((3,), 0.1, device=device, dtype=torch.float64)
        self.assertEqual(x * 3, torch.full((3,), 0.1, dtype=torch.float64) * 3)

    def test_gradient(self, device):
        x = torch.tensor([0.5, 2.0], device=device, dtype=torch.float64, requires_grad=True)
        self.assertTrue(gradcheck(torch.sin, (x,)))

    def test_that_exits(self, device):
        if device.startswith("neuron"):
            os._exit(0)

    def test_that_expects_an_error(self, device):
        with self.assertRaises(IndexError):
            torch.zeros(3, device=device)[torch.tensor([5], device=device)]

    @a_helper_of_other_versions(0.1)
    def test_view(self, device):
        x = torch.arange(6, device=device).view(2, 3)
        self.assertEqual(x.t().contiguous().sum().item(), 15)


class TestKernels(TestCase):
    def test_of_cpu_and_cuda(self, device):
        self.assertEqual(torch.ones(2, device=device).sum(), 2)


class TestWithoutDevices(TestCase):
    def test_nothing(self):
        raise AssertionError("is not generic")


instantiate_device_type_tests(TestSample, globals())
instantiate_device_type_tests(TestKernels, globals(), only_for=("cpu", "cuda"))

if __name__ == "__main__":
    run_tests()
