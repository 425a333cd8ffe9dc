// rms_norm<<<rows, 1>>>(x, weight, out, cols, eps)
extern "C" __global__ void rms_norm(const float* x, const float* weight, float* out, int cols, float eps) {
    const float* row = x + (size_t)blockIdx.x * cols;
    float sum = 0.0f;
    for (int i = 0; i < cols; ++i) sum += row[i] * row[i];
    float scale = rsqrtf(sum / cols + eps);
    for (int i = 0; i < cols; ++i) out[(size_t)blockIdx.x * cols + i] = row[i] * scale * weight[i];
}
