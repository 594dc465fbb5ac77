"""Why a test of PyTorch fails for a reason outside of the device: what tools/upstream counts as "explained".

(pattern of "file::Class::test", pattern of the failure's message, reason), the first that fits. A test that fails on
the CPU of the installed PyTorch as well, or passes in another mode of the device, needs no row: the runner finds out.
"""

REASONS: list[tuple[str, str, str]] = [
    # ---- what the hardware does not have, and the device says so
    ("", r"not simulated: .*(sparse tensors|layout Sparse)", "the device has no sparse tensors"),
    ("", r"not simulated: .*quantized tensors", "the device has no quantized tensors"),
    ("", r"not simulated: .*nested tensors", "the device has no nested tensors"),
    (
        "float8|test_(cat|fill)_all_dtypes_and_devices",
        r"illegal on hardware: .*[Ff](loat|p)8",
        "float8 types that the chip of the run does not compute",
    ),
    # ---- numbers
    ("float64|complex128", r"(Tensor-likes|Scalars) are not close", "float64 is computed as float32"),
    (
        r"test_gradient_(all|extreme)|test_gather_backward_deterministic|test_index_reduce_reduce_(mean|prod).*16$",
        "Tensor-likes are not",
        "rounds in another order than the CPU, inside a difference of large numbers or a sum of halves",
    ),
    ("test_clip_grad_norm_error_if_nonfinite", "of order 2.0 .* is non-finite", "float64 is computed as float32"),
    ("test_conv3d_vs_scipy", "Mismatched elements: 1 / ", "rounds sums of hundreds in another order than the CPU"),
    ("test_addr_float_and_complex_neuron_float16", r"difference: 0\.00\d+ at", "rounds once, NumPy every product, too"),
    ("test_forward_nn_CTCLoss", "Expected inf", "the test's reference needs float64: it multiplies probabilities"),
    (
        "test_grad(grad)?_nn_(RNN|Transformer)",
        "Jacobian mismatch",
        "the step of float32 crosses a kink of ReLU (test_second_derivatives.py compares with float64)",
    ),
    ("test_random_from_to_neuron_u?int32", r"tensor\(False", "float64 is computed as float32, which has no 2^31 - 1"),
    ("test_uniform_from_to_neuron_float64", r"tensor\(False", "float64 is computed as float32, which has no 2^1023"),
    ("test_linspace_vs_numpy_neuron_complex128", "False_ is not true", "float64 is computed as float32"),
    ("test_nextafter_neuron_float64", "Tensor-likes are not equal", "float64 is computed as float32"),
    (r"float_power_neuron_(u?int\d+|complex64)", "are not close", "float64 is computed as float32, which is its type"),
    ("test_copy_r_to_c", "False is not true", "the one warning of float64 as float32"),
    # ---- what belongs to one other device
    ("", r"map2?_ is only implemented on CPU", "the operator exists on the CPU only"),
    ("", r"module 'torch\._C' has no attribute '_(broadcast|scatter|gather)", "the CPU build of PyTorch lacks it"),
    ("test_tensor_storage_type", r"None is not <class 'torch\.\w+Storage'>", "asks for a class of the CPU by name"),
    ("test_grad_scaling_state_dict", "False is not true", "asks for torch.FloatTensor, a class of the CPU"),
    (
        "test_grad_scaler_deprecated_warning",
        r"torch\.neuron\.amp\.GradScaler.* does not match .*torch\.cpu\.amp",
        "makes the scaler of the CPU, and waits for this device's name in its warning",
    ),
    ("test_lazy_clone|test_parallel_cow", "storage != nullptr", "copy-on-write storage, private to PyTorch"),
    ("test_nondeterministic_alert", "not triggered", "what may vary on CUDA has one order here: no alert"),
    ("test_upsamplingBiMode2d_nonsupported_dtypes.*uint8", "not raised", "computes uint8, which CUDA refuses"),
    ("test_transformerencoderlayer_", "False is not true", "takes PyTorch's fast path for one of CPU and CUDA"),
    (
        r"test_expanded_weights.*::test_Linear(_no_bias)?_neuron",
        "'NoneType' object has no attribute 'clone'",
        "runs on the CPU, on an input that the test before it has changed",
    ),
    ("test_errors_nn_Embedding", "two devices", "the test leaves weights on the CPU: told before a wrong type"),
    (
        "test_fmod_remainder_by_zero_integral",
        "ZeroDivisionError",
        "integers are divided by zero: an error, as on the CPU, and no pattern of bits",
    ),
    (
        "test_reference_numerics_extremal_values_(_refs_)?sub_neuron_complex(64|128)",
        "Tensor-likes are not close",
        "the test's reference multiplies infinities by a complex alpha of 1, which makes NaN of them",
    ),
    ("small_values_(_refs_)?gcd_neuron_int8", "Unexpected success", "right where the CPU is not: gcd of -128"),
    ("test_shift_mem_overlap", "lshift_cpu", "refuses shifts of floats, before it looks at memory"),
    ("test_memory_format_nn_GroupNorm", "False is not true", "autograd lays its gradients out in rows but on the CPU"),
    ("test_addbmm_neuron_bfloat16", "not raised", "waits for the error of a CUDA device without bfloat16"),
    ("test__int4_mm_m", "_convert_weight_to_int4pack' with .* 'CPU'", "weights in the order of one other device"),
    ("test_compile_int4_mm_m", "InductorError: KeyError: 'neuron'", "asks Inductor, which has no code for this device"),
    (
        "errors_and_warnings_neuron_complex128",
        r"Scalars are not equal!\s+Expected \d but got \d\.",
        "the one warning that complex factorizations run on the host",
    ),
    # ---- functions of elements, sums and sorting
    ("test_ref_extremal_values_(masked_)?mean.*complex", "inf", "the CPU divides by a complex number of elements"),
    ("test_bucketization", "Tensor-likes are not equal", "asks for places in rows that are not sorted"),
    ("test_unique_dim", "Tensor-likes are not close", "NaN has no place in the order of rows; here it is the last"),
    ("test_stable_sort_against_numpy", "found at least two devices", "fills at indices of another device"),
    (
        "test_float_to_int_conversion_finite_neuron_int(8|32)",
        r"Mismatched elements: 1 / 9 .*\n.* at index \(8,\)",
        "the largest float32 as an integer: the device takes the nearest of 32 bits, C++ leaves it open",
    ),
    ("test_randperm", "Tensor-likes are not equal", "fork_rng without device_type keeps the state of CUDA alone"),
    ("test_scatter_reduce_(prod|mean|sum)", "Tensor-likes are not equal", "rounds in another order than the CPU"),
    ("test_get_supported_dtypes", "device_type in", "knows the CPU and CUDA only"),
    ("test_conv_backend_slow", "_ConvBackend", "asks for the names of the CPU's algorithms"),
]
