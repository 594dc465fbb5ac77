// Trial runs of an operator on tensors that stand in for those of the device: they give the metadata of results, and
// the errors a user would get from PyTorch, in PyTorch's own words.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/util/Exception.h>

#include <vector>

#include "device_plugin/aten/call.h"

namespace trnsim::aten {

// Metadata of the results. Throws what PyTorch says about a wrong call, and c10::NotImplementedError when it has no
// shape function for this one. The arguments `outs` are out= tensors: the shape function sees them without elements, so
// that it gives them new sizes without a warning, which it words in its own way.
std::vector<at::Tensor> meta_results(const c10::OperatorHandle& op, const Call& call, const c10::Stack& stack,
                                     size_t begin, c10::ArrayRef<int16_t> outs = {});

// What the out= form would give without out=; none, when PyTorch has no shape function for that.
std::vector<at::Tensor> fresh_results(const Overload& overload, const Call& call, const c10::Stack& stack,
                                      size_t begin);

// The layout of results in an out= tensor that gets new sizes is that of fresh ones, but for many operators PyTorch's shape
// function makes it contiguous.
void lay_out_as_fresh(std::vector<at::Tensor>& results, const Overload& overload, const Call& call,
                      const c10::Stack& stack, size_t begin);

// Shape functions check less than kernels: this runs the CPU's kernel on neutral values of the same shapes, types and
// overlaps, and throws what it complains about. Large tensors are stood in for by small ones, and only complaints about
// types count then. False: the CPU was not asked, or not about all of it.
// `suspected`: something has already refused the call, only the words are missing. `resizing`: takes what the kernel
// warns of new sizes for out= tensors.
bool check_as_cpu(const c10::OperatorHandle& op, const Overload& overload, const Call& call,
                  const c10::Stack& stack, size_t begin, bool suspected,
                  std::vector<c10::Warning>* resizing = nullptr);

}  // namespace trnsim::aten
