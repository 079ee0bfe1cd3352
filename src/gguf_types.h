/* What gguf*.c share: how many bytes a type of values has, and the numbers of the types of
 * tensors. */
#ifndef SB_GGUF_TYPES_H
#define SB_GGUF_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* The bytes of a value of this type (SB_GGUF_*); 0 for strings, arrays and unknown types. */
size_t sb_gguf_type_size(uint32_t type);
/* The number of a type of tensors (gguf.c), which must be one: "F32", "Q8_0" and so on. */
uint32_t sb_gguf_type_number(const char *name);

#endif
