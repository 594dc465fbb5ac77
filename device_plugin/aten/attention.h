// The operators of attention that the compiler knows under names of its own: trnsim::attention and
// trnsim::attention_backward. PyTorch's scaled_dot_product_attention reaches them where they can serve it.
#pragma once

namespace trnsim::aten {

// Declares their schemas and result shapes; before register_lowered_ops gives them kernels.
void define_attention();

}  // namespace trnsim::aten
