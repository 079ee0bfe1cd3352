/* The names of the counters; see stats.h. */
#include "stats.h"

#include <string.h>

#include "specbatch.h"
#include "status.h"

#define NAME(name) #name,
static const char *const names[SB_N_STATS] = {SB_STATS(NAME)};

const char *sb_stat_name(int32_t index)
{
    return index >= 0 && index < SB_N_STATS ? names[index] : NULL;
}

int32_t sb_stat_by_name(const char *name)
{
    for (int32_t i = 0; i < SB_N_STATS; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return sb_fail(SPECBATCH_E_NOT_FOUND,
                   "no counter is called \"%.60s\"; specbatch_stat_name has the names", name);
}
