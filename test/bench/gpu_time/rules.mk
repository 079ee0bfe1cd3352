# The model of time for the CUDA backend. test/bench/rules.mk includes this file.
#   make gpu-time GPU_TIME_ARGS="--batches 1,8 --pairs qwen3"
#                                   a part of it (test/bench/gpu_time/gpu_time.sh)
# The program has the simulator whose kernels report their loads and stores, and the whole backend.
GPU_TIME := $(B)/cudasim/gpu_time
$(GPU_TIME): test/bench/gpu_time/gpu_time.c $(SIM_BACKEND) $(SIM_CHECKED) \
             $(B)/cudasim/internal.a
	@mkdir -p $(@D); echo "  TEST $< (simulated device)"
	$(Q)$(COMPILE_TEST) $(SIM_INCLUDE) -c $< -o $@.o
	$(Q)$(CXX) $@.o $(SIM_BACKEND) $(filter %internal.a,$^) $(SIM_CHECKED) $(LDFLAGS) $(LIBRARIES) \
	    -o $@

.PHONY: gpu-time
gpu-time: $(GPU_TIME) $(B)/test/bench/make_checkpoint ## estimates of times on a GPU (minutes)
	$(Q)B=$(B) PYTHON='$(PYTHON)' sh test/bench/gpu_time/gpu_time.sh $(GPU_TIME_ARGS)
