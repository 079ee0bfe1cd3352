/*
 * Finding the device, and saying what is missing where there is none. The module is there if this
 * runs, so what is missing is the driver or the device, or the device is too old.
 *
 * Devices are counted as CUDA counts them: CUDA_VISIBLE_DEVICES, which CUDA itself reads, says
 * which ones there are, and in which order.
 */
#include "backend/cuda/device.h"

#include <stdio.h>
#include <string.h>

#include "../kernels/cuda/launch.h"
#include "status.h"

enum { MIN_MAJOR = 8 }; /* the first compute capability with mma.sync on bf16 and cp.async */

static int32_t find_device(int32_t index)
{
    int driver = 0, n = 0;
    cudaError_t error;

    error = cudaDriverGetVersion(&driver);
    sb_cuda_ignore(error);
    if (error != cudaSuccess || driver == 0)
        return sb_fail(SPECBATCH_E_NO_DEVICE,
                       "no CUDA: the module is there, the driver is not (libcuda.so.1)");
    error = cudaGetDeviceCount(&n);
    sb_cuda_ignore(error);
    if (error == cudaErrorInsufficientDriver)
        return sb_fail(
            SPECBATCH_E_NO_DEVICE, "no CUDA: the driver is for CUDA %d.%d, the module needs %d.%d",
            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (error != cudaSuccess || n == 0)
        return sb_fail(
            SPECBATCH_E_NO_DEVICE, "no CUDA: module and driver are there, a device is not%s%s",
            error == cudaSuccess || error == cudaErrorNoDevice ? "" : ": ",
            error == cudaSuccess || error == cudaErrorNoDevice ? "" : cudaGetErrorString(error));
    if (index >= n)
        return sb_fail(SPECBATCH_E_NO_DEVICE, "no CUDA device %d: there are %d, counted from 0",
                       (int)index, n);
    return SPECBATCH_OK;
}

static int32_t check_capability(struct sb_device *device)
{
    cudaError_t error = cudaDeviceGetAttribute(&device->major, cudaDevAttrComputeCapabilityMajor,
                                               device->gpu.index);

    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&device->minor, cudaDevAttrComputeCapabilityMinor,
                                       device->gpu.index);
    if (error != cudaSuccess)
        return sb_cuda_status(&device->gpu, error, "compute capability", 0);
    if (device->major < MIN_MAJOR)
        return sb_fail(SPECBATCH_E_UNSUPPORTED, "CUDA: compute capability %d.%d, %d.0 is the least",
                       device->major, device->minor, MIN_MAJOR);
    return SPECBATCH_OK;
}

int32_t sb_cuda_device_open(struct sb_device **out, const struct sb_mem *mem,
                            const struct sb_device_options *options)
{
    struct sb_device *device = NULL;
    int32_t rc = SPECBATCH_OK;
    int was = -1;

    SB_TRY(find_device(options->index));
    SB_NEW(device, sb_alloc(mem, 1, sizeof *device), "the CUDA device");
    device->gpu.mem = *mem;
    device->gpu.log = *options->log;
    device->gpu.index = options->index;
    device->kv = options->kv;
    device->wants_cudnn = options->prefill == SPECBATCH_PREFILL_CUDNN;
    device->plan_file = options->plan_file;
    SB_TRY(check_capability(device));
    SB_TRY(sb_staging_open(&device->staging));
    SB_TRY(sb_cuda_status(&device->gpu, sb_cuda_try_enter(&device->gpu, &was),
                          "making the device current", 0));
    SB_TRY(sb_cuda_status(&device->gpu,
                          cudaStreamCreateWithFlags(&device->gpu.load, cudaStreamNonBlocking),
                          "a stream", 0));
    if (options->compute == SPECBATCH_COMPUTE_F32)
        SB_TRY(sb_cuda_set_type(device, SB_F32));
    *out = device;
done:
    if (was >= 0)
        sb_cuda_leave(&device->gpu, was);
    if (rc != SPECBATCH_OK)
        sb_cuda_device_close(device);
    return rc;
}

int32_t sb_cuda_set_type(struct sb_device *device, enum sb_dtype type)
{
    const int sm = 10 * device->major + device->minor;
    int32_t rc = SPECBATCH_OK;

    if (device->has_type)
        return rc;
    if (sb_kv_dtype(device->kv, type) != type)
        SB_FAIL(SPECBATCH_E_UNSUPPORTED,
                "kv %s: on CUDA a cache has the type of the weights, which is %s here",
                sb_dtype_name(sb_kv_dtype(device->kv, type)), sb_dtype_name(type));
    device->type = type;
    SB_TRY(sb_cuda_status(&device->gpu, sb_cuda_load_kernels(type), "loading kernels", 0));
    if (type == SB_F32) {
        snprintf(device->class_text, sizeof device->class_text,
                 "cuda-f32 sm_%d: ascending-k fmaf, the CPU's order; kv f32", sm);
    } else {
        SB_TRY(sb_cuda_status(&device->gpu, sb_cuda_launch_limits(&device->gpu.limits, type),
                              "the device", 0));
        SB_TRY(sb_gemm_create(&device->gemm, &device->gpu, type, device->plan_file));
        snprintf(device->class_text, sizeof device->class_text,
                 "cuda-%s sm_%d: mma k16 ascending, %s; kv %s", sb_dtype_name(type), sm,
                 sb_gemm_class(device->gemm), sb_dtype_name(type));
    }
    device->has_type = 1;
    device->plan_file = NULL;
done:
    return rc;
}

void sb_cuda_note_quantised(struct sb_device *device)
{
    const size_t used = strlen(device->class_text);

    if (!device->has_quantised)
        snprintf(device->class_text + used, sizeof device->class_text - used,
                 "; quantised weights by scaled blocks of 32 k%s",
                 device->type == SB_F32 ? "" : ", by mma, in 8 sums");
    device->has_quantised = 1;
}

int32_t sb_cuda_calibrate(int32_t *span, struct sb_device *device,
                          const struct sb_geometry *geometry)
{
    const int was = sb_cuda_enter(&device->gpu);
    const size_t used = strlen(device->class_text);
    int32_t rc = SPECBATCH_OK;

    *span = 0;
    if (device->type == SB_F32)
        goto done;
    if (device->wants_cudnn)
        SB_TRY(sb_prefill_create(&device->prefill, &device->gpu, device->type, geometry));
    *span = device->prefill ? SB_SPAN : 0;
    snprintf(device->class_text + used, sizeof device->class_text - used, "; prefill %s",
             sb_prefill_class(device->prefill));
done:
    sb_cuda_leave(&device->gpu, was);
    return rc;
}

void sb_cuda_device_close(struct sb_device *device)
{
    struct sb_mem mem;
    int was;

    if (!device)
        return;
    mem = device->gpu.mem;
    was = sb_cuda_enter(&device->gpu);
    sb_staging_close(&device->staging, &device->gpu);
    sb_prefill_free(device->prefill);
    sb_gemm_free(device->gemm);
    if (device->gpu.load)
        sb_cuda_ignore(cudaStreamDestroy(device->gpu.load));
    sb_cuda_leave(&device->gpu, was);
    sb_free(&mem, device);
}

const char *sb_cuda_device_class(const struct sb_device *device)
{
    return device->class_text;
}
