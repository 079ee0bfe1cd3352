/*
 * The barrier of a cluster of blocks, by the PTX ISA ("Parallel Synchronization and Communication
 * Instructions: barrier.cluster").
 *
 * A phase ends when all threads of all blocks of the cluster have arrived. Threads of a block that
 * has ended are not waited for. The blocks of one cluster are on the device at a time, so there is
 * one barrier. check.cpp keeps what each block had done when it arrived.
 */
#include "sim.h"

#include <vector>

namespace cudasim
{

/* A block's threads at the barrier. */
struct arrivals {
    std::vector<bool> arrived; /* [threads]: and not waited */
    std::vector<uint32_t> at;  /* the phase in which it last arrived */
    unsigned in_phase;         /* how many have arrived in this phase */
};

static std::vector<arrivals> blocks;
static unsigned n_threads, n_blocks, arrived;
static uint32_t phase;

void cluster_begin(size_t resident, unsigned threads)
{
    n_blocks = (unsigned)resident;
    if (n_blocks == 0)
        return;
    blocks.assign(resident,
                  arrivals{std::vector<bool>(threads), std::vector<uint32_t>(threads), 0});
    n_threads = threads;
    arrived = 0;
    phase = 0;
}

static void end_phase_if_complete()
{
    if (arrived < n_blocks * n_threads || n_blocks == 0)
        return;
    for (arrivals &b : blocks)
        b.in_phase = 0;
    arrived = 0;
    phase++;
    moves++;
}

void cluster_block_end()
{
    if (n_blocks == 0)
        return;
    arrivals &mine = blocks[running_block()];
    n_blocks--;
    arrived -= mine.in_phase;
    mine.in_phase = 0;
    end_phase_if_complete();
}

void cluster_arrive()
{
    unwatched books;

    if (n_blocks == 0)
        fault("it arrives at the barrier of a cluster, and the launch has none");
    arrivals &mine = blocks[running_block()];
    if (mine.arrived[running_index])
        fault("it arrives at the cluster's barrier twice and has not waited between");
    mine.arrived[running_index] = true;
    mine.at[running_index] = phase;
    mine.in_phase++;
    arrived++;
    check_cluster_arrive(phase);
    end_phase_if_complete();
}

bool cluster_test()
{
    arrivals &mine = blocks[running_block()];

    if (n_blocks == 0 || !mine.arrived[running_index])
        fault("it waits at the cluster's barrier and has not arrived there");
    if (mine.at[running_index] == phase)
        return false;
    mine.arrived[running_index] = false;
    check_cluster_waited(mine.at[running_index]);
    count_wait();
    return true;
}

} // namespace cudasim
