/* A libcuda.so.1 that launches nothing: it prints what it is asked to launch. The second launch fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
    *library = (void *)1;
    return 0;
}
int cuLibraryUnload(void *library) { return 0; }
int cuLibraryGetKernel(void **kernel, void *library, const char *name) { *kernel = (void *)2; return 0; }
int cuKernelGetFunction(void **function, void *kernel) { *function = (void *)3; return kernel == (void *)2 ? 0 : 1; }
int cuFuncSetAttribute(void *function, int attribute, int value) {
    printf("allow %d\n", value);
    return attribute == 8 && function == (void *)3 ? 0 : 1; /* 8: the largest dynamic shared memory of a block */
}
int cuGetErrorName(int error, const char **name) { *name = "CUDA_ERROR_FROM_A_TEST"; return 0; }
int cuTensorMapEncodeTiled(uint64_t *map, int type, unsigned rank, void *address, const uint64_t *sizes, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int l2, int fill) {
    if ((uintptr_t)map % 64) return 1;
    printf("map of type %d, rank %u, at %lx:", type, rank, (unsigned long)address);
    for (unsigned i = 0; i < rank; i++) printf(" %lu box %u step %u", (unsigned long)sizes[i], box[i], steps[i]);
    for (unsigned i = 0; i + 1 < rank; i++) printf(" stride %lu", (unsigned long)strides[i]);
    printf(", interleave %d, swizzle %d, l2 %d, %d\n", interleave, swizzle, l2, fill);
    for (int i = 0; i < 16; i++) map[i] = (uintptr_t)address + 1;
    return 0;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    static int launches;
    printf("launch %u x %u x %u of %u x %u x %u, shared %u, stream %ld:", gx, gy, gz, bx, by, bz, shared, (long)stream);
    for (int i = 0; i < 3; i++) printf(" %lx", *(unsigned long *)arguments[i]);
    for (int i = 3; i < 6; i++) printf(" %d", *(int *)arguments[i]);
    printf("\n");
    fflush(stdout);
    return launches++ ? 700 : 0;
}
static int unknown(void) { return 999; }
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, void *status) {
    void *found = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), symbol);
    *function = strcmp(symbol, "cuGetProcAddress") == 0 ? (void *)cuGetProcAddress_v2 : found ? found : (void *)unknown;
    if (status) *(int *)status = 0;
    return 0;
}
