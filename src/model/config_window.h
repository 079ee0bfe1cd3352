/* Which layers of a model have a sliding window, read for config.c. */
#ifndef SB_CONFIG_WINDOW_H
#define SB_CONFIG_WINDOW_H

#include "model/config.h"
#include "model/fields.h"

/* Reads config->window and config->is_local. The architecture and the number of layers must be set
 * already. E_FORMAT, E_UNSUPPORTED. */
int32_t sb_config_window(struct sb_config *config, const struct sb_fields *fields);

/* Whether a layer is local where nothing but a period says so: all are but each one of this number;
 * 0: all. */
static inline int sb_is_local_by(int32_t period, int32_t layer)
{
    return period == 0 || (layer + 1) % period != 0;
}
/* Marks the layers that are local by a period. */
void sb_config_mark_local(struct sb_config *config, int32_t period);

/* Sets the window of the layers that are marked. 0, no layer that is marked, or a window that holds
 * the context: then there is none, and no layer is local, unless local layers have a rotation of
 * their own. */
void sb_config_set_window(struct sb_config *config, int32_t window);

#endif
