// Scaled dot-product attention in SBUF and PSUM.
#include "device_plugin/compiler/tilers/tilers.h"

namespace trnsim::compiler {

void tile_attention(const AttentionKernel&, const KernelContext&, TileBuilder&) {
  throw_unsupported("the attention kernel has no tiler; write it as products and a softmax");
}

void tile_attention_grad(const AttentionGradKernel&, const KernelContext&, TileBuilder&) {
  throw_unsupported("the attention gradient kernel has no tiler; write it as products and a softmax");
}

}  // namespace trnsim::compiler
