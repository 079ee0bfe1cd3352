/*
 * The safetensors reader: what it reads, and that it refuses everything else by a message that
 * names the file and the tensor. The files are written here, byte by byte, and removed again.
 */
#include "model/shards.h"

#include "support/model_files.h"
#include "sbtest.h"

#define TWO                                                                \
    "{\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]}," \
    "\"__metadata__\":{\"format\":\"pt\"},"                                \
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"

static void reads_what_was_written(void)
{
    const struct test_dir dir = test_dir_make();
    const struct sb_tensor *t;
    struct sb_tensors *set = NULL;
    unsigned char bytes[12];

    test_write_tensors(&dir, "model.safetensors", TWO, 5, 20);
    CHECK_OK(sb_tensors_open(&set, &test_mem, dir.path));
    CHECK_INT(sb_tensors_count(set), 2);
    CHECK_STR(sb_tensors_at(set, 0)->name, "a");
    CHECK(sb_tensors_find(set, "c") == NULL && sb_tensors_find(set, "__metadata__") == NULL);
    t = sb_tensors_find(set, "b");
    CHECK(t != NULL);
    CHECK_STR(t->type, "BF16");
    CHECK_STR(sb_tensors_file(set, t), "model.safetensors");
    CHECK_INT(t->rank, 2);
    CHECK_INT(t->shape[0], 2);
    CHECK_INT(t->shape[1], 3);
    CHECK_INT(t->bytes, 12);
    CHECK_OK(sb_tensors_read(set, t, 0, bytes, 12));
    for (int i = 0; i < 12; i++)
        CHECK_INT(bytes[i], 8 + i);
    CHECK_OK(sb_tensors_read(set, t, 10, bytes, 2));
    CHECK_INT(bytes[0], 18);
    CHECK_ERROR(sb_tensors_read(set, t, 10, bytes, 3), SPECBATCH_E_INVALID, "tensor b");
    CHECK_ERROR(sb_tensors_read(set, t, UINT64_MAX, bytes, 3), SPECBATCH_E_INVALID, "tensor b");
    sb_tensors_close(set);
    test_dir_remove(&dir);
}

/* What is unusual but legal: scalars, empty tensors (several at one offset), types that no model
 * here can have, no tensor at all. */
static void reads_the_unusual(void)
{
    static const struct {
        const char *header;
        size_t data;
        int32_t count;
    } cases[] = {
        {"{}", 0, 0},
        {"{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8, 1},
        {"{\"e\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]},"
         "\"f\":{\"dtype\":\"I8\",\"shape\":[3],\"data_offsets\":[0,3]},"
         "\"g\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[3,3]},"
         "\"h\":{\"dtype\":\"F4\",\"shape\":[4],\"data_offsets\":[3,5]}}",
         5, 4},
        {"{\"r\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[0,2]}}", 2, 1},
    };
    const struct test_dir dir = test_dir_make();

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sb_tensors *set = NULL;
        test_write_tensors(&dir, "model.safetensors", cases[i].header, 0, cases[i].data);
        CHECK_OK(sb_tensors_open(&set, &test_mem, dir.path));
        CHECK_INT(sb_tensors_count(set), cases[i].count);
        sb_tensors_close(set);
    }
    test_dir_remove(&dir);
}

#define X(fields) "{\"x\":{" fields "}}"
#define OFF(a, b) "\"data_offsets\":[" #a "," #b "]"

static const struct refusal {
    const char *header;
    size_t data;
    const char *part;
} refusals[] = {
    {"[1]", 0, "not a JSON object"},
    {" {}", 0, "not a JSON object"},
    {"", 0, "not a JSON object"},
    {"{\"x\":1", 0, "model.safetensors"},
    {"{\"x\":\xff}", 0, "model.safetensors"},
    {"{\"x\":3}", 0, "tensor x"},
    {X("\"dtype\":\"F32\",\"shape\":[1]"), 4, "tensor x"},
    {X("\"dtype\":\"F32\",\"shape\":[1]," OFF(0, 4) ",\"more\":1"), 4, "tensor x"},
    {X("\"dtype\":\"F31\",\"shape\":[1]," OFF(0, 4)), 4, "unknown dtype \"F31\""},
    {X("\"dtype\":\"BF16\\u0000\",\"shape\":[2]," OFF(0, 4)), 4, "tensor x: dtype"},
    {X("\"dtype\":32,\"shape\":[1]," OFF(0, 4)), 4, "tensor x: dtype"},
    {X("\"dtype\":\"F32\",\"shape\":4," OFF(0, 4)), 4, "tensor x: shape"},
    {X("\"dtype\":\"F32\",\"shape\":[-1]," OFF(0, 4)), 4, "tensor x: shape"},
    {X("\"dtype\":\"F32\",\"shape\":[1.0]," OFF(0, 4)), 4, "tensor x: shape"},
    {X("\"dtype\":\"F32\",\"shape\":[1e0]," OFF(0, 4)), 4, "tensor x: shape"},
    {X("\"dtype\":\"F32\",\"shape\":[\"1\"]," OFF(0, 4)), 4, "tensor x: shape"},
    {X("\"dtype\":\"F32\",\"shape\":[18446744073709551617]," OFF(0, 4)), 4, "tensor x: shape"},
    {X("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,1]," OFF(0, 4)), 4, "shape overflows"},
    {X("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,0]," OFF(0, 0)), 0, "shape overflows"},
    {X("\"dtype\":\"F32\",\"shape\":[4611686018427387905]," OFF(0, 4)), 4, "tensor x: its 4 bytes"},
    {X("\"dtype\":\"F32\",\"shape\":[2]," OFF(0, 4)), 4, "tensor x: its 4 bytes"},
    {X("\"dtype\":\"F4\",\"shape\":[3]," OFF(0, 1)), 1, "tensor x: its 1 bytes"},
    {X("\"dtype\":\"F32\",\"shape\":[1]," OFF(4, 0)), 4, "tensor x: data_offsets"},
    {X("\"dtype\":\"F32\",\"shape\":[1]," OFF(-4, 0)), 4, "tensor x: data_offsets"},
    {X("\"dtype\":\"F32\",\"shape\":[1]," OFF(0, 4.0)), 4, "tensor x: data_offsets"},
    {X("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]"), 4, "tensor x: data_offsets"},
    {X("\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":\"0,4\""), 4, "tensor x: data_offsets"},
    {X("\"dtype\":\"F32\",\"shape\":[1]," OFF(0, 4)), 3, "tensor x: ends beyond the file"},
    {X("\"dtype\":\"F32\",\"shape\":[1]," OFF(0, 4)), 5, "1 bytes after the last tensor"},
    {X("\"dtype\":\"F32\",\"shape\":[1]," OFF(4, 8)), 8,
     "tensor x: begins at byte 4 of the data, leaving a hole"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4]," OFF(
         0, 4) "},\"y\":{\"dtype\":\"U8\",\"shape\":[4]," OFF(3, 7) "}}",
     7, "tensor y: begins at byte 3 of the data, overlapping"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4]," OFF(
         0, 4) "},\"y\":{\"dtype\":\"U8\",\"shape\":[4]," OFF(0, 4) "}}",
     4, "overlapping"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[4]," OFF(
         0, 4) "},\"y\":{\"dtype\":\"U8\",\"shape\":[2]," OFF(6, 8) "}}",
     8, "tensor y: begins at byte 6 of the data, leaving a hole"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1]," OFF(
         0, 1) "},\"x\":{\"dtype\":\"U8\",\"shape\":[1]," OFF(1, 2) "}}",
     2, "model.safetensors"},
    {X("\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1]," OFF(0, 1)), 1, "model.safetensors"},
    {"{\"__metadata__\":[]}", 0, "__metadata__"},
    {"{\"__metadata__\":{\"format\":1}}", 0, "__metadata__"},
    {"{\"\":{\"dtype\":\"U8\",\"shape\":[1]," OFF(0, 1) "}}", 1, "name has 0 bytes"},
    {"{\"a\\u0000b\":{\"dtype\":\"U8\",\"shape\":[1]," OFF(0, 1) "}}", 1, "control character"},
    {"{\"a\\nb\":{\"dtype\":\"U8\",\"shape\":[1]," OFF(0, 1) "}}", 1, "control character"},
};

static void refuses_bad_headers(void)
{
    const struct test_dir dir = test_dir_make();

    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct sb_tensors *set = NULL;
        test_write_tensors(&dir, "model.safetensors", refusals[i].header, 0, refusals[i].data);
        CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT,
                    refusals[i].part);
        CHECK(strstr(specbatch_last_error(), "model.safetensors") != NULL);
        CHECK(set == NULL);
    }
    test_write_tensors(&dir, "model.safetensors",
                       X("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1]," OFF(0, 1)), 0, 1);
    CHECK_ERROR(sb_tensors_open(&(struct sb_tensors *){NULL}, &test_mem, dir.path),
                SPECBATCH_E_UNSUPPORTED, "more than 8 dimensions");
    test_dir_remove(&dir);
}

/* The length at the beginning of a file decides how much is read: all ways in which it may lie. */
static void refuses_bad_lengths(void)
{
    static const uint64_t lengths[] = {
        3, 9, 100, 100000000, 100000001, (uint64_t)1 << 32, UINT64_MAX - 7, UINT64_MAX};
    const struct test_dir dir = test_dir_make();
    struct sb_tensors *set = NULL;
    unsigned char file[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        for (int b = 0; b < 8; b++)
            file[b] = (unsigned char)(lengths[i] >> 8 * b);
        test_write(&dir, "model.safetensors", file, sizeof file);
        CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT,
                    "model.safetensors: header of");
    }
    for (size_t n = 0; n < 8; n++) {
        test_write(&dir, "model.safetensors", file, n);
        CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT, "too short");
    }
    test_dir_remove(&dir);
}

/* What a clone without Git LFS leaves in place of a file: of the only one, and of a shard. */
static void refuses_lfs_pointers(void)
{
    static const char
        pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:"
                    "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
                    "size 12345\n";
    const struct test_dir dir = test_dir_make();
    struct sb_tensors *set = NULL;

    test_write_text(&dir, "model.safetensors.index.json",
                    "{\"weight_map\":{\"q\":\"s1.safetensors\"}}");
    test_write_text(&dir, "s1.safetensors", pointer);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT,
                "s1.safetensors: a Git LFS pointer");
    test_write_text(&dir, "model.safetensors", pointer);
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT,
                "model.safetensors: a Git LFS pointer");
    CHECK(strstr(specbatch_last_error(), "git lfs pull"));
    test_write(&dir, "model.safetensors", pointer, 22); /* too short to tell */
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT, "header of");
    test_dir_remove(&dir);
}

static void says_what_is_missing(void)
{
    const struct test_dir dir = test_dir_make();
    struct sb_tensors *set = NULL;

    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_IO, "no model.safetensors");
    test_dir_remove(&dir);
}

/* --------------------------------------------------------------------------- shards */

#define SHARD(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[4]," OFF(0, 4) "}}"

static int32_t open_with_index(const struct test_dir *dir, const char *map)
{
    struct sb_tensors *set = NULL;
    char text[512];
    int32_t rc;

    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":8},\"weight_map\":%s}", map);
    test_write_text(dir, "model.safetensors.index.json", text);
    rc = sb_tensors_open(&set, &test_mem, dir->path);
    sb_tensors_close(set);
    return rc;
}

static void reads_shards(void)
{
    const struct test_dir dir = test_dir_make();
    struct sb_tensors *set = NULL;
    unsigned char byte;

    test_write_tensors(&dir, "s1.safetensors", SHARD("q"), 0, 4);
    test_write_tensors(&dir, "s2.safetensors", SHARD("p"), 3, 4);
    CHECK_OK(open_with_index(&dir, "{\"q\":\"s1.safetensors\",\"p\":\"s2.safetensors\"}"));
    CHECK_OK(sb_tensors_open(&set, &test_mem, dir.path));
    CHECK_INT(sb_tensors_count(set), 2);
    CHECK_STR(sb_tensors_file(set, sb_tensors_find(set, "p")), "s2.safetensors");
    CHECK_OK(sb_tensors_read(set, sb_tensors_find(set, "q"), 3, &byte, 1));
    CHECK_INT(byte, 3);
    sb_tensors_close(set);
    test_dir_remove(&dir);
}

/* No entry of an index with too many is looked at. */
static void refuses_endless_indexes(void)
{
    const int n = 1000001;
    struct test_dir dir = test_dir_make();
    char *map = malloc((size_t)n * 12 + 2), *at = map;

    CHECK(map != NULL);
    for (int i = 0; i < n; i++)
        at += sprintf(at, "%c\"%x\":0", i ? ',' : '{', (unsigned)i);
    strcpy(at, "}");
    char *text = malloc(strlen(map) + 100);
    CHECK(text != NULL);
    sprintf(text, "{\"weight_map\":%s}", map);
    test_write_text(&dir, "model.safetensors.index.json", text);
    struct sb_tensors *set = NULL;
    CHECK_ERROR(sb_tensors_open(&set, &test_mem, dir.path), SPECBATCH_E_FORMAT,
                "model.safetensors.index.json: more than 1000000 tensors");
    free(map);
    free(text);
    test_dir_remove(&dir);
}

static void refuses_bad_indexes(void)
{
    static const struct {
        const char *map;
        int32_t code;
        const char *part;
    } cases[] = {
        {"{\"q\":\"s1.safetensors\",\"p\":\"s3.safetensors\"}", SPECBATCH_E_IO,
         "s3.safetensors is not there"},
        {"{\"p\":\"s3.safetensors\",\"q\":\"s1.safetensors\"}", SPECBATCH_E_IO,
         "s3.safetensors is not there"},
        {"{\"q\":\"s1.safetensors\",\"p\":\"s1.safetensors\"}", SPECBATCH_E_FORMAT,
         "tensor p is not in s1"},
        {"{\"q\":\"s2.safetensors\",\"p\":\"s1.safetensors\"}", SPECBATCH_E_FORMAT,
         "tensor q is not in s2"},
        {"{\"q\":\"s1.safetensors\",\"r\":\"s2.safetensors\"}", SPECBATCH_E_FORMAT,
         "tensor r is not in s2"},
        {"{\"q\":\"s1.safetensors\",\"p\":\"twice.safetensors\"}", SPECBATCH_E_FORMAT,
         "tensor q is in"},
        {"{\"q\":\"s1.safetensors\",\"p\":\"two.safetensors\"}", SPECBATCH_E_FORMAT,
         "two.safetensors: tensor z is not in"},
        {"{\"q\":\"../s1.safetensors\"}", SPECBATCH_E_FORMAT, "not a plain file name"},
        {"{\"q\":\"/etc/passwd\"}", SPECBATCH_E_FORMAT, "tensor q: \"/etc/passwd\""},
        {"{\"q\":\"a\\\\b\"}", SPECBATCH_E_FORMAT, "not a plain file name"},
        {"{\"q\":\".hidden\"}", SPECBATCH_E_FORMAT, "not a plain file name"},
        {"{\"q\":\"a..b\"}", SPECBATCH_E_FORMAT, "not a plain file name"},
        {"{\"q\":\"\"}", SPECBATCH_E_FORMAT, "not a plain file name"},
        {"{\"q\":\"s1.safetensors\\u0000x\"}", SPECBATCH_E_FORMAT, "not a plain file name"},
        {"{\"q\":7}", SPECBATCH_E_FORMAT, "not a plain file name"},
        {"{\"q\":\"s1.safetensors\",\"p\":\"s2.safetensors\",\"q\\u0000\":\"s1.safetensors\"}",
         SPECBATCH_E_FORMAT, "control character"},
        {"{\"q\":\"s1.safetensors\",\"q\":\"s2.safetensors\"}", SPECBATCH_E_FORMAT, "index.json"},
        {"[]", SPECBATCH_E_FORMAT, "weight_map"},
    };
    const struct test_dir dir = test_dir_make();
    char long_name[300];

    test_write_tensors(&dir, "s1.safetensors", SHARD("q"), 0, 4);
    test_write_tensors(&dir, "s2.safetensors", SHARD("p"), 0, 4);
    test_write_tensors(&dir, "twice.safetensors", SHARD("q"), 0, 4);
    test_write_tensors(&dir, "two.safetensors",
                       "{\"p\":{\"dtype\":\"U8\",\"shape\":[4]," OFF(
                           0, 4) "},"
                                 "\"z\":{\"dtype\":\"U8\",\"shape\":[0]," OFF(4, 4) "}}",
                       0, 4);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK_ERROR(open_with_index(&dir, cases[i].map), cases[i].code, cases[i].part);
    snprintf(long_name, sizeof long_name, "{\"q\":\"%0256d\"}", 7);
    CHECK_ERROR(open_with_index(&dir, long_name), SPECBATCH_E_UNSUPPORTED, "file name too long: 0");
    test_dir_remove(&dir);
}

/* ---------------------------------------------------------------------- many bad files */

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Reads all tensors of a file that was accepted, to their last byte. */
static int all_readable(const struct sb_tensors *set)
{
    unsigned char bytes[64];

    for (int32_t i = 0; i < sb_tensors_count(set); i++) {
        const struct sb_tensor *t = sb_tensors_at(set, i);
        if (t->bytes > sizeof bytes ||
            sb_tensors_read(set, t, 0, bytes, (size_t)t->bytes) != SPECBATCH_OK ||
            sb_tensors_find(set, t->name) != t)
            return 0;
    }
    return 1;
}

/* Mutations of a small file: bytes changed, digits exchanged, the end cut off. None of them makes
 * the reader crash, and every refusal has a code that is about files. */
static void survives_mutations(void)
{
    const struct test_dir dir = test_dir_make();
    unsigned char original[512], file[512];
    int accepted = 0, refused = 0;
    size_t length = 0;
    uint32_t random = 2463534242u;
    char *bytes;

    test_write_tensors(&dir, "model.safetensors", TWO, 0, 20);
    bytes = test_read(dir.path, "model.safetensors", &length);
    CHECK(bytes && length < sizeof original);
    memcpy(original, bytes, length);
    free(bytes);
    for (int round = 0; round < 6000; round++) {
        struct sb_tensors *set = NULL;
        const int changes = 1 + (int)(next_random(&random) % 3);
        size_t n = next_random(&random) % 16 == 0 ? next_random(&random) % length : length;
        int32_t rc;
        memcpy(file, original, length);
        for (int i = 0; i < changes; i++) {
            unsigned char *at = &file[next_random(&random) % length];
            *at = round % 2 ? (unsigned char)next_random(&random)
                            : (unsigned char)(*at ^ 1u << next_random(&random) % 8);
        }
        test_write(&dir, "model.safetensors", file, n);
        rc = sb_tensors_open(&set, &test_mem, dir.path);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_FORMAT || rc == SPECBATCH_E_UNSUPPORTED);
        CHECK(rc != SPECBATCH_OK || all_readable(set));
        accepted += rc == SPECBATCH_OK;
        refused += rc != SPECBATCH_OK;
        sb_tensors_close(set);
    }
    CHECK(accepted > 100 && refused > 1000); /* enough of either for the test to mean something */
    test_dir_remove(&dir);
}

static void runs_out_of_memory_cleanly(void)
{
    const struct test_dir dir = test_dir_make();
    struct test_memory memory = {0, 0, 0};
    const struct sb_mem mem = {test_memory_alloc, test_memory_free, &memory};
    struct sb_tensors *set = NULL;
    int32_t rc = SPECBATCH_E_NOMEM;

    test_write_tensors(&dir, "s1.safetensors", SHARD("q"), 0, 4);
    test_write_tensors(&dir, "s2.safetensors", SHARD("p"), 0, 4);
    CHECK_OK(open_with_index(&dir, "{\"q\":\"s1.safetensors\",\"p\":\"s2.safetensors\"}"));
    for (int64_t at = 0; rc != SPECBATCH_OK; at++) {
        memory = (struct test_memory){0, at, 0};
        rc = sb_tensors_open(&set, &mem, dir.path);
        CHECK(rc == SPECBATCH_OK || rc == SPECBATCH_E_NOMEM);
        CHECK(rc == SPECBATCH_OK || memory.live == 0);
        CHECK(at < 1000);
    }
    sb_tensors_close(set);
    CHECK_INT(memory.live, 0);
    test_dir_remove(&dir);
}

TEST_BEGIN
RUN(reads_what_was_written);
RUN(reads_the_unusual);
RUN(refuses_bad_headers);
RUN(refuses_bad_lengths);
RUN(refuses_lfs_pointers);
RUN(says_what_is_missing);
RUN(reads_shards);
RUN(refuses_bad_indexes);
RUN(refuses_endless_indexes);
RUN(survives_mutations);
RUN(runs_out_of_memory_cleanly);
TEST_END
