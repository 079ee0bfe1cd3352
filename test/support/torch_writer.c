/* Writing files of torch.save; torch_writer.h says what for. */
#include "support/torch_writer.h"

static void add_text(struct gguf_buffer *buffer, const char *text)
{
    gguf_add(buffer, text, strlen(text));
}

/* A string of the pickle. */
static void add_string(struct gguf_buffer *pickle, const char *text)
{
    add_text(pickle, "X");
    gguf_add_number(pickle, strlen(text), 4);
    add_text(pickle, text);
}

static void add_int(struct gguf_buffer *pickle, uint64_t number)
{
    add_text(pickle, "J");
    gguf_add_number(pickle, number, 4);
}

void torch_tensor(struct torch_writer *w, const char *name, const char *storage, int32_t rank,
                  const int64_t *shape, const char *key, const void *bytes, size_t size)
{
    struct gguf_buffer *p = &w->pickle;
    uint64_t elements = 1, stride;
    char entry[64];

    for (int32_t i = 0; i < rank; i++)
        elements *= (uint64_t)shape[i];
    add_text(p, p->n == 0 ? "\x80\x02}(" : "");
    add_string(p, name);
    add_text(p, "ctorch._utils\n_rebuild_tensor_v2\n((");
    add_string(p, "storage");
    add_text(p, "ctorch\n");
    add_text(p, storage);
    add_text(p, "\n");
    add_string(p, key);
    add_string(p, "cpu");
    add_int(p, elements);
    add_text(p, "tQ");
    add_int(p, 0);
    add_text(p, "(");
    for (int32_t i = 0; i < rank; i++)
        add_int(p, (uint64_t)shape[i]);
    add_text(p, "t(");
    stride = elements;
    for (int32_t i = 0; i < rank; i++)
        add_int(p, stride /= (uint64_t)shape[i]);
    add_text(p, "t\211ccollections\nOrderedDict\n)RtR");
    snprintf(entry, sizeof entry, "data/%.40s", key);
    torch_entry(w, entry, bytes, (size_t)elements * size);
}

/* A number of 32 bits; or its mark, the number being in a zip64 field. */
static void add_short(struct torch_writer *w, uint64_t number)
{
    gguf_add_number(&w->directory, w->zip64 ? UINT32_MAX : number, 4);
}

void torch_entry(struct torch_writer *w, const char *name, const void *bytes, size_t n)
{
    const size_t length = strlen(name) + 2, header = w->file.n;
    struct gguf_buffer *d = &w->directory;

    add_text(&w->file, "PK\3\4");
    gguf_add_number(&w->file, 0, 8); /* version, flags, method, time: readers go by the directory */
    gguf_add_number(&w->file, 0, 2);
    gguf_add_number(&w->file, 0, 8); /* checksum, size */
    gguf_add_number(&w->file, 0, 4);
    gguf_add_number(&w->file, length, 2);
    gguf_add_number(&w->file, 5, 2); /* bytes of an extra field */
    add_text(&w->file, "t/");
    add_text(&w->file, name);
    add_text(&w->file, "extra");
    gguf_add(&w->file, bytes, n);

    add_text(d, "PK\1\2");
    gguf_add_number(d, 0, 4);
    gguf_add_number(d, (uint64_t)w->flags, 2);
    gguf_add_number(d, (uint64_t)w->method, 2);
    gguf_add_number(d, 0, 8);
    add_short(w, n);
    add_short(w, n);
    gguf_add_number(d, length, 2);
    gguf_add_number(d, (w->padded ? 7 : 0) + (w->zip64 ? 28 : 0), 2);
    gguf_add_number(d, w->padded ? 7 : 0, 2); /* bytes of the comment */
    gguf_add_number(d, 0, 8);                 /* disk, attributes */
    add_short(w, header);
    add_text(d, "t/");
    add_text(d, name);
    gguf_add(d, "FB\3\0pad", w->padded ? 7 : 0);
    if (w->zip64) {
        gguf_add_number(d, 1, 2);
        gguf_add_number(d, 24, 2);
        gguf_add_number(d, n, 8);
        gguf_add_number(d, n, 8);
        gguf_add_number(d, header, 8);
    }
    add_text(d, w->padded ? "comment" : "");
    w->n++;
}

/* The zip64 end and its locator. */
static void add_zip64_end(struct torch_writer *w, uint64_t directory)
{
    const uint64_t at = w->file.n;

    add_text(&w->file, "PK\6\6");
    gguf_add_number(&w->file, 44, 8);
    gguf_add_number(&w->file, 0, 8); /* versions, disk */
    gguf_add_number(&w->file, 0, 4);
    gguf_add_number(&w->file, w->n, 8);
    gguf_add_number(&w->file, w->n, 8);
    gguf_add_number(&w->file, w->directory.n, 8);
    gguf_add_number(&w->file, directory, 8);
    add_text(&w->file, "PK\6\7");
    gguf_add_number(&w->file, 0, 4);
    gguf_add_number(&w->file, at, 8);
    gguf_add_number(&w->file, 1, 4);
}

void torch_end(struct torch_writer *w)
{
    uint64_t at;

    if (w->pickle.n > 0) {
        add_text(&w->pickle, "u.");
        torch_entry(w, "data.pkl", w->pickle.at, w->pickle.n);
    }
    at = w->file.n;
    gguf_add(&w->file, w->directory.at, w->directory.n);
    if (w->zip64)
        add_zip64_end(w, at);
    add_text(&w->file, "PK\5\6");
    gguf_add_number(&w->file, 0, 4);
    gguf_add_number(&w->file, w->zip64 ? UINT16_MAX : w->n, 2);
    gguf_add_number(&w->file, w->zip64 ? UINT16_MAX : w->n, 2);
    gguf_add_number(&w->file, w->zip64 ? UINT32_MAX : w->directory.n, 4);
    gguf_add_number(&w->file, w->zip64 ? UINT32_MAX : at, 4);
    gguf_add_number(&w->file, 0, 2);
    free(w->directory.at);
    free(w->pickle.at);
}

void torch_write(struct torch_writer *w, const struct test_dir *dir, const char *name)
{
    torch_end(w);
    test_write(dir, name, w->file.at, w->file.n);
    free(w->file.at);
    *w = (struct torch_writer){.zip64 = w->zip64, .padded = w->padded};
}
