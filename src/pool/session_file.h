/*
 * The bytes of a session file: ids, and the keys and values of their first blocks.
 *
 *   head     0  "specbatch-kv"                           12 bytes
 *           12  version of the format, 1
 *           16  columns of a block
 *           20  tokens of a span, or 0
 *           24  number of ids
 *           28  how many of the ids, from the first on, were computed in spans
 *           32  number of blocks
 *           36  how many of the blocks, from the first on, have the draft's columns too
 *           40  the target: digest 32, fingerprint 320, layers, kv_heads, head_dim, element bytes
 *          408  the draft: the same; all zero if no block has its columns
 *          776  check
 *   ids    808  the ids
 *               check
 *   block       the target's columns: layer 0 K, layer 0 V, layer 1 K, ...; a plane of a block has
 *               the shape [kv_head, column, head_dim]
 *               the draft's columns, in the same order, if the block has them
 *               check
 *   block ...   as many as the head says, and nothing behind the last
 *
 * Numbers and checks are those of checked.h. Elements are little-endian too; they are copied as
 * they are, since the library's machines are little-endian (digest.c). Texts are filled up with
 * zeros.
 *
 * All sizes follow from the head, and the length of the file has to be what they add up to. This is
 * checked before anything but the head is read, and as in safetensors there is neither a hole nor a
 * rest. After that nothing that is read can change what is read next.
 *
 * The checks tell damage, not forgery: a forged file can hold any keys and values, and with them
 * lead to any tokens, but it cannot make the library read or write beyond its memory.
 *
 * Rejected: sizes in front of each part, as in llama.cpp's session files (llama_state_save_file),
 * where all of them have to be checked on the way. Rejected too: JSON as in safetensors, which can
 * say the same thing in many ways.
 */
#ifndef SB_SESSION_FILE_H
#define SB_SESSION_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "checked.h"

enum { SB_FINGERPRINT = 320 }; /* bytes of a fingerprint, with its NUL */

/* Whose columns they are, and their shape. */
struct sb_session_model {
    char digest[SB_DIGEST_TEXT], fingerprint[SB_FINGERPRINT];
    int32_t layers, kv_heads, head_dim, element_bytes;
};

struct sb_session_head {
    int32_t block_columns, span;
    int32_t n_ids, n_spanned;
    int32_t n_blocks, n_drafted;
    struct sb_session_model target, draft; /* draft: all zero if n_drafted is 0 */
};

/* Bytes of a model's columns in one block. Returns 0 when they do not fit in size_t. */
int sb_session_block_bytes(const struct sb_session_head *head, const struct sb_session_model *model,
                           size_t *bytes);

/* Begins a file: writes the head and the ids. E_IO, E_INVALID (the path is too long). When all
 * blocks are written, sb_new_file_keep gives the file its name; sb_new_file_drop removes one that
 * was not kept. */
int32_t sb_session_create(struct sb_checked_out *out, const char *path,
                          const struct sb_session_head *head, const int32_t *ids);
/* Appends the columns of the next block, all of them. E_IO. */
int32_t sb_session_write_block(struct sb_checked_out *out, const void *columns, size_t bytes);

/* A file that is being read, from the front on. */
struct sb_session_in {
    struct sb_checked_in from;
    struct sb_session_head head;
};

/* Opens a file, reads the head, and checks it and the length of the file. What the head says of
 * models was not compared with any. E_IO, E_FORMAT, E_UNSUPPORTED (another version of the format);
 * after a failure the file is closed. */
int32_t sb_session_open(struct sb_session_in *in, const char *path);
/* Reads all ids, head.n_ids of them, and their check. E_IO, E_FORMAT. */
int32_t sb_session_read_ids(struct sb_session_in *in, int32_t *ids);
/* Reads over bytes of a block that nobody wants. Those that are wanted, and the check at its end,
 * are read by the functions of checked.h. E_IO. */
int32_t sb_session_skip(struct sb_session_in *in, size_t bytes);
void sb_session_close(struct sb_session_in *in);

#endif
