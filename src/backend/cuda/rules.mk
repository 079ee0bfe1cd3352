# The CUDA module, libspecbatch_cuda.so, which the library loads when a model asks for a GPU.
#
## With CUDA
#   make CUDA=0                     without the CUDA module, which is built where nvcc is found
#   make CUDA=1                     with it; an error where nvcc is missing
#   make CUDA_HOME=/usr/local/cuda CUDA_ARCHS="80 90" CUDA_PTX=90 CUDA_FLAGS=...
#                                   where CUDA is; what code is made for; more flags for nvcc
#
# The Makefile includes this file. nvcc compiles kernels/cuda, the C compiler the rest. The CUDA
# runtime is linked in, so that the module needs nothing but the driver. cuBLASLt, cuDNN and NVRTC
# are looked for where it runs; the part that uses cuDNN is compiled only where its headers are.
CUDA_HOME    ?= /usr/local/cuda
NVCC         ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
CUDA         ?= $(if $(NVCC),$(if $(SAN),0,1),0)
CUDA_WANTED  := $(filter-out 0,$(CUDA))
ifneq ($(CUDA_WANTED),$(if $(NVCC),$(CUDA_WANTED)))
$(error CUDA=$(CUDA): there is no nvcc in $(CUDA_HOME)/bin or PATH; CUDA=0 builds without a GPU)
endif
CUDA_VERSION := $(if $(NVCC),$(shell $(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'))
CUDA_KNOWN   := $(if $(NVCC),$(patsubst compute_%,%,$(shell $(NVCC) --list-gpu-arch)))
CUDA_ARCHS   ?= $(filter $(CUDA_KNOWN),80 90 100)
CUDA_PTX     ?= $(lastword $(CUDA_ARCHS))
CUDNN        := $(if $(CUDA_WANTED),$(shell \
                printf '#include <cudnn_graph.h>\nCUDNN_MAJOR.CUDNN_MINOR\n' | \
                $(CC) -isystem $(CUDA_HOME)/include -E -P - 2>/dev/null | tail -n 1 | tr -d ' '))

# One line that says what was chosen, which `make lib` prints.
CUDA_WITH    := $(CUDA_VERSION): module for $(CUDA_ARCHS:%=sm_%) and PTX ($(NVCC)), \
                $(if $(CUDNN),with cuDNN $(CUDNN) where it runs,without cuDNN (no cudnn_graph.h))
CUDA_WITHOUT := off: no module ($(if $(NVCC),$(if $(SAN),a sanitized build,CUDA=0),no nvcc in \
                $(CUDA_HOME)/bin or PATH))
CUDA_CHOICE  := $(if $(CUDA_WANTED),$(CUDA_WITH),$(CUDA_WITHOUT))

# Subnormal numbers are flushed to zero and nothing is contracted, which gives the f32 class the
# CPU's bits. ptxas -v reports the registers of each kernel.
# Code for sm_90 is made for that architecture alone, sm_90a, as no other device runs it anyway, and
# wgmma wants that (kernels/cuda/wgmma.cuh). PTX is for any later device.
CUDA_CODES := $(patsubst 90,90a,$(CUDA_ARCHS))
GENCODE    := $(foreach arch,$(CUDA_CODES),-gencode arch=compute_$(arch),code=sm_$(arch)) \
              $(foreach arch,$(CUDA_PTX),-gencode arch=compute_$(arch),code=compute_$(arch))
NVCC_FLAGS := -std=c++17 -O3 -ftz=true -fmad=false -prec-div=true -prec-sqrt=true \
              $(if $(DEV),-Werror all-warnings) -Xptxas -v -Xcompiler -fPIC,-fvisibility=hidden \
              -Iinclude -Isrc -I. $(GENCODE) $(CUDA_FLAGS)
CUDA_RPATH := -Wl,-rpath,$(CUDA_HOME)/lib64$(if \
              $(filter-out /usr/local/cuda,$(CUDA_HOME)),:/usr/local/cuda/lib64)
CUDA_LIBRARIES := -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt -lm -pthread

CUDA_SHARED  := $(B)/libspecbatch_cuda.so
MODULE       := $(if $(CUDA_WANTED),$(CUDA_SHARED))
CUDA_KERNELS := $(sort $(wildcard kernels/cuda/*.cu))
CUDA_SOURCES := $(sort $(wildcard src/backend/cuda/*.c))
CUDA_UNUSED  := $(addprefix src/backend/cuda/,$(if $(CUDNN),sdpa_absent.c,cudnn.c sdpa_cudnn.c))
CUDA_KERNEL_OBJECTS := $(CUDA_KERNELS:kernels/cuda/%.cu=$(B)/cuda/%.o)
CUDA_C_OBJECTS := $(patsubst src/%.c,$(B)/cuda/src/%.o,$(filter-out $(CUDA_UNUSED), \
                  $(CUDA_SOURCES))) $(B)/src/backend/dtype.o $(B)/src/quant.o

$(B)/cuda/flags: force
	@mkdir -p $(@D); echo '$(NVCC) $(NVCC_FLAGS) $(CUDNN)' | cmp -s - $@ || \
	    echo '$(NVCC) $(NVCC_FLAGS) $(CUDNN)' >$@
$(B)/cuda/%.o: kernels/cuda/%.cu $(B)/cuda/flags
	@mkdir -p $(@D); echo "  NVCC $<"
	$(Q)$(NVCC) $(NVCC_FLAGS) -MMD -MP -MF $@.d -c $< -o $@ 2>$@.log || { cat $@.log; exit 1; }
$(B)/cuda/src/%.o: src/%.c $(B)/flags
	@mkdir -p $(@D); echo "  CC   $<"
	$(Q)$(COMPILE) $(LIBRARY_FLAGS) -isystem $(CUDA_HOME)/include $(HARDENING) $(USER_FLAGS) \
	    $(EXACT_FLAGS) -c $< -o $@
$(CUDA_SHARED): $(CUDA_KERNEL_OBJECTS) $(CUDA_C_OBJECTS) src/backend/cuda/module.map $(B)/cuda/flags
	@echo "  LD   $@"
	$(Q)cat $(CUDA_KERNEL_OBJECTS:%=%.log) | c++filt >$(B)/cuda/registers.txt
	$(Q)$(CXX) -shared -o $@ $(CUDA_KERNEL_OBJECTS) $(CUDA_C_OBJECTS) $(CFLAGS) $(HARDENED_LINK) \
	    $(LDFLAGS) -Wl,-soname,$(@F) -Wl,-z,defs -Wl,--version-script=src/backend/cuda/module.map \
	    -Wl,--exclude-libs,ALL -static-libstdc++ -static-libgcc $(CUDA_RPATH) $(CUDA_LIBRARIES)
