/*
 * Runs grids on one host thread. Blocks run one after the other, in one launch in ascending order
 * and in the next in descending order, so that a dependence between blocks shows. The blocks of a
 * cooperative launch or of a cluster are there at once and run in turns: each until all its threads
 * wait. The threads of a block are fibers: a thread runs until it waits or ends, and then the next
 * lane of its warp that can run does. So a kernel without barriers costs two switches a warp.
 *
 *   scheduler --> lane runs until it waits for its warp, its block or a word of memory, or ends
 *   --> next lane ... --> scheduler, when no lane of the warp can run
 *
 * A thread that spins until a word of memory changes gives way to the others. If every thread that
 * is left does, and none of them gets on, nothing can change the words any more: the grid hangs,
 * which is a fault.
 *
 * A thread that faults switches to the scheduler and is never resumed; the grid is abandoned.
 */
#include "sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace cudasim
{

enum {
    LANES = 32, /* of a warp */
    MAX_THREADS = 1024,
    STACKS = 64 * MAX_THREADS,  /* so many threads may be there at once */
    GUARDED = 16 * MAX_THREADS, /* stacks of these have guards: a process may have 65530 mappings */
    STACK_BYTES = 128 << 10,
    PAGE_BYTES = 4096, /* the guard in front of a stack is one */
    SHARED_BYTES = 227 << 10,
    GAP = 256,
    ARENA_BYTES = SHARED_BYTES + 64 * (GAP + 1024),
    ARENAS = 256
};

/* ------------------------------------------------------------------ switching stacks */

#if defined(__x86_64__)

struct context {
    void *sp;
};

extern "C" void cudasim_switch(void **save, void *load);
asm(".text\n"
    ".type cudasim_switch, @function\n"
    "cudasim_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq "
    "%r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size cudasim_switch, .-cudasim_switch\n");

static void switch_stacks(context &from, context &to) { cudasim_switch(&from.sp, to.sp); }

/* A new stack has six registers, the entry as the address to return to, and an end of the chain of
 * calls. */
static void prepare(context &c, char *stack, size_t bytes, void (*entry)())
{
    void **top = reinterpret_cast<void **>(stack + bytes);
    top[-1] = NULL;
    top[-2] = reinterpret_cast<void *>(entry);
    for (int i = 3; i <= 8; i++)
        top[-i] = NULL;
    c.sp = top - 8;
}

#else

struct context {
    ucontext_t u;
};

static void switch_stacks(context &from, context &to) { swapcontext(&from.u, &to.u); }

static void prepare(context &c, char *stack, size_t bytes, void (*entry)())
{
    getcontext(&c.u);
    c.u.uc_stack.ss_sp = stack;
    c.u.uc_stack.ss_size = bytes;
    c.u.uc_link = NULL;
    makecontext(&c.u, entry, 0);
}

#endif

/* ------------------------------------------------------------------ the running block */

enum thread_state { READY, AT_BARRIER, IN_COLLECTIVE, SPINNING, DONE, STATES };

struct alignas(64) thread { /* in one line of the host's cache */
    context ctx;
    char *stack; /* NULL: has not begun, or has ended */
    uint3 index;
    unsigned mask; /* of the collective it waits for */
    collective_fn fn;
    union {
        void *part;
        const char *file; /* of the barrier it waits at */
        const void *spins_at;
    };
    union {
        int line;
        spin_kind spins;
    };
    unsigned meet; /* how many threads of the block meet there; 0: all that have not ended */
};

/* The lanes of a warp, by their states: each is in one of these sets. */
struct warp_lanes {
    uint32_t in[STATES];

    void move(uint32_t lanes, thread_state from, thread_state to)
    {
        in[from] &= ~lanes;
        in[to] |= lanes;
    }
};

struct array {
    const void *token;
    char *at;
};

/* A block that is on the device. */
struct resident {
    std::vector<thread> threads;
    std::vector<warp_lanes> warps;
    uint3 index;
    char *arena;                     /* [ARENA_BYTES]: its shared memory */
    size_t arena_used, shared_taken; /* static and dynamic */
    char *dynamic_at;
    std::vector<array> arrays;
    bool done;
};

static std::vector<resident> residents;
static resident *block;   /* that runs */
static thread *threads;   /* of it */
static warp_lanes *warps; /* of it */
uint64_t moves;
unsigned running_index;
bool on_fiber; /* a thread runs, on its own stack */
uintptr_t stacks_at;
size_t stacks_bytes;
static char *stacks;
static std::vector<char *> free_stacks;
static context scheduler;
static thread *current; /* the thread that runs */
static thread *leader;  /* who goes on now to carry out its collective, or NULL */
static const grid_launch *grid;
static unsigned n_threads;
static bool faulted;
static char text[400];
static char *arenas; /* a block each */

size_t running_block() { return (size_t)(block - residents.data()); }
uint3 thread_index() { return current->index; }
uint3 block_index() { return block->index; }
dim3 block_size() { return grid->shape.block; }
dim3 grid_size() { return grid->shape.grid; }
const char *fault_text() { return text; }

void fault(const char *format, ...)
{
    va_list args;
    size_t n = 0;

    if (current)
        n = (size_t)snprintf(text, sizeof text, "%s, block %u,%u,%u, thread %u: ", grid->name,
                             block->index.x, block->index.y, block->index.z,
                             (unsigned)(current - threads));
    va_start(args, format);
    if (n < sizeof text)
        vsnprintf(text + n, sizeof text - n, format, args);
    va_end(args);
    faulted = true;
    if (on_fiber)
        switch_stacks(current->ctx, scheduler);
}

static void thread_main();

/* Stacks are made when they are first needed. One that overflows runs into a page without access,
 * which the first stacks have: a kernel that overflows one overflows all. */
static char *take_stack()
{
    static size_t made;
    char *stack;

    if (free_stacks.empty()) {
        stack = stacks + made * (STACK_BYTES + PAGE_BYTES);
        if (made++ < GUARDED)
            mprotect(stack, PAGE_BYTES, PROT_NONE);
        return stack + PAGE_BYTES;
    }
    stack = free_stacks.back();
    free_stacks.pop_back();
    return stack;
}

/* The lanes of a warp run by turns and are mostly at one place of the kernel. Their stacks are
 * whole pages apart, so if all began at the end of a page, they would be in each other's way in a
 * few sets of the host's first-level cache. */
static size_t usable_bytes(unsigned lane)
{
    return STACK_BYTES - (size_t)lane * PAGE_BYTES / LANES;
}

static void run_as(thread &t)
{
    current = &t;
    running_index = (unsigned)(&t - threads);
}

static void go_to(context &from, thread &t)
{
    run_as(t);
    if (!t.stack) {
        t.stack = take_stack();
        prepare(t.ctx, t.stack, usable_bytes(running_index % LANES), thread_main);
    }
    switch_stacks(from, t.ctx);
}

/* The lane of the running warp that can run next, by turns; NULL: none can. */
static thread *next_lane()
{
    const unsigned lane = running_index % LANES;
    const uint32_t ready = warps[running_index / LANES].in[READY], above = ready & (~1u << lane);

    return ready ? current - lane + __builtin_ctz(above ? above : ready) : NULL;
}

/* Switches to that lane directly, or to the scheduler if there is none. */
static void leave(context &from, thread *next)
{
    if (next)
        go_to(from, *next);
    else
        switch_stacks(from, scheduler);
}

static void pause_thread(thread_state state)
{
    thread *const me = current;

    warps[running_index / LANES].move(1u << running_index % LANES, READY, state);
    moves += state != SPINNING;
    leave(me->ctx, next_lane());
}

/* A thread that has ended leaves its stack to the next lane if that has not begun. */
static void thread_main()
{
    for (;;) {
        grid->run(grid->args);
        warps[running_index / LANES].move(1u << running_index % LANES, READY, DONE);
        moves++;
        thread *const me = current, *const next = next_lane();
        char *const stack = me->stack;
        me->stack = NULL;
        if (next && !next->stack) {
            next->stack = stack;
            run_as(*next);
            continue;
        }
        free_stacks.push_back(stack);
        leave(me->ctx, next);
    }
}

static void resume(thread &t)
{
    on_fiber = true;
    go_to(scheduler, t);
    on_fiber = false;
    current = NULL;
}

/* ------------------------------------------------------------------ barriers and collectives */

void block_barrier(const char *file, int line, unsigned n)
{
    if (n % LANES || n > n_threads || (n > 0 && running_index >= n))
        fault("it is at a barrier of the first %u threads of a block of %u", n, n_threads);
    current->file = file;
    current->line = line;
    current->meet = n;
    pause_thread(AT_BARRIER);
}

void thread_fence() { check_fence(); }

void spin(spin_kind kind, const void *at, bool again)
{
    moves += !again;
    current->spins = kind;
    current->spins_at = at;
    pause_thread(SPINNING);
}

void wait_for_previous()
{
    if (compute_major() < 9)
        return;
    check_waited_for_previous();
    count_waited_for_previous();
}

/* The lanes of a mask that the running block has. */
static uint32_t lanes_of(unsigned mask, unsigned warp)
{
    const unsigned there = n_threads - warp * LANES;

    return there < LANES ? mask & ((1u << there) - 1) : mask;
}

/* Whether two lanes wait for the same collective. */
static bool waits_with(const thread &t, const thread &other)
{
    return t.mask == other.mask && t.fn == other.fn;
}

/* Whether all others of the collective that the running thread has come to wait for it already. */
static bool comes_last()
{
    const unsigned warp = running_index / LANES;
    uint32_t others = lanes_of(current->mask, warp) & ~(1u << running_index % LANES);

    if (others & ~warps[warp].in[IN_COLLECTIVE])
        return false;
    for (; others; others &= others - 1)
        if (!waits_with(threads[warp * LANES + __builtin_ctz(others)], *current))
            return false;
    return true;
}

/* All lanes of the running thread's collective can go on, and the first of them leads: it runs
 * next, and carries the collective out. */
static void begin_collective(bool orders)
{
    const unsigned warp = running_index / LANES;
    const uint32_t lanes = lanes_of(current->mask, warp);
    thread *const me = current;

    if (counting_banks)
        banks_warp_stops(warp);
    if (orders)
        check_warp_sync(warp);
    moves++;
    warps[warp].move(lanes, IN_COLLECTIVE, READY);
    leader = &threads[warp * LANES + __builtin_ctz(lanes)];
    if (leader != me)
        go_to(me->ctx, *leader);
}

static void run_collective()
{
    const unsigned warp = running_index / LANES;
    const uint32_t lanes = lanes_of(current->mask, warp);
    const thread *const first = threads + warp * LANES;
    void *parts[LANES];

    leader = NULL;
    for (unsigned i = 0; i < LANES; i++)
        parts[i] = lanes >> i & 1u ? first[i].part : NULL;
    current->fn(parts);
}

void collective(unsigned mask, collective_fn fn, void *part, bool orders)
{
    if (!(mask >> (running_index % LANES) & 1u))
        fault("a warp operation with mask %08x that lacks the calling lane", mask);
    if (counting)
        count_stop();
    current->mask = mask;
    current->fn = fn;
    current->part = part;
    if (comes_last())
        begin_collective(orders);
    else
        pause_thread(IN_COLLECTIVE);
    if (leader)
        run_collective();
}

/* Faults if a lane of the warp waits for one that has ended. */
static void check_collectives(unsigned warp)
{
    thread *const first = threads + warp * LANES;
    const warp_lanes &lanes = warps[warp];

    for (uint32_t left = lanes.in[IN_COLLECTIVE]; left; left &= left - 1) {
        thread &t = first[__builtin_ctz(left)];
        for (uint32_t of = lanes_of(t.mask, warp); of; of &= of - 1) {
            const int i = __builtin_ctz(of);
            if (lanes.in[DONE] >> i & 1u) {
                current = &t;
                return fault("a warp operation waits for lane %d, which has ended", i);
            }
            if (!(lanes.in[IN_COLLECTIVE] >> i & 1u) || !waits_with(first[i], t))
                break;
        }
    }
}

/* Runs a warp until each lane has ended, waits for the block, or waits for lanes that never come.
 */
static void run_warp(unsigned warp)
{
    if (warps[warp].in[READY])
        resume(threads[warp * LANES + __builtin_ctz(warps[warp].in[READY])]);
    if (!faulted)
        check_collectives(warp);
    if (counting_banks)
        banks_warp_stops(warp);
}

/* ------------------------------------------------------------------ shared memory */

/* Takes fresh shared memory, with a gap that is not in use before and after it. */
static char *take_shared(size_t bytes, size_t align)
{
    size_t at = (block->arena_used + GAP + align - 1) / align * align;

    block->shared_taken = (block->shared_taken + 15) / 16 * 16 + bytes;
    if (block->shared_taken > grid->most_shared || at + bytes + GAP > ARENA_BYTES) {
        fault("%zu bytes of shared memory, static and dynamic, beyond the %zu of a block%s",
              block->shared_taken, grid->most_shared,
              grid->shape.cooperative ? " when all are resident" : "");
        return block->arena;
    }
    memset(block->arena + at, counting ? 0 : 0xff, bytes); /* copies that are only counted write
                                                              nothing */
    check_shared_array(block->arena + at, bytes);
    block->arena_used = at + bytes;
    return block->arena + at;
}

void *shared_array(const void *token, size_t bytes, size_t align)
{
    for (const array &a : block->arrays)
        if (a.token == token)
            return a.at;
    block->arrays.push_back(array{token, take_shared(bytes, align)});
    return block->arrays.back().at;
}

void *dynamic_shared(size_t align)
{
    (void)align; /* it was taken when the block began, with the largest alignment there is */
    return block->dynamic_at;
}

/* ------------------------------------------------------------------ the grid */

/* The next thread in this state, from number t on; n_threads: none. */
static unsigned next_thread(thread_state state, unsigned t)
{
    while (t < n_threads && !(warps[t / LANES].in[state] >> t % LANES))
        t = (t / LANES + 1) * LANES;
    return t < n_threads ? t + __builtin_ctz(warps[t / LANES].in[state] >> t % LANES) : n_threads;
}

static thread *first_thread(thread_state state) { return threads + next_thread(state, 0); }

/* Checks that all threads which wait for the block wait at one place of the source. */
static void check_barrier()
{
    const unsigned first = next_thread(AT_BARRIER, 0);
    const char *const file = threads[first].file;
    const int line = threads[first].line;

    for (unsigned t = first; t < n_threads; t = next_thread(AT_BARRIER, t + 1)) {
        const thread &other = threads[t];
        if (other.line == line && (other.file == file || strcmp(other.file, file) == 0))
            continue;
        current = &threads[t];
        return fault("it is at the __syncthreads of %s:%d, thread %u at that of %s:%d", other.file,
                     other.line, first, file, line);
    }
}

static void set_block(resident &b)
{
    block = &b;
    threads = b.threads.data();
    warps = b.warps.data();
}

/* Puts block number `i` of the grid onto the device. */
static void begin_block(resident &b, uint64_t i)
{
    const dim3 &grid_is = grid->shape.grid;

    set_block(b);
    b.index = uint3{(unsigned)(i % grid_is.x), (unsigned)(i / grid_is.x % grid_is.y),
                    (unsigned)(i / grid_is.x / grid_is.y)};
    check_block_begin(running_block());
    count_block_begin(running_block(), i);
    async_block_begin();
    wgmma_block_begin();
    check_shared(b.arena, b.arena_used);
    b.arena_used = b.shared_taken = 0;
    b.arrays.clear();
    b.done = false;
    b.dynamic_at = take_shared(grid->shape.shared, 1024);
    for (unsigned w = 0; w < b.warps.size(); w++)
        warps[w] = warp_lanes{{lanes_of(~0u, w)}}; /* READY */
}

static unsigned count_threads(thread_state state)
{
    unsigned n = 0;

    for (const warp_lanes &w : block->warps)
        n += (unsigned)__builtin_popcount(w.in[state]);
    return n;
}

static void set_ready(thread_state state)
{
    for (warp_lanes &w : block->warps)
        w.move(w.in[state], state, READY);
}

static void pass_barrier(unsigned n)
{
    check_barrier();
    check_block_barrier(n);
    set_ready(AT_BARRIER);
}

/* Whether some threads were waiting for each other only, and go on. */
static bool pass_barrier_of_some()
{
    const unsigned n = count_threads(AT_BARRIER);

    if (n == 0 || n != first_thread(AT_BARRIER)->meet)
        return false;
    pass_barrier(n);
    return true;
}

/* Runs a block until it has ended, or threads spin and the others wait for them. */
static void advance_block()
{
    set_ready(SPINNING);
    for (;;) {
        for (unsigned w = 0; w < block->warps.size() && !faulted; w++)
            run_warp(w);
        if (faulted)
            return;
        if (pass_barrier_of_some())
            continue;
        if (count_threads(SPINNING) > 0)
            return;
        if (count_threads(IN_COLLECTIVE) > 0) {
            current = first_thread(IN_COLLECTIVE);
            fault("a warp operation with mask %08x waits for lanes that never reach it",
                  current->mask);
            return;
        }
        block->done = count_threads(AT_BARRIER) == 0;
        if (block->done) {
            current = threads;
            cluster_block_end();
            wgmma_block_end();
            return async_block_end();
        }
        pass_barrier(n_threads);
    }
}

/* Nothing gets on any more, by the fault of the first thread that still waits. */
static void report_hang()
{
    resident *b = residents.data();

    while (b->done)
        b++;
    set_block(*b);
    current = first_thread(SPINNING);
    if (current->spins == SPINS_FOR_MBARRIER)
        fault("it hangs: %s", async_describe(current->spins_at));
    else if (current->spins == SPINS_FOR_CLUSTER)
        fault("it hangs: it waits at the cluster's barrier, where others never arrive");
    else if (grid->shape.cooperative)
        fault("it hangs: the blocks that would change %p have ended, or wait elsewhere",
              current->spins_at);
    else
        fault("it hangs: it waits until another block changes %p, and the kernel is not launched "
              "as cooperative",
              current->spins_at);
}

/* Runs the blocks that are there by turns, until all have ended. */
static void run_residents()
{
    for (;;) {
        const uint64_t before = moves;
        size_t left = 0;
        for (resident &b : residents) {
            if (faulted)
                return;
            if (b.done)
                continue;
            set_block(b);
            check_block_resumes(running_block());
            count_block_resumes(running_block());
            advance_block();
            left += !b.done;
            if (!faulted && !b.done)
                async_turn();
        }
        if (faulted || left == 0)
            return;
        if (moves == before && !async_is_busy())
            return report_hang();
    }
}

static void *map(size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        perror("cudasim: mmap");
        exit(2);
    }
    return at;
}

static void set_up()
{
    stacks = static_cast<char *>(map((size_t)(STACKS + 1) * (STACK_BYTES + PAGE_BYTES)));
    stacks_at = reinterpret_cast<uintptr_t>(stacks);
    stacks_bytes = (size_t)(STACKS + 1) * (STACK_BYTES + PAGE_BYTES);
    arenas = static_cast<char *>(map((size_t)ARENAS * ARENA_BYTES));
    check_shared_region(arenas, (size_t)ARENAS * ARENA_BYTES);
}

static void set_indices(std::vector<thread> &of_block)
{
    const dim3 &size = grid->shape.block;
    uint3 next = {0, 0, 0};

    for (thread &t : of_block) {
        t.index = next;
        if (++next.x < size.x)
            continue;
        next.x = 0;
        if (++next.y < size.y)
            continue;
        next.y = 0;
        next.z++;
    }
}

/* Makes room for n blocks at once. */
static void set_residents(size_t n)
{
    residents.resize(n);
    for (size_t i = 0; i < n; i++) {
        residents[i].threads.resize(n_threads);
        residents[i].warps.resize((n_threads + LANES - 1) / LANES);
        residents[i].arena = arenas + i * ARENA_BYTES;
        set_indices(residents[i].threads);
    }
}

/* The stacks of a grid that was abandoned are free again. */
static void reclaim_all_stacks()
{
    for (resident &b : residents)
        for (thread &t : b.threads) {
            if (t.stack)
                free_stacks.push_back(t.stack);
            t.stack = NULL;
        }
}

/* A kernel that began before the one before it had ended, and never waited for that, would let the
 * kernels after it run beside that one too. */
static void check_dependence()
{
    if (!faulted && grid->shape.dependent && !check_has_waited())
        fault("%s was launched as dependent and no thread waits for the kernel before it",
              grid->name);
}

bool run_grid(const grid_launch &launch)
{
    static uint64_t n_grids;
    const dim3 size = launch.shape.grid;
    const uint64_t blocks = (uint64_t)size.x * size.y * size.z;
    const bool descending = n_grids++ % 2;
    const uint64_t at_once = launch.shape.cooperative ? blocks : launch.shape.cluster;

    if (!count_grid_begin(launch))
        return true;
    if (!stacks)
        set_up();
    grid = &launch;
    n_threads = launch.shape.block.x * launch.shape.block.y * launch.shape.block.z;
    faulted = false;
    text[0] = '\0';
    if (at_once > ARENAS || at_once * n_threads > STACKS) {
        fault("%s: more blocks at once than the simulator holds", launch.name);
        return false;
    }
    set_residents(at_once);
    check_grid_begin(launch.args, launch.arg_bytes, at_once, launch.overlaps);
    async_grid_begin(at_once);
    wgmma_grid_begin(at_once);
    for (uint64_t i = 0; i < blocks && !faulted && !count_is_enough(i); i += at_once) {
        for (uint64_t r = 0; r < at_once; r++)
            begin_block(residents[r], counting     ? count_choose(i + r, blocks)
                                      : descending ? blocks - 1 - i - r
                                                   : i + r);
        cluster_begin(launch.shape.clustered ? at_once : 0, n_threads);
        run_residents();
        for (uint64_t r = 0; r < at_once && counting; r++)
            count_block_end(r, residents[r].shared_taken);
    }
    current = NULL;
    on_fiber = false;
    check_dependence();
    count_grid_end();
    check_grid_end();
    if (faulted)
        reclaim_all_stacks();
    grid = NULL;
    return !faulted;
}

/* ------------------------------------------------------------------ what collectives do */

void no_parts(void *const parts[32]) { (void)parts; }

void shuffle_parts(void *const parts[32])
{
    for (int lane = 0; lane < 32; lane++) {
        shuffle_part *p = static_cast<shuffle_part *>(parts[lane]);
        if (!p)
            continue;
        /* A width is a power of two. */
        int first = lane & -p->width, last = first + p->width - 1, from = lane;
        switch (p->kind) {
        case SHUFFLE_IDX:
            from = first + (p->operand & (p->width - 1));
            break;
        case SHUFFLE_UP:
            from = lane - p->operand < first ? lane : lane - p->operand;
            break;
        case SHUFFLE_DOWN:
            from = lane + p->operand > last ? lane : lane + p->operand;
            break;
        default:
            from = (lane ^ p->operand) > last ? lane : lane ^ p->operand;
        }
        if (!parts[from]) {
            fault("lane %d shuffles from lane %d, which takes no part", lane, from);
            return;
        }
        p->result = static_cast<shuffle_part *>(parts[from])->value;
    }
}

void vote_parts(void *const parts[32])
{
    unsigned ballot = 0;
    for (int lane = 0; lane < 32; lane++)
        if (parts[lane] && static_cast<vote_part *>(parts[lane])->predicate)
            ballot |= 1u << lane;
    for (int lane = 0; lane < 32; lane++)
        if (parts[lane])
            static_cast<vote_part *>(parts[lane])->ballot = ballot;
}

} // namespace cudasim
