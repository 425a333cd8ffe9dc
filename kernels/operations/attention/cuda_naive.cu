// One warp for each query: scores one key after the other, running maximum and sum, nothing shared. A first try, and slow.
// @kernel("attention", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0))
// @launch(grid=(ceil_div(seq_len, 4), heads, batch), block=(32, 4))
// @call("attention<T, head_dim, causal>", q, k, v, out, heads, kv_heads, seq_len, window if window else seq_len, scale)

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T, int D, bool CAUSAL>
__global__ void attention(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ out,
                          int heads, int kv_heads, int length, int window, float scale) {
    constexpr int OWN = (D + 31) / 32;  // elements of a row that a lane holds
    const int lane = threadIdx.x, query = blockIdx.x * blockDim.y + threadIdx.y, head = blockIdx.y, batch = blockIdx.z;
    if (query >= length) return;
    const int kv_head = head / (heads / kv_heads);
    const long long row = (((long long)batch * heads + head) * length + query) * D;
    const long long keys = ((long long)batch * kv_heads + kv_head) * length * D;

    float own_q[OWN], sum[OWN] = {};
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        int d = lane + 32 * i;
        own_q[i] = d < D ? float(q[row + d]) * scale : 0.0f;
    }
    float largest = __int_as_float(0xff800000), total = 0;  // minus infinity
    const int end = min(length, query + (CAUSAL ? 1 : window));
    for (int key = max(0, query - window + 1); key < end; ++key) {
        const long long at = keys + (long long)key * D;
        float score = 0;
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            int d = lane + 32 * i;
            if (d < D) score += own_q[i] * float(k[at + d]);
        }
        for (int step = 16; step > 0; step /= 2) score += __shfl_xor_sync(~0u, score, step);
        const float now = fmaxf(largest, score), kept = expf(largest - now), weight = expf(score - now);
        largest = now;
        total = total * kept + weight;
#pragma unroll
        for (int i = 0; i < OWN; ++i) {
            int d = lane + 32 * i;
            if (d < D) sum[i] = sum[i] * kept + weight * float(v[at + d]);
        }
    }
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        int d = lane + 32 * i;
        if (d < D) out[row + d] = T(sum[i] / total);
    }
}
