# libspecbatch.  `make help` lists the targets.
#   make V=1            show the commands
#   make SAN=address,undefined | thread     build and test under a sanitizer
#   make CUDA=0         CPU only (the default until the CUDA module exists)
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := all

CUDA       ?= 0
OBJCOPY    ?= objcopy
PREFIX     ?= /usr/local
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
PYTHON     ?= python3

ifneq ($(CUDA),0)
$(error CUDA=$(CUDA): the CUDA module does not exist yet; build with CUDA=0)
endif

# The header is the only place that states the version.
HDR       := include/specbatch.h
ver        = $(shell sed -n 's/^.define SPECBATCH_VERSION_$(1)  *//p' $(HDR))
VERSION   := $(call ver,MAJOR).$(call ver,MINOR).$(call ver,PATCH)
SOVERSION := $(shell sed -n 's/^.define SPECBATCH_SOVERSION  *//p' $(HDR))
SONAME    := libspecbatch.so.$(SOVERSION)

# User flags (CFLAGS, LDFLAGS) stay the user's; what the build needs is added here.
# -ffp-contract=off comes last: a user's flags must not let the compiler fuse or reorder arithmetic.
CFLAGS  ?= -O2 -g
SB_WARN := -Wall -Wextra -Wpedantic -Wshadow -Wvla -Wstrict-prototypes -Wmissing-prototypes \
           -Wwrite-strings -Wundef -Werror
SB_DEFS := -D_POSIX_C_SOURCE=200809L -D_FILE_OFFSET_BITS=64
SB_C    := -std=c11 $(SB_WARN) $(SB_DEFS) -fPIC -fvisibility=hidden -pthread -Iinclude -Isrc -MMD -MP
SB_FP   := -fno-fast-math -ffp-contract=off
SB_LIBS := -lutf8proc -lpcre2-8 -lyajl -lm -pthread
ifdef SAN
  SB_C    += -fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all
  SB_LIBS += -fsanitize=$(SAN)
endif

# kernels/cpu is written once over kernels/cpu/vec.h and compiled once for each SIMD level.
X86    := $(filter x86_64% i686%,$(shell $(CC) -dumpmachine))
LEVELS := scalar $(if $(X86),avx2 avx512)
SIMD_scalar := -DSB_LEVEL_SCALAR=1
SIMD_avx2   := -DSB_LEVEL_AVX2=1 -mavx2 -mfma -mf16c
SIMD_avx512 := -DSB_LEVEL_AVX512=1 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c

# One build directory per configuration, so switching flags never mixes objects.
comma := ,
B    := build/cpu$(if $(SAN),-$(subst $(comma),-,$(SAN)))
SRC  := $(sort $(wildcard src/*.c src/*/*.c))
KSRC := $(sort $(wildcard kernels/cpu/*.c))
KOBJ := $(foreach l,$(LEVELS),$(KSRC:%.c=$(B)/%.$(l).o))
OBJ  := $(SRC:%.c=$(B)/%.o) $(KOBJ)
SO   := $(B)/libspecbatch.so.$(VERSION)
AR_  := $(B)/libspecbatch.a
TEST := $(patsubst test/%.c,$(B)/test/%,$(sort $(wildcard test/test_*.c)))
TSUP := $(patsubst test/%.c,$(B)/test/%.o,$(sort $(wildcard test/support/*.c)))
BEN  := $(patsubst test/bench/%.c,$(B)/bench/%,$(sort $(wildcard test/bench/*.c)))
EX   := $(patsubst examples/%.c,build/examples/%,$(sort $(wildcard examples/*.c)))
Q    := $(if $(V),,@)

.PHONY: all lib examples setup demo check lint bench install clean help
all: lib examples                 ## library and examples
lib: $(SO) $(AR_) lib/specbatch.pc ## shared and static library and .pc, copied into lib/
	$(Q)cp -P $(SO) $(B)/$(SONAME) $(B)/libspecbatch.so $(AR_) lib/
examples: $(EX)                   ## example programs, in build/examples

$(B)/%.o: %.c
	@mkdir -p $(@D); echo "  CC   $<"
	$(Q)$(CC) $(SB_C) $(CPPFLAGS) $(CFLAGS) $(SB_FP) -c $< -o $@
define level_rule
$(B)/kernels/%.$(1).o: kernels/%.c
	@mkdir -p $$(@D); echo "  CC   $$< ($(1))"
	$(Q)$(CC) $(SB_C) $(SIMD_$(1)) -I. $(CPPFLAGS) $(CFLAGS) -O3 $(SB_FP) -c $$< -o $$@
endef
$(foreach l,$(LEVELS),$(eval $(call level_rule,$(l))))

$(SO): $(OBJ) src/specbatch.map
	@mkdir -p $(@D); echo "  LD   $@"
	$(Q)$(CC) -shared -o $@ $(OBJ) $(CFLAGS) $(LDFLAGS) -Wl,-soname,$(SONAME) $(if $(SAN),,-Wl,-z,defs) \
	    -Wl,--version-script=src/specbatch.map $(SB_LIBS)
	$(Q)ln -sf $(@F) $(B)/$(SONAME) && ln -sf $(SONAME) $(B)/libspecbatch.so
# One relocatable object whose hidden symbols are made local: the archive exports only specbatch_*.
$(AR_): $(OBJ)
	@mkdir -p $(@D); echo "  AR   $@"
	$(Q)$(LD) -r -o $(B)/specbatch.o $(OBJ) && $(OBJCOPY) --localize-hidden $(B)/specbatch.o
	$(Q)rm -f $@ && $(AR) rcs $@ $(B)/specbatch.o
lib/specbatch.pc: pkgconfig/specbatch.pc.in $(HDR) Makefile
	@mkdir -p $(@D)
	$(Q)sed -e 's|@PREFIX@|$(PREFIX)|;s|@LIBDIR@|$(LIBDIR)|;s|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	    -e 's|@VERSION@|$(VERSION)|' $< >$@

# Tests link the objects, to reach internals; examples link the shared library, as a user would.
$(B)/internal.a: $(OBJ) $(TSUP)
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(B)/test/%: test/%.c $(B)/internal.a
	@mkdir -p $(@D); echo "  TEST $<"
	$(Q)$(CC) $(SB_C) -I. -Itest $(CPPFLAGS) $(CFLAGS) $(SB_FP) $< $(B)/internal.a $(LDFLAGS) $(SB_LIBS) -o $@
$(B)/test/support/%.o: test/support/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(SB_C) -I. -Itest $(CPPFLAGS) $(CFLAGS) $(SB_FP) -c $< -o $@
$(B)/bench/%: test/bench/%.c $(B)/internal.a
	@mkdir -p $(@D); echo "  CC   $<"
	$(Q)$(CC) $(SB_C) -I. -Itest $(CPPFLAGS) $(CFLAGS) $(SB_FP) $< $(B)/internal.a $(LDFLAGS) $(SB_LIBS) -o $@
build/examples/%: examples/%.c $(SO)
	@mkdir -p $(@D); echo "  EX   $<"
	$(Q)$(CC) -std=c11 $(SB_WARN) $(SB_DEFS) -Iinclude $(CFLAGS) $(if $(SAN),-fsanitize=$(SAN)) $< $(LDFLAGS) \
	    -L$(B) -lspecbatch -lyajl -lm -Wl,-rpath,$(abspath $(B)) -o $@

check: $(TEST) all                ## build and run every test
	$(Q)B=$(B) PYTHON=$(PYTHON) sh test/run.sh $(TEST)
clean:                            ## remove build/ and lib/
	rm -rf build lib
help:                             ## this list
	@sed -n 's/^\([a-z-]*\):.*## */  \1\t/p' Makefile | expand -t 16
-include $(shell find $(B) -name '*.d' 2>/dev/null)
