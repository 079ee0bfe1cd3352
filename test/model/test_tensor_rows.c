/*
 * Rows that are gathered from where a file has them (tensor_rows.h), of tensors that take several
 * reads in each direction: more columns, more elements of a column, more blocks of a row and more
 * rows than a read has. Whatever lies between them, each byte comes from the place that the strides
 * say.
 */
#include "model/tensor_rows.h"

#include "model/shards.h"
#include "sbtest.h"
#include "support/safetensors_writer.h"

enum { BYTES = 1 << 20, SCALES_AT = 900000, MX_BYTES = 16, BLOCK = 1 + MX_BYTES };

/* A file of one tensor, of random bytes. */
static unsigned char bytes[BYTES], got[BYTES];

static void open_bytes(struct sb_tensors **set, const struct test_dir *dir)
{
    struct safetensors_writer w = {.data = {.n = 0}};
    uint64_t seed = 7;

    for (int i = 0; i < BYTES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(seed >> 56);
    }
    safetensors_tensor(&w, "x", "U8", 1, (int64_t[]){BYTES}, bytes, BYTES);
    safetensors_write(&w, dir);
    CHECK_OK(sb_tensors_open(set, &test_mem, dir->path));
}

/* Rows of floats whose elements have `size` bytes, or of blocks where size is 0. Each is the
 * `of`-th of the file's. columns: elements or blocks of a row, 0: it is a vector. */
struct shape {
    int rows, columns, size, of;
};

static struct sb_tensor tensor_of(const struct sb_tensors *set, const struct shape *s)
{
    struct sb_tensor t = *sb_tensors_at(set, 0);
    const int columns = s->columns ? s->columns : 1;

    t.rank = s->columns ? 2 : 1;
    t.shape[0] = s->rows;
    t.shape[1] = s->size ? columns : columns * 32;
    t.bytes = (uint64_t)(s->rows * columns * (s->size ? s->size : BLOCK));
    if (s->size) {
        t.row_step = (uint64_t)(s->of * s->size);
        t.column_step = s->columns ? (uint64_t)(s->rows * s->of * s->size) : 0;
    } else {
        t.row_step = (uint64_t)(s->of * columns * MX_BYTES);
        t.scale_file = t.file;
        t.scale_offset = t.offset + SCALES_AT;
        t.scale_step = (uint64_t)(s->of * columns);
    }
    return t;
}

/* What byte `at` of a row of floats is. */
static unsigned char float_byte(const struct shape *s, int row, int at)
{
    const int k = at / s->size;

    return bytes[(k * s->rows * s->of + row * s->of) * s->size + at % s->size];
}

/* What byte `at` of a row of blocks is: a scale, or elements i and i + 16 of a block. */
static unsigned char block_byte(const struct shape *s, int row, int at)
{
    const int block = row * s->of * s->columns + at / BLOCK, i = at % BLOCK - 1;
    const unsigned char *from = bytes + block * MX_BYTES;

    if (i < 0)
        return bytes[SCALES_AT + block];
    return (unsigned char)((from[i / 2] >> i % 2 * 4 & 15) |
                           (from[MX_BYTES / 2 + i / 2] >> i % 2 * 4 & 15) << 4);
}

static void check_rows(const struct sb_tensors *set, const struct shape *s, int first, int n)
{
    const struct sb_tensor t = tensor_of(set, s);
    const int row_bytes = (int)t.bytes / s->rows;

    CHECK_OK(sb_tensor_rows_read(set, &t, (uint64_t)(first * row_bytes), (char *)got,
                                 (size_t)(n * row_bytes)));
    for (int i = 0; i < n * row_bytes; i++) {
        const int row = first + i / row_bytes, at = i % row_bytes;
        CHECK(got[i] == (s->size ? float_byte(s, row, at) : block_byte(s, row, at)));
    }
}

static void rows_of_many_reads(void)
{
    static const struct shape shapes[] = {
        {1300, 21, 2, 2}, {1300, 8, 2, 1}, {1100, 9, 4, 2},
        {700, 17, 4, 1},                                     /* matrices of floats */
        {5000, 0, 2, 2},  {5000, 0, 2, 1}, {3000, 0, 4, 2},  /* biases */
        {100, 90, 0, 2},  {150, 90, 0, 1}, {15, 1024, 0, 2}, /* blocks */
        {7, 1500, 0, 2},  {9, 2100, 0, 1}, {1000, 1, 0, 2},
    };
    const struct test_dir dir = test_dir_make();
    struct sb_tensors *set = NULL;

    open_bytes(&set, &dir);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_rows(set, &shapes[i], 0, shapes[i].rows);
        check_rows(set, &shapes[i], 3, shapes[i].rows - 5);
        check_rows(set, &shapes[i], shapes[i].rows - 1, 1);
    }
    sb_tensors_close(set);
    test_dir_remove(&dir);
}

TEST_BEGIN
RUN(rows_of_many_reads);
TEST_END
