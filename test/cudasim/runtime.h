/* What runtime.cpp, launches.cpp and streams.cpp share: the objects that are alive, and how a call
 * begins, fails and runs work. */
#ifndef CUDASIM_RUNTIME_H
#define CUDASIM_RUNTIME_H

#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "sim.h"

typedef std::function<cudaError_t()> operation;

struct CUgraph_st {
    std::vector<operation> operations;
};

struct CUgraphExec_st {
    std::shared_ptr<std::vector<operation>> operations;
};

struct CUstream_st {
    int device;
    std::vector<operation> queue;
    CUgraph_st *capturing = NULL;
    std::thread::id captured_by;
    cudaStreamCaptureMode mode;
    bool invalidated = false, draining = false;
};

struct CUevent_st {
    int device;
    CUstream_st *stream = NULL; /* where it was recorded last, while that has not passed it */
    uint64_t recorded = 0, passed = 0;
    int64_t at; /* by the device's clock */
};

namespace cudasim
{

extern cudasim_machine machine;
enum { MOST_DEVICES = 4 };
extern thread_local int current_device;
extern int running_device; /* of the operation that runs */
/* A kernel's error, which every later call for its device returns. */
extern cudaError_t sticky[MOST_DEVICES];
/* The device's clock in ns, which events show. Each operation moves it by a time that such an
 * operation might take, so that times are the same at every run. */
extern int64_t device_clock;
extern int64_t operations_run; /* the running one included */
extern std::set<CUstream_st *> streams;
extern std::set<CUevent_st *> events;
extern std::set<CUgraph_st *> graphs;
extern std::set<CUgraphExec_st *> graph_execs;

cudaError_t report(cudaError_t error); /* notes it for cudaGetLastError */
cudaError_t has_devices();
cudaError_t ready();
bool alloc_fails();
cudaError_t run_now(int device, const operation &op);
void drain(CUstream_st *stream);
bool any_capture();
/* While kernels run, the memory of other devices than theirs is not there. */
void hide_other_devices(bool hide);
/* Makes this the text of cudasim_fault(), and prints it to stderr unless that is off or the test
 * has asked for the fault. */
void tell(const char *what, bool asked_for = false);

/* wgmma.cpp */
bool has_map_encoder();

/* launches.cpp */
void forget_kernels();     /* unloads all kernels, as in a new process */
extern int refused_device; /* which cudasim_refuse_device has named */

} // namespace cudasim

#define READY                                  \
    do {                                       \
        cudaError_t ready_ = cudasim::ready(); \
        if (ready_ != cudaSuccess)             \
            return cudasim::report(ready_);    \
    } while (0)
#define DRIVER                                     \
    do {                                           \
        cudaError_t has_ = cudasim::has_devices(); \
        if (has_ != cudaSuccess)                   \
            return cudasim::report(has_);          \
    } while (0)
#define REFUSE_IF(condition, error)        \
    do {                                   \
        if (condition)                     \
            return cudasim::report(error); \
    } while (0)

#endif
