# Builds libspecbatch: the library, its CUDA module and the example programs.
#
#   make V=1                        show the commands
#   make O=DIR                      put build/ and lib/ into this folder, not into the source tree
#   make B=DIR                      build in this folder instead of build/cpu
#   make DEV=1                      let no warning pass (-Werror); of setup, developers' tools too
#   make SAN=address,undefined      build and test under a sanitizer (or SAN=thread)
#   make STATIC=1                   link yajl in, for a machine that may lack it
#   make CC=clang CFLAGS="-O2 -march=..." LDFLAGS=...      your flags, added to the build's own
#   make PYTHON=...                 the python3 that tests and peers run
#
# The rules of the CUDA module are in src/backend/cuda/rules.mk, those of installation in
# pkgconfig/rules.mk, those of tests and benches in test/rules.mk and the files that it includes.
# `make help` lists the targets of all of them.
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all

OBJCOPY    ?= objcopy
PYTHON     ?= python3

# Make runs one job for each processor, unless the command line or the environment has a -j.
ifeq ($(MAKELEVEL)$(filter -j%,$(shell echo "$$MAKEFLAGS")),0)
MAKEFLAGS += -j$(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
endif

# The header is the only place that states the version.
HEADER    := include/specbatch.h
version_of = $(shell sed -n 's/^.define SPECBATCH_$(1)  *//p' $(HEADER))
VERSION   := $(call version_of,VERSION_MAJOR).$(call version_of,VERSION_MINOR).$(strip \
             $(call version_of,VERSION_PATCH))
SONAME    := libspecbatch.so.$(call version_of,SOVERSION)

# CPPFLAGS, CFLAGS and LDFLAGS belong to the user. What the build needs has names of its own.
CFLAGS         ?= -O2 -g
USER_FLAGS      = $(CPPFLAGS) $(CFLAGS)
WARNINGS       := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wstrict-prototypes \
                  -Wmissing-prototypes -Wwrite-strings -Wundef $(if $(DEV),-Werror)
DEFINES        := -D_POSIX_C_SOURCE=200809L -D_FILE_OFFSET_BITS=64
SANITIZE       := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all)
# Debug information has file names relative to this folder, so that a build is the same bytes
# wherever it is made.
RELATIVE_NAMES := -ffile-prefix-map='$(CURDIR)'=.
C_FLAGS        := -std=c11 $(WARNINGS) $(DEFINES) -pthread -Iinclude $(RELATIVE_NAMES) $(SANITIZE)
LIBRARY_FLAGS  := -fPIC -fvisibility=hidden -Isrc
# Checkpoints come from anywhere, so overruns are caught and addresses are random. The user's flags
# come later, and win. Kernels are left out: they are arithmetic over sizes that src/ has checked.
# _FORTIFY_SOURCE does nothing without optimisation, and a sanitizer sees more than it does.
OPTIMISED      := $(filter-out -O0,$(lastword $(filter -O%,$(USER_FLAGS))))
FORTIFY        := $(if $(OPTIMISED),$(if $(findstring _FORTIFY_SOURCE,$(USER_FLAGS)),, \
                  -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2))
HARDENING      := $(if $(SAN),,-fstack-protector-strong $(FORTIFY))
HARDENED_LINK  := -Wl,-z,relro,-z,now
# These come after the user's flags, which must not let the compiler fuse or reorder arithmetic.
EXACT_FLAGS    := -fno-fast-math -ffp-contract=off
DEPENDENCIES    = -MMD -MP -MF $@.d -MT $@
COMPILE         = $(CC) $(C_FLAGS) $(DEPENDENCIES)

# With STATIC=1 every library but the C library's own is linked in. Debian calls yajl's archive
# libyajl_s.a.
YAJL        := $(if $(STATIC),-l:libyajl_s.a,-lyajl)
C_LIBRARIES := -lm -ldl -pthread
LIBRARIES   := $(YAJL) $(C_LIBRARIES)

# kernels/cpu is written once, over kernels/cpu/vec.h, and compiled once for each SIMD level.
# KERNEL_FLAGS, empty by default, are the last flags of its files.
# The compiler tells the machine; uname does while `make setup` has yet to install a compiler.
X86         := $(filter x86_64% i686%,$(shell $(CC) -dumpmachine 2>/dev/null || uname -m))
SIMD_LEVELS := scalar $(if $(X86),avx2 avx512)
SIMD_scalar := -DSB_LEVEL_SCALAR=1
SIMD_avx2   := -DSB_LEVEL_AVX2=1 -mavx2 -mfma -mf16c
SIMD_avx512 := -DSB_LEVEL_AVX512=1 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c

# Every sanitizer setting has its own build folder; other changed flags rebuild the folder's
# contents (see $(B)/flags).
comma   := ,
BUILD   := $(if $(O),$(O)/)build
LIB     := $(if $(O),$(O)/)lib
B       := $(BUILD)/cpu$(if $(SAN),-$(subst $(comma),-,$(SAN)))
# A command that begins with $(Q) is shown by V=1 only.
Q       := $(if $(V),,@)
SOURCES := $(sort $(wildcard src/*.c src/*/*.c))
KERNELS := $(sort $(wildcard kernels/cpu/*.c))
OBJECTS := $(SOURCES:%.c=$(B)/%.o) \
           $(foreach level,$(SIMD_LEVELS),$(KERNELS:%.c=$(B)/%.$(level).o))
SHARED  := $(B)/libspecbatch.so.$(VERSION)
ARCHIVE := $(B)/libspecbatch.a
EXAMPLES        := $(patsubst %.c,$(B)/%,$(sort $(wildcard examples/*.c)))
EXAMPLE_SUPPORT := $(patsubst %.c,$(B)/%.o,$(sort $(wildcard examples/support/*.c)))

include src/backend/cuda/rules.mk pkgconfig/rules.mk pkgconfig/bindings.mk
include pkgconfig/release.mk

## To build
.PHONY: all lib examples setup demo docs clean help force
all: lib examples $(if $(SAN),,$(PROGRAMS)) ## library, examples and programs
lib: $(SHARED) $(ARCHIVE) $(MODULE) ## libraries, CUDA module and specbatch.pc, copied into lib/
	$(Q)mkdir -p $(LIB) && cp -P $(SHARED) $(B)/$(SONAME) $(B)/libspecbatch.so $(ARCHIVE) $(LIB)/
	@echo "  CUDA $(CUDA_CHOICE)"
	$(Q)rm -f $(LIB)/$(notdir $(CUDA_SHARED)) $(if $(MODULE),&& cp $(MODULE) $(LIB)/)
	$(Q)$(call fill_pc,$(CURDIR),$(call relative,.,$(LIB)),include) >$(LIB)/specbatch.pc
examples: $(EXAMPLES)   ## example programs, copied into build/examples
	$(Q)mkdir -p $(BUILD)/examples && cp $(EXAMPLES) $(BUILD)/examples/
setup:                  ## install the build's tools where they are missing (Debian, Ubuntu)
	@CC='$(CC)' CXX='$(CXX)' DEV='$(DEV)' sh pkgconfig/setup.sh
demo: examples          ## speculative against plain decoding, on a small pair of models
	@echo; $(B)/examples/demo examples/demo
docs:                   ## the reference of the API, build/docs/specbatch.html
	$(Q)mkdir -p $(BUILD)/docs
	$(PYTHON) docs/reference.py $(HEADER) $(BUILD)/docs/specbatch.html
clean:                  ## remove build/ and lib/
	rm -rf $(BUILD) $(LIB)
help:                   ## this list
	@sed -n -e 's/^#\(   .*\)/\1/p; s/^## \(.*\)/\n\1/p' \
	    -e 's/^\([a-z-]*\):.*## */  \1\t/p' $(RULES) | expand -t 20

# This file is written only when the flags change, and every object depends on it. With
# `make setup demo` it also waits for setup, so that nothing is compiled before.
ALL_FLAGS := $(CC) $(C_FLAGS) $(LIBRARY_FLAGS) $(HARDENING) $(USER_FLAGS) $(EXACT_FLAGS) \
             $(KERNEL_FLAGS) $(LDFLAGS) $(LIBRARIES)
$(B)/flags: force | $(filter setup,$(MAKECMDGOALS))
	@mkdir -p $(@D); echo '$(ALL_FLAGS)' | cmp -s - $@ || echo '$(ALL_FLAGS)' >$@
force: ;

$(B)/src/%.o: src/%.c $(B)/flags
	@mkdir -p $(@D); echo "  CC   $<"
	$(Q)$(COMPILE) $(LIBRARY_FLAGS) $(HARDENING) $(USER_FLAGS) $(EXACT_FLAGS) -c $< -o $@
define level_rule
$(B)/kernels/%.$(1).o: kernels/%.c $(B)/flags
	@mkdir -p $$(@D); echo "  CC   $$< ($(1))"
	$(Q)$$(COMPILE) $(LIBRARY_FLAGS) $(SIMD_$(1)) -I. $$(USER_FLAGS) -O3 $(EXACT_FLAGS) \
	    $$(KERNEL_FLAGS) -c $$< -o $$@
endef
$(foreach level,$(SIMD_LEVELS),$(eval $(call level_rule,$(level))))

$(SHARED): $(OBJECTS) src/specbatch.map
	@mkdir -p $(@D); echo "  LD   $@"
	$(Q)$(CC) -shared -o $@ $(OBJECTS) $(CFLAGS) $(EXACT_FLAGS) $(HARDENED_LINK) $(LDFLAGS) \
	    -Wl,-soname,$(SONAME) $(if $(SAN),,-Wl,-z,defs) -Wl,--version-script=src/specbatch.map \
	    $(SANITIZE) $(LIBRARIES)
	$(Q)ln -sf $(@F) $(B)/$(SONAME) && ln -sf $(SONAME) $(B)/libspecbatch.so
# The archive is one relocatable object, in which every symbol but specbatch_* is made local. Where
# the user's flags ask for link-time optimisation it is done here, because afterwards the compiler
# would find its own intermediate code under names that are no longer there. clang does so unasked.
IS_CLANG := $(findstring clang,$(shell $(CC) --version 2>/dev/null))
LTO_HERE := $(if $(IS_CLANG),,-flinker-output=nolto-rel)
$(ARCHIVE): $(OBJECTS)
	@mkdir -p $(@D); echo "  AR   $@"
	$(Q)$(CC) -r -nostdlib $(LTO_HERE) -o $(B)/specbatch.o $(OBJECTS) $(CFLAGS) $(EXACT_FLAGS)
	$(Q)$(OBJCOPY) --localize-hidden $(B)/specbatch.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(B)/specbatch.o

# Examples link the shared library, as a user's program would. With STATIC=1 they link the archive,
# and need no library beside them.
PROGRAM_FLAGS     := $(HARDENING) $(if $(SAN),,-fPIE)
PROGRAM_LINK      := $(HARDENED_LINK) $(if $(SAN)$(filter -static,$(LDFLAGS)),,-pie)
EXAMPLE_LIBRARIES := $(if $(STATIC),$(ARCHIVE) $(LIBRARIES),-L$(B) -lspecbatch -lyajl -lm \
                     -Wl$(comma)-rpath$(comma)$(abspath $(B)))
$(B)/examples/support/%.o: examples/support/%.c $(B)/flags
	@mkdir -p $(@D); echo "  EX   $<"
	$(Q)$(COMPILE) $(PROGRAM_FLAGS) $(USER_FLAGS) -c $< -o $@
$(B)/examples.a: $(EXAMPLE_SUPPORT)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(B)/examples/%: examples/%.c $(B)/examples.a $(if $(STATIC),$(ARCHIVE),$(SHARED))
	@mkdir -p $(@D); echo "  EX   $<"
	$(Q)$(COMPILE) $(PROGRAM_FLAGS) $(USER_FLAGS) $< $(B)/examples.a $(PROGRAM_LINK) $(LDFLAGS) \
	    $(EXAMPLE_LIBRARIES) -o $@

# A tree without its tests, as a package may ship it, still builds: hence the leading dash.
-include test/rules.mk
RULES := $(MAKEFILE_LIST)
-include $(shell find $(B) -name '*.d' 2>/dev/null)
