/* The part of config.json that describes the rotary position embedding, and what GGUF files have in
 * common with it. */
#ifndef SB_CONFIG_ROPE_H
#define SB_CONFIG_ROPE_H

#include "model/config.h"
#include "model/fields.h"

/* Fills in config->rope, other_rope and is_unrotated from arch, layers, head_dim and context, which
 * are set. E_FORMAT, E_UNSUPPORTED. */
int32_t sb_config_rope(struct sb_config *config, const struct sb_fields *fields);
/* Marks each layer of this number as unrotated, and fills in the rotation of these. */
void sb_config_mark_unrotated(struct sb_config *config, int32_t period);

/* Sets YaRN's numbers to what they are where a checkpoint is silent; the context is set. */
void sb_rope_yarn_defaults(struct sb_config *config);
/* YaRN's factor on cos and sin, as transformers computes it (get_mscale). */
double sb_rope_yarn_mscale(double factor, double mscale);

#endif
