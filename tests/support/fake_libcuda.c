/* libcuda.so.1 in host memory, as far as running an engine asks for it. Handles are addresses; every call is counted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
enum { OK = 0, OUT_OF_MEMORY = 2, NOT_FOUND = 500 };
static int live; /* blocks, streams, graphs and contexts that were made and not given back */

int fake_live(void) { return live; }

CUresult cuInit(unsigned flags) { return flags ? 1 : OK; }
CUresult cuDriverGetVersion(int *version) { *version = 13000; return OK; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return OK; }
CUresult cuDeviceGet(int *device, int ordinal) { *device = 7; return ordinal ? 101 : OK; }
CUresult cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)0x1000; live++; return device == 7 ? OK : 101; }
CUresult cuDevicePrimaryCtxRelease_v2(int device) { live--; return device == 7 ? OK : 101; }
CUresult cuCtxSetCurrent(void *context) { return context == (void *)0x1000 ? OK : 201; }
CUresult cuMemAlloc_v2(unsigned long long *address, size_t size) {
    if (size > 1 << 30) return OUT_OF_MEMORY;
    *address = (unsigned long long)aligned_alloc(256, (size + 255) / 256 * 256);
    live++;
    return OK;
}
CUresult cuMemFree_v2(unsigned long long address) { free((void *)address); live--; return OK; }
CUresult cuMemHostAlloc(void **address, size_t size, unsigned flags) { *address = malloc(size); live++; return flags == 1 ? OK : 1; }
CUresult cuMemFreeHost(void *address) { free(address); live--; return OK; }
CUresult cuStreamCreate(void **stream, unsigned flags) { *stream = malloc(1); live++; return flags == 1 ? OK : 1; }
CUresult cuStreamDestroy_v2(void *stream) { free(stream); live--; return OK; }
CUresult cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t size, void *stream) { memcpy((void *)to, from, size); return stream ? OK : 1; }
CUresult cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t size, void *stream) { memcpy(to, (void *)from, size); return stream ? OK : 1; }
CUresult cuStreamSynchronize(void *stream) { return stream ? OK : 1; }
CUresult cuStreamBeginCapture_v2(void *stream, int mode) { return stream && mode == 1 ? OK : 1; }
CUresult cuStreamEndCapture(void *stream, void **graph) { *graph = malloc(1); live++; return stream ? OK : 1; }
CUresult cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) { *exec = malloc(1); live++; return graph && !flags ? OK : 1; }
CUresult cuGraphDestroy(void *graph) { free(graph); live--; return OK; }
CUresult cuGraphLaunch(void *exec, void *stream) { return exec && stream ? OK : 1; }
CUresult cuGraphExecDestroy(void *exec) { free(exec); live--; return OK; }

/* cuda-bindings asks for every function by its name and the CUDA version it was written for; the newest form is meant. */
static CUresult find(const char *name, void **function) {
    char full[256];
    for (int i = 0; i < 3; i++) {
        const char *suffix = i == 0 ? "_v2" : i == 1 ? "WithFlags" : "";
        strncpy(full, name, 200);
        full[200] = 0;
        strcat(full, suffix);
        if ((*function = dlsym(RTLD_DEFAULT, full)) != NULL) return OK;
    }
    return NOT_FOUND;
}
CUresult cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
    CUresult found = find(name, function);
    if (status) *status = found ? 1 : 0;
    return found;
}
CUresult cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) { return find(name, function); }
