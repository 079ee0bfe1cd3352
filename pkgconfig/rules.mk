# Installing the library, with the files by which pkg-config and CMake find it. The Makefile
# includes this file.
#
## To install
#   make PREFIX=/usr/local LIBDIR=... INCLUDEDIR=... DESTDIR=... install
#                                   where to; DESTDIR is put before all of them
PREFIX     ?= /usr/local
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
PC_DIR     := $(LIBDIR)/pkgconfig
CMAKE_DIR  := $(LIBDIR)/cmake/specbatch

# The two files reach the rest by paths relative to their own folder, so that an installed tree may
# be moved. Only under /usr are pkg-config's paths absolute: there it has to know them for those
# that a compiler searches anyway, and to leave them out.
relative  = $(shell realpath -ms --relative-to='$(1)' '$(2)')
PC_PREFIX = $(if $(filter /usr,$(PREFIX)),/usr,$${pcfiledir}/$(call relative,$(PC_DIR),$(PREFIX)))
FROM_PREFIX_LIBDIR     = $(call relative,$(PREFIX),$(LIBDIR))
FROM_PREFIX_INCLUDEDIR = $(call relative,$(PREFIX),$(INCLUDEDIR))

# fill,PREFIX,LIBDIR,INCLUDEDIR: the command that fills in a template of this folder.
fill = sed -e 's|@PREFIX@|$(1)|;s|@LIBDIR@|$(2)|;s|@INCLUDEDIR@|$(3)|;s|@VERSION@|$(VERSION)|' \
       -e 's|@VERSION_MAJOR@|$(call version_of,VERSION_MAJOR)|;s|@SHARED@|$(notdir $(SHARED))|' \
       -e 's|@SONAME@|$(SONAME)|;s|@REQUIRES_PRIVATE@|$(if $(STATIC),,yajl)|' \
       -e 's|@LIBS_PRIVATE@|$(strip $(if $(STATIC),$(YAJL)) $(C_LIBRARIES))|'
fill_pc    = $(call fill,$(1),$${prefix}/$(2),$${prefix}/$(3)) pkgconfig/specbatch.pc.in
fill_cmake = $(call fill,$(call relative,$(CMAKE_DIR),$(PREFIX)),$(FROM_PREFIX_LIBDIR),$(strip \
             $(FROM_PREFIX_INCLUDEDIR)))

HEADERS     := $(HEADER) include/specbatch.hpp
CMAKE_FILES := specbatch-config.cmake specbatch-config-version.cmake
INSTALLED    = $(addprefix $(LIBDIR)/,$(notdir $(SHARED) $(ARCHIVE) $(CUDA_SHARED)) $(SONAME) \
               libspecbatch.so) $(HEADERS:include/%=$(INCLUDEDIR)/%) $(PC_DIR)/specbatch.pc \
               $(CMAKE_FILES:%=$(CMAKE_DIR)/%)

.PHONY: install uninstall
install: $(SHARED) $(ARCHIVE) $(MODULE) ## install the library, for pkg-config and CMake too
	install -d $(addprefix $(DESTDIR),$(PC_DIR) $(CMAKE_DIR) $(INCLUDEDIR))
	install -m 755 $(SHARED) $(DESTDIR)$(LIBDIR)
	cp -P $(B)/$(SONAME) $(B)/libspecbatch.so $(DESTDIR)$(LIBDIR)
	install -m 644 $(ARCHIVE) $(DESTDIR)$(LIBDIR)
	rm -f $(DESTDIR)$(LIBDIR)/$(notdir $(CUDA_SHARED))
	$(if $(MODULE),install -m 755 $(MODULE) $(DESTDIR)$(LIBDIR))
	install -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)
	$(call fill_pc,$(PC_PREFIX),$(FROM_PREFIX_LIBDIR),$(FROM_PREFIX_INCLUDEDIR)) \
	    >$(DESTDIR)$(PC_DIR)/specbatch.pc
	$(foreach file,$(CMAKE_FILES),$(fill_cmake) pkgconfig/$(file).in \
	    >$(DESTDIR)$(CMAKE_DIR)/$(file) &&) :
uninstall:              ## remove what install put there
	rm -f $(INSTALLED:%=$(DESTDIR)%)
	[ ! -d $(DESTDIR)$(CMAKE_DIR) ] || rmdir $(DESTDIR)$(CMAKE_DIR)
