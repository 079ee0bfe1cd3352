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
 * of race detectors, with blocks instead of threads).
 */
#include "sim.h"

#include <link.h>
#include <stdio.h>
#include <stdlib.h>
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
    ID_WARP = 1024
};

/* For each block, the end of what has happened for sure: its epochs before this one, and in this
 * one the accesses of the thread that released (epoch << ID_BITS | thread). */
typedef std::vector<uint64_t> block_clock;

/* A block that is on the device. */
struct block_books {
    uint64_t epoch, first_epoch;
    uint64_t step[MAX_WARPS]; /* of each warp, since the barrier */
    std::bitset<1024> waited; /* threads that know that the kernel before has ended */
    block_clock clock;        /* [blocks at once] */
};

bool checking;
static uintptr_t device_base, shared_base, args_base;
static size_t device_bytes, shared_bytes, args_bytes;
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
    for (uint64_t &s : mine->step)
        s = 0;
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
    mine->first_epoch = mine->epoch;
    mine->waited.reset();
    mine->clock.assign(books.size(), 0);
}

void check_block_resumes(size_t resident) { mine = &books[resident]; }

void check_block_barrier()
{
    next_epoch();
    if (mine->waited.any())
        mine->waited.set();
}
void check_warp_sync(unsigned warp)
{
    mine->step[warp]++;
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

void note_release(const void *at)
{
    block_clock &clock = released[at];
    block_clock own = mine->clock;

    own[(size_t)(mine - books.data())] = mine->epoch << ID_BITS | running_index;
    clock.resize(own.size());
    for (size_t b = 0; b < own.size(); b++)
        clock[b] = std::max(clock[b], own[b]);
}

void note_acquire(const void *at)
{
    auto word = released.find(at);

    for (size_t b = 0; word != released.end() && b < mine->clock.size(); b++)
        mine->clock[b] = std::max(mine->clock[b], word->second[b]);
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

/* Whether an access of another block that is there at once, of that epoch and thread, has happened
 * before what the running block does now. */
static bool happened(uint64_t then, unsigned id)
{
    const size_t other = owner[then - grid_epoch];
    const uint64_t until = mine->clock[other];

    return &books[other] == mine || then < until >> ID_BITS || (then << ID_BITS | id) == until;
}

/* How the access that left `stamp` races with what the running thread does now. 0: it does not; 1:
 * no barrier is between them; 2: another block of this grid made it; 3: a kernel made it that may
 * still run. */
static int races(uint64_t stamp, bool is_shared)
{
    const uint64_t then = stamp >> (ID_BITS + STEP_BITS);
    const unsigned id = stamp & ((1u << ID_BITS) - 1), me = running_index;

    if (then == mine->epoch) {
        const bool my_warp = id >= ID_WARP ? id - ID_WARP == me / 32 : id / 32 == me / 32;
        const uint64_t then_step = stamp >> ID_BITS & ((1u << STEP_BITS) - 1);
        return id != me && !(my_warp && id != ID_MANY && then_step < mine->step[me / 32]);
    }
    if (is_shared)
        return 0;
    if (then < grid_epoch)
        return then >= open_epoch && !mine->waited.test(me) ? 3 : 0;
    if (fenced)
        return 0;
    return books.size() > 1 ? (happened(then, id) ? 0 : 2) : (then < mine->first_epoch ? 2 : 0);
}

/* Who has read here, for a load's stamp: this thread, or its warp or everybody if others have read
 * here and nothing has ordered their loads since. */
static unsigned reader_id(uint64_t stamp, bool is_shared)
{
    const unsigned id = stamp & ((1u << ID_BITS) - 1), me = running_index, my_warp = me / 32;

    if (races(stamp, is_shared) != 1)
        return me;
    if (id == ID_WARP + my_warp || (id < ID_WARP && id / 32 == my_warp))
        return ID_WARP + my_warp;
    return ID_MANY;
}

static void report_race(uintptr_t address, bool is_write, uint64_t stamp, const char *other,
                        int kind)
{
    const unsigned id = stamp & ((1u << ID_BITS) - 1);
    char who[40];

    if (kind == 3)
        return fault("it %s %#lx, %s by a kernel that may still run: it has not waited for that",
                     is_write ? "writes" : "reads", (unsigned long)address, other);
    snprintf(who, sizeof who, id >= ID_WARP ? "several threads" : "thread %u", id);
    fault("race: it %s %#lx, %s by %s of %s", is_write ? "writes" : "reads", (unsigned long)address,
          other, who,
          kind == 2 ? "another block of the grid" : "the block with no barrier between");
}

static void check_cells(cell *c, uintptr_t address, size_t bytes, bool is_write, bool is_shared)
{
    const size_t n = ((address & 1) + bytes + 1) / 2;
    const char *where = is_shared ? "shared" : "device";

    for (size_t i = 0; i < n; i++) {
        int kind;
        if (c[i].writer == MEMORY_NONE)
            fault("it %s %zu bytes at %#lx, outside every %s", is_write ? "writes" : "reads", bytes,
                  (unsigned long)address, is_shared ? "shared array" : "device allocation");
        if (!is_write && c[i].writer == MEMORY_FRESH)
            fault("it reads %zu bytes of %s memory at %#lx that nothing has written", bytes, where,
                  (unsigned long)address);
        if ((kind = races(c[i].writer, is_shared)) != 0)
            report_race(address, is_write, c[i].writer, "written", kind);
        if (is_write && (kind = races(c[i].reader, is_shared)) != 0)
            report_race(address, is_write, c[i].reader, "read", kind);
        if (is_write)
            c[i].writer = stamp_of(running_index);
        else
            c[i].reader = stamp_of(reader_id(c[i].reader, is_shared));
    }
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

static void check_access(const void *at, size_t bytes, bool is_write, const void *instruction)
{
    const uintptr_t address = reinterpret_cast<uintptr_t>(at);

    if (!on_fiber || !checking || pauses > 0 || on_fiber_stack(address))
        return;
    if (address - device_base < device_bytes)
        check_cells(device_cells + (address - device_base) / 2, address, bytes, is_write, false);
    else if (address - shared_base < shared_bytes) {
        check_cells(shared_cells + (address - shared_base) / 2, address, bytes, is_write, true);
        if (counting_banks)
            banks_note(instruction, address, bytes);
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
    if (at - device_base < device_bytes)
        c = device_cells + (at - device_base) / 2;
    else if (at - shared_base < shared_bytes)
        c = shared_cells + (at - shared_base) / 2;
    else
        return check_host(at, bytes, true);
    for (size_t i = 0; i < (bytes + 1) / 2; i++) {
        if (races(c[i].writer, false) == 3 || races(c[i].reader, false) == 3)
            report_race(at, true, 0, "used", 3);
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
