/*
 * Counting what kernels do, for the model of time in test/bench/gpu_time.
 *
 * While launches are counted, checks are off, tensor instructions and asynchronous copies do
 * nothing but count, fresh memory is all zeros and large uploads are left out. So models of real
 * size can be counted in little memory, and what kernels compute is worthless. All blocks of a
 * launch do the same work on other data, so a launch with many accesses runs a sample of its
 * blocks, and the counts that are sums are scaled to the whole grid.
 *
 *     sample: clusters of 48 neighbouring blocks, two or more, spread over the grid, until BUDGET
 *             accesses
 *
 * A grid of several dimensions runs whole: there blocks may be without work (attention has blocks
 * for all tiles that a pass might have), and those that ran would tell nothing of the others.
 *
 * Neighbours are taken together because those are the blocks that share memory (the tiles of x that
 * one piece of a weight serves; the query tiles of one sequence), so that the distinct sectors of a
 * cluster show how much is shared. 48 is a multiple of the usual numbers of sharers: of up to four
 * tiles of x, and of 16 blocks, where a cluster of the device has eight and x is of two clusters.
 * What several clusters share, as all blocks of a product share x, is not scaled.
 *
 * Loads and stores are seen in kernels that are compiled to report them (check.cpp). The compiler
 * tells nothing of which load needs which other, so what a thread must wait for is approximated:
 *
 *     round   loads of device memory with no store to it, barrier or operation of a warp between
 *             them. The compiler may issue these together; the loads after such a point wait for
 *             those before it. (A store stops loads from moving, because it may alias.) Rounds
 *             and loads before grid_wait_for_previous are early: the kernel before still runs.
 *
 * A program calls cudasim_count before anything else of the runtime.
 */
#ifndef CUDASIM_COUNTS_H
#define CUDASIM_COUNTS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CUDASIM_LABELS = 5, CUDASIM_NAME = 120, CUDASIM_SECTOR = 32 };

/* Device memory of one label. Bytes and sectors are of the whole grid. */
struct cudasim_traffic {
    int64_t read, written;                 /* bytes that threads ask for; those of a copy into
                                              several blocks for each of them */
    int64_t copied;                        /* those of `read` that cp.async or a bulk copy brings */
    int64_t block_sectors;                 /* read: distinct ones of a block, summed over blocks */
    int64_t sectors_read, sectors_written; /* distinct ones of the launch */
    int64_t early_sectors;                 /* of block_sectors, those that early loads bring */
};

struct cudasim_launch {
    char name[CUDASIM_NAME];
    uint32_t grid[3], block[3];
    int64_t shared;        /* bytes of a block, static and dynamic */
    int64_t blocks, ran;   /* of the grid; those that ran */
    int64_t busy;          /* of the grid: blocks that write something */
    int64_t grid_barriers; /* of a cooperative kernel. What follows is added over the phases
                              between them, as every block waits for the slowest there */
    int64_t rounds, loads; /* most of a thread; loads without copies, in instructions */
    int64_t stored_rounds; /* of these, with loads of memory that has a label */
    int64_t early_rounds;  /* most of a thread, not among `rounds`; 0 where not is_dependent */
    int64_t barriers;      /* most of a block, and waits at mbarriers of a thread */
    int64_t mma;           /* most of a warp */
    int64_t mma_steps;     /* of these, how many must wait for one before: those to the same
                              accumulator in turn */
    int64_t wgmma;         /* the same of wgmma, by tiles of eight columns */
    int64_t matrix_bytes;  /* of shared memory that ldmatrix and wgmma read: most of a warp */
    int64_t is_dependent;  /* may begin before the launch before it has ended */
    struct cudasim_traffic of[CUDASIM_LABELS];
};

enum cudasim_counting {
    CUDASIM_COUNT_OFF,
    CUDASIM_COUNT_NOTHING, /* launches succeed, no block runs and nothing is counted */
    CUDASIM_COUNT_SAMPLE,
    CUDASIM_COUNT_ALL /* every block runs */
};

/* Forgets what was counted. */
void cudasim_count(enum cudasim_counting how);
/* The launches counted so far, in order; theirs until the next cudasim_count. */
size_t cudasim_counted(const struct cudasim_launch **first);
/* Memory that is allocated from now on has this label, 0 to CUDASIM_LABELS - 1; at first 0. */
void cudasim_label_next(int label);
/* These bytes have this label from now on. */
void cudasim_label(const void *dev, size_t bytes, int label);

#ifdef __cplusplus
}
#endif

#endif
