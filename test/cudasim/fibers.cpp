/*
 * Runs grids on one host thread. Blocks run one after the other, in one launch in ascending order
 * and in the next in descending order, so that a dependence between blocks shows. The threads of a
 * block are fibers: a thread runs until it waits or ends, so a kernel without barriers costs two
 * switches a thread.
 *
 *   scheduler --> thread runs ... until it waits for its warp or block, or ends --> scheduler
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
    MAX_THREADS = 1024,
    STACKS = MAX_THREADS + 1,
    STACK_BYTES = 128 << 10,
    GUARD_BYTES = 4096,
    SHARED_BYTES = 227 << 10,
    GAP = 256
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
static void prepare(context &c, char *stack, void (*entry)())
{
    void **top = reinterpret_cast<void **>(stack + STACK_BYTES);
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

static void prepare(context &c, char *stack, void (*entry)())
{
    getcontext(&c.u);
    c.u.uc_stack.ss_sp = stack;
    c.u.uc_stack.ss_size = STACK_BYTES;
    c.u.uc_link = NULL;
    makecontext(&c.u, entry, 0);
}

#endif

/* ------------------------------------------------------------------ the running block */

enum thread_state { READY, AT_BARRIER, IN_COLLECTIVE, DONE };

struct thread {
    context ctx;
    char *stack; /* NULL: has not begun */
    thread_state state;
    uint3 index;
    unsigned mask; /* of the collective it waits for */
    collective_fn fn;
    void *part;
    bool orders;
    const char *file; /* of the barrier it waits at */
    int line;
    bool leads; /* the others of its collective have come, so it runs fn */
};

struct array {
    const void *token;
    char *at;
};

static thread threads[MAX_THREADS];
unsigned running_index;
bool on_fiber; /* a thread runs, on its own stack */
uintptr_t stacks_at;
size_t stacks_bytes;
static char *stacks;
static std::vector<char *> free_stacks;
static char *ended_stack;
static context scheduler;
static thread *current; /* the thread that runs */
static const grid_launch *grid;
static uint3 block;
static unsigned n_threads;
static bool faulted;
static char text[400];
static char *arena;                                  /* [SHARED_BYTES and gaps] */
static size_t arena_bytes, arena_used, shared_taken; /* by the block, static and dynamic */
static char *dynamic_at;
static std::vector<array> arrays;

uint3 thread_index() { return current->index; }
uint3 block_index() { return block; }
dim3 block_size() { return grid->shape.block; }
dim3 grid_size() { return grid->shape.grid; }
const char *fault_text() { return text; }

void fault(const char *format, ...)
{
    va_list args;
    size_t n = 0;

    if (current)
        n = (size_t)snprintf(text, sizeof text, "%s, block %u,%u,%u, thread %u: ", grid->name,
                             block.x, block.y, block.z, (unsigned)(current - threads));
    va_start(args, format);
    if (n < sizeof text)
        vsnprintf(text + n, sizeof text - n, format, args);
    va_end(args);
    faulted = true;
    if (on_fiber)
        switch_stacks(current->ctx, scheduler);
}

static void thread_main();

/* The stack of a thread that has ended becomes free when another thread runs. */
static void reclaim_stack()
{
    if (ended_stack)
        free_stacks.push_back(ended_stack);
    ended_stack = NULL;
}

static void go_to(context &from, thread &t)
{
    if (!t.stack) {
        t.stack = free_stacks.back();
        free_stacks.pop_back();
        prepare(t.ctx, t.stack, thread_main);
    }
    current = &t;
    running_index = (unsigned)(&t - threads);
    switch_stacks(from, t.ctx);
}

/* Switches to the next lane directly if that can run, else to the scheduler. */
static void pause_thread(thread_state state)
{
    thread *me = current, *next = me + 1;

    me->state = state;
    if (running_index % 32 != 31 && running_index + 1 < n_threads && next->state == READY)
        go_to(me->ctx, *next);
    else
        switch_stacks(me->ctx, scheduler);
    reclaim_stack();
}

static void thread_main()
{
    reclaim_stack();
    grid->run(grid->args);
    ended_stack = current->stack;
    pause_thread(DONE);
    abort();
}

static void resume(thread &t)
{
    on_fiber = true;
    go_to(scheduler, t);
    on_fiber = false;
    current = NULL;
    reclaim_stack();
}

/* ------------------------------------------------------------------ barriers and collectives */

void block_barrier(const char *file, int line)
{
    current->file = file;
    current->line = line;
    pause_thread(AT_BARRIER);
}

void thread_fence() { check_fence(); }

void collective(unsigned mask, collective_fn fn, void *part, bool orders)
{
    if (!(mask >> (running_index & 31u) & 1u))
        fault("a warp operation with mask %08x that lacks the calling lane", mask);
    count_stop();
    current->mask = mask;
    current->fn = fn;
    current->part = part;
    current->orders = orders;
    current->leads = false;
    pause_thread(IN_COLLECTIVE);
    if (!current->leads)
        return;

    thread *warp = current - running_index % 32;
    void *parts[32];
    for (unsigned i = 0; i < 32; i++)
        parts[i] = mask >> i & 1u && warp + i < threads + n_threads ? warp[i].part : NULL;
    fn(parts);
    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1u && warp + i != current && warp + i < threads + n_threads)
            warp[i].state = READY;
}

/* Whether all lanes of the collective that `lane` waits for have come. Then that lane goes on and
 * leads the collective. */
static bool complete(thread *warp, unsigned lanes, unsigned lane)
{
    const unsigned mask = warp[lane].mask;

    for (unsigned i = 0; i < lanes; i++) {
        if (!(mask >> i & 1u))
            continue;
        if (warp[i].state == DONE) {
            current = &warp[lane];
            fault("a warp operation waits for lane %u, which has ended", i);
            return false;
        }
        if (warp[i].state != IN_COLLECTIVE || warp[i].mask != mask || warp[i].fn != warp[lane].fn)
            return false;
    }
    if (counting_banks)
        banks_warp_stops((unsigned)(warp - threads) / 32);
    if (warp[lane].orders)
        check_warp_sync((unsigned)(warp - threads) / 32);
    warp[lane].leads = true;
    resume(warp[lane]);
    return true;
}

/* Runs a warp until each lane has ended, waits for the block, or waits for lanes that never come.
 */
static void run_warp(thread *warp, unsigned lanes)
{
    for (bool progress = true; progress && !faulted;) {
        progress = false;
        for (unsigned i = 0; i < lanes && !faulted; i++)
            if (warp[i].state == READY)
                resume(warp[i]);
        for (unsigned i = 0; i < lanes && !faulted; i++)
            if (warp[i].state == IN_COLLECTIVE)
                progress |= complete(warp, lanes, i);
    }
    if (counting_banks)
        banks_warp_stops((unsigned)(warp - threads) / 32);
}

/* ------------------------------------------------------------------ shared memory */

/* Takes fresh shared memory, with a gap that is not in use before and after it. */
static char *take_shared(size_t bytes, size_t align)
{
    size_t at = (arena_used + GAP + align - 1) / align * align;

    shared_taken = (shared_taken + 15) / 16 * 16 + bytes;
    if (shared_taken > grid->most_shared || at + bytes + GAP > arena_bytes) {
        fault("%zu bytes of shared memory, static and dynamic, beyond the %zu of a block",
              shared_taken, grid->most_shared);
        return arena;
    }
    memset(arena + at, counting ? 0 : 0xff, bytes); /* copies that are only counted write nothing */
    check_shared_array(arena + at, bytes);
    arena_used = at + bytes;
    return arena + at;
}

void *shared_array(const void *token, size_t bytes, size_t align)
{
    for (const array &a : arrays)
        if (a.token == token)
            return a.at;
    arrays.push_back(array{token, take_shared(bytes, align)});
    return arrays.back().at;
}

void *dynamic_shared(size_t align)
{
    (void)align; /* it was taken when the block began, with the largest alignment there is */
    return dynamic_at;
}

/* ------------------------------------------------------------------ the grid */

/* Checks that all threads which wait for the block wait at one place of the source. */
static void check_barrier()
{
    const thread *first = NULL;

    for (unsigned t = 0; t < n_threads; t++) {
        if (threads[t].state != AT_BARRIER)
            continue;
        if (!first)
            first = &threads[t];
        if (threads[t].line == first->line && strcmp(threads[t].file, first->file) == 0)
            continue;
        current = &threads[t];
        fault("it is at the __syncthreads of %s:%d, thread %u at that of %s:%d", threads[t].file,
              threads[t].line, (unsigned)(first - threads), first->file, first->line);
        return;
    }
}

static void run_block()
{
    check_block_begin();
    check_shared(arena, arena_used);
    arena_used = shared_taken = 0;
    arrays.clear();
    dynamic_at = take_shared(grid->shape.shared, 1024);
    for (unsigned t = 0; t < n_threads; t++) {
        const dim3 &size = grid->shape.block;
        threads[t].stack = NULL;
        threads[t].state = READY;
        threads[t].index = uint3{t % size.x, t / size.x % size.y, t / size.x / size.y};
    }
    for (;;) {
        unsigned waiting = 0, stuck = 0;
        for (unsigned w = 0; w < n_threads && !faulted; w += 32)
            run_warp(threads + w, n_threads - w < 32 ? n_threads - w : 32);
        for (unsigned t = 0; t < n_threads; t++) {
            waiting += threads[t].state == AT_BARRIER;
            if (threads[t].state == IN_COLLECTIVE && !stuck)
                stuck = t + 1;
        }
        if (stuck && !faulted) {
            current = &threads[stuck - 1];
            fault("a warp operation with mask %08x waits for lanes that never reach it",
                  current->mask);
        }
        if (faulted || waiting == 0)
            return;
        check_barrier();
        check_block_barrier();
        for (unsigned t = 0; t < n_threads; t++)
            if (threads[t].state == AT_BARRIER)
                threads[t].state = READY;
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
    stacks = static_cast<char *>(map((size_t)STACKS * (STACK_BYTES + GUARD_BYTES)));
    stacks_at = reinterpret_cast<uintptr_t>(stacks);
    stacks_bytes = (size_t)STACKS * (STACK_BYTES + GUARD_BYTES);
    for (int i = 0; i < STACKS; i++) /* an overflowing stack runs into pages without access */
        mprotect(stacks + (size_t)i * (STACK_BYTES + GUARD_BYTES), GUARD_BYTES, PROT_NONE);
    arena_bytes = SHARED_BYTES + 64 * (GAP + 1024);
    arena = static_cast<char *>(map(arena_bytes));
    check_shared(arena, arena_bytes);
}

bool run_grid(const grid_launch &launch)
{
    static uint64_t n_grids;
    const dim3 size = launch.shape.grid;
    const uint64_t blocks = (uint64_t)size.x * size.y * size.z;
    const bool descending = n_grids++ % 2;

    if (!stacks)
        set_up();
    free_stacks.clear();
    ended_stack = NULL;
    for (int i = STACKS - 1; i >= 0; i--)
        free_stacks.push_back(stacks + (size_t)i * (STACK_BYTES + GUARD_BYTES) + GUARD_BYTES);
    grid = &launch;
    n_threads = launch.shape.block.x * launch.shape.block.y * launch.shape.block.z;
    faulted = false;
    text[0] = '\0';
    if (!count_grid_begin(launch))
        return true;
    check_grid_begin(launch.args, launch.arg_bytes);
    for (uint64_t i = 0; i < blocks && !faulted && !count_is_enough(i); i++) {
        uint64_t b = counting ? count_choose(i, blocks) : descending ? blocks - 1 - i : i;
        block.x = (unsigned)(b % size.x);
        block.y = (unsigned)(b / size.x % size.y);
        block.z = (unsigned)(b / size.x / size.y);
        count_block_begin(b);
        run_block();
        count_block_end(shared_taken);
    }
    count_grid_end();
    check_grid_end();
    current = NULL;
    on_fiber = false;
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
        int first = lane / p->width * p->width, last = first + p->width - 1, from = lane;
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
