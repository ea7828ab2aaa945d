// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Copies between global and shared memory by the multiprocessor's copy engine (compute capability
// 9.0 and later): no registers and no threads are held while the bytes travel. Addresses and sizes
// are multiples of 16 bytes.
#ifndef SOK_CUDA_BULK_COPY_CUH_
#define SOK_CUDA_BULK_COPY_CUH_

#include <cstdint>

namespace sok::cuda::bulk {

// Counts the bytes of reads that have arrived, phase by phase.
using Barrier = std::uint64_t;

__device__ __forceinline__ std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// One thread does this, then all of the block synchronise.
__device__ __forceinline__ void create(Barrier* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;"
               :
               : "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}

// Opens a phase in which `bytes` arrive: one thread, before the reads are started.
__device__ __forceinline__ void expect(Barrier* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void wait(Barrier* barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
        "p; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  }
}

__device__ __forceinline__ void read(void* shared, const void* global, std::uint32_t bytes,
                                     Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(shared_address(shared)), "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// What ordinary stores of this thread wrote to shared memory may be written out, once the thread
// that starts the write has synchronised with it.
__device__ __forceinline__ void publish_stores() {
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}

// Of what is in the caches these bytes leave first: an output is read once, rows again and again.
__device__ __forceinline__ void write_out(void* global, const void* shared, std::uint32_t bytes) {
  asm volatile(
      "{ .reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, policy;\n"
      "cp.async.bulk.commit_group; }"
      :
      : "l"(global), "r"(shared_address(shared)), "r"(bytes)
      : "memory");
}

// Waits until all writes that this thread started but the last `Left` have read their shared
// memory.
template <int Left>
__device__ __forceinline__ void wait_written() {
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(Left) : "memory");
}

}  // namespace sok::cuda::bulk

#endif  // SOK_CUDA_BULK_COPY_CUH_
