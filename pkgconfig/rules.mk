# Installing the library, with the files by which pkg-config and CMake find it, and the programs
# with their manual pages. The Makefile includes this file.
#
## To install
#   make PREFIX=/usr/local LIBDIR=... INCLUDEDIR=... BINDIR=... MANDIR=... DESTDIR=... install
#                                   where to; DESTDIR is put before all of them
PREFIX     ?= /usr/local
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR     ?= $(PREFIX)/bin
MANDIR     ?= $(PREFIX)/share/man
DOC_DIR    := $(PREFIX)/share/doc/specbatch
PC_DIR     := $(LIBDIR)/pkgconfig
CMAKE_DIR  := $(LIBDIR)/cmake/specbatch

# The two files reach the rest by paths relative to their own folder, so that an installed tree may
# be moved. Only under /usr are pkg-config's paths absolute: there it has to know them for those
# that a compiler searches anyway, and to leave them out.
relative  = $(shell realpath -ms --relative-to='$(1)' '$(2)')
PC_PREFIX = $(if $(filter /usr,$(PREFIX)),/usr,$${pcfiledir}/$(call relative,$(PC_DIR),$(PREFIX)))
FROM_PREFIX_LIBDIR     = $(call relative,$(PREFIX),$(LIBDIR))
FROM_PREFIX_INCLUDEDIR = $(call relative,$(PREFIX),$(INCLUDEDIR))

# The first version of this soname: a new soname begins with one node for all symbols.
OLDEST = $(shell sed -n 's/^SPECBATCH_\([0-9.]*\) {.*/\1/p' src/specbatch.map | head -n 1)

# fill,PREFIX,LIBDIR,INCLUDEDIR: the command that fills in a template of this folder.
fill = sed -e 's|@PREFIX@|$(1)|;s|@LIBDIR@|$(2)|;s|@INCLUDEDIR@|$(3)|;s|@VERSION@|$(VERSION)|' \
       -e 's|@OLDEST@|$(OLDEST)|;s|@SHARED@|$(notdir $(SHARED))|' \
       -e 's|@SONAME@|$(SONAME)|;s|@REQUIRES_PRIVATE@|$(if $(STATIC),,yajl)|' \
       -e 's|@LIBS_PRIVATE@|$(strip $(if $(STATIC),$(YAJL)) $(C_LIBRARIES))|'
fill_pc    = $(call fill,$(1),$${prefix}/$(2),$${prefix}/$(3)) pkgconfig/specbatch.pc.in
fill_cmake = $(call fill,$(call relative,$(CMAKE_DIR),$(PREFIX)),$(FROM_PREFIX_LIBDIR),$(strip \
             $(FROM_PREFIX_INCLUDEDIR)))

# The programs are examples, linked once more: they find the library from where they are, so that
# an installed tree may be moved. Under /usr the system finds it. What they have of PREFIX is noted
# in a file: `make install` links them again only where that differs.
PROGRAMS     := $(addprefix $(B)/programs/specbatch-,generate chat bench quantize table)
MANUALS      := $(wildcard docs/man/*.[13])
pages         = $(addprefix $(MANDIR)/man$(1)/,$(notdir $(filter %.$(1),$(MANUALS))))
FROM_BINDIR   = $(if $(filter /usr,$(PREFIX)),,$(call relative,$(BINDIR),$(LIBDIR)))
PROGRAM_PATH  = $(if $(FROM_BINDIR),-Wl$(comma)-rpath$(comma)'$$ORIGIN/$(FROM_BINDIR)')
PROGRAM_LIBS  = -L$(B) -lspecbatch $(YAJL) -lm $(PROGRAM_PATH)
$(B)/programs/path: force
	@mkdir -p $(@D); echo '$(FROM_BINDIR)' | cmp -s - $@ || echo '$(FROM_BINDIR)' >$@
define program_rule
$(B)/programs/specbatch-$(1): examples/$(2).c $(B)/examples.a $(SHARED) $(B)/programs/path
	@echo "  EX   $$@"
	$$(Q)$$(COMPILE) $$(PROGRAM_FLAGS) $$(USER_FLAGS) $$< $(B)/examples.a $$(PROGRAM_LINK) \
	    $$(LDFLAGS) $$(PROGRAM_LIBS) -o $$@
endef
$(foreach name,generate chat bench quantize,$(eval $(call program_rule,$(name),$(name))))
$(eval $(call program_rule,table,ngram_table))

HEADERS     := $(HEADER) include/specbatch.hpp
CMAKE_FILES := specbatch-config.cmake specbatch-config-version.cmake
INSTALLED    = $(addprefix $(LIBDIR)/,$(notdir $(SHARED) $(ARCHIVE) $(CUDA_SHARED)) $(SONAME) \
               libspecbatch.so) $(HEADERS:include/%=$(INCLUDEDIR)/%) $(PC_DIR)/specbatch.pc \
               $(CMAKE_FILES:%=$(CMAKE_DIR)/%) $(addprefix $(BINDIR)/,$(notdir $(PROGRAMS))) \
               $(call pages,1) $(call pages,3) $(DOC_DIR)/LICENSE.yajl

.PHONY: install uninstall
install: $(SHARED) $(ARCHIVE) $(MODULE) $(PROGRAMS) ## install library, programs, manual pages
	install -d $(addprefix $(DESTDIR),$(PC_DIR) $(CMAKE_DIR) $(INCLUDEDIR) $(BINDIR))
	install -d $(addprefix $(DESTDIR)$(MANDIR)/,man1 man3)
	install -m 755 $(PROGRAMS) $(DESTDIR)$(BINDIR)
	install -m 644 $(filter %.1,$(MANUALS)) $(DESTDIR)$(MANDIR)/man1
	install -m 644 $(filter %.3,$(MANUALS)) $(DESTDIR)$(MANDIR)/man3
	install -m 755 $(SHARED) $(DESTDIR)$(LIBDIR)
	cp -P $(B)/$(SONAME) $(B)/libspecbatch.so $(DESTDIR)$(LIBDIR)
	install -m 644 $(ARCHIVE) $(DESTDIR)$(LIBDIR)
	rm -f $(DESTDIR)$(LIBDIR)/$(notdir $(CUDA_SHARED))
	$(if $(MODULE),install -m 755 $(MODULE) $(DESTDIR)$(LIBDIR))
	install -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)
	$(if $(STATIC),install -D -m 644 pkgconfig/LICENSE.yajl $(DESTDIR)$(DOC_DIR)/LICENSE.yajl)
	$(Q)$(call fill_pc,$(PC_PREFIX),$(FROM_PREFIX_LIBDIR),$(FROM_PREFIX_INCLUDEDIR)) \
	    >$(DESTDIR)$(PC_DIR)/specbatch.pc
	$(Q)$(foreach file,$(CMAKE_FILES),$(fill_cmake) pkgconfig/$(file).in \
	    >$(DESTDIR)$(CMAKE_DIR)/$(file) &&) :
uninstall:              ## remove what install put there
	rm -f $(INSTALLED:%=$(DESTDIR)%)
	[ ! -d $(DESTDIR)$(CMAKE_DIR) ] || rmdir $(DESTDIR)$(CMAKE_DIR)
	[ ! -d $(DESTDIR)$(DOC_DIR) ] || rmdir --ignore-fail-on-non-empty $(DESTDIR)$(DOC_DIR)
