// Flash attention in CUDA C++: mma.sync m16n8k16 on tensor cores, K and V by cp.async, two tiles deep; sums in float32.
// @kernel("attention", dtypes=("float16", "bfloat16"), needs=cuda(min_capability=8.0), limits={"head_dim": (64, 128)},
//         space={"tile": (32, 64)})
// @launch(grid=(ceil_div(seq_len, 128), heads, batch), block=128, shared=2 * head_dim * (128 + 4 * TILE),
//         defines={"TILE": 64 if head_dim == 64 else 32})
// @call("flash<T, head_dim, TILE, causal, window > 0>", q, k, v, out, heads, kv_heads, seq_len, window,
//       scale * 1.4426950408889634)

// Four warps have 32 queries each. A tile of Q, and of the output, lies in shared memory beside two tiles of K and of V. Rows
// are cut in chunks of 16 bytes; chunk c of row r lies at c ^ (r % 8), so that eight rows of a column are in other banks.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

// --- instructions ---

__device__ void copy_async(void* to, const void* from, bool inside) {  // 16 bytes; zeros where they are outside
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(inside ? 16 : 0)
                 : "memory");
}

__device__ void commit_copies() { asm volatile("cp.async.commit_group;"); }

__device__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Four matrices of 8 x 8: lane l names row l % 8 of matrix l / 8, and gets elements 2 (l % 4) and the next of row l / 4 of each.
__device__ void load_matrices(unsigned (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}

__device__ void load_transposed(unsigned (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}

// sums (16 x 8) += a (16 x 16) b (16 x 8)
__device__ void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, __half) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, __nv_bfloat16) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ float power_of_2(float x) {
    float y;
    asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ unsigned pair(float low, float high, __half) {
    __half2 both = __floats2half2_rn(low, high);
    return reinterpret_cast<unsigned&>(both);
}

__device__ unsigned pair(float low, float high, __nv_bfloat16) {
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<unsigned&>(both);
}

__device__ float of_quad(float x, bool largest) {  // largest, or sum, over the four lanes that share rows
#pragma unroll
    for (int step = 1; step <= 2; step *= 2) {
        const float other = __shfl_xor_sync(~0u, x, step);
        x = largest ? fmaxf(x, other) : x + other;
    }
    return x;
}

// --- kernel ---

constexpr int ROWS = 128, WARPS = 4, SIDE = 16, TILES = ROWS / WARPS / SIDE;  // of queries: of a block; of a warp, in tiles of 16
constexpr int CHUNK = 8;                                                    // elements of 16 bytes

// Where element (row, column) of a tile lies; the column is a multiple of CHUNK.
template <int D>
__device__ int place(int row, int column) {
    return row * D + ((column / CHUNK) ^ (row % 8)) * CHUNK;
}

// Starts to copy rows first, first + 1, ... of a head into shared memory; rows from `length` on are zeros.
template <int D, int COUNT, typename T>
__device__ void fetch(T* to, const T* head, int first, int length) {
#pragma unroll
    for (int i = threadIdx.x; i < COUNT * D / CHUNK; i += 32 * WARPS) {
        const int row = i / (D / CHUNK), column = i % (D / CHUNK) * CHUNK;
        const bool inside = first + row < length;
        copy_async(to + place<D>(row, column), head + (inside ? (long long)(first + row) * D + column : 0), inside);
    }
}

template <typename T, int D, int KEYS, bool CAUSAL, bool WINDOWED>
__global__ void __launch_bounds__(32 * WARPS)
flash(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ out, int heads, int kv_heads,
      int length, int window, float scale) {
    extern __shared__ __align__(128) unsigned char memory[];
    T* of_q = reinterpret_cast<T*>(memory);
    T* of_kv = of_q + ROWS * D;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane % 4;
    // The last rows of a causal head see the most keys, so they go first.
    const int first_row = (CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * ROWS, own = warp * TILES * SIDE;
    const int head = blockIdx.y, batch = blockIdx.z, kv_head = head / (heads / kv_heads);
    const long long at = ((long long)batch * heads + head) * length * D;
    const long long at_kv = ((long long)batch * kv_heads + kv_head) * length * D;

    int begin = 0, end = length;  // of the keys that any row of the block sees
    if (CAUSAL) end = min(end, first_row + ROWS);
    if (WINDOWED) {
        begin = max(0, first_row - window + 1) / KEYS * KEYS;
        if (!CAUSAL) end = min((long long)end, (long long)first_row + ROWS - 1 + window);
    }

    float sums[TILES][D / 8][4] = {}, largest[TILES][2], total[TILES][2] = {};
#pragma unroll
    for (int m = 0; m < TILES; ++m) largest[m][0] = largest[m][1] = __int_as_float(0xff800000);  // minus infinity

    fetch<D, ROWS>(of_q, q + at, first_row, length);
    fetch<D, KEYS>(of_kv, k + at_kv, begin, length);
    fetch<D, KEYS>(of_kv + KEYS * D, v + at_kv, begin, length);
    commit_copies();

    int stage = 0;
    for (int first = begin; first < end; first += KEYS, stage ^= 1) {
        wait_for_copies();
        __syncthreads();  // this tile has arrived, and nobody reads the one that is replaced now
        if (first + KEYS < end) {
            T* next = of_kv + (stage ^ 1) * 2 * KEYS * D;
            fetch<D, KEYS>(next, k + at_kv, first + KEYS, length);
            fetch<D, KEYS>(next + KEYS * D, v + at_kv, first + KEYS, length);
            commit_copies();
        }
        const T* tile = of_kv + stage * 2 * KEYS * D;

        float scores[TILES][KEYS / 8][4] = {};
#pragma unroll 4  // all steps of D = 128 at once would need more registers than there are
        for (int depth = 0; depth < D; depth += SIDE) {
            unsigned of_queries[TILES][4];
#pragma unroll
            for (int m = 0; m < TILES; ++m)
                load_matrices(of_queries[m], of_q + place<D>(own + m * SIDE + lane % 16, depth + lane / 16 * 8));
#pragma unroll
            for (int n = 0; n < KEYS; n += SIDE) {
                unsigned of_keys[4];
                load_matrices(of_keys, tile + place<D>(n + lane % 8 + lane / 16 * 8, depth + lane / 8 % 2 * 8));
#pragma unroll
                for (int m = 0; m < TILES; ++m) {
                    multiply(scores[m][n / 8], of_queries[m], of_keys[0], of_keys[1], T());
                    multiply(scores[m][n / 8 + 1], of_queries[m], of_keys[2], of_keys[3], T());
                }
            }
        }

        // Whether a row of this warp may not see a key of this tile.
        const int lowest = first_row + own, highest = lowest + TILES * SIDE - 1;
        bool masked = first + KEYS > (CAUSAL ? min(length, lowest + 1) : length);
        if (WINDOWED) masked = masked || highest - first >= window || (!CAUSAL && first + KEYS - 1 - lowest >= window);
        if (masked) {
#pragma unroll
            for (int m = 0; m < TILES; ++m)
#pragma unroll
                for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const int key = first + n * 8 + quad * 2 + i % 2;
                        const int behind = lowest + m * SIDE + lane / 4 + i / 2 * 8 - key;  // query minus key
                        bool hidden = key >= length || (CAUSAL && behind < 0);
                        if (WINDOWED) hidden = hidden || behind >= window || (!CAUSAL && -behind >= window);
                        if (hidden) scores[m][n][i] = __int_as_float(0xff800000);
                    }
        }

#pragma unroll
        for (int m = 0; m < TILES; ++m)
#pragma unroll
            for (int half = 0; half < 2; ++half) {  // rows lane / 4 and lane / 4 + 8
                float now = largest[m][half];
#pragma unroll
                for (int n = 0; n < KEYS / 8; ++n)
                    now = fmaxf(now, fmaxf(scores[m][n][2 * half], scores[m][n][2 * half + 1]));
                now = of_quad(now, true);
                // A row that has seen no key yet has no maximum: nothing is taken from minus infinity.
                const float base = WINDOWED && now == __int_as_float(0xff800000) ? 0.0f : now * scale;
                const float kept = power_of_2(largest[m][half] * scale - base);
                largest[m][half] = now;
                total[m][half] *= kept;
#pragma unroll
                for (int n = 0; n < D / 8; ++n) {
                    sums[m][n][2 * half] *= kept;
                    sums[m][n][2 * half + 1] *= kept;
                }
#pragma unroll
                for (int n = 0; n < KEYS / 8; ++n)
#pragma unroll
                    for (int i = 2 * half; i < 2 * half + 2; ++i) {
                        scores[m][n][i] = power_of_2(scores[m][n][i] * scale - base);
                        total[m][half] += scores[m][n][i];
                    }
            }

        const T* of_values = tile + KEYS * D;
#pragma unroll
        for (int n = 0; n < KEYS; n += SIDE) {
            unsigned weights[TILES][4];
#pragma unroll
            for (int m = 0; m < TILES; ++m)
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float(&two)[4] = scores[m][n / 8 + i / 2];
                    weights[m][i] = pair(two[i % 2 * 2], two[i % 2 * 2 + 1], T());
                }
#pragma unroll
            for (int column = 0; column < D; column += SIDE) {
                unsigned of_two[4];
                load_transposed(of_two, of_values + place<D>(n + lane % 16, column + lane / 16 * 8));
#pragma unroll
                for (int m = 0; m < TILES; ++m) {
                    multiply(sums[m][column / 8], weights[m], of_two[0], of_two[1], T());
                    multiply(sums[m][column / 8 + 1], weights[m], of_two[2], of_two[3], T());
                }
            }
        }
    }

    // Each warp puts its rows where its queries were, and stores them 16 bytes at a time.
#pragma unroll
    for (int m = 0; m < TILES; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float share = 1.0f / of_quad(total[m][half], false);
            const int row = own + m * SIDE + lane / 4 + half * 8;
#pragma unroll
            for (int n = 0; n < D / 8; ++n)
                *reinterpret_cast<unsigned*>(of_q + place<D>(row, n * 8) + quad * 2) =
                    pair(sums[m][n][2 * half] * share, sums[m][n][2 * half + 1] * share, T());
        }
    __syncwarp();
#pragma unroll
    for (int i = lane; i < TILES * SIDE * D / CHUNK; i += 32) {
        const int row = own + i / (D / CHUNK), column = i % (D / CHUNK) * CHUNK;
        if (first_row + row < length)
            *reinterpret_cast<uint4*>(out + at + (long long)(first_row + row) * D + column) =
                *reinterpret_cast<const uint4*>(of_q + place<D>(row, column));
    }
}
