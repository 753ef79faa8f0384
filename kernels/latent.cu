// latent: attention of one new token per sequence over paged latent vectors (MLA, absorbed). A
// block of threads takes one item of the plan.
#include "plat.cuh"
#include "latent.cuh"

#define RK_LATENT(name, M, BF16) \
  RK_KERNEL(rk_latent_##name, 128 * M, 2 / M)(const RkDecodeArgs a) { attend_latents<M, BF16>(a); }
RK_LATENTS(RK_LATENT)
