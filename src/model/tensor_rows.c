/* Rows that are gathered from where a file has them; tensor_rows.h lists the ways. Nothing here
 * takes memory: what rows are made of goes through 16 KiB of the stack, for many rows at once. */
#include "model/tensor_rows.h"

#include <string.h>

#include "status.h"

enum {
    COLUMNS = 8,         /* that are read at once, so that a row gets elements side by side */
    COLUMN_BYTES = 2048, /* of each of them */
    MX_BLOCKS = 1024,    /* of MXFP4, likewise */
    MX_BYTES = 16        /* of the elements of a block */
};

/* Where the file has row `row` of a tensor whose rows are interleaved. Row i of a head's first half
 * has become row 2 i of the head, and row i of its second half 2 i + 1. */
static uint64_t interleaved(uint64_t row, uint64_t head_rows)
{
    const uint64_t half = head_rows / 2, in_head = row % head_rows;

    return row - in_head + 2 * (in_head % half) + in_head / half;
}

/* Reads rows that are interleaved, one by one. To read more at once and to sort rows in memory
 * would take a second buffer and save no time that shows: opening a file of Llama takes as long as
 * opening the same weights as safetensors. */
static int32_t read_interleaved(const struct sb_file *file, const struct sb_tensor *t,
                                uint64_t offset, char *into, size_t bytes)
{
    const uint64_t row_bytes = t->bytes / (uint64_t)t->shape[0];
    int32_t rc = SPECBATCH_OK;

    while (bytes > 0) {
        const uint64_t in_row = offset % row_bytes;
        const uint64_t at = interleaved(offset / row_bytes, (uint64_t)t->interleave) * row_bytes;
        const size_t n = bytes < row_bytes - in_row ? bytes : (size_t)(row_bytes - in_row);
        SB_TRY(sb_file_read(file, t->offset + at + in_row, into, n));
        into += n;
        offset += n;
        bytes -= n;
    }
done:
    return rc;
}

/* Some rows of a tensor, and where they go. */
struct rows {
    uint64_t first, n, bytes, size; /* bytes: of each row; size: of each element, or block */
    char *into;
};

/* Copies an element of floats. A call with a size that is not a constant takes longer. */
static void copy_element(char *to, const char *from, uint64_t size)
{
    if (size == 2)
        memcpy(to, from, 2);
    else
        memcpy(to, from, 4);
}

/* Reads elements [k, k + n_columns) of rows. */
static int32_t read_columns(const struct sb_file *file, const struct sb_tensor *t,
                            const struct rows *rows, uint64_t k, uint64_t n_columns)
{
    const uint64_t size = rows->size;
    const uint64_t most = (COLUMN_BYTES - size) / t->row_step + 1; /* rows that fit */
    char columns[COLUMNS][COLUMN_BYTES];
    int32_t rc = SPECBATCH_OK;

    for (uint64_t row = 0, some; row < rows->n; row += some) {
        const uint64_t at = t->offset + k * t->column_step + (rows->first + row) * t->row_step;
        char *into = rows->into + row * rows->bytes + k * size;
        some = rows->n - row < most ? rows->n - row : most;
        for (uint64_t c = 0; c < n_columns; c++)
            SB_TRY(sb_file_read(file, at + c * t->column_step, columns[c],
                                (size_t)((some - 1) * t->row_step + size)));
        for (uint64_t r = 0; r < some; r++, into += rows->bytes)
            for (uint64_t c = 0; c < n_columns; c++)
                copy_element(into + c * size, columns[c] + r * t->row_step, size);
    }
done:
    return rc;
}

/* A block as quant.h has it: its scale, and elements i and i + 16 in byte i. Here elements 2 i and
 * 2 i + 1 are in byte i. */
static void make_block(unsigned char *block, unsigned char scale, const unsigned char *bytes)
{
    block[0] = scale;
    for (int i = 0; i < MX_BYTES / 2; i++) {
        const int low = bytes[i], high = bytes[MX_BYTES / 2 + i];
        block[1 + 2 * i] = (unsigned char)((low & 15) | (high & 15) << 4);
        block[2 + 2 * i] = (unsigned char)(low >> 4 | (high & 0xf0));
    }
}

/* Reads blocks [k, k + n_blocks) of rows, as many rows at once as fit. */
static int32_t read_blocks(const struct sb_tensors *set, const struct sb_tensor *t,
                           const struct rows *rows, uint64_t k, uint64_t n_blocks)
{
    const struct sb_file *file = &set->files[t->file].file;
    const struct sb_file *scale_file = &set->files[t->scale_file].file;
    const uint64_t most = (MX_BLOCKS - n_blocks) / t->scale_step + 1;
    unsigned char bytes[MX_BLOCKS * MX_BYTES], scales[MX_BLOCKS];
    int32_t rc = SPECBATCH_OK;

    for (uint64_t row = 0, some; row < rows->n; row += some) {
        const uint64_t from = rows->first + row;
        some = rows->n - row < most ? rows->n - row : most;
        SB_TRY(sb_file_read(file, t->offset + from * t->row_step + k * MX_BYTES, bytes,
                            (size_t)((some - 1) * t->row_step + n_blocks * MX_BYTES)));
        SB_TRY(sb_file_read(scale_file, t->scale_offset + from * t->scale_step + k, scales,
                            (size_t)((some - 1) * t->scale_step + n_blocks)));
        for (uint64_t r = 0; r < some; r++) {
            unsigned char *into = (unsigned char *)rows->into + (row + r) * rows->bytes;
            for (uint64_t i = 0; i < n_blocks; i++)
                make_block(into + (k + i) * rows->size, scales[r * t->scale_step + i],
                           bytes + r * t->row_step + i * MX_BYTES);
        }
    }
done:
    return rc;
}

int sb_tensor_has_rows_apart(const struct sb_tensor *tensor)
{
    return tensor->interleave || tensor->row_step;
}

int32_t sb_tensor_rows_read(const struct sb_tensors *set, const struct sb_tensor *t,
                            uint64_t offset, char *into, size_t bytes)
{
    const struct sb_file *file = &set->files[t->file].file;
    const uint64_t row_bytes = t->bytes / (uint64_t)t->shape[0];
    const uint64_t most = t->scale_step ? MX_BLOCKS : COLUMNS;
    const uint64_t n = t->scale_step  ? row_bytes / (1 + MX_BYTES)
                       : t->rank == 1 ? 1
                                      : (uint64_t)t->shape[1];
    const struct rows rows = {offset / row_bytes, bytes / row_bytes, row_bytes, row_bytes / n,
                              into};
    int32_t rc = SPECBATCH_OK;

    if (t->interleave)
        return read_interleaved(file, t, offset, into, bytes);
    if (offset % row_bytes != 0 || bytes % row_bytes != 0)
        return sb_fail(SPECBATCH_E_INVALID, "%s: tensor %.100s: read of a part of a row",
                       file->name, t->name);
    for (uint64_t k = 0, some; k < n; k += some) {
        some = n - k < most ? n - k : most;
        SB_TRY(t->scale_step ? read_blocks(set, t, &rows, k, some)
                             : read_columns(file, t, &rows, k, some));
    }
done:
    return rc;
}
