/*
 * Counts what kernels do (counts.h). The other files call the functions count_*; each does nothing
 * unless launches are counted.
 *
 * Distinct sectors. A sector has a stamp for the last block, cluster and launch that touched it.
 * Blocks, clusters and launches have numbers that never return, so a stamp that is not the running
 * one's own means that the sector is new to it:
 *
 *     touched[sector] = { read by block, cluster, launch | written by cluster, launch }
 */
#include "counts.h"

#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>
#include <vector>

namespace cudasim
{

enum { THREADS = 1024, CLUSTER = 12 };
static const int64_t BUDGET = 300000;

struct touched {
    uint32_t block, cluster, launch, writing_cluster, writing_launch;
};

/* A thread of the running block. */
struct counted_thread {
    int64_t rounds, loads, mma, mma_steps;
    bool has_loaded;                        /* since its last stop */
    std::vector<const void *> accumulators; /* of its mma's that need not wait for each other */
};

struct label_range {
    size_t bytes;
    int label;
};

bool counting;
static cudasim_counting mode;
static std::vector<cudasim_launch> launches;
static std::map<uintptr_t, label_range> labels;
static int next_label;
static uintptr_t base, region_bytes;
static touched *sectors;
static counted_thread threads[THREADS];
static cudasim_launch *now; /* NULL: no launch is counted */
static uint32_t block_number, cluster_number, launch_number;
static int64_t accesses, barriers, last_cluster;
static bool writes;
/* Sums over the sampled clusters of their distinct sectors; over the blocks that ran. */
static int64_t cluster_reads[CUDASIM_LABELS], cluster_writes[CUDASIM_LABELS];

/* ------------------------------------------------------------------ labels */

void count_device_region(const void *at, size_t bytes)
{
    if (!counting)
        return;
    void *map = mmap(NULL, bytes / CUDASIM_SECTOR * sizeof(touched), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        perror("cudasim: mmap");
        exit(2);
    }
    sectors = static_cast<touched *>(map);
    base = reinterpret_cast<uintptr_t>(at);
    region_bytes = bytes;
}

bool count_alloc(void *dev, size_t bytes)
{
    if (!counting)
        return false;
    cudasim_label(dev, bytes, next_label);
    memset(dev, 0, bytes <= (size_t)64 << 20 ? bytes : 0);
    return true;
}

static int label_of(uintptr_t address)
{
    auto next = labels.upper_bound(address);

    if (next == labels.begin())
        return 0;
    --next;
    return address - next->first < next->second.bytes ? next->second.label : 0;
}

/* ------------------------------------------------------------------ launches and blocks */

bool count_grid_begin(const grid_launch &launch)
{
    const dim3 &grid = launch.shape.grid, &block = launch.shape.block;

    now = NULL;
    if (!counting || mode == CUDASIM_COUNT_NOTHING)
        return !counting;
    launches.emplace_back();
    now = &launches.back();
    *now = cudasim_launch();
    snprintf(now->name, sizeof now->name, "%s", launch.name);
    const uint32_t sizes[6] = {grid.x, grid.y, grid.z, block.x, block.y, block.z};
    memcpy(now->grid, sizes, 3 * sizeof sizes[0]);
    memcpy(now->block, sizes + 3, 3 * sizeof sizes[0]);
    now->blocks = (int64_t)grid.x * grid.y * grid.z;
    launch_number++;
    accesses = 0;
    last_cluster = -1;
    memset(cluster_reads, 0, sizeof cluster_reads);
    memset(cluster_writes, 0, sizeof cluster_writes);
    return true;
}

/* Clusters are taken in steps of nearly 0.618 of their number, which spreads any first few of them
 * evenly; the last cluster, which may be short, comes last. */
uint64_t count_choose(uint64_t i, uint64_t blocks)
{
    const uint64_t clusters = (blocks - 1) / CLUSTER, cluster = i / CLUSTER;
    uint64_t step = clusters * 618 / 1000 + 1;

    if (cluster == clusters)
        return i;
    while (std::__gcd(step, clusters) != 1)
        step++;
    return cluster * step % clusters * CLUSTER + i % CLUSTER;
}

bool count_is_enough(uint64_t i)
{
    return now && mode == CUDASIM_COUNT_SAMPLE && i % CLUSTER == 0 && accesses >= BUDGET;
}

void count_block_begin(uint64_t block)
{
    if (!now)
        return;
    block_number++;
    if ((int64_t)(block / CLUSTER) != last_cluster)
        cluster_number++;
    last_cluster = (int64_t)(block / CLUSTER);
    barriers = 0;
    writes = false;
    for (counted_thread &t : threads) {
        t.rounds = t.loads = t.mma = t.mma_steps = 0;
        t.has_loaded = false;
        t.accumulators.clear();
    }
}

void count_block_end(size_t shared)
{
    if (!now)
        return;
    now->ran++;
    now->busy += writes;
    now->shared = std::max(now->shared, (int64_t)shared);
    now->barriers = std::max(now->barriers, barriers);
    for (const counted_thread &t : threads) {
        now->rounds = std::max(now->rounds, t.rounds);
        now->loads = std::max(now->loads, t.loads);
        now->mma = std::max(now->mma, t.mma);
        now->mma_steps = std::max(now->mma_steps, t.mma_steps);
    }
}

/* Distinct sectors of the grid, of those seen in all and those of each cluster, summed. */
static int64_t scaled_distinct(int64_t seen, int64_t of_clusters, double factor)
{
    return seen * 10 > of_clusters * 9 ? (int64_t)((double)seen * factor + 0.5) : seen;
}

void count_grid_end()
{
    if (!now)
        return;
    const double factor = now->ran > 0 ? (double)now->blocks / (double)now->ran : 1.0;
    auto scale = [factor](int64_t &n) { n = (int64_t)((double)n * factor + 0.5); };

    scale(now->busy);
    for (int i = 0; i < CUDASIM_LABELS; i++) {
        cudasim_traffic &t = now->of[i];
        for (int64_t *sum : {&t.read, &t.written, &t.copied, &t.block_sectors})
            scale(*sum);
        t.sectors_read = scaled_distinct(t.sectors_read, cluster_reads[i], factor);
        t.sectors_written = scaled_distinct(t.sectors_written, cluster_writes[i], factor);
    }
    now = NULL;
}

/* ------------------------------------------------------------------ what threads do */

static counted_thread &me() { return threads[running_index]; }

static void read_sector(touched &s, int label)
{
    cudasim_traffic &t = now->of[label];

    t.block_sectors += s.block != block_number;
    cluster_reads[label] += s.cluster != cluster_number;
    t.sectors_read += s.launch != launch_number;
    s.block = block_number;
    s.cluster = cluster_number;
    s.launch = launch_number;
}

static void write_sector(touched &s, int label)
{
    cluster_writes[label] += s.writing_cluster != cluster_number;
    now->of[label].sectors_written += s.writing_launch != launch_number;
    s.writing_cluster = cluster_number;
    s.writing_launch = launch_number;
}

/* Counts bytes of device memory. Returns their label, or -1 for other memory. */
static int count_bytes(uintptr_t address, size_t bytes, bool is_write)
{
    if (address - base >= region_bytes)
        return -1;
    const int label = label_of(address);
    cudasim_traffic &t = now->of[label];

    accesses++;
    (is_write ? t.written : t.read) += (int64_t)bytes;
    for (uintptr_t at = address / CUDASIM_SECTOR; at * CUDASIM_SECTOR < address + bytes; at++) {
        touched &s = sectors[at - base / CUDASIM_SECTOR];
        is_write ? write_sector(s, label) : read_sector(s, label);
    }
    return label;
}

void count_access(uintptr_t address, size_t bytes, bool is_write)
{
    if (!now || count_bytes(address, bytes, is_write) < 0)
        return;
    if (is_write) {
        writes = true;
        me().has_loaded = false;
        return;
    }
    me().loads++;
    me().rounds += !me().has_loaded;
    me().has_loaded = true;
}

bool count_copy(const void *from, size_t bytes)
{
    if (!now)
        return counting;
    const int label = count_bytes(reinterpret_cast<uintptr_t>(from), bytes, false);
    if (label >= 0)
        now->of[label].copied += (int64_t)bytes;
    return true;
}

/* Lane 0 speaks for its warp. */
bool count_mma(const void *accumulator)
{
    if (!now || running_index % 32 != 0)
        return counting;
    std::vector<const void *> &group = me().accumulators;

    me().mma++;
    if (std::find(group.begin(), group.end(), accumulator) != group.end())
        group.clear();
    me().mma_steps += group.empty();
    group.push_back(accumulator);
    return true;
}

void count_stop()
{
    if (now)
        me().has_loaded = false;
}

void count_barrier()
{
    if (!now)
        return;
    barriers++;
    for (counted_thread &t : threads)
        t.has_loaded = false;
}

} // namespace cudasim

extern "C" {

void cudasim_count(enum cudasim_counting how)
{
    CUDASIM_LOCK;
    cudasim::counting = how != CUDASIM_COUNT_OFF;
    cudasim::mode = how;
    cudasim::checking = cudasim::checking && !cudasim::counting;
    cudasim::launches.clear();
}

size_t cudasim_counted(const struct cudasim_launch **first)
{
    CUDASIM_LOCK;
    *first = cudasim::launches.data();
    return cudasim::launches.size();
}

void cudasim_label_next(int label) { cudasim::next_label = label; }

void cudasim_label(const void *dev, size_t bytes, int label)
{
    CUDASIM_LOCK;
    const uintptr_t from = reinterpret_cast<uintptr_t>(dev);
    auto &all = cudasim::labels; /* what was there before is forgotten */
    all.erase(all.lower_bound(from), all.lower_bound(from + bytes));
    all[from] = cudasim::label_range{bytes, label};
}
}
