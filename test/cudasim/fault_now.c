/*
 * Which of the faults of kernels/cuda/cuda_fault.h is in force: the one that SB_TEST_CUDA_FAULT
 * names, if that is set, from before main. So a test program is linked with faulty kernels as it
 * is. Another name is that of no fault, which no test notices.
 */
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_fault.h"

int sb_cuda_fault_now = SB_CUDA_FAULT_NONE;

__attribute__((constructor)) static void choose_fault(void)
{
#define NAME(name) #name,
    static const char *const names[] = {"NONE", SB_CUDA_FAULTS(NAME)};
    const char *wanted = getenv("SB_TEST_CUDA_FAULT");

    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (wanted && strcmp(names[i], wanted) == 0)
            sb_cuda_fault_now = i;
}
