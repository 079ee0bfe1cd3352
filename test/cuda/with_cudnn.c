/* Linked into programs that know of no simulator, so that they find a cuDNN there. */
#include "cudasim.h"

__attribute__((constructor)) static void there_is_a_cudnn(void)
{
    cudasim_cudnn(91900);
}
