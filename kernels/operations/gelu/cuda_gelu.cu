// Two loads of 16 bytes a thread, GELU in float32 by one exponential, and two stores. The polynomial is that of triton_gelu.py.
// @kernel("gelu", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0),
//         space={"threads": (64, 128, 256, 512, 1024), "turns": (1, 2, 4, 8)})
// @launch(grid=ceil_div(rows * cols * itemsize, THREADS * TURNS * 16), block=THREADS, defines={"THREADS": 256, "TURNS": 2})
// @call("gelu<T, approximate == 'tanh'>", x, out, long(rows * cols))

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <typename T> struct alignas(16) Packet {
    static constexpr int WIDTH = 16 / sizeof(T);
    T value[WIDTH];
};

// --- instructions ---

__device__ float exp2_of(float x) {  // 0 below 2^-126: exp2f would spend two more instructions on such results
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// --- kernel ---

__device__ float below(float x) {  // Phi(-|x|)
    const float u = __fdividef(1, 1 + 0.31f * fabsf(x));
    float series = 0.0358417784f * u - 0.14160479f;
    series = series * u + 0.15506817f;
    series = series * u - 0.0149036436f;
    series = series * u + 0.110110251f;
    series = series * u + 0.107771061f;
    series = series * u + 0.124060345f;
    series = series * u + 0.12365691f;
    return series * u * exp2_of(x * x * -0.7213475204444817f);
}

template <bool TANH> __device__ float activation(float x) {
    // (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), with u = sqrt(2 / pi) (x + 0.044715 x^3). __fdividef gives 0 above 2^126.
    if constexpr (TANH) return __fdividef(x, 1 + exp2_of(x * (-2.302208198144325f - 0.1029432395800235f * x * x)));
    else return x * (x >= 0 ? 1 - below(x) : below(x));
}

template <typename T, bool TANH>
__global__ void __launch_bounds__(THREADS) gelu(const T* __restrict__ x, T* __restrict__ out, long long count) {
    using P = Packet<T>;
    const long long first = (long long)blockIdx.x * THREADS * TURNS + threadIdx.x;  // packet
    P packet[TURNS];
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const long long at = first + turn * THREADS;
        if ((at + 1) * P::WIDTH <= count) packet[turn] = reinterpret_cast<const P*>(x)[at];
    }
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const long long at = first + turn * THREADS;
        if ((at + 1) * P::WIDTH <= count) {
            for (int i = 0; i < P::WIDTH; ++i) packet[turn].value[i] = T(activation<TANH>(float(packet[turn].value[i])));
            reinterpret_cast<P*>(out)[at] = packet[turn];
        } else {  // the last packet is not whole
            for (long long i = at * P::WIDTH; i < count; ++i) out[i] = T(activation<TANH>(float(x[i])));
        }
    }
}
