/* Conversion of a checkpoint to a GGUF file, or to one of safetensors. */
#ifndef SB_CONVERT_H
#define SB_CONVERT_H

#include <stdint.h>

#include "specbatch.h"

/* specbatch_convert (specbatch.h); the options have been resolved. */
int32_t sb_model_convert(const char *to, const char *from, const specbatch_model_options *options);

#endif
