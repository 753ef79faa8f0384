#include "kernels.hpp"

#include "append.cu"
#include "bandwidth.cu"
#include "cascade.cu"
#include "compare_keys.cu"
#include "copy_blocks.cu"
#include "decode.cu"
#include "extend.cu"
#include "latent.cu"
#include "merge.cu"
#include "selftest.cu"

#define KERNEL(name, Args) {#name, name##_threads, sizeof(Args), [](const void* a) { name(*(const Args*)a); }}
#define OF_DECODE(name, D, V, K) KERNEL(rk_decode_##name, RkDecodeArgs),
#define OF_PAIR(name, D, V, K) KERNEL(rk_decode_##name##_pair, RkDecodeArgs),
#define OF_EXTEND(name, D, V, K) KERNEL(rk_extend_##name, RkTileArgs),
#define OF_CASCADE(name, D, V, K) KERNEL(rk_cascade_##name, RkTileArgs),
#define OF_LATENT(name, M, BF16) KERNEL(rk_latent_##name, RkDecodeArgs),
#define OF_MERGE(name, V, BF16) KERNEL(rk_merge_##name, RkMergeArgs),

static const Kernel kernels[] = {
    KERNEL(rk_append, RkAppendArgs),  KERNEL(rk_compare_keys, RkCompareArgs), KERNEL(rk_copy_blocks, RkCopyArgs),
    KERNEL(rk_read, RkBandwidthArgs), KERNEL(rk_copy, RkBandwidthArgs),       KERNEL(rk_empty, RkBandwidthArgs),
    KERNEL(rk_append_i8, RkAppendArgs), KERNEL(rk_append_e4m3, RkAppendArgs), KERNEL(rk_selftest, RkSelftestArgs),
    RK_VARIANTS(OF_DECODE) RK_PAIRS(OF_PAIR) RK_VARIANTS(OF_EXTEND) RK_VARIANTS(OF_CASCADE) RK_LATENTS(OF_LATENT) RK_MERGES(OF_MERGE)
};

const Kernel* find_kernel(const std::string& name) {
  for (const Kernel& k : kernels)
    if (k.name == name) return &k;
  return nullptr;
}
