// Trains a small classifier on the device without Python: LibTorch, and the plugin that a C++ program loads itself.
// Usage: train PATH/libtrnsim_torch.so
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cmath>
#include <cstdio>
#include <vector>

namespace {

struct Result {
  double first_loss, last_loss, accuracy;
};

// Two spirals, and a network of two layers that tells them apart. The same numbers for every device.
Result train(const c10::Device& device) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(0);
  const auto random = [&](at::IntArrayRef sizes, double scale) {
    return at::randn(sizes, generator) * scale;
  };

  const at::Tensor t = at::arange(0, 100) / 100.0 * 6.0 + 0.5;
  const at::Tensor arm = at::stack({t * at::cos(t), t * at::sin(t)}, 1) / 6.0;
  const at::Tensor x = at::cat({arm, -arm}).to(device);
  const at::Tensor zeros = at::zeros({100}, at::kLong);
  const at::Tensor y = at::cat({zeros, at::ones_like(zeros)}).to(device);

  std::vector<at::Tensor> parameters = {random({32, 2}, 1.0), random({32}, 1.0), random({2, 32}, 0.3),
                                        at::zeros({2})};
  std::vector<at::Tensor> momenta;
  for (at::Tensor& p : parameters) {
    p = p.to(device).requires_grad_();
    momenta.push_back(at::zeros_like(p));
  }
  const auto forward = [&] {
    const at::Tensor hidden = at::linear(x * 2.0, parameters[0], parameters[1]).sin();
    return at::linear(hidden, parameters[2], parameters[3]);
  };

  Result result{};
  constexpr int kSteps = 60;
  for (int step = 0; step < kSteps; ++step) {
    const at::Tensor loss = at::cross_entropy_loss(forward(), y);
    loss.backward();
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters.size(); ++i) {
      momenta[i].mul_(0.9).add_(parameters[i].grad());
      parameters[i].sub_(momenta[i], 0.1);
      parameters[i].mutable_grad().zero_();
    }
    if (step == 0) result.first_loss = loss.item<double>();
    if (step == kSteps - 1) result.last_loss = loss.item<double>();
  }
  const at::NoGradGuard no_grad;
  result.accuracy = forward().argmax(1).eq(y).to(at::kFloat).mean().item<double>();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: train PATH/libtrnsim_torch.so\n");
    return 2;
  }
  if (dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::fprintf(stderr, "cannot load the device: %s\n", dlerror());
    return 2;
  }
  try {
    const Result cpu = train(c10::Device("cpu")), neuron = train(c10::Device("neuron"));
    for (const auto& [name, r] : {std::pair{"cpu", cpu}, std::pair{"neuron", neuron}})
      std::printf("%-7s loss %.4f -> %.4f, accuracy %.3f\n", name, r.first_loss, r.last_loss, r.accuracy);
    const bool learned = neuron.last_loss < 0.5 * neuron.first_loss;
    return learned && std::abs(neuron.last_loss - cpu.last_loss) < 1e-3 ? 0 : 1;
  } catch (const c10::Error& e) {
    std::fprintf(stderr, "%s\n", e.what_without_backtrace());
    return 1;
  }
}
