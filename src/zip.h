/*
 * Zip archives whose entries are stored as they are, without compression: what is in one, and where
 * it lies in the file. PKWARE describes the format in APPNOTE.TXT.
 *
 *   local header, data              once for each entry
 *   central header                  once for each entry: its name, its size, its local header's
 *                                   place; all of them are the directory
 *   zip64 end, zip64 locator        only if 32 bits are too few for the places
 *   end                             where the directory lies
 *
 * The directory is read into memory and checked when the archive is opened. What is compressed,
 * encrypted or in several files is refused. Checksums are not verified: they are over whole
 * entries, and tensors are read a part at a time.
 *
 * libzip was weighed and not taken. It hands out streams but not the place of an entry in the file,
 * which is all that is wanted here, and with it a program would load libraries for compression and
 * for encryption, which these archives do not have.
 */
#ifndef SB_ZIP_H
#define SB_ZIP_H

#include <stdint.h>

#include "alloc.h"
#include "file.h"

struct sb_zip_entry {
    const char *name; /* borrowed from the archive's directory */
    uint64_t header;  /* place of its local header in the file */
    uint64_t bytes;   /* of its data */
};

struct sb_zip {
    struct sb_mem mem;
    unsigned char *directory;
    struct sb_zip_entry *list; /* sorted by name */
    size_t n;
};

/* Reads and checks the directory of an archive. E_FORMAT, E_UNSUPPORTED, E_IO, E_NOMEM; *zip is
 * closed then. */
int32_t sb_zip_open(struct sb_zip *zip, const struct sb_mem *mem, const struct sb_file *file);
/* Frees the memory; an archive that is closed already is fine. The file is its owner's. */
void sb_zip_close(struct sb_zip *zip);

/* The entry of this name, or NULL. */
const struct sb_zip_entry *sb_zip_find(const struct sb_zip *zip, const char *name);
/* Reads an entry's local header. *data: place of its first byte; all its bytes are in the file.
 * E_FORMAT, E_IO. */
int32_t sb_zip_locate(uint64_t *data, const struct sb_file *file, const struct sb_zip_entry *entry);

#endif
