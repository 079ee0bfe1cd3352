/* Reading files, and writing them under a temporary name; file.h says why nothing is mapped. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "port.h"
#include "status.h"

const char *sb_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

int32_t sb_file_fail(int32_t rc, const char *path)
{
    const char *name = sb_file_name(path);
    const size_t n = strlen(name);
    char message[SPECBATCH_ERROR_MAX];

    if (rc == SPECBATCH_OK)
        return rc;
    snprintf(message, sizeof message, "%s", sb_last_error());
    if (strncmp(message, name, n) == 0 && strncmp(message + n, ": ", 2) == 0)
        sb_fail(rc, "%s", message + n + 2);
    return sb_fail_in(rc, path);
}

int sb_file_is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int32_t check_length(int n, const char *name)
{
    if (n < 0 || n >= 1024)
        return sb_fail(SPECBATCH_E_INVALID, "%.100s: its path is longer than 1023 bytes", name);
    return SPECBATCH_OK;
}

/* The dot makes a folder of nothing, and of a slash alone. */
int32_t sb_file_folder(char dir[1024], const char *path)
{
    const char *name = sb_file_name(path);

    return check_length(snprintf(dir, 1024, "%.*s.", (int)(name - path), path), name);
}

int32_t sb_file_join(char path[1024], const char *dir, const char *name)
{
    return check_length(snprintf(path, 1024, "%s/%s", dir, name), name);
}

/* Fails with the system's words for errno, or with its number where it has no words. */
static int32_t system_error(int32_t code, const char *name, const char *what)
{
    const int error = errno;
    char why[100];

    if (strerror_r(error, why, sizeof why) != 0)
        snprintf(why, sizeof why, "error %d", error);
    return sb_fail(code, "%.100s: %s: %s", name, what, why);
}

int32_t sb_file_open(struct sb_file *file, const char *path)
{
    struct stat st;

    snprintf(file->name, sizeof file->name, "%s", sb_file_name(path));
    /* O_NONBLOCK: if there is a pipe in the file's place, opening it must not wait for a writer. */
    file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->fd < 0)
        return system_error(errno == ENOENT ? SPECBATCH_E_NOT_FOUND : SPECBATCH_E_IO, file->name,
                            "cannot open");
    if (fstat(file->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        sb_file_close(file);
        return sb_fail(SPECBATCH_E_IO, "%s: not a regular file", file->name);
    }
    file->size = (uint64_t)st.st_size;
    return SPECBATCH_OK;
}

int32_t sb_file_read(const struct sb_file *file, uint64_t offset, void *into, size_t size)
{
    char *at = into;

    while (size > 0) {
        ssize_t n = pread(file->fd, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return system_error(SPECBATCH_E_IO, file->name, "cannot read");
        if (n == 0)
            return sb_fail(SPECBATCH_E_IO, "%s: ends at byte %llu, %zu bytes short", file->name,
                           (unsigned long long)offset, size);
        at += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return SPECBATCH_OK;
}

void sb_file_close(struct sb_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
}

int32_t sb_file_load(char **out, size_t *length, const struct sb_mem *mem, const char *path,
                     size_t max_bytes)
{
    struct sb_file file;
    char *text = NULL;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_file_open(&file, path));
    if (file.size > max_bytes)
        SB_FAIL(SPECBATCH_E_FORMAT, "%s: %llu bytes, more than the %zu that are read", file.name,
                (unsigned long long)file.size, max_bytes);
    SB_NEW(text, sb_alloc_raw(mem, (size_t)file.size + 1, 1), file.name);
    SB_TRY(sb_file_read(&file, 0, text, (size_t)file.size));
    text[file.size] = '\0';
    if (length)
        *length = (size_t)file.size;
    *out = text;
    text = NULL;
done:
    sb_free(mem, text);
    sb_file_close(&file);
    return rc;
}

/* --------------------------------------------------------------------------- writing */

int32_t sb_new_file_create(struct sb_new_file *file, const char *path)
{
    int n;

    file->fd = -1;
    snprintf(file->name, sizeof file->name, "%s", sb_file_name(path));
    n = snprintf(file->path, sizeof file->path, "%s", path);
    if (n < 0 || (size_t)n >= sizeof file->path)
        return sb_fail(SPECBATCH_E_INVALID, "%.100s: its path is longer than %zu bytes", file->name,
                       sizeof file->path - 1);
    /* Two that are created at once may find the same name; O_EXCL gives it to one of them. */
    do {
        snprintf(file->temporary, sizeof file->temporary, "%s.%llx.tmp", path,
                 (unsigned long long)sb_port_now_ns());
        file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (file->fd < 0 && (errno == EEXIST || errno == EINTR));
    return file->fd < 0 ? system_error(SPECBATCH_E_IO, file->name, "cannot create") : SPECBATCH_OK;
}

int32_t sb_new_file_write(struct sb_new_file *file, const void *from, size_t size)
{
    const char *at = from;

    while (size > 0) {
        const ssize_t n = write(file->fd, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return system_error(SPECBATCH_E_IO, file->name, "cannot write");
        at += n;
        size -= (size_t)n;
    }
    return SPECBATCH_OK;
}

int32_t sb_new_file_keep(struct sb_new_file *file)
{
    const int written = fsync(file->fd) == 0;
    int32_t rc = SPECBATCH_OK;

    if (!written)
        rc = system_error(SPECBATCH_E_IO, file->name, "cannot write");
    if (close(file->fd) != 0 && written)
        rc = system_error(SPECBATCH_E_IO, file->name, "cannot write");
    file->fd = -1;
    if (rc == SPECBATCH_OK && rename(file->temporary, file->path) != 0)
        rc = system_error(SPECBATCH_E_IO, file->name, "cannot give the written file its name");
    if (rc != SPECBATCH_OK)
        unlink(file->temporary);
    return rc;
}

void sb_new_file_drop(struct sb_new_file *file)
{
    if (file->fd < 0)
        return;
    close(file->fd);
    file->fd = -1;
    unlink(file->temporary);
}

int32_t sb_file_save(const char *path, const void *bytes, size_t size)
{
    struct sb_new_file file;
    int32_t rc = SPECBATCH_OK;

    SB_TRY(sb_new_file_create(&file, path));
    SB_TRY(sb_new_file_write(&file, bytes, size));
    SB_TRY(sb_new_file_keep(&file));
done:
    sb_new_file_drop(&file);
    return rc;
}
