/*
 * Deliberate faults of the CUDA backend, for tests only, as those of src/fault.h are: kernels and
 * sources that have one are compiled a second time with SB_FAULTS defined, for the simulated
 * device, and test/cudasim/check_kernel_mutations.sh says which test has to notice each. Elsewhere
 * SB_CUDA_FAULT(name) is the constant 0.
 *
 * One fault is in force at a time, so they are numbers, and not bits as those of src/fault.h, of
 * which few are left.
 */
#ifndef SB_CUDA_FAULT_H
#define SB_CUDA_FAULT_H

#ifdef SB_FAULTS
#define SB_CUDA_FAULTS(DO)                                                                     \
    /* Gated products: gate and up are taken for each other, */                                \
    DO(GATE_AND_UP_SWAPPED)                                                                    \
    /* or silu(gate) is rounded before it is multiplied by up. */                              \
    DO(SILU_ROUNDED)                                                                           \
    /* Blocks of one shape, 32 x 64, or all by wgmma, take the steps of k in another order. */ \
    DO(STEPS_EXCHANGED)                                                                        \
    /* wgmma: copies go to a stage that another warp still reads, */                           \
    DO(READERS_NOT_AWAITED)                                                                    \
    /* a stage is used before all of it has come, */                                           \
    DO(STAGE_NOT_AWAITED)                                                                      \
    /* or given back while they read it, */                                                    \
    DO(RELEASED_TOO_EARLY)                                                                     \
    /* or their sums are stored before they have ended. */                                     \
    DO(SUMS_NOT_AWAITED)                                                                       \
    /* The last block of attention merges the splits in descending order, */                   \
    DO(MERGE_DESCENDING)                                                                       \
    /* or leaves out the last one. */                                                          \
    DO(MERGE_WITHOUT_LAST)                                                                     \
    /* The blocks of a cluster merge what the others may not have written. */                  \
    DO(BLOCKS_NOT_AWAITED)                                                                     \
    /* The counter that says which block is last is not zero again behind it. */               \
    DO(COUNTER_KEPT)                                                                           \
    /* A norm counts the element behind its row. */                                            \
    DO(ELEMENT_PAST_THE_ROW)                                                                   \
    /* Queries are normed with the weights of keys. */                                         \
    DO(K_NORM_FOR_Q)                                                                           \
    /* Attention that turns heads forgets the new keys of all splits but the first, */         \
    DO(MADE_FOR_ONE_SPLIT)                                                                     \
    /* or those that it has not made together with the queries. */                             \
    DO(MORE_LEFT_OUT)                                                                          \
    /* All teams of a block compute the queries of the first. */                               \
    DO(QUERIES_OF_FIRST_TEAM)                                                                  \
    /* A window of attention reaches one key too far, */                                       \
    DO(WINDOW_TOO_LONG)                                                                        \
    /* a split that ends before a query's window is merged all the same, */                    \
    DO(SPLIT_BEFORE_WINDOW_MERGED)                                                             \
    /* or nobody looks for an Inf or NaN in the values before it. */                           \
    DO(VALUES_BEFORE_WINDOW_TRUSTED)                                                           \
    /* Scores of tiles of few queries are not capped. */                                       \
    DO(FEW_SCORES_NOT_CAPPED)                                                                  \
    /* An embedding is not multiplied by the model's scale. */                                 \
    DO(EMBEDDING_NOT_SCALED)                                                                   \
    /* A kernel that was launched as dependent does not wait for the one before it, */         \
    DO(NO_THREAD_WAITS)                                                                        \
    /* or its first warp does not. */                                                          \
    DO(ONE_WARP_DOES_NOT_WAIT)                                                                 \
    /* A draft's product, or its attention, adds all parts of a sum but the first. */          \
    DO(PART_LEFT_OUT)                                                                          \
    /* The choice of a row is the best of all its parts but the first, */                      \
    DO(CHOICE_LEFT_OUT)                                                                        \
    /* its candidates are without the deepest, */                                              \
    DO(CANDIDATE_LEFT_OUT)                                                                     \
    /* their mass is that of all parts but the first, */                                       \
    DO(MASS_LEFT_OUT)                                                                          \
    /* or those of the rows before it are kept. */                                             \
    DO(CANDIDATES_KEPT)                                                                        \
    /* A block of quantised weights gets the scale of its neighbour. */                        \
    DO(SCALE_OF_OTHER_BLOCK)                                                                   \
    /* A mixture: all products are by the expert of the first tile, */                         \
    DO(EXPERT_OF_FIRST_TILE)                                                                   \
    /* all rows of a tile are that of its first place, */                                      \
    DO(ROW_OF_FIRST_PLACE)                                                                     \
    /* or the experts of a row are added in descending order. */                               \
    DO(EXPERTS_DESCENDING)                                                                     \
    /* An algorithm of cuBLASLt that the plan file names is taken whatever its bits are. */    \
    DO(PLAN_WITHOUT_TEST)                                                                      \
    /* A norm of what is added to the residual stream has its factors in another order. */     \
    DO(NORM_IN_OTHER_ORDER)                                                                    \
    /* Steps of a draft: no block waits for the others behind attention, */                    \
    DO(NO_BARRIER_BEHIND_ATTENTION)                                                            \
    /* a ring copies a stage to where one is that has not been read, */                        \
    DO(STAGE_COPIED_TOO_EARLY)                                                                 \
    /* or copies keys that another block may still make, */                                    \
    DO(KEYS_NOT_HELD_BACK)                                                                     \
    /* nobody waits for the weights of norms, */                                               \
    DO(NORM_WEIGHTS_NOT_AWAITED)                                                               \
    /* or for the elements of x, */                                                            \
    DO(ROWS_NOT_AWAITED)                                                                       \
    /* the residual stream counts twice where something is added to it, */                     \
    DO(RESIDUAL_TWICE)                                                                         \
    /* or later steps have the position of the one before. */                                  \
    DO(POSITION_NOT_ADVANCED)

#define SB_CUDA_FAULT_NUMBER(name) SB_CUDA_FAULT_##name,
enum sb_cuda_fault { SB_CUDA_FAULT_NONE, SB_CUDA_FAULTS(SB_CUDA_FAULT_NUMBER) };
#ifdef __cplusplus
extern "C" {
#endif
extern int sb_cuda_fault_now;
#ifdef __cplusplus
}
#endif
#define SB_CUDA_FAULT(name) (sb_cuda_fault_now == SB_CUDA_FAULT_##name)
#else
#define SB_CUDA_FAULT(name) 0
#endif

#endif
