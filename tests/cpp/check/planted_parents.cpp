#include "tests/cpp/check/planted.h"

namespace planted {

const std::vector<Parent>& parents() {
  static const std::vector<Parent> kAll = {
      // load, compute, store
      {"chain", R"(
tensor "x" input fp32 [128, 64] 32768 bytes
tensor "y" output fp32 [128, 64] 32768 bytes
let A sbuf.fp32[0+128]@0{64:1}
let B sbuf.fp32[0+128]@4096{64:1}
stream sync
  dma_copy queue=0 dst=$A src0=hbm("x").fp32{8192:1} | then s16+=16
  wait s1>=1 | dma_copy queue=1 dst=hbm("y").fp32{8192:1} src0=$B | then s17+=16
  wait s17>=16 | semaphore
stream vector
  wait s16>=16 | tensor_tensor op0=add dst=$B src0=$A src1=$A | then s1+=1
)"},
      // four tiles, two buffers on both sides
      {"tiles", R"(
tensor "x" input fp32 [4, 128, 64] 131072 bytes
tensor "y" output fp32 [4, 128, 64] 131072 bytes
let A0 sbuf.fp32[0+128]@0{64:1}
let A1 sbuf.fp32[0+128]@256{64:1}
let B0 sbuf.fp32[0+128]@512{64:1}
let B1 sbuf.fp32[0+128]@768{64:1}
stream sync
  dma_copy queue=0 dst=$A0 src0=hbm("x").fp32@0{8192:1} | then s16+=16
  dma_copy queue=0 dst=$A1 src0=hbm("x").fp32@32768{8192:1} | then s16+=16
  wait s1>=1 | dma_copy queue=0 dst=$A0 src0=hbm("x").fp32@65536{8192:1} | then s16+=16
  wait s1>=2 | dma_copy queue=0 dst=$A1 src0=hbm("x").fp32@98304{8192:1} | then s16+=16
stream vector
  wait s16>=16 | tensor_scalar op0=multiply dst=$B0 src0=$A0 imm0=2 | then s1+=1
  wait s16>=32 | tensor_scalar op0=multiply dst=$B1 src0=$A1 imm0=2 | then s1+=1
  wait s16>=48, s17>=16 | tensor_scalar op0=multiply dst=$B0 src0=$A0 imm0=2 | then s1+=1
  wait s16>=64, s17>=32 | tensor_scalar op0=multiply dst=$B1 src0=$A1 imm0=2 | then s1+=1
stream scalar
  wait s1>=1 | dma_copy queue=1 dst=hbm("y").fp32@0{8192:1} src0=$B0 | then s17+=16
  wait s1>=2 | dma_copy queue=1 dst=hbm("y").fp32@32768{8192:1} src0=$B1 | then s17+=16
  wait s1>=3 | dma_copy queue=1 dst=hbm("y").fp32@65536{8192:1} src0=$B0 | then s17+=16
  wait s1>=4 | dma_copy queue=1 dst=hbm("y").fp32@98304{8192:1} src0=$B1 | then s17+=16
)"},
      // eight tiles in loops: addresses and awaited counts in registers
      {"loop", R"(
tensor "x" input fp32 [8, 128, 64] 262144 bytes
tensor "y" output fp32 [8, 128, 64] 262144 bytes
let A sbuf.fp32[0+128]@0{64:1}
let B sbuf.fp32[0+128]@4096{64:1}
stream sync
  reg_move reg_dst=r0 imm=8
  reg_move reg_dst=r1 imm=0
  reg_move reg_dst=r2 imm=0
load:
  wait s1>=r2 | dma_copy queue=0 dst=$A src0=hbm("x").fp32@0+r1{8192:1} | then s16+=16
  reg_alu reg_dst=r1 reg_a=r1 op0=add imm=32768 flags=immediate
  reg_alu reg_dst=r2 reg_a=r2 op0=add imm=1 flags=immediate
  loop reg_a=r0 target=load
stream vector
  reg_move reg_dst=r0 imm=8
  reg_move reg_dst=r1 imm=16
  reg_move reg_dst=r2 imm=0
scale:
  wait s16>=r1, s17>=r2 | tensor_scalar op0=multiply dst=$B src0=$A imm0=2 | then s1+=1
  reg_alu reg_dst=r1 reg_a=r1 op0=add imm=16 flags=immediate
  reg_alu reg_dst=r2 reg_a=r2 op0=add imm=16 flags=immediate
  loop reg_a=r0 target=scale
stream scalar
  reg_move reg_dst=r0 imm=8
  reg_move reg_dst=r1 imm=0
  reg_move reg_dst=r2 imm=1
store:
  wait s1>=r2 | dma_copy queue=1 dst=hbm("y").fp32@0+r1{8192:1} src0=$B | then s17+=16
  reg_alu reg_dst=r1 reg_a=r1 op0=add imm=32768 flags=immediate
  reg_alu reg_dst=r2 reg_a=r2 op0=add imm=1 flags=immediate
  loop reg_a=r0 target=store
)"},
      // two accumulation groups over two K tiles, then bank 0 again
      {"matmul", R"(
tensor "w" input bf16 [2, 128, 128] 65536 bytes
tensor "x" input bf16 [2, 128, 1024] 524288 bytes
tensor "y" output fp32 [3, 128, 512] 786432 bytes
let W0 sbuf.bf16[0+128]@0{128:1}
let W1 sbuf.bf16[0+128]@256{128:1}
let X0 sbuf.bf16[0+128]@512{1024:1}
let X0a sbuf.bf16[0+128]@512{512:1}
let X0b sbuf.bf16[0+128]@1536{512:1}
let X1 sbuf.bf16[0+128]@2560{1024:1}
let X1a sbuf.bf16[0+128]@2560{512:1}
let X1b sbuf.bf16[0+128]@3584{512:1}
let Y0 sbuf.fp32[0+128]@8192{512:1}
let Y1 sbuf.fp32[0+128]@10240{512:1}
let Y2 sbuf.fp32[0+128]@12288{512:1}
let P0 psum.fp32[0+128]@0{512:1}
let P1 psum.fp32[0+128]@2048{512:1}
let P2 psum.fp32[0+128]@4096{512:1}
stream sync
  dma_copy queue=0 dst=$W0 src0=hbm("w").bf16@0{16384:1} | then s16+=16
  dma_copy queue=1 dst=$X0 src0=hbm("x").bf16@0{131072:1} | then s17+=16
  dma_copy queue=0 dst=$W1 src0=hbm("w").bf16@32768{16384:1} | then s16+=16
  dma_copy queue=1 dst=$X1 src0=hbm("x").bf16@262144{131072:1} | then s17+=16
  wait s3>=1 | dma_copy queue=2 dst=hbm("y").fp32@0{65536:1} src0=$Y0 | then s18+=16
  wait s1>=1 | dma_copy queue=2 dst=hbm("y").fp32@262144{65536:1} src0=$Y1 | then s18+=16
  wait s3>=2 | dma_copy queue=2 dst=hbm("y").fp32@524288{65536:1} src0=$Y2 | then s18+=16
stream tensor
  wait s16>=16 | load_stationary src0=$W0
  wait s17>=16 | multiply_moving dst=$P0 src0=$X0a
  multiply_moving dst=$P1 src0=$X0b
  wait s16>=32 | load_stationary src0=$W1
  wait s17>=32 | multiply_moving dst=$P0 src0=$X1a flags=accumulate | then s0+=1
  multiply_moving dst=$P1 src0=$X1b flags=accumulate | then s0+=1
  wait s3>=1 | multiply_moving dst=$P0 src0=$X1a | then s0+=1
stream scalar
  wait s0>=1 | activation func=copy dst=$Y0 src0=$P0 imm0=1 imm1=0 | then s3+=1
  wait s0>=3 | activation func=copy dst=$Y2 src0=$P0 imm0=1 imm1=0 | then s3+=1
stream vector
  wait s0>=2 | copy dst=$Y1 src0=$P1 | then s1+=1
)"},
      // interleaved columns, a permuted read of four dims, and a neighbour that must stay whole
      {"strided", R"(
tensor "x" input fp32 [128, 64] 32768 bytes
tensor "c" input fp32 [128, 64] 32768 bytes
tensor "y" output fp32 [2, 128, 64] 65536 bytes
let A sbuf.fp32[0+128]@0{64:1}
let B sbuf.fp32[0+128]@256{64:1}
let C sbuf.fp32[0+128]@512{64:1}
let D sbuf.fp32[0+128]@768{64:1}
stream sync
  dma_copy queue=0 dst=$A src0=hbm("x").fp32{8192:1} | then s16+=16
  dma_copy queue=1 dst=$C src0=hbm("c").fp32{8192:1} | then s17+=16
  wait s2>=1 | dma_copy queue=2 dst=hbm("y").fp32@0{8192:1} src0=$B | then s18+=16
  wait s1>=2 | dma_copy queue=2 dst=hbm("y").fp32@32768{8192:1} src0=$D | then s18+=16
stream vector
  wait s16>=16 | tensor_scalar op0=add dst=sbuf.fp32[0+128]@256{32:2} src0=sbuf.fp32[0+128]@0{32:2} imm0=1 | then s1+=1
  wait s17>=16 | copy dst=$D src0=sbuf.fp32[0+128]@512{2:1,2:32,4:8,4:2} | then s1+=1
stream scalar
  wait s16>=16 | activation func=copy dst=sbuf.fp32[0+128]@260{32:2} src0=sbuf.fp32[0+128]@4{32:2} imm0=1 imm1=0 | then s3+=1
stream gpsimd
  wait s1>=1, s3>=1 | semaphore | then s2+=1
)"},
      // through HBM and back
      {"scratch", R"(
tensor "x" input fp32 [128, 128] 65536 bytes
tensor "t" scratch fp32 [2, 128, 128] 131072 bytes
tensor "y" output fp32 [128, 128] 65536 bytes
let A sbuf.fp32[0+128]@0{128:1}
let B sbuf.fp32[0+128]@4096{128:1}
stream sync
  dma_copy queue=0 dst=$A src0=hbm("x").fp32{16384:1} | then s16+=16
  wait s16>=16 | dma_copy queue=1 dst=hbm("t").fp32@0{16384:1} src0=$A | then s17+=16
  wait s17>=16 | dma_copy queue=0 dst=$B src0=hbm("t").fp32@0{128:1,128:128} | then s16+=16
  wait s16>=32 | dma_copy queue=1 dst=hbm("y").fp32{16384:1} src0=$B | then s17+=16
)"},
      // upper and lower partitions by two queues
      {"halves", R"(
tensor "x" input fp32 [128, 64] 32768 bytes
tensor "y" output fp32 [128, 64] 32768 bytes
let A sbuf.fp32[0+128]@0{64:1}
let B sbuf.fp32[0+128]@256{64:1}
stream sync
  dma_copy queue=0 dst=sbuf.fp32[0+64]@0{64:1} src0=hbm("x").fp32@0{4096:1} | then s16+=16
  dma_copy queue=1 dst=sbuf.fp32[64+64]@0{64:1} src0=hbm("x").fp32@16384{4096:1} | then s17+=16
  wait s1>=1 | dma_copy queue=2 dst=hbm("y").fp32{8192:1} src0=$B | then s18+=16
stream vector
  wait s16>=16, s17>=16 | tensor_tensor op0=multiply dst=$B src0=$A src1=$A | then s1+=1
)"},
      // one semaphore for three queues
      {"shared", R"(
tensor "x" input fp32 [3, 128, 64] 98304 bytes
tensor "y" output fp32 [128, 192] 98304 bytes
let A sbuf.fp32[0+128]@0{192:1}
let B sbuf.fp32[0+128]@1024{192:1}
stream sync
  dma_copy queue=0 dst=sbuf.fp32[0+128]@0{64:1} src0=hbm("x").fp32@0{8192:1} | then s20+=16
  dma_copy queue=1 dst=sbuf.fp32[0+128]@256{64:1} src0=hbm("x").fp32@32768{8192:1} | then s20+=16
  dma_copy queue=2 dst=sbuf.fp32[0+128]@512{64:1} src0=hbm("x").fp32@65536{8192:1} | then s20+=16
  wait s1>=1 | dma_copy queue=0 dst=hbm("y").fp32{24576:1} src0=$B | then s21+=16
stream vector
  wait s20>=48 | tensor_scalar op0=add dst=$B src0=$A imm0=1 | then s1+=1
)"},
      // tokens: a producer and a consumer that raise and lower two semaphores
      {"tokens", R"(
tensor "x" input fp32 [4, 128, 64] 131072 bytes
tensor "y" output fp32 [128, 64] 32768 bytes
let A0 sbuf.fp32[0+128]@0{64:1}
let A1 sbuf.fp32[0+128]@256{64:1}
let S sbuf.fp32[0+128]@512{64:1}
stream sync
  semaphore | then s5=2
  wait s5>=1 | semaphore | then s5-=1
  dma_copy queue=0 dst=$A0 src0=hbm("x").fp32@0{8192:1} | then s6+=16
  wait s5>=1 | semaphore | then s5-=1
  dma_copy queue=0 dst=$A1 src0=hbm("x").fp32@32768{8192:1} | then s6+=16
  wait s5>=1 | semaphore | then s5-=1
  dma_copy queue=0 dst=$A0 src0=hbm("x").fp32@65536{8192:1} | then s6+=16
  wait s5>=1 | semaphore | then s5-=1
  dma_copy queue=0 dst=$A1 src0=hbm("x").fp32@98304{8192:1} | then s6+=16
  wait s7>=1 | dma_copy queue=1 dst=hbm("y").fp32{8192:1} src0=$S | then s8+=16
stream vector
  memset dst=$S imm0=0
  wait s6>=16 | semaphore | then s6-=16
  tensor_tensor op0=add dst=$S src0=$S src1=$A0 | then s5+=1
  wait s6>=16 | semaphore | then s6-=16
  tensor_tensor op0=add dst=$S src0=$S src1=$A1 | then s5+=1
  wait s6>=16 | semaphore | then s6-=16
  tensor_tensor op0=add dst=$S src0=$S src1=$A0 | then s5+=1
  wait s6>=16 | semaphore | then s6-=16
  tensor_tensor op0=add dst=$S src0=$S src1=$A1 | then s5+=1
  semaphore | then s7=1
)"},
      // where(mask, a, 1), with row sums
      {"select", R"(
tensor "x" input fp32 [128, 64] 32768 bytes
tensor "m" input uint32 [128, 64] 32768 bytes
tensor "y" output fp32 [128, 64] 32768 bytes
tensor "r" output fp32 [128, 1] 512 bytes
let A sbuf.fp32[0+128]@0{64:1}
let M sbuf.uint32[0+128]@256{64:1}
let B sbuf.fp32[0+128]@512{64:1}
let E sbuf.fp32[0+128]@768{64:1}
let R sbuf.fp32[0+128]@1024{1:1}
stream sync
  dma_copy queue=0 dst=$A src0=hbm("x").fp32{8192:1} | then s16+=16
  dma_copy queue=0 dst=$M src0=hbm("m").uint32{8192:1} | then s16+=16
  wait s3>=1 | dma_copy queue=1 dst=hbm("y").fp32{8192:1} src0=$E | then s17+=16
  dma_copy queue=1 dst=hbm("r").fp32{128:1} src0=$R | then s17+=16
stream vector
  memset dst=$B imm0=1
  wait s16>=32 | copy_predicated dst=$B src0=$A src1=$M | then s1+=1
stream scalar
  wait s1>=1 | activation func=exp dst=$E src0=$B aux=$R reduce_op=add reduce=reset_reduce imm0=1 imm1=0 | then s3+=1
)"},
      // rows picked by an index, added to rows of the output
      {"rows", R"(
tensor "x" input fp32 [256, 64] 65536 bytes
tensor "i" input int32 [128, 1] 512 bytes
tensor "z" input fp32 [256, 64] 65536 bytes
tensor "y" output fp32 [256, 64] 65536 bytes
let I sbuf.int32[0+128]@0{1:1}
let G sbuf.fp32[0+128]@256{1:64,64:1}
stream sync
  dma_copy queue=0 dst=$I src0=hbm("i").int32{128:1} | then s16+=16
  dma_copy queue=1 dst=hbm("y").fp32{16384:1} src0=hbm("z").fp32{16384:1} | then s17+=16
stream gpsimd
  wait s16>=16 | dma_gather queue=2 dge=software dst=$G src0=hbm("x").fp32{256:64,64:1} src1=$I | then s18+=16
  wait s18>=16, s17>=16 | dma_scatter queue=3 dge=software op0=add dst=hbm("y").fp32{256:64,64:1} src0=$G src1=$I | then s19+=16
)"},
      // a PSUM address from a register
      {"bank", R"(
tensor "w" input bf16 [128, 128] 32768 bytes
tensor "y" output fp32 [128, 512] 262144 bytes
let W sbuf.bf16[0+128]@0{128:1}
let Y sbuf.fp32[0+128]@8192{512:1}
stream sync
  dma_copy queue=0 dst=$W src0=hbm("w").bf16{16384:1} | then s16+=16
  wait s1>=1 | dma_copy queue=1 dst=hbm("y").fp32{65536:1} src0=$Y | then s17+=16
stream tensor
  reg_move reg_dst=r3 imm=2048
  wait s16>=16 | load_stationary src0=$W
  multiply_moving dst=psum.fp32[0+128]@0+r3{512:1} src0=sbuf.bf16[0+128]@0{4:0,128:1} | then s0+=1
stream vector
  wait s0>=1 | copy dst=$Y src0=psum.fp32[0+128]@2048{512:1} | then s1+=1
)"},
      // buffers by number
      {"buffers", R"(
tensor "x" input fp32 [2, 128, 64] 65536 bytes
tensor "y" output fp32 [128, 64] 32768 bytes
stream sync
  dma_copy queue=0 dst=sbuf(#1).fp32[0+128]@0{64:1} src0=hbm("x").fp32@0{8192:1} | then s16+=16
  dma_copy queue=0 dst=sbuf(#2).fp32[0+128]@256{64:1} src0=hbm("x").fp32@32768{8192:1} | then s16+=16
  wait s1>=2 | dma_copy queue=1 dst=hbm("y").fp32{8192:1} src0=sbuf(#4).fp32[0+128]@768{64:1} | then s17+=16
stream vector
  wait s16>=32 | tensor_scalar op0=add dst=sbuf(#3).fp32[0+128]@512{64:1} src0=sbuf(#1).fp32[0+128]@0{64:1} imm0=1 | then s1+=1
  tensor_tensor op0=add dst=sbuf(#4).fp32[0+128]@768{64:1} src0=sbuf(#2).fp32[0+128]@256{64:1} src1=sbuf(#3).fp32[0+128]@512{64:1} | then s1+=1
)"},
      // three engines in a ring, twice around
      {"ring", R"(
tensor "y" output fp32 [128, 64] 32768 bytes
let A sbuf.fp32[0+128]@0{64:1}
stream vector
  memset dst=$A imm0=1 | then s1+=1
  wait s4>=1 | tensor_scalar op0=add dst=$A src0=$A imm0=1 | then s1+=1
stream scalar
  wait s1>=1 | activation func=exp dst=$A src0=$A imm0=1 imm1=0 | then s3+=1
  wait s1>=2 | activation func=exp dst=$A src0=$A imm0=1 imm1=0 | then s3+=1
stream gpsimd
  wait s3>=1 | tensor_scalar op0=add dst=$A src0=$A imm0=1 | then s4+=1
  wait s3>=2 | tensor_scalar op0=add dst=$A src0=$A imm0=1 | then s4+=1
stream sync
  wait s4>=2 | dma_copy queue=0 dst=hbm("y").fp32{8192:1} src0=$A | then s16+=16
)"},
      // a counted loop without waits inside
      {"count", R"(
tensor "y" output fp32 [128, 64] 32768 bytes
let A sbuf.fp32[0+128]@0{64:1}
stream vector
  memset dst=$A imm0=1
  reg_move reg_dst=r1 imm=10
again:
  tensor_scalar op0=multiply dst=$A src0=$A imm0=2
  reg_alu reg_dst=r1 reg_a=r1 op0=subtract imm=1 flags=immediate
  branch reg_a=r1 op0=greater imm=0 flags=immediate target=again
  semaphore | then s1+=1
stream sync
  wait s1>=1 | dma_copy queue=0 dst=hbm("y").fp32{8192:1} src0=$A | then s16+=16
)"},
      // eight transfers on one queue, at most four at once
      {"queue", R"(
tensor "x" input fp32 [8, 128, 16] 65536 bytes
tensor "y" output fp32 [128, 128] 65536 bytes
let A sbuf.fp32[0+128]@0{128:1}
stream sync
  reg_move reg_dst=r0 imm=8
  reg_move reg_dst=r1 imm=0
  reg_move reg_dst=r2 imm=-48
  reg_move reg_dst=r3 imm=0
load:
  wait s16>=r2 | dma_copy queue=0 dst=sbuf.fp32[0+128]@0+r3{16:1} src0=hbm("x").fp32@0+r1{2048:1} | then s16+=16
  reg_alu reg_dst=r1 reg_a=r1 op0=add imm=8192 flags=immediate
  reg_alu reg_dst=r2 reg_a=r2 op0=add imm=16 flags=immediate
  reg_alu reg_dst=r3 reg_a=r3 op0=add imm=64 flags=immediate
  loop reg_a=r0 target=load
  wait s16>=128 | dma_copy queue=1 dst=hbm("y").fp32{16384:1} src0=$A | then s17+=16
)"},
      // two cores: through HBM behind a barrier, then an exchange, behind which the first core writes again
      {"pair", R"(cores 2
tensor "t" scratch fp32 [128, 64] 32768 bytes
tensor "y" output fp32 [128, 64] 32768 bytes
let A sbuf.fp32[0+128]@0{64:1}
let B sbuf.fp32[0+128]@256{64:1}
stream vector
  memset dst=$A imm0=1 | then s1+=1
stream sync
  wait s1>=1 | dma_copy queue=0 dst=hbm("t").fp32{8192:1} src0=$A | then s16+=16
  wait s16>=16 | core_barrier src0=hbm("t").fp32{8192:1}
  send_recv queue=1 count=1 imm=3 dst=$B src0=$A | then s17+=16
  wait s17>=16 | dma_copy queue=0 dst=hbm("t").fp32{8192:1} src0=$B | then s16+=16
core 1
stream sync
  core_barrier src0=hbm("t").fp32{8192:1}
  dma_copy queue=0 dst=$A src0=hbm("t").fp32{8192:1} | then s16+=16
  wait s16>=16 | send_recv queue=1 count=0 imm=3 dst=$B src0=$A | then s17+=16
  wait s17>=16 | dma_copy queue=0 dst=hbm("y").fp32{8192:1} src0=$B | then s16+=16
)"},
  };
  return kAll;
}

}  // namespace planted
