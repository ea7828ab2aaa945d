// Copyright 2026 The SOK Authors.
// SPDX-License-Identifier: Apache-2.0
//
// Numbers that were chosen by measurement; benchmarks/gpu tells what they are worth.
#ifndef SOK_CUDA_TUNING_H_
#define SOK_CUDA_TUNING_H_

#include <cstdint>

namespace sok::cuda::tuning {

// Threads of a block in kernels that are bound by memory latency.
constexpr int kBlock = 256;

// Warps that keep one of the larger devices busy: twice the 64 that each of 132 multiprocessors
// holds. Work is cut finer while there are fewer units than that.
constexpr int kBusyWarps = 2 * 132 * 64;

// Features, or tables, whose descriptors are parameters of a launch: they are copied at every launch,
// so that more of them are better read from device memory.
constexpr int kItemsInParameters = 32;

// The lookup: threads of a block, and for 1 and 4 vectors a lane the blocks of a multiprocessor,
// which decide about registers, and rows in flight.
constexpr int kLookupBlock = 128;
constexpr int lookup_blocks(int vectors) { return vectors == 1 ? 7 : 4; }
constexpr int rows_in_flight(int vectors) { return vectors == 1 ? 8 : 2; }
// The same where an id of the warp has no row: a call stands between them then. Two would make such
// lookups a tenth faster, but all others 2 to 5 % slower, for their registers are spilled.
constexpr int kRowsBesideMissing = 1;

// Ids that a lane of it finds one after the other, while there are as many warps as keep the device
// busy: fewer than elsewhere, for each has several rows in flight.
constexpr int kLookupRounds = 2;
constexpr int kLookupBusyWarps = 132 * 16;

// The ring of a warp that copies rows through shared memory: stages, and bytes of a stage. With so
// many warps a block and blocks a multiprocessor it fills a Hopper's 228 KB.
constexpr int kCopyStages = 4;
constexpr int kCopyStage = 4096;
constexpr int kCopyWarps = 7;
constexpr int kCopyBlocks = 2;
constexpr int kCopyBusyWarps = 132 * kCopyBlocks * kCopyWarps;
constexpr int kCopyFrom = 512;  // bytes of a row: for shorter ones loads are as fast

// Ids of a warp of singles_kernel, if there are too few for all warps to have 32.
constexpr int kFewestSinglesAWarp = 16;

// Contributions of one row that one tile adds up alone. More are added up by blocks, of which each
// takes so many at most.
constexpr int kAlone = 64;
constexpr int kPiece = 512;

// Of segments_kernel: contributions of a row that are on their way at a time, and blocks of a
// multiprocessor.
constexpr std::uint32_t kContributionsAhead = 4;
constexpr int kSegmentsBlocks = 4;

// Rows with several contributions that a warp updates at most: few, for there are few of them.
constexpr int kSegmentsAWarp = 8;

}  // namespace sok::cuda::tuning

#endif  // SOK_CUDA_TUNING_H_
