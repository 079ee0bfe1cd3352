/* The CPU backend's mixtures of experts (struct sb_mixture in backend.h). */
#ifndef SB_CPU_MIX_H
#define SB_CPU_MIX_H

#include "backend/cpu_device.h"

void sb_cpu_op_mix(struct sb_exec *exec, const struct sb_mixture *mixture);

/* What an exec has for them, and its bytes: nothing if its model has no experts. E_NOMEM. */
int32_t sb_cpu_mix_create(struct sb_exec *exec, const struct sb_exec_limits *limits);
void sb_cpu_mix_free(struct sb_exec *exec);
size_t sb_cpu_mix_bytes(const struct sb_exec_limits *limits);

#endif
