/*
 * The experts of a layer that a folder has in one tensor, as gpt-oss has them, become tensors of
 * their own under the names that other architectures have:
 *
 *   experts.                                                       experts.N.
 *     gate_up_proj_blocks  [experts, 2 inter, hidden / 32, 16]  }    gate_proj.weight
 *     gate_up_proj_scales  [experts, 2 inter, hidden / 32]      }    up_proj.weight
 *     gate_up_proj_bias    [experts, 2 inter]                        .bias of both
 *     down_proj_blocks, _scales, _bias                               likewise, one map
 *
 * Rows of gate and of up take turns. Blocks and scales are MXFP4, in bytes (U8). Where there are
 * none, a tensor of floats without a suffix has the matrices turned, [experts, hidden, 2 inter].
 * tensor_rows.h reads all of them.
 */
#ifndef SB_STACKED_H
#define SB_STACKED_H

#include "model/config.h"
#include "model/tensors.h"

/* Puts these tensors into the set in place of those of all experts, if the architecture has such.
 * E_FORMAT, E_UNSUPPORTED, E_NOMEM. */
int32_t sb_tensors_unstack(struct sb_tensors *set, const struct sb_config *config);

#endif
