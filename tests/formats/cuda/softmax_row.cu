#include <cuda_fp16.h>
#include <cuda_bf16.h>
// softmax_row<<<rows, 1>>>(x, out, cols)
template <typename T>
__global__ void softmax_row(const T* x, T* out, int cols) {
    const T* row = x + size_t(blockIdx.x) * cols;
    float largest = -INFINITY, sum = 0;
    for (int i = 0; i < cols; ++i) largest = fmaxf(largest, float(row[i]));
    for (int i = 0; i < cols; ++i) sum += expf(float(row[i]) - largest);
    for (int i = 0; i < cols; ++i) out[size_t(blockIdx.x) * cols + i] = T(expf(float(row[i]) - largest) / sum);
}
