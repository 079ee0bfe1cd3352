# Programs that run on a GPU, and the bundle that takes them to one. test/rules.mk includes this
# file. Most programs are the simulator's (test/cudasim/rules.mk), linked with the real CUDA runtime
# instead. A program that calls kernels has them linked in; models are run through the module.
#
## On a GPU
TEST_PROGRAMS    += $(B)/test/cuda/test_module
GPU_MODEL_PARTS  := test_goldens test_long_prompts test_devices
GPU_TESTS        := $(addprefix $(B)/gpu/,kernel_tests model_tests experiments experiment_launch \
                    experiment_prefill)
CUDA_CALLED      := $(addprefix $(B)/cuda/src/backend/cuda/,quant_pack.o mix_run.o)
CUDA_FINDERS     := $(addprefix $(B)/cuda/src/backend/cuda/,cublaslt.o library.o)
COMPILE_GPU       = $(COMPILE_TEST) -isystem $(CUDA_HOME)/include -c $< -o $@.o

# Test programs as one (tests_in_one.c): all that call kernels, and all that run models.
IN_ONE            = -D'EACH(DO)=$(foreach name,$(1),DO($(name)))'
$(B)/gpu/%.part.o: test/cuda/%.c $(B)/flags
	@mkdir -p $(@D); echo "  TEST $<"
	$(Q)$(COMPILE_TEST) -isystem $(CUDA_HOME)/include -Wno-missing-prototypes -Dmain=main_of_$* \
	    -c $< -o $@
$(B)/gpu/kernel_tests: test/cuda/tests_in_one.c $(CUDA_KERNEL_TESTS:%=$(B)/gpu/%.part.o) \
                       $(CUDA_KERNEL_OBJECTS) $(CUDA_CALLED) $(B)/internal.a
	@mkdir -p $(@D); echo "  TEST $@"
	$(Q)$(COMPILE_GPU) $(call IN_ONE,$(CUDA_KERNEL_TESTS))
	$(Q)$(CXX) $@.o $(filter-out %.c,$^) $(CUDA_RPATH) $(LDFLAGS) $(LIBRARIES) $(CUDA_LIBRARIES) \
	    -o $@
$(B)/gpu/model_tests: test/cuda/tests_in_one.c $(GPU_MODEL_PARTS:%=$(B)/gpu/%.part.o) \
                      $(CUDA_TEST_SUPPORT) $(B)/internal.a
	@mkdir -p $(@D); echo "  TEST $@"
	$(Q)$(COMPILE_GPU) $(call IN_ONE,$(GPU_MODEL_PARTS))
	$(Q)$(CC) $@.o $(filter-out %.c,$^) $(LDFLAGS) $(LIBRARIES) -o $@
$(B)/gpu/experiments $(B)/gpu/experiment_launch: $(B)/gpu/%: test/cuda/%.c \
                                                 $(CUDA_KERNEL_OBJECTS) $(CUDA_FINDERS)
	@mkdir -p $(@D); echo "  TEST $<"
	$(Q)$(COMPILE_GPU)
	$(Q)$(CXX) $@.o $(CUDA_KERNEL_OBJECTS) $(CUDA_FINDERS) $(CUDA_RPATH) $(LDFLAGS) \
	    $(CUDA_LIBRARIES) -o $@
$(B)/gpu/experiment_prefill: test/cuda/experiment_prefill.c $(CUDA_KERNEL_OBJECTS) \
                             $(CUDA_C_OBJECTS) $(B)/internal.a
	@mkdir -p $(@D); echo "  TEST $<"
	$(Q)$(COMPILE_GPU)
	$(Q)$(CXX) $@.o $(CUDA_KERNEL_OBJECTS) $(filter-out %/module.o,$(CUDA_C_OBJECTS)) \
	    $(B)/internal.a $(CUDA_RPATH) $(LDFLAGS) $(CUDA_LIBRARIES) $(LIBRARIES) -o $@

# The bundle is what a machine with a GPU and little else needs, beside the checkout, to run
# test/cuda/run_on_gpu.sh: that machine may have no compiler, no make and another C library. It is
# built apart, for one architecture, so that the folder is small enough to be sent.
BUNDLE       := libspecbatch_cuda.so $(GPU_TESTS:$(B)/%=%) \
                $(addprefix test/,cuda/test_module contract/test_contract contract/test_requests \
                bench/bench_gpu bench/make_checkpoint)
BUNDLE_DIR   := build/gpu-bundle
CHOSEN_ARCHS := $(if $(filter command environment,$(firstword $(origin CUDA_ARCHS))),$(CUDA_ARCHS))
BUNDLE_ARCHS := $(or $(CHOSEN_ARCHS),90)

.PHONY: check-gpu bench-gpu gpu-bundle gpu-bundle-list
check-gpu: $(if $(MODULE),$(BUNDLE:%=$(B)/%)) ## all that needs a GPU, into build/gpu/results.txt
	$(Q)B=$(B) sh test/cuda/run_on_gpu.sh
bench-gpu: $(if $(MODULE),$(BUNDLE:%=$(B)/%)) ## decoding on a GPU, beside what its memory allows
	$(Q)B=$(B) sh test/cuda/bench_gpu.sh
gpu-bundle:       ## all that check-gpu runs, in one folder to be sent: for sm_90, or CUDA_ARCHS
	@[ -n '$(NVCC)' ] || { echo 'gpu-bundle: no nvcc in $(CUDA_HOME)/bin or PATH'; exit 1; }
	$(Q)$(MAKE) --no-print-directory B=build/bundle STATIC=1 CUDA=1 CUDA_ARCHS='$(BUNDLE_ARCHS)' \
	    CUDA_PTX= CFLAGS=-O2 LDFLAGS='-s -static-libgcc -static-libstdc++' \
	    CUDA_FLAGS=$(addsuffix =size,$(findstring --compress-mode,$(shell $(NVCC) --help))) \
	    $(BUNDLE:%=build/bundle/%)
	$(Q)rm -rf $(BUNDLE_DIR) && for f in $(BUNDLE); do \
	    install -D build/bundle/$$f $(BUNDLE_DIR)/$$f || exit 1; done
	$(Q)sh test/cuda/bundle.sh $(BUNDLE_DIR) '$(BUNDLE_ARCHS)'
# test/cuda/check_gpu_bundle.sh reads this list.
gpu-bundle-list:
	@printf '%s\n' $(BUNDLE)
