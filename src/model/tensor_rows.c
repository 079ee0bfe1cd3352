/* Rows that are gathered from where a file has them; tensor_rows.h lists the ways. Nothing here
 * takes memory: what a row is made of goes through buffers of a few KiB. */
#include "model/tensor_rows.h"

#include <string.h>

#include "status.h"

enum {
    PIECE_BYTES = 4096, /* of a column, as it is read */
    MX_BLOCKS = 256,    /* of a row of MXFP4, likewise */
    MX_BYTES = 16       /* of the elements of a block */
};

/* Where the file has row `row` of a tensor whose rows are interleaved. Row i of a head's first half
 * has become row 2 i of the head, and row i of its second half 2 i + 1. */
static uint64_t interleaved(uint64_t row, uint64_t head_rows)
{
    const uint64_t half = head_rows / 2, in_head = row % head_rows;

    return row - in_head + 2 * (in_head % half) + in_head / half;
}

/* Reads rows that lie whole, row by row. To read more at once and to sort rows in memory would take
 * a second buffer and save no time that shows: opening a file of Llama takes as long as opening the
 * same weights as safetensors. */
static int32_t read_whole(const struct sb_file *file, const struct sb_tensor *t, uint64_t offset,
                          char *into, size_t bytes)
{
    const uint64_t row_bytes = t->bytes / (uint64_t)t->shape[0];
    int32_t rc = SPECBATCH_OK;

    while (bytes > 0) {
        const uint64_t row = offset / row_bytes, in_row = offset % row_bytes;
        const uint64_t at = t->interleave ? interleaved(row, (uint64_t)t->interleave) * row_bytes
                                          : row * t->row_step;
        const size_t n = bytes < row_bytes - in_row ? bytes : (size_t)(row_bytes - in_row);
        SB_TRY(sb_file_read(file, t->offset + at + in_row, into, n));
        into += n;
        offset += n;
        bytes -= n;
    }
done:
    return rc;
}

/* Reads element k of rows [first, first + n), whose row_bytes bytes each lie from `into` on. */
static int32_t read_column(const struct sb_file *file, const struct sb_tensor *t, uint64_t k,
                           uint64_t first, uint64_t n, char *into, uint64_t row_bytes)
{
    const uint64_t size = row_bytes / (uint64_t)t->shape[1];
    const uint64_t most = (PIECE_BYTES - size) / t->row_step + 1; /* rows of a piece */
    char piece[PIECE_BYTES];
    int32_t rc = SPECBATCH_OK;

    for (uint64_t row = 0, some; row < n; row += some) {
        some = n - row < most ? n - row : most;
        SB_TRY(sb_file_read(file, t->offset + k * t->column_step + (first + row) * t->row_step,
                            piece, (size_t)((some - 1) * t->row_step + size)));
        for (uint64_t r = 0; r < some; r++)
            memcpy(into + (row + r) * row_bytes + k * size, piece + r * t->row_step, (size_t)size);
    }
done:
    return rc;
}

/* A block as quant.h has it: its scale, and elements i and i + 16 in byte i. Here elements 2 i and
 * 2 i + 1 are in byte i. */
static void make_block(unsigned char *block, unsigned char scale, const unsigned char *bytes)
{
    block[0] = scale;
    for (int i = 0; i < MX_BYTES; i++) {
        const int low = bytes[i / 2] >> 4 * (i % 2) & 15;
        const int high = bytes[MX_BYTES / 2 + i / 2] >> 4 * (i % 2) & 15;
        block[1 + i] = (unsigned char)(low | high << 4);
    }
}

/* Reads a row of n blocks. */
static int32_t read_blocks(const struct sb_tensors *set, const struct sb_tensor *t, uint64_t row,
                           unsigned char *into, uint64_t n)
{
    const struct sb_file *file = &set->files[t->file].file;
    const struct sb_file *scale_file = &set->files[t->scale_file].file;
    unsigned char bytes[MX_BLOCKS][MX_BYTES], scales[MX_BLOCKS];
    int32_t rc = SPECBATCH_OK;

    for (uint64_t at = 0, some; at < n; at += some) {
        some = n - at < MX_BLOCKS ? n - at : MX_BLOCKS;
        SB_TRY(sb_file_read(file, t->offset + row * t->row_step + at * MX_BYTES, bytes,
                            (size_t)some * MX_BYTES));
        SB_TRY(sb_file_read(scale_file, t->scale_offset + row * t->scale_step + at, scales,
                            (size_t)some));
        for (uint64_t i = 0; i < some; i++, into += 1 + MX_BYTES)
            make_block(into, scales[i], bytes[i]);
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
    const uint64_t first = offset / row_bytes, n = bytes / row_bytes;
    int32_t rc = SPECBATCH_OK;

    if (!t->column_step && !t->scale_step)
        return read_whole(file, t, offset, into, bytes);
    if (offset % row_bytes != 0 || bytes % row_bytes != 0)
        return sb_fail(SPECBATCH_E_INVALID, "%s: tensor %.100s: read of a part of a row",
                       file->name, t->name);
    for (int64_t k = 0; t->column_step && k < t->shape[1]; k++)
        SB_TRY(read_column(file, t, (uint64_t)k, first, n, into, row_bytes));
    for (uint64_t row = 0; t->scale_step && row < n; row++)
        SB_TRY(read_blocks(set, t, first + row, (unsigned char *)into + row * row_bytes,
                           row_bytes / (1 + MX_BYTES)));
done:
    return rc;
}
