/* How many experts a mixture has, read for config.c. */
#ifndef SB_CONFIG_EXPERTS_H
#define SB_CONFIG_EXPERTS_H

#include "model/config.h"
#include "model/fields.h"

/* Reads config->experts, chosen and renormalises, which stay 0 where the architecture has no
 * mixtures. E_FORMAT, E_UNSUPPORTED. */
int32_t sb_config_experts(struct sb_config *config, const struct sb_fields *fields);

#endif
