/* What the simulator's own files share. */
#ifndef CUDASIM_SIM_H
#define CUDASIM_SIM_H

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <mutex>

#include "cuda_runtime.h"
#include "cudasim.h"

namespace cudasim
{

/* One lock: a call of the runtime, and the work that it makes run, is one critical section. */
extern std::recursive_mutex big_lock;
#define CUDASIM_LOCK std::lock_guard<std::recursive_mutex> lock_(cudasim::big_lock)

/* fibers.cpp */
struct grid_launch {
    const char *name;
    launch_shape shape;
    void (*run)(const void *args);
    const void *args;
    size_t arg_bytes;
    size_t most_shared; /* bytes that a block may have, static and dynamic together */
    bool overlaps;      /* the kernel before it may still run when it begins */
};
bool run_grid(const grid_launch &launch); /* false: it faulted; fault_text() says how */
const char *fault_text();
/* Ends the running kernel: does not return to it. Outside of a kernel it only notes the text. */
void fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern bool on_fiber;          /* a thread of a kernel runs */
extern unsigned running_index; /* ... this one of its block */
extern uintptr_t stacks_at;
extern size_t stacks_bytes;
static inline bool on_fiber_stack(uintptr_t address) { return address - stacks_at < stacks_bytes; }

size_t running_block(); /* number of the running block among those that are there at once */
extern uint64_t moves;  /* how often something got on; a grid in which nothing does hangs */

/* cluster.cpp */
void cluster_begin(size_t resident, unsigned threads); /* so many blocks of so many threads; 0:
                                                          the launch has no clusters */
void cluster_block_end();

/* async.cpp */
void async_grid_begin(size_t resident);
void async_block_begin();
void async_block_end();
void async_turn();    /* all threads of the block wait: some bytes arrive */
bool async_is_busy(); /* whether bytes of any block are on their way */
const char *async_describe(const void *mbarrier); /* what it waits for */

/* tensor_map.cpp: what a copy brings, planes of rows, one behind the other. What the tensor has not
 * of these is zeros. */
struct copied_box {
    const char *from;
    uint32_t row_bytes, rows, planes;
    uint32_t bytes_there, rows_there, planes_there; /* of a row, of a plane, of the box */
    size_t pitch, plane_pitch;                      /* bytes of the source from row to row, and from
                                                       plane to plane */
    bool is_swizzled; /* rows are 128 bytes: chunk c of the r-th 128 bytes lies at place c ^ r */

    uint32_t all_rows() const { return rows * planes; }
    /* Row r of all, or NULL where it is not there. */
    const char *row(uint32_t r) const
    {
        return r % rows < rows_there && r / rows < planes_there
                   ? from + r / rows * plane_pitch + r % rows * pitch
                   : NULL;
    }
};
copied_box box_of(const CUtensorMap &map, const int from[3]);

/* wgmma.cpp */
void wgmma_grid_begin(size_t resident);
void wgmma_block_begin();
void wgmma_block_end();
/* Whether a wgmma of the block that may not have ended reads there. */
bool wgmma_reads(uintptr_t at, size_t bytes);

/* check.cpp */
extern bool checking; /* some code was compiled to report its accesses */
void check_grid_begin(const void *args, size_t bytes, size_t resident, bool overlaps);
void check_block_begin(size_t resident); /* that many-th of the blocks that are there at once */
void check_block_resumes(size_t resident);
void check_block_barrier(unsigned threads); /* of so many, the first of the block */
void check_warp_sync(unsigned warp);
void check_grid_end();
void check_fence();
void check_shared_region(const void *arenas, size_t bytes);
void check_shared(const void *arena, size_t arena_bytes); /* nothing of it is in use */
void check_waited_for_previous();
bool check_has_waited(); /* whether some thread of the grid has waited for the kernel before */
void check_shared_array(const void *array, size_t bytes); /* in use, not written */
void check_device_region(const void *base, size_t bytes);
/* What whoever waits at an mbarrier learns from those who have arrived: for each warp, up to which
 * step its accesses since the block's last barrier have happened; for each mbarrier of the block,
 * how many phases have ended. */
enum { MBARRIERS = 64 };
struct warps_known {
    uint64_t epoch;
    uint64_t step[32];
    uint32_t ended[MBARRIERS];
};
void check_arrive(warps_known *known);
void check_waited(const warps_known &known, unsigned mbarrier, uint32_t ended);
/* The running thread arrives at the barrier of the cluster, or has waited there for this phase. */
void check_cluster_arrive(uint32_t phase);
void check_cluster_waited(uint32_t phase);
/* When something happened, and in which thread of the block. */
struct moment {
    unsigned thread;
    uint64_t epoch, step;
};
/* A bulk copy, which will complete phase `phase` of that mbarrier. from: NULL for zeros. */
void check_bulk_copy(const void *to, const void *from, size_t bytes, unsigned mbarrier,
                     uint32_t phase);
void check_wgmma(const void *at, size_t bytes); /* a wgmma of the running warp reads there */
moment check_now();
bool check_has_happened(const moment &then); /* as far as the running thread knows */
/* Whether the thread of then, or the running one, has called async_fence since. */
bool check_is_fenced(const moment &then);
enum memory_state { MEMORY_NONE = 0, MEMORY_FRESH = 1, MEMORY_WRITTEN = 2 };
void check_device(const void *at, size_t bytes, memory_state state);

/* runtime.cpp */
cudaError_t enqueue(cudaStream_t stream, std::function<cudaError_t()> op);
bool is_device_range(const void *at, size_t bytes); /* inside one live allocation */
int device_of(const void *at);                      /* whose memory this is; -1: not a device's */
extern int running_device;
size_t device_share(); /* bytes of the devices' memory that are each one's own */

/* counts.cpp */
extern bool counting;                               /* launches are counted */
bool count_grid_begin(const grid_launch &launch);   /* false: no block shall run */
uint64_t count_choose(uint64_t i, uint64_t blocks); /* the i-th block to run */
bool count_is_enough(uint64_t i);                   /* ... is not wanted any more */
/* resident: which of the blocks that are on the device at once */
void count_block_begin(size_t resident, uint64_t block);
void count_block_resumes(size_t resident);
void count_block_end(size_t resident, size_t shared);
void count_release(); /* the running thread tells other blocks */
void count_acquire(); /* ... and waits for them */
void count_grid_end();
void count_barrier();             /* of the block */
void count_wait();                /* the running thread has waited at an mbarrier */
void count_stop();                /* the running thread waits for others */
void count_waited_for_previous(); /* the running thread: grid_wait_for_previous */
void count_access(uintptr_t address, size_t bytes, bool is_write);
void count_device_region(const void *base, size_t bytes);
bool count_alloc(void *dev, size_t bytes); /* true: it is filled */

/* banks.cpp */
extern bool counting_banks;
/* shared memory, by the running thread */
void banks_note(const void *instruction, uintptr_t address, size_t bytes);
/* its threads have come as far as they can without each other */
void banks_warp_stops(unsigned warp);

} // namespace cudasim

#endif
