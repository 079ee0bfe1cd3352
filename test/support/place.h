/*
 * Where a test runs its models: on the CPU or on a CUDA device, which may be simulated. The
 * environment decides, so that one test program serves them all:
 *
 *     SB_TEST_DEVICE=cpu | cuda
 *     SB_TEST_COMPUTE=f32 | 16bit
 *     SB_TEST_SIZE=small    shorter prompts and outputs, and fewer requests a trace, for a
 *                           simulated device
 *     SB_TEST_REQUIRE_DEVICE=1
 *                           a program that finds no CUDA device fails; without this it skips its
 *                           tests
 *     SB_TEST_PART=i        run every n-th trace only, the i-th of n parts (from 0), so that
 *     SB_TEST_PARTS=n       several processes share the work; n is 2 unless it is given
 *     SB_TEST_TRACES=p      percent of the usual number of random traces, where a test can do with
 *                           fewer, or gains by more
 *     SB_TEST_MODEL=DIR     a checkpoint on which the traces are to run too: a tiny one with the
 *                           vocabulary and the end-of-sequence id of those in test/data/models
 *     B                     the build directory, where the module lies
 */
#ifndef PLACE_H
#define PLACE_H

#include <stdint.h>

#include "specbatch.h"

/* The default options, with device, compute and cuda_module as the environment says. */
specbatch_model_options place_options(void);
int place_is_cuda(void);
int place_is_small(void);
int place_requires_device(void);
/* Whether this process is to run trace `seed`. */
int place_has_part(uint64_t seed);
/* How many random traces to run where n are usual: at least one. */
uint64_t place_traces(uint64_t n);
/* Whether models run in the f32 class, whose bits are the same on the CPU and on a device. The CPU
 * can then say what a device has to compute. */
int place_is_reference(void);
/* The checkpoint that the environment names, or NULL. */
const char *place_checkpoint(void);
/* Absolute path of the CUDA module of this build, whether it is there or not. */
const char *place_module(void);

#endif
