// Sums of one tile that several have a part of: teams of a block, blocks that share out K, blocks that halve it. What belongs to another is
// sent to its shared memory, where the ring was; everyone adds up what is its own, in a fixed order.
#pragma once
#include "cuda/hopper/store.cuh"

namespace lowbit::cuda {

// Of Groups warpgroups that multiply, each with Blocks blocks of 64 rows and all tokens; GroupsPerTile of them make a tile, or a team.
// Together: how many neighbouring units a pass of the store takes.
template <class Sum, int Blocks, int Tokens, int Groups, int GroupsPerTile, int Together = 1>
class HopperExchange {
    using Sums = Sum[Blocks][Tokens / 2];
    static constexpr int teams = Groups / GroupsPerTile;
    // Teams and splits share out a warpgroup's results by units.
    static constexpr int units = Blocks * Tokens / store_pass_tokens, unit_sums = store_pass_tokens / 2;
    static constexpr int unit_bytes = unit_sums * 128 * 4;
    __host__ __device__ static constexpr int units_held(int splits) { return (units / Together + splits - 1) / splits * Together; }

public:
    // The units of a block come from all others, and must find room.
    static constexpr int bytes_held(int splits) { return (splits - 1) * Groups * units_held(splits) * unit_bytes; }
    static constexpr int most_splits(int room_bytes) {
        int splits = 1;
        while (splits < hopper_most_splits && bytes_held(splits + 1) <= room_bytes) ++splits;
        return splits;
    }

    // Which units of the results are this team's: there, the sums are those of both. `name`: of a barrier of all Groups.
    __device__ static uint32_t add_teams(int name, void* room, int group, Sums& sums) {
        static_assert(teams == 1 || units % teams == 0);
        constexpr int held = units / teams * (unit_sums / 4 * 128);
        const int team = group / GroupsPerTile, partner = (group + GroupsPerTile) % Groups;
        uint4* parts = of_thread(room);
        ptx::meet_warps(name, Groups * 128);  // all have done with the ring
        uint32_t mine = 0;
#pragma unroll
        for (int unit = 0; unit < units; ++unit) {
            if (unit % teams == team) {
                mine |= 1u << unit;
                continue;
            }
#pragma unroll
            for (int i = 0; i < unit_sums; i += 4)
                parts[group * held + (unit / teams * unit_sums + i) / 4 * 128] = four_sums(sums, unit, i);
        }
        ptx::meet_warps(name, Groups * 128);
#pragma unroll
        for (int unit = 0; unit < units; ++unit) {
            if (unit % teams != team) continue;
#pragma unroll
            for (int i = 0; i < unit_sums; i += 4)
                add_four(sums, unit, i, parts[partner * held + (unit / teams * unit_sums + i) / 4 * 128]);
        }
        return mine;
    }

    // Of those units of the results that are this warpgroup's, those that are this block's: there, the sums are those of all K, which the
    // `splits` blocks of the cluster have shared out.
    __device__ static uint32_t add_splits(int splits, void* room, int group, Sums& sums, uint32_t units_here) {
        const int me = int(ptx::block_in_cluster()), held = units_held(splits);
        // Blocks take turns over all of a tile's units, so that all get as many.
        const int first_unit = group % GroupsPerTile * units;
        uint4* parts = of_thread(room);
        // Where a block keeps what another one sent of a unit.
        const auto place = [&](int from, int owner, int unit) {
            const int slot = from < owner ? from : from - 1;
            return parts + ((slot * Groups + group) * held + unit / Together / splits * Together + unit % Together) * (unit_sums / 4 * 128);
        };
        ptx::meet_cluster();  // all have done with their rings
#pragma unroll
        for (int unit = 0; unit < units; ++unit) {
            const int owner = (first_unit + unit) / Together % splits;
            if (owner == me || !(units_here >> unit & 1)) continue;
            const uint32_t to = ptx::address_in_block(place(me, owner, unit), uint32_t(owner));
#pragma unroll
            for (int i = 0; i < unit_sums; i += 4) ptx::store_in_block(to + uint32_t(i / 4 * 128 * 16), four_sums(sums, unit, i));
        }
        ptx::meet_cluster();
        uint32_t mine = 0;
#pragma unroll
        for (int unit = 0; unit < units; ++unit) {
            if ((first_unit + unit) / Together % splits != me || !(units_here >> unit & 1)) continue;
            mine |= 1u << unit;
#pragma unroll 1
            for (int from = 0; from < splits; ++from) {
                if (from == me) continue;
                const uint4* theirs = place(from, me, unit);
#pragma unroll
                for (int i = 0; i < unit_sums; i += 4) add_four(sums, unit, i, theirs[i / 4 * 128]);
            }
        }
        return mine;
    }

private:
    // Sums on their way: four of a thread next to those of its neighbours.
    __device__ static uint4* of_thread(void* room) { return static_cast<uint4*>(room) + threadIdx.x % 128; }
    __device__ static Sum& sum_of(Sums& sums, int unit, int i) {
        return sums[unit * unit_sums / (Tokens / 2)][unit * unit_sums % (Tokens / 2) + i];
    }
    __device__ static uint4 four_sums(Sums& sums, int unit, int first) {
        const auto word = [&](int i) { return reinterpret_cast<const uint32_t&>(sum_of(sums, unit, first + i)); };
        return make_uint4(word(0), word(1), word(2), word(3));
    }
    __device__ static void add_four(Sums& sums, int unit, int first, const uint4& four) {
        const uint32_t words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) sum_of(sums, unit, first + i) += reinterpret_cast<const Sum&>(words[i]);
    }
};

}  // namespace lowbit::cuda
