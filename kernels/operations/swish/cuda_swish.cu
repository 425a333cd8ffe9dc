// Two loads of 16 bytes a thread, the activation in float32, and two stores.
// @kernel("swish", dtypes=("float16", "bfloat16", "float32"), needs=cuda(min_capability=8.0),
//         space={"threads": (64, 128, 256, 512, 1024), "turns": (1, 2, 4, 8)})
// @launch(grid=ceil_div(rows * cols * itemsize, THREADS * TURNS * 16), block=THREADS, defines={"THREADS": 256, "TURNS": 2})
// @call("swish<T>", x, out, long(rows * cols))

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

__device__ float activation(float x) {
    return __fdividef(x, 1 + exp2_of(x * -1.4426950408889634f));  // 0 where the divisor is above 2^126
}

template <typename T>
__global__ void __launch_bounds__(THREADS) swish(const T* __restrict__ x, T* __restrict__ out, long long count) {
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
            for (int i = 0; i < P::WIDTH; ++i) packet[turn].value[i] = T(activation(float(packet[turn].value[i])));
            reinterpret_cast<P*>(out)[at] = packet[turn];
        } else {  // the last packet is not whole
            for (long long i = at * P::WIDTH; i < count; ++i) out[i] = T(activation(float(x[i])));
        }
    }
}
