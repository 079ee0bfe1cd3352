/*
 * Watches the loads and stores of kernels.
 *
 * With -fsanitize=thread the compiler calls __tsan_read4(address) and the like before each access
 * that another thread could see. This file defines these functions, with checks of its own. For
 * every two bytes of device and shared memory there is a cell with the last store and the last
 * load:
 *
 *     stamp:  epoch (37 bits) | warp step (16 bits) | thread (11 bits)
 *     writer: 0 not allocated, 1 never written, else a stamp
 *
 * The epoch counts barriers, blocks and grids and never goes back, so a stamp tells whether an
 * access happened between the same two barriers, in an earlier block of this grid, or in another
 * grid. Blocks that are there at once have an epoch each, and `owner` says whose an epoch is.
 *
 * Such blocks order their accesses by a word that one adds to with release and another reads with
 * acquire. Each block has a clock: for every block, up to where its accesses are known to have
 * happened. A release leaves the clock at the word, and an acquire takes it over (the vector clocks
 * of race detectors, with blocks instead of threads). Blocks of a cluster order them by its
 * barrier, too.
 */
#include "sim.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <vector>

namespace cudasim
{

struct cell {
    uint64_t writer, reader;
};

enum {
    MAX_WARPS = 32,
    ID_BITS = 11,
    STEP_BITS = 16,
    HOST_EPOCH = 1,
    ID_MANY = 2047,
    ID_ASYNC = 2046,
    PHASE_BITS = 10,
    ID_WARP = 1024
};

/* For each block, the end of what has happened for sure: its epochs before this one, and in this
 * one the accesses of the thread that released (epoch << ID_BITS | thread). */
typedef std::vector<uint64_t> block_clock;

/* What the warps of a block had done when they arrived at the barrier of a cluster in some phase. A
 * warp that has waited for a phase arrives for the next but one only when all have waited for the
 * next, so KEPT_PHASES of these are never needed again before they are overwritten. */
enum { KEPT_PHASES = 4 };
struct cluster_arrival {
    uint64_t epoch[MAX_WARPS], step[MAX_WARPS];
    uint32_t phase[MAX_WARPS]; /* and 1 */
    uint32_t ended[MBARRIERS];
};

/* A block that is on the device. */
struct block_books {
    uint64_t epoch, first_epoch;
    uint64_t step[MAX_WARPS];             /* of each warp, since the barrier */
    std::bitset<1024> waited;             /* threads that know that the kernel before has ended */
    uint64_t synced[MAX_WARPS];           /* its step after the last __syncwarp */
    uint64_t order[MAX_WARPS][MAX_WARPS]; /* [a][b]: steps of b that have happened before what a
                                             does */
    uint32_t ended[MAX_WARPS][MBARRIERS]; /* phases that the warp knows to have ended */
    /* the latest epoch of all, at each thread's async_fence; [true]: for shared memory */
    uint64_t fenced_at[2][1024];
    bool uses_mbarriers;
    block_clock clock; /* [blocks at once] */
    /* what each warp had done when it arrived at the cluster's barrier, in the last phases; and how
     * many phases it has waited for */
    struct cluster_arrival arrivals[KEPT_PHASES];
    uint32_t phases_waited[MAX_WARPS];
};

bool checking;
static uintptr_t device_base, shared_base, args_base;
static size_t device_bytes, shared_bytes, args_bytes;
static uintptr_t own_base; /* of the running device's part of that memory */
static size_t own_bytes;
static cell *device_cells, *shared_cells;
static uint64_t epoch = HOST_EPOCH + 1; /* the latest */
static uint64_t grid_epoch;
static std::vector<block_books> books;
static block_books *mine;         /* of the block that runs */
static std::vector<size_t> owner; /* of each epoch from grid_epoch on, where blocks are there at
                                     once */
static std::map<const void *, block_clock> released;
static bool fenced;
static int pauses;

/* The kernels that may still run while a thread has not waited for the one before: those from this
 * epoch on. grid_epoch: none. */
static uint64_t open_epoch;
static bool overlapping, has_waited, lets_next_begin_early;

/* ------------------------------------------------------------------ calls of the simulator */

static void next_epoch()
{
    mine->epoch = ++epoch;
    memset(mine->step, 0, sizeof mine->step);
    memset(mine->synced, 0, sizeof mine->synced);
    if (mine->uses_mbarriers)
        memset(mine->order, 0, sizeof mine->order);
    if (books.size() > 1) {
        owner.resize(epoch - grid_epoch, 0);
        owner.push_back((size_t)(mine - books.data()));
    }
}

void check_grid_begin(const void *args, size_t bytes, size_t resident, bool overlaps)
{
    const uint64_t before = overlaps && lets_next_begin_early ? open_epoch : grid_epoch;

    grid_epoch = ++epoch;
    open_epoch = overlaps ? before : grid_epoch;
    overlapping = overlaps;
    has_waited = lets_next_begin_early = false;
    args_base = reinterpret_cast<uintptr_t>(args);
    args_bytes = bytes;
    own_base = device_base + (size_t)running_device * device_share();
    own_bytes = device_bytes > 0 ? device_share() : 0;
    fenced = false;
    pauses = 0;
    owner.clear();
    released.clear();
    books.resize(resident);
}

void check_block_begin(size_t resident)
{
    mine = &books[resident];
    next_epoch();
    if (mine->uses_mbarriers) /* of the block before */
        memset(mine->ended, 0, sizeof mine->ended);
    mine->uses_mbarriers = false;
    mine->first_epoch = mine->epoch;
    mine->waited.reset();
    mine->clock.assign(books.size(), 0);
    memset(mine->arrivals, 0, sizeof mine->arrivals);
    memset(mine->phases_waited, 0, sizeof mine->phases_waited);
}

void check_block_resumes(size_t resident) { mine = &books[resident]; }

/* Threads that take no part are ordered with the others, too, but for what they know of mbarriers:
 * an epoch is the whole block's. */
void check_block_barrier(unsigned threads)
{
    const int warps = (int)(threads + 31) / 32;

    next_epoch();
    count_barrier();
    if (mine->waited.any())
        mine->waited.set();
    for (int m = 0; m < MBARRIERS && mine->uses_mbarriers; m++) {
        uint32_t most = 0;
        for (int w = 0; w < warps; w++)
            most = std::max(most, mine->ended[w][m]);
        for (int w = 0; w < warps; w++)
            mine->ended[w][m] = most;
    }
    const uint32_t most = *std::max_element(mine->phases_waited, mine->phases_waited + MAX_WARPS);
    std::fill(mine->phases_waited, mine->phases_waited + MAX_WARPS, most);
}
void check_warp_sync(unsigned warp)
{
    mine->synced[warp] = ++mine->step[warp];
    for (unsigned t = 32 * warp; overlapping && t < 32 * (warp + 1); t++)
        if (mine->waited.test(t))
            for (unsigned i = 0; i < 32; i++)
                mine->waited.set(32 * warp + i);
}
void check_fence() { fenced = true; }
void check_grid_end() { epoch++; }

void check_waited_for_previous()
{
    mine->waited.set(running_index);
    has_waited = true;
}

bool check_has_waited() { return has_waited; }

/* A block that lets the next kernel begin before it has itself waited for the one before. */
void launch_next() { lets_next_begin_early |= overlapping && !mine->waited.test(running_index); }

/* The word at `at` knows what the running thread's block knows. */
static void leave_clock(const void *at)
{
    block_clock &clock = released[at];
    block_clock own = mine->clock;

    own[(size_t)(mine - books.data())] = mine->epoch << ID_BITS | running_index;
    clock.resize(own.size());
    for (size_t b = 0; b < own.size(); b++)
        clock[b] = std::max(clock[b], own[b]);
}

static void take_clock(const void *at)
{
    auto word = released.find(at);

    for (size_t b = 0; word != released.end() && b < mine->clock.size(); b++)
        mine->clock[b] = std::max(mine->clock[b], word->second[b]);
}

void note_release(const void *at)
{
    count_release();
    leave_clock(at);
}

void note_acquire(const void *at)
{
    count_acquire();
    take_clock(at);
}

/* Blocks that run one after the other have no clocks: the grid is taken for ordered, as with a
 * __threadfence. */
void note_acq_rel(const void *at)
{
    leave_clock(at);
    take_clock(at);
    fenced |= books.size() == 1;
}

void check_arrive(warps_known *known)
{
    const unsigned warp = running_index / 32;

    mine->uses_mbarriers = true;
    mine->order[warp][warp] = ++mine->step[warp];
    if (known->epoch != mine->epoch)
        memset(known->step, 0, sizeof known->step);
    known->epoch = mine->epoch;
    for (int w = 0; w < MAX_WARPS; w++)
        known->step[w] = std::max(known->step[w], mine->order[warp][w]);
    for (int m = 0; m < MBARRIERS; m++)
        known->ended[m] = std::max(known->ended[m], mine->ended[warp][m]);
}

void check_waited(const warps_known &known, unsigned mbarrier, uint32_t ended)
{
    const unsigned warp = running_index / 32;

    mine->uses_mbarriers = true;
    for (int w = 0; w < MAX_WARPS && known.epoch == mine->epoch; w++)
        mine->order[warp][w] = std::max(mine->order[warp][w], known.step[w]);
    for (int m = 0; m < MBARRIERS; m++)
        mine->ended[warp][m] = std::max(mine->ended[warp][m], known.ended[m]);
    mine->ended[warp][mbarrier] = std::max(mine->ended[warp][mbarrier], ended);
}

void check_cluster_arrive(uint32_t phase)
{
    const unsigned warp = running_index / 32;
    cluster_arrival &now = mine->arrivals[phase % KEPT_PHASES];

    mine->uses_mbarriers = true;
    now.epoch[warp] = mine->epoch;
    now.step[warp] = mine->order[warp][warp] = ++mine->step[warp];
    /* what the warp knows now: a lane that has gone on may know more when the next one comes */
    for (int m = 0; m < MBARRIERS && now.phase[warp] != phase + 1; m++)
        now.ended[m] = std::max(now.ended[m], mine->ended[warp][m]);
    now.phase[warp] = phase + 1;
}

void check_cluster_waited(uint32_t phase)
{
    const unsigned warp = running_index / 32;
    const cluster_arrival &then = mine->arrivals[phase % KEPT_PHASES];

    mine->phases_waited[warp] = phase + 1;
    for (int w = 0; w < MAX_WARPS; w++)
        if (then.epoch[w] == mine->epoch)
            mine->order[warp][w] = std::max(mine->order[warp][w], then.step[w]);
    if (then.epoch[warp] == mine->epoch)
        mine->synced[warp] = std::max(mine->synced[warp], then.step[warp]);
    for (int m = 0; m < MBARRIERS; m++)
        mine->ended[warp][m] = std::max(mine->ended[warp][m], then.ended[m]);
}

/* What the running warp knows of another block of its cluster, or NULL. */
static const cluster_arrival *known_of(const block_books &other)
{
    const uint32_t waited = mine->phases_waited[running_index / 32];

    return waited > 0 ? &other.arrivals[(waited - 1) % KEPT_PHASES] : NULL;
}

/* Whether what that warp of the block did then came before it arrived. */
static bool is_before(const cluster_arrival *arrival, unsigned warp, uint64_t then, uint64_t step)
{
    return arrival && warp < MAX_WARPS &&
           (then < arrival->epoch[warp] ||
            (then == arrival->epoch[warp] && step < arrival->step[warp]));
}

void async_fence(bool of_shared) { mine->fenced_at[of_shared][running_index] = epoch; }

moment check_now() { return moment{running_index, mine->epoch, mine->step[running_index / 32]}; }

bool check_has_happened(const moment &then)
{
    const unsigned warp = then.thread / 32, my_warp = running_index / 32;

    return then.epoch != mine->epoch || warp == my_warp || then.step < mine->order[my_warp][warp];
}

bool check_is_fenced(const moment &then)
{
    return mine->fenced_at[true][then.thread] >= then.epoch ||
           mine->fenced_at[true][running_index] >= then.epoch;
}

static cell *map_cells(size_t bytes_watched)
{
    void *at = mmap(NULL, bytes_watched / 2 * sizeof(cell), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        perror("cudasim: mmap");
        exit(2);
    }
    return static_cast<cell *>(at);
}

static void set_cells(cell *first, size_t bytes, uint64_t writer)
{
    for (size_t i = 0; i < (bytes + 1) / 2; i++)
        first[i] = cell{writer, 0};
}

void check_shared_region(const void *arenas, size_t bytes)
{
    shared_base = reinterpret_cast<uintptr_t>(arenas);
    shared_bytes = bytes;
    if (checking)
        shared_cells = map_cells(bytes + 2);
}

void check_shared(const void *arena, size_t bytes)
{
    if (checking)
        set_cells(shared_cells + (reinterpret_cast<uintptr_t>(arena) - shared_base) / 2, bytes,
                  MEMORY_NONE);
}

void check_shared_array(const void *array, size_t bytes)
{
    if (checking)
        set_cells(shared_cells + (reinterpret_cast<uintptr_t>(array) - shared_base) / 2, bytes,
                  MEMORY_FRESH);
}

void check_device_region(const void *base, size_t bytes)
{
    device_base = reinterpret_cast<uintptr_t>(base);
    device_bytes = bytes;
    count_device_region(base, bytes);
    if (checking)
        device_cells = map_cells(bytes);
}

void check_device(const void *at, size_t bytes, memory_state state)
{
    uint64_t writer = state == MEMORY_WRITTEN ? (uint64_t)HOST_EPOCH << (ID_BITS + STEP_BITS)
                                              : (uint64_t)state;
    if (checking && bytes > 0)
        set_cells(device_cells + (reinterpret_cast<uintptr_t>(at) - device_base) / 2, bytes,
                  writer);
}

/* ------------------------------------------------------------------ one access */

static uint64_t stamp_of(unsigned id)
{
    uint64_t warp_step = mine->step[running_index / 32] & ((1u << STEP_BITS) - 1);
    return mine->epoch << (ID_BITS + STEP_BITS) | warp_step << ID_BITS | id;
}

/* Whether an access of another block that is there at once, of that epoch and thread in that step
 * of its warp, has happened before what the running block does now. */
static bool happened(uint64_t then, unsigned id, uint64_t step)
{
    const size_t other = owner[then - grid_epoch];
    const uint64_t until = mine->clock[other];
    const unsigned warp = id >= ID_WARP ? id - ID_WARP : id / 32;

    if (then < books[other].first_epoch) /* a block that was there before that one */
        return false;
    return &books[other] == mine || then < until >> ID_BITS || (then << ID_BITS | id) == until ||
           is_before(known_of(books[other]), warp, then, step);
}

/* Whether a bulk copy's bytes, by their stamp, may still be on their way, as far as the running
 * warp knows. */
static bool may_be_coming(uint64_t stamp)
{
    const unsigned of = stamp >> ID_BITS & ((1u << STEP_BITS) - 1),
                   phase = of & ((1u << PHASE_BITS) - 1);
    const uint32_t ended = mine->ended[running_index / 32][of >> PHASE_BITS];

    return ((ended - phase - 1) & ((1u << PHASE_BITS) - 1)) >= 1u << (PHASE_BITS - 1);
}

/* Whether an access of the running block in this epoch, by that thread or warp in that step of its
 * warp, has happened before what the running thread does now. */
static bool is_ordered(unsigned id, uint64_t then_step)
{
    const unsigned me = running_index, warp = id >= ID_WARP ? id - ID_WARP : id / 32;

    if (id == ID_MANY)
        return false;
    if (warp == me / 32)
        return id == me || then_step < mine->synced[warp];
    return then_step < mine->order[me / 32][warp];
}

/* How an access races with what the running thread does now. */
enum race {
    RACE_NONE,
    RACE_IN_BLOCK, /* no barrier is between them */
    RACE_OF_BLOCKS,
    RACE_OF_KERNELS, /* a kernel made it that may still run */
    RACE_OF_COPY     /* bytes of a bulk copy that may not have come */
};

static enum race races(uint64_t stamp, bool is_shared)
{
    const uint64_t then = stamp >> (ID_BITS + STEP_BITS);
    const uint64_t step = stamp >> ID_BITS & ((1u << STEP_BITS) - 1);
    const unsigned id = stamp & ((1u << ID_BITS) - 1), me = running_index;

    if (id == ID_ASYNC)
        return may_be_coming(stamp) ? RACE_OF_COPY : RACE_NONE;
    if (then == mine->epoch)
        return is_ordered(id, step) ? RACE_NONE : RACE_IN_BLOCK;
    if (is_shared)
        return RACE_NONE;
    if (then < grid_epoch)
        return then >= open_epoch && !mine->waited.test(me) ? RACE_OF_KERNELS : RACE_NONE;
    if (fenced || (books.size() > 1 ? happened(then, id, step) : then >= mine->first_epoch))
        return RACE_NONE;
    return RACE_OF_BLOCKS;
}

/* Who has read here, for a load's stamp: this thread, or its warp or everybody if others have read
 * here and nothing has ordered their loads since. Where warps meet at mbarriers it is the last
 * reader alone, because the stamp cannot tell for everybody how far each has come. */
static unsigned reader_id(uint64_t stamp, bool is_shared)
{
    const unsigned id = stamp & ((1u << ID_BITS) - 1), me = running_index, my_warp = me / 32;

    if (mine->uses_mbarriers || races(stamp, is_shared) != RACE_IN_BLOCK)
        return me;
    if (id == ID_WARP + my_warp || (id < ID_WARP && id / 32 == my_warp))
        return ID_WARP + my_warp;
    return ID_MANY;
}

static void report_race(uintptr_t address, bool is_write, uint64_t stamp, const char *other,
                        enum race kind)
{
    const unsigned id = stamp & ((1u << ID_BITS) - 1);
    const char *does = is_write ? "writes" : "reads";
    char who[40];

    if (kind == RACE_OF_KERNELS)
        return fault("it %s %#lx, %s by a kernel that may still run: it has not waited for that",
                     does, (unsigned long)address, other);
    if (kind == RACE_OF_COPY)
        return fault("it %s %#lx, where a bulk copy's bytes come: it has not waited for them", does,
                     (unsigned long)address);
    snprintf(who, sizeof who, id >= ID_WARP ? "several threads" : "thread %u", id);
    fault("race: it %s %#lx, %s by %s of %s", does, (unsigned long)address, other, who,
          kind == RACE_OF_BLOCKS ? "another block of the grid"
                                 : "the block with no barrier between");
}

/* Faults if the running thread may not read (or write) this cell now. */
static void check_cell(const cell &c, uintptr_t address, size_t bytes, bool is_write,
                       bool is_shared)
{
    enum race kind;

    if (c.writer == MEMORY_NONE)
        fault("it %s %zu bytes at %#lx, outside every %s", is_write ? "writes" : "reads", bytes,
              (unsigned long)address, is_shared ? "shared array" : "device allocation");
    if (!is_write && c.writer == MEMORY_FRESH)
        fault("it reads %zu bytes of %s memory at %#lx that nothing has written", bytes,
              is_shared ? "shared" : "device", (unsigned long)address);
    if ((kind = races(c.writer, is_shared)) != RACE_NONE)
        report_race(address, is_write, c.writer, "written", kind);
    if (is_write && (kind = races(c.reader, is_shared)) != RACE_NONE)
        report_race(address, is_write, c.reader, "read", kind);
}

/* Makes each of n cells what `changed` says for the cell and its number. Most cells of an access
 * are like the one before them, and what was found out for that one holds for them. */
template <typename F>
static inline void change_cells(cell *c, size_t n, F changed)
{
    cell was = {}, now = {};

    for (size_t i = 0; i < n; i++) {
        if (i == 0 || c[i].writer != was.writer || c[i].reader != was.reader) {
            was = c[i];
            now = changed(was, i);
        }
        c[i] = now;
    }
}

static void check_cells(cell *first, uintptr_t address, size_t bytes, bool is_write, bool is_shared)
{
    change_cells(first, ((address & 1) + bytes + 1) / 2, [=](cell c, size_t) {
        check_cell(c, address, bytes, is_write, is_shared);
        if (is_write)
            c.writer = stamp_of(running_index);
        else
            c.reader = stamp_of(reader_id(c.reader, is_shared));
        return c;
    });
}

/* Faults if ordinary stores of this grid wrote the cell and neither the thread that stored nor the
 * running one has called async_fence since. */
static void check_proxy(const cell &c, uintptr_t address, bool is_shared)
{
    const uint64_t then = c.writer >> (ID_BITS + STEP_BITS);
    const unsigned id = c.writer & ((1u << ID_BITS) - 1);

    if (id >= ID_WARP || then < grid_epoch || c.writer <= MEMORY_FRESH ||
        mine->fenced_at[is_shared][running_index] >= then)
        return;
    const block_books &writer = books.size() > 1 ? books[owner[then - grid_epoch]] : *mine;
    if (writer.fenced_at[is_shared][id] < then)
        fault("a bulk copy or wgmma touches %#lx, which thread %u has stored with no async_fence "
              "since",
              (unsigned long)address, id);
}

/* A bulk copy or wgmma of the running thread reads there. */
static void read_by_proxy(cell *first, uintptr_t address, size_t bytes, bool is_shared)
{
    change_cells(first, bytes / 2, [=](cell c, size_t i) {
        check_cell(c, address + 2 * i, bytes, false, is_shared);
        check_proxy(c, address + 2 * i, is_shared);
        c.reader = stamp_of(reader_id(c.reader, is_shared));
        return c;
    });
}

void check_bulk_copy(const void *to, const void *from, size_t bytes, unsigned mbarrier,
                     uint32_t phase)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(to),
                    source = reinterpret_cast<uintptr_t>(from);
    const uint64_t step = (uint64_t)mbarrier << PHASE_BITS | (phase & ((1u << PHASE_BITS) - 1));

    if (!checking)
        return;
    if (at - shared_base >= shared_bytes)
        fault("a bulk copy to %#lx, which is not shared memory", (unsigned long)at);
    if (from)
        read_by_proxy(device_cells + (source - device_base) / 2, source, bytes, false);
    change_cells(shared_cells + (at - shared_base) / 2, bytes / 2, [=](cell c, size_t i) {
        check_cell(c, at + 2 * i, bytes, true, true);
        check_proxy(c, at + 2 * i, true);
        c.writer = mine->epoch << (ID_BITS + STEP_BITS) | step << ID_BITS | ID_ASYNC;
        return c;
    });
}

void check_wgmma(const void *at, size_t bytes)
{
    const uintptr_t address = reinterpret_cast<uintptr_t>(at);

    if (!checking)
        return;
    if (address - shared_base >= shared_bytes)
        fault("a wgmma reads %#lx, which is not shared memory", (unsigned long)address);
    read_by_proxy(shared_cells + (address - shared_base) / 2, address, bytes, true);
}

static int segment_holds(struct dl_phdr_info *info, size_t, void *address)
{
    const uintptr_t at = *static_cast<uintptr_t *>(address);
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD &&
            at - info->dlpi_addr - info->dlpi_phdr[i].p_vaddr < info->dlpi_phdr[i].p_memsz)
            return 1;
    return 0;
}

/* Outside of device and shared memory a kernel may use its stack, its arguments, and constants of
 * the program. */
static void check_host(uintptr_t address, size_t bytes, bool is_write)
{
    if (on_fiber_stack(address) || (!is_write && address - args_base < args_bytes) ||
        (!is_write && dl_iterate_phdr(segment_holds, &address)))
        return;
    fault("it %s %zu bytes at %#lx, which is not device memory", is_write ? "writes" : "reads",
          bytes, (unsigned long)address);
}

/* Faults at memory of another device. */
static void check_is_own(uintptr_t address, bool is_write)
{
    if (address - own_base < own_bytes)
        return;
    const int device = device_of(reinterpret_cast<const void *>(address));
    if (device >= 0 && device != running_device)
        fault("it %s %#lx, memory of device %d, and runs on device %d",
              is_write ? "writes" : "reads", (unsigned long)address, device, running_device);
}

static void check_access(const void *at, size_t bytes, bool is_write, const void *instruction)
{
    const uintptr_t address = reinterpret_cast<uintptr_t>(at);

    if (!on_fiber || pauses > 0 || on_fiber_stack(address))
        return;
    if (counting)
        count_access(address, bytes, is_write);
    if (!checking)
        return;
    if (address - shared_base < shared_bytes) {
        check_cells(shared_cells + (address - shared_base) / 2, address, bytes, is_write, true);
        if (counting_banks)
            banks_note(instruction, address, bytes);
    } else if (address - device_base < device_bytes) {
        check_is_own(address, is_write);
        check_cells(device_cells + (address - device_base) / 2, address, bytes, is_write, false);
    } else
        check_host(address, bytes, is_write);
}

unwatched::unwatched() { pauses++; }
unwatched::~unwatched() { pauses--; }
void note_read(const void *address, size_t bytes)
{
    check_access(address, bytes, false, __builtin_return_address(0));
}
void note_write(const void *address, size_t bytes)
{
    check_access(address, bytes, true, __builtin_return_address(0));
}
void misaligned(const void *address, size_t bytes)
{
    fault("it uses %p, which is misaligned: %zu bytes lie at multiples of %zu", address, bytes,
          bytes);
}

/* An atomic must be inside an allocation and on written memory; it races with nothing. */
void note_atomic(const void *address, size_t bytes)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(address);
    cell *c;

    if (!on_fiber || !checking)
        return;
    check_is_own(at, true);
    if (at - device_base < device_bytes)
        c = device_cells + (at - device_base) / 2;
    else if (at - shared_base < shared_bytes)
        c = shared_cells + (at - shared_base) / 2;
    else
        return check_host(at, bytes, true);
    for (size_t i = 0; i < (bytes + 1) / 2; i++) {
        if (races(c[i].writer, false) == RACE_OF_KERNELS ||
            races(c[i].reader, false) == RACE_OF_KERNELS)
            report_race(at, true, 0, "used", RACE_OF_KERNELS);
        if (c[i].writer <= MEMORY_FRESH)
            fault("an atomic operation on %zu bytes at %#lx, %s", bytes, (unsigned long)at,
                  c[i].writer == MEMORY_NONE ? "outside every array" : "which nothing has written");
    }
}

} // namespace cudasim

/* ------------------------------------------------------------------ what the compiler calls */

extern "C" {

/* align: what the address must be a multiple of. The "unaligned" calls come from memcpy and take
 * any address. */
#define CUDASIM_WATCH(name, bytes, align, is_write)                             \
    void __tsan_##name(void *p)                                                 \
    {                                                                           \
        if (cudasim::on_fiber && reinterpret_cast<uintptr_t>(p) % (align))      \
            cudasim::misaligned(p, align);                                      \
        cudasim::check_access(p, bytes, is_write, __builtin_return_address(0)); \
    }
#define CUDASIM_ACCESS(bytes)                                \
    CUDASIM_WATCH(read##bytes, bytes, bytes, false)          \
    CUDASIM_WATCH(write##bytes, bytes, bytes, true)          \
    CUDASIM_WATCH(unaligned_read##bytes, bytes, 1, false)    \
    CUDASIM_WATCH(unaligned_write##bytes, bytes, 1, true)    \
    CUDASIM_WATCH(volatile_read##bytes, bytes, bytes, false) \
    CUDASIM_WATCH(volatile_write##bytes, bytes, bytes, true)

void __tsan_init(void) { cudasim::checking = true; }
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_read_range(void *p, size_t n)
{
    cudasim::check_access(p, n, false, __builtin_return_address(0));
}
void __tsan_write_range(void *p, size_t n)
{
    cudasim::check_access(p, n, true, __builtin_return_address(0));
}
CUDASIM_ACCESS(1)
CUDASIM_ACCESS(2)
CUDASIM_ACCESS(4)
CUDASIM_ACCESS(8)
CUDASIM_ACCESS(16)

/* Function-local statics of instrumented code guard themselves with these. */
unsigned char __tsan_atomic8_load(const volatile unsigned char *p, int) { return *p; }

/* -fsanitize=alignment calls this where the program follows a pointer that is misaligned for its
 * type, also for a vector whose members the compiler reads one by one. The data is that
 * sanitizer's. */
struct ubsan_mismatch {
    struct {
        const char *file;
        uint32_t line, column;
    } where;
    const struct {
        uint16_t kind, info;
        char name[1];
    } * type;
    unsigned char log_alignment, kind;
};

void __ubsan_handle_type_mismatch_v1(struct ubsan_mismatch *data, uintptr_t pointer)
{
    if (cudasim::on_fiber)
        cudasim::fault("it uses %#lx, which is misaligned: %s lies at multiples of %u (%s:%u)",
                       (unsigned long)pointer, data->type->name, 1u << data->log_alignment,
                       data->where.file, (unsigned)data->where.line);
}

int cudasim_is_checked(void) { return cudasim::checking; }
}
