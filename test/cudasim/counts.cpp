/*
 * Counts what kernels do (counts.h). The other files call the functions count_*; each does nothing
 * unless launches are counted.
 *
 * Distinct sectors. A sector has a stamp for the last block, cluster and launch that touched it.
 * Blocks, clusters and launches have numbers that never return, so a stamp that is not the running
 * one's own means that the sector is new to it:
 *
 *     touched[sector] = { read by block, cluster, launch | written by cluster, launch }
 *
 * Phases. At a barrier over the grid every block waits for the slowest. So what a thread or a block
 * does at most is taken for each phase between two such barriers, and the phases are added. A
 * launch without such barriers is one phase.
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

enum { CLUSTER = 48 };
static const int64_t BUDGET = 300000;

struct touched {
    uint32_t block, cluster, launch, writing_cluster, writing_launch;
};

/* A thread of the running block, since its phase began. */
struct counted_thread {
    int64_t rounds, stored_rounds, early_rounds, loads, mma, mma_steps, wgmma;
    int64_t matrix_bytes, waits;
    /* since its last stop; the same of labelled memory; since it last waited for blocks */
    bool has_loaded, has_loaded_stored, has_released;
    bool has_waited;                        /* for the kernel before */
    std::vector<const void *> accumulators; /* of its mma's that need not wait for each other */

    void stop() { has_loaded = has_loaded_stored = false; }
};

/* A block that runs. */
struct counted_block {
    std::vector<counted_thread> threads;
    uint32_t number, cluster;
    size_t phase;
    int64_t barriers; /* since its phase began */
    bool writes;
};

/* The most that a thread or a block does in a phase. */
struct counted_phase {
    int64_t rounds, stored_rounds, early_rounds, loads, barriers, mma, mma_steps, wgmma;
    int64_t matrix_bytes;
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
static cudasim_launch *now;  /* NULL: no launch is counted */
static counted_block *block; /* the one of `residents` that runs */
static std::vector<counted_block> residents;
static std::vector<counted_phase> phases; /* of the launch */
static uint32_t block_number, cluster_number, launch_number;
static int64_t accesses, last_cluster;
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
    const dim3 &grid = launch.shape.grid, &size = launch.shape.block;
    const size_t at_once = launch.shape.cooperative ? (size_t)grid.x * grid.y * grid.z
                                                    : launch.shape.cluster;

    now = NULL;
    if (!counting || mode == CUDASIM_COUNT_NOTHING)
        return !counting;
    launches.emplace_back();
    now = &launches.back();
    *now = cudasim_launch();
    snprintf(now->name, sizeof now->name, "%s", launch.name);
    const uint32_t sizes[6] = {grid.x, grid.y, grid.z, size.x, size.y, size.z};
    memcpy(now->grid, sizes, 3 * sizeof sizes[0]);
    memcpy(now->block, sizes + 3, 3 * sizeof sizes[0]);
    now->blocks = (int64_t)grid.x * grid.y * grid.z;
    now->is_dependent = launch.overlaps;
    residents.assign(at_once, counted_block());
    for (counted_block &b : residents)
        b.threads.resize((size_t)size.x * size.y * size.z);
    phases.assign(1, counted_phase());
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

/* One cluster cannot tell what all blocks share from what is its own. */
bool count_is_enough(uint64_t i)
{
    return now && mode == CUDASIM_COUNT_SAMPLE && now->grid[1] * now->grid[2] == 1 &&
           i >= 2 * CLUSTER && i % CLUSTER == 0 && accesses >= BUDGET;
}

void count_block_begin(size_t resident, uint64_t number)
{
    if (!now)
        return;
    if ((int64_t)(number / CLUSTER) != last_cluster)
        cluster_number++;
    last_cluster = (int64_t)(number / CLUSTER);
    count_block_resumes(resident);
    block->number = ++block_number;
    block->cluster = cluster_number;
    block->phase = 0;
    block->barriers = 0;
    block->writes = false;
    block->threads.assign(block->threads.size(), counted_thread());
}

void count_block_resumes(size_t resident)
{
    if (now)
        block = &residents[resident];
}

/* The running block has come to the end of its phase. */
static void end_phase()
{
    if (block->phase == phases.size())
        phases.push_back(counted_phase());
    counted_phase &most = phases[block->phase++];
    int64_t waits = 0;
    for (counted_thread &t : block->threads) {
        most.rounds = std::max(most.rounds, t.rounds);
        most.stored_rounds = std::max(most.stored_rounds, t.stored_rounds);
        most.early_rounds = std::max(most.early_rounds, t.early_rounds);
        most.loads = std::max(most.loads, t.loads);
        most.mma = std::max(most.mma, t.mma);
        most.mma_steps = std::max(most.mma_steps, t.mma_steps);
        most.wgmma = std::max(most.wgmma, t.wgmma);
        most.matrix_bytes = std::max(most.matrix_bytes, t.matrix_bytes);
        waits = std::max(waits, t.waits);
        t.rounds = t.stored_rounds = t.early_rounds = t.loads = t.mma = t.mma_steps = t.wgmma = 0;
        t.matrix_bytes = t.waits = 0;
        t.stop();
    }
    most.barriers = std::max(most.barriers, block->barriers + waits);
    block->barriers = 0;
}

void count_block_end(size_t resident, size_t shared)
{
    if (!now)
        return;
    count_block_resumes(resident);
    end_phase();
    now->ran++;
    now->busy += block->writes;
    now->shared = std::max(now->shared, (int64_t)shared);
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
    now->grid_barriers = (int64_t)phases.size() - 1;
    for (const counted_phase &phase : phases) {
        now->rounds += phase.rounds;
        now->stored_rounds += phase.stored_rounds;
        now->early_rounds += phase.early_rounds;
        now->loads += phase.loads;
        now->barriers += phase.barriers;
        now->mma += phase.mma;
        now->mma_steps += phase.mma_steps;
        now->wgmma += phase.wgmma;
        now->matrix_bytes += phase.matrix_bytes;
    }
    for (int i = 0; i < CUDASIM_LABELS; i++) {
        cudasim_traffic &t = now->of[i];
        for (int64_t *sum : {&t.read, &t.written, &t.copied, &t.block_sectors, &t.early_sectors})
            scale(*sum);
        t.sectors_read = scaled_distinct(t.sectors_read, cluster_reads[i], factor);
        t.sectors_written = scaled_distinct(t.sectors_written, cluster_writes[i], factor);
    }
    now = NULL;
}

/* ------------------------------------------------------------------ what threads do */

static counted_thread &me() { return block->threads[running_index]; }

static void read_sector(touched &s, int label, bool is_early)
{
    cudasim_traffic &t = now->of[label];

    t.block_sectors += s.block != block->number;
    t.early_sectors += is_early && s.block != block->number;
    cluster_reads[label] += s.cluster != block->cluster;
    t.sectors_read += s.launch != launch_number;
    s.block = block->number;
    s.cluster = block->cluster;
    s.launch = launch_number;
}

static void write_sector(touched &s, int label)
{
    cluster_writes[label] += s.writing_cluster != block->cluster;
    now->of[label].sectors_written += s.writing_launch != launch_number;
    s.writing_cluster = block->cluster;
    s.writing_launch = launch_number;
}

/* Counts bytes of device memory. Returns their label, or -1 for other memory. */
static int count_bytes(uintptr_t address, size_t bytes, bool is_write, bool is_early)
{
    if (address - base >= region_bytes)
        return -1;
    const int label = label_of(address);
    cudasim_traffic &t = now->of[label];

    accesses++;
    (is_write ? t.written : t.read) += (int64_t)bytes;
    for (uintptr_t at = address / CUDASIM_SECTOR; at * CUDASIM_SECTOR < address + bytes; at++) {
        touched &s = sectors[at - base / CUDASIM_SECTOR];
        is_write ? write_sector(s, label) : read_sector(s, label, is_early);
    }
    return label;
}

void count_access(uintptr_t address, size_t bytes, bool is_write)
{
    if (!now)
        return;
    counted_thread &t = me();
    const int label = count_bytes(address, bytes, is_write, now->is_dependent && !t.has_waited);
    if (label < 0)
        return;
    if (is_write) {
        block->writes = true;
        return t.stop();
    }
    t.loads++;
    t.rounds += !t.has_loaded;
    t.has_loaded = true;
    t.stored_rounds += label > 0 && !t.has_loaded_stored;
    t.has_loaded_stored |= label > 0;
}

bool count_copy(const void *from, size_t bytes)
{
    if (!now)
        return counting;
    const int label = count_bytes(reinterpret_cast<uintptr_t>(from), bytes, false, false);
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

/* A warp's sixteen rows of A, and its quarter of B, which the four warps read together; 32 bytes of
 * each row. */
bool count_wgmma(int tiles)
{
    if (now && running_index % 32 == 0) {
        me().wgmma += tiles;
        me().matrix_bytes += (16 + 8 * tiles / 4) * 32;
    }
    return counting;
}

void count_matrices(int n)
{
    if (now && running_index % 32 == 0)
        me().matrix_bytes += n * 128;
}

void count_waited_for_previous()
{
    if (!now || !now->is_dependent)
        return;
    me().early_rounds += me().rounds;
    me().rounds = me().stored_rounds = 0;
    me().has_waited = true;
    me().stop();
}

void count_stop()
{
    if (now)
        me().stop();
}

void count_barrier()
{
    if (!now)
        return;
    block->barriers++;
    for (counted_thread &t : block->threads)
        t.stop();
}

void count_wait()
{
    if (now)
        me().waits++;
}

/* A thread that has told the others and then looks for their answer is at a barrier of the grid;
 * the other threads of its block wait for it. */
void count_release()
{
    if (now)
        me().has_released = true;
}

void count_acquire()
{
    if (!now)
        return;
    if (me().has_released)
        end_phase();
    me().has_released = false;
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
