// The ring of stages in shared memory between the warp that copies and the warpgroups that multiply.
#pragma once
#include "cuda/ptx/tensor_copy.cuh"

namespace lowbit::cuda {

// A stage, and the parity of the current lap.
template <int Stages>
struct RingPlace {
    int stage = 0;
    uint32_t parity = 0;

    __device__ void advance() {
        if (++stage == Stages) stage = 0, parity ^= 1;
    }
    __device__ void advance(int count) {
        const int moved = stage + count;
        parity ^= uint32_t(moved / Stages) & 1;
        stage = moved % Stages;
    }
};

// full[s]:  complete with the bytes of the copies into stage s, and an arrival of every thread of this block that brings something.
// empty[s]: an arrival of every multiplying warp, of all blocks of the cluster that copy into this one's stages.
template <int Stages>
struct Ring {
    ptx::Barrier full[Stages], empty[Stages];

    __device__ void initialise(int copying, int multiplying) {
        for (int s = 0; s < Stages; ++s) ptx::init_barrier(full + s, copying), ptx::init_barrier(empty + s, multiplying);
    }
    __device__ void wait_empty(RingPlace<Stages> at) { ptx::wait_for(empty + at.stage, at.parity ^ 1); }
    __device__ void wait_full(RingPlace<Stages> at) { ptx::wait_for(full + at.stage, at.parity); }
    // By all lanes of a warp that will not read the stage again.
    template <int Cluster>
    __device__ void release(RingPlace<Stages> at) {
        const uint32_t lane = threadIdx.x % 32;
        if constexpr (Cluster == 1) {
            if (lane == 0) ptx::arrive(empty + at.stage);
        } else {
            if (lane < Cluster) ptx::arrive_in_block(empty + at.stage, lane);
        }
    }
};

// Two warpgroups run their main loops in turn. For more than speed: one that waited for a stage two laps ahead would take the parity of the
// lap before for its own.
struct Turns {
    ptx::Barrier turn[2];

    __device__ void initialise() {
        for (ptx::Barrier& t : turn) ptx::init_barrier(&t, 4);
    }
    // `round` counts a group's turns; the first one of group 0 is free.
    __device__ void wait(int group, uint32_t round) { ptx::wait_for(turn + group, (round ^ uint32_t(group == 0)) & 1); }
    __device__ void pass(int group) {
        if (threadIdx.x % 32 == 0) ptx::arrive(turn + (1 - group));
    }
};

}  // namespace lowbit::cuda
