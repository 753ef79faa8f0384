#include "kernels.hpp"

#include "append.cu"
#include "bandwidth.cu"
#include "cascade.cu"
#include "compare_keys.cu"
#include "copy_blocks.cu"
#include "decode.cu"
#include "extend.cu"
#include "merge.cu"
#include "selftest.cu"

#define KERNEL(name, Args) {#name, name##_threads, sizeof(Args), [](const void* a) { name(*(const Args*)a); }}
#define TYPED(name, Args) \
  KERNEL(name##_bf16_d64, Args), KERNEL(name##_bf16_d128, Args), KERNEL(name##_f16_d64, Args), KERNEL(name##_f16_d128, Args)

static const Kernel kernels[] = {
    KERNEL(rk_append, RkAppendArgs),  KERNEL(rk_compare_keys, RkCompareArgs), KERNEL(rk_copy_blocks, RkCopyArgs),
    KERNEL(rk_read, RkBandwidthArgs), KERNEL(rk_copy, RkBandwidthArgs),       KERNEL(rk_empty, RkBandwidthArgs),
    KERNEL(rk_selftest, RkSelftestArgs), TYPED(rk_decode, RkDecodeArgs),      TYPED(rk_extend, RkTileArgs),
    TYPED(rk_cascade, RkTileArgs),    TYPED(rk_merge, RkMergeArgs),
};

const Kernel* find_kernel(const std::string& name) {
  for (const Kernel& k : kernels)
    if (k.name == name) return &k;
  return nullptr;
}
