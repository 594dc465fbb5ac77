"""What is left behind by a program that failed."""

AFTER_A_FAULT = """
import torch
table = torch.zeros(4, 8, device="neuron")
y = torch.nn.functional.embedding(torch.tensor([1, 400], device="neuron"), table)
later = y + 1
for _ in range(2):
    try:
        torch.neuron.synchronize()
        print("silent")
    except IndexError as e:
        print("raised")
print(bool(y.isnan().all()), bool(later.isnan().all()), table.sum().item())
kept = torch.ones(3, device="neuron")
try:
    kept.index_add_(0, torch.tensor([0, 9], device="neuron"), torch.ones(2, device="neuron"))
    torch.neuron.synchronize()
except IndexError:
    print(bool(kept.isnan().any()))
"""


def test_results_of_a_failed_program_never_read_as_values(run_python):
    """The error is raised once; its results are NaN from then on, and so is what is computed from them."""
    out = run_python(AFTER_A_FAULT).stdout.split("\n")
    assert out[:4] == ["raised", "silent", "True True 0.0", "False"]
